/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_STATE_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_STATE_H
/* The dispatcher's data, and the functions that its files share. The files are a stack: each calls
 * only those above it in this list.
 *
 *     dispatcher_state.c    log, random numbers, refusals
 *     dispatcher_queues.c   workers by load; streams that need a worker
 *     dispatcher_jobs.c     jobs, streams and clients: records, and messages about them
 *     dispatcher_streams.c  which worker hosts a stream, and which client reads it
 *     dispatcher_balance.c  streams that move to workers with less load
 *     dispatcher_target.c   how many workers are needed
 *     dispatcher_workers.c  workers that register, drain and leave
 *     dispatcher_rebuild.c  jobs whose record was lost
 *     dispatcher_join.c     clients that join, and the preparation of their jobs
 *     dispatcher_report.c   reports and the status page
 *     dispatcher_tools.c    requests of tools
 *     dispatcher.c          messages and timers
 *
 * Work for a file further down is recorded in `to_assign` (the queue of streams that can be
 * assigned), `wants_lists` and `newcomer`; dispatcher.c does the work of all three at the end of
 * each message and timer. So no handler is entered while another one is running.
 *
 * Private to these files. */
#include <stdbool.h>
#include "transport/service/dispatcher/dispatcher.h"
#include "pipeline/memory/id_map.h"
#include "transport/service/status/recent.h"

#define MR__SECOND ((int64_t)1000000000)
enum {
    MR__WORKER_SILENT_S = 5,  /* a worker without a Pulse for longer is lost */
    MR__AWAITED_S = 5,        /* how long a stream waits for the worker that had it */
    MR__ORPHAN_S = 60,        /* how long a worker keeps streams of jobs that no client joined */
    MR__FINISHED_S = 600,     /* how long finished jobs and lost workers are remembered */
    MR__DRAINED_S = 86400,    /* how long the drain of a lost worker is remembered */
    MR__CLIENT_SILENT_S = 30, /* default of client_timeout */
    MR__SLEPT_S = 3,          /* a longer gap between ticks means that the process was suspended */
    MR__COME_BACK_S = 10,     /* how long peers may take to find a restarted dispatcher */
    MR__UNEVEN_S = 2,         /* how long loads differ before streams move */
    MR__MOVE_S = 60,          /* time for a hand-over; and how long one that failed is not tried
                               * again, nor a stream moved again that took long to restore */
    MR__MOST_MOVES = 256,     /* at a time */
    MR__PACE_SAMPLES = 31,    /* one a second: rates are measured over 30 s */
    MR__ROOM = 16,            /* workers with fewer streams are offered those of dynamic jobs */
    MR__MOST_STREAMS = 65536  /* of a job */
};

typedef struct mr__d_worker mr__d_worker;
typedef struct mr__d_stream mr__d_stream;
typedef struct mr__d_job mr__d_job;
typedef struct mr__d_client mr__d_client;

/* Streams that need a worker. */
typedef struct mr__d_queue {
    mr__d_stream *first, *last;
} mr__d_queue;

/* What was reported for a job, since it was first read. */
typedef struct mr__d_usage {
    uint64_t bytes, client_wait_ns, client_own_ns, worker_wait_ns;
    double used_ns; /* of workers' time */
} mr__d_usage;
typedef struct mr__d_sample {
    int64_t at;
    mr__d_usage sum;
} mr__d_sample;
typedef struct mr__d_pace {
    mr__d_usage sum;
    mr__d_sample samples[MR__PACE_SAMPLES]; /* a ring: the next one is at n % MR__PACE_SAMPLES */
    size_t n;
} mr__d_pace;

struct mr__d_worker {
    mr__d_worker *next, *prev; /* all known workers */
    uint64_t connection;       /* 0: lost */
    char *address;
    bool draining, listed; /* listed: on the list of the static modes */
    bool taken_out;        /* a tool drains it, on record: it must end, and is not awaited */
    uint64_t instance;     /* of the last worker at this address; 0: unknown */
    uint64_t recorded;     /* number of the last record that sets or clears taken_out */
    int64_t heard, lost_at;
    int64_t back_until;    /* named by the account or a client: it may return until then; 0: no */
    mr__d_stream *streams; /* hosted here */
    size_t n_streams;
    size_t n_coming, n_going;  /* streams that move here, and from here */
    int64_t used_at;           /* when it last reported its work */
    uint64_t weight;           /* its share of the streams, in thousandths of a core */
    bool stuck;                /* while moves are planned: none of its streams can move */
    Mr__Wire__Hosted *orphans; /* streams that it reports as hosted, of jobs not known (yet) */
    size_t n_orphans;
    int64_t orphans_since;
    mr__d_worker *same; /* next worker whose address has the same hash */
    size_t place;       /* in the heap of serving workers, from 1; 0: not in it */
    uint64_t given;     /* value of n_given when it was last assigned a stream */
    mr__d_stream *own;  /* streams that only this worker may host */
};

struct mr__d_stream {
    mr__d_job *job;
    uint32_t index;
    uint64_t generation;
    mr__d_worker *worker;      /* that hosts it; NULL: none */
    mr__d_stream *next, *prev; /* of the worker */
    uint64_t used;             /* the last generation that was given to a worker, also for a move */
    mr__d_worker *next_host;   /* it moves there; NULL: it does not */
    mr__d_stream *move_next, *move_prev; /* of d->moves */
    int64_t move_since;
    int64_t moved_at, restore_ns; /* the last move: when it ended, and how long it took */
    int64_t barred_until;         /* a move failed */
    mr__d_worker *home;           /* the only one that may host it; NULL: any may */
    mr__d_stream *own_next, *own_prev;
    mr__d_client *reader; /* NULL: no client reads it now */
    uint64_t owner;       /* the client that it was last assigned to */
    mr__d_queue *queue;   /* that it is in: to_assign, awaiting or NULL */
    mr__d_stream *q_next, *q_prev;
    bool missed;      /* its worker does not see one of its files */
    uint64_t *splits; /* dynamic: those assigned to it, in order */
    size_t n_splits, splits_capacity;
    uint64_t elements, skip;
    uint8_t *position;
    size_t position_bytes;
    bool end;
    char *awaited; /* address of the worker that had it, until awaited_until */
    int64_t awaited_until;
};

struct mr__d_client {
    mr__d_client *next;      /* of the job */
    uint64_t id, connection; /* connection 0: away */
    mr__d_job *job;
    uint32_t n_streams; /* that it reads */
    uint32_t consumer;
    char *host;
    uint32_t process;
    int64_t heard, silent_ns;
    bool let_in; /* Joined was sent on its connection: from now on it is sent Placed */
};

/* A client that waits until its job is prepared. */
typedef struct mr__d_waiting {
    struct mr__d_waiting *next;
    uint64_t connection;
    Mr__Wire__Join *join; /* a copy */
} mr__d_waiting;

struct mr__d_job {
    mr__d_job *next, *prev;
    mr__dispatcher *d;
    uint64_t id;
    char *name; /* "": anonymous */
    Mr__Wire__Job *spec;
    bool prepared;     /* its lists and streams are known */
    bool made_now;     /* no client was let in yet: the first one may set the job's position */
    bool awaits;       /* parallel_epochs: it cannot end before named workers have returned */
    uint64_t recorded; /* number of the last record of it or of one of its streams */
    uint64_t matching; /* connection of the worker that expands its patterns; 0: none */
    mr__d_waiting *waiting;
    mr__d_stream **streams;
    uint32_t n_streams, n_ended;
    size_t streams_capacity;
    uint64_t next_split;     /* dynamic: repetition * splits + number, of the next one */
    uint64_t split_recorded; /* number of the last split's record */
    uint64_t generation;     /* of a new stream */
    mr__d_client *clients;
    int64_t finished_at, left_at; /* left_at: when its last client left */
    uint64_t elements;            /* acknowledged, of all streams */
    mr__rate rate;                /* of `elements` */
    mr__d_pace *pace;             /* NULL: nothing was reported */
    double needs;                 /* workers */
    char why[320];
    bool holding; /* shared, after a start: streams are kept for the clients that had them */
    int64_t hold_until;
    bool rebuilding;    /* dynamic: splits are kept too, for the clients that know theirs */
    uint64_t former;    /* rebuilding: the job that its clients were in; 0: not known */
    mr__id_map rebuilt; /* rebuilding: stream of each split, by split + 1 */
    char *warning;      /* the last one sent to its clients; NULL: none */
};

typedef struct mr__d_dataset {
    struct mr__d_dataset *next;
    char *id;
    void *graph;
    size_t graph_bytes;
} mr__d_dataset;

typedef struct mr__d_connection {
    uint64_t id;
    Mr__Wire__Role role;
    char *host;
    char name[128]; /* that the peer has shown; "": none */
    uint32_t process;
    mr__d_worker *worker;
    mr__d_client *client;
    mr__d_worker *drains; /* a tool's: answered when this worker has ended; NULL: none */
    uint64_t drain_request;
} mr__d_connection;

struct mr__dispatcher {
    mr__dispatcher_opts opts;
    mr__dispatcher_out out;
    void *ctx;
    uint64_t random;
    bool disk_full, has_loaded; /* has_loaded: it began with an account */
    int64_t started, now, ticked;
    uint64_t acknowledged; /* elements, since the start */
    mr__recent_lines recent;
    mr__id_map connections, jobs_by_id, workers_by_address;
    mr__d_worker *workers;
    mr__d_worker **heap; /* serving workers, by load */
    size_t n_heap, n_workers, heap_capacity;
    uint64_t n_given;
    size_t n_with_orphans; /* workers */
    mr__d_worker **listed; /* static modes: by index */
    bool lists_addresses;  /* opts.workers named them; else they are the first to register */
    size_t n_listed;       /* that are known */
    mr__d_stream *moves;   /* streams that move */
    size_t n_moves;
    uint64_t n_moved;       /* moves that ended, since the start */
    int64_t uneven_since;   /* 0: loads are even */
    int64_t balanced_at;    /* when loads were compared last */
    mr__d_queue to_assign;  /* streams that can be assigned to a worker */
    mr__d_queue awaiting;   /* streams whose former worker may return first */
    bool wants_lists;       /* a job needs its lists of files, and no worker makes them */
    mr__d_worker *newcomer; /* registered during this message; NULL: none */
    mr__d_job *jobs;
    size_t n_jobs;
    mr__d_dataset *datasets;
    double needs, target; /* workers: of all jobs, and within the bounds */
    int64_t target_at;    /* when they were computed */
    size_t n_draining;    /* connections of tools that wait for a worker to end */
    char **operators;     /* opts.n_operators names */
    char title[160];      /* the last result of mr__d_title */
};

/* dynamic, parallel_epochs: clients share the streams, and come and go while the job runs. */
static inline bool mr__d_shared(const mr__d_job *j)
{
    return j->spec->mode == MR__WIRE__MODE__DYNAMIC ||
           j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

/* True if stream i belongs to worker i of the list. */
static inline bool mr__d_static(const mr__d_job *j)
{
    return j->spec->mode >= MR__WIRE__MODE__FILE;
}

/* True if some client of j is connected. */
static inline bool mr__d_is_read(const mr__d_job *j)
{
    for (const mr__d_client *c = j->clients; c; c = c->next)
        if (c->connection)
            return true;
    return false;
}

/* True if all elements were acknowledged. */
static inline bool mr__d_finished(const mr__d_job *j)
{
    return j->prepared && !j->rebuilding && !j->awaits && j->n_streams &&
           j->n_ended == j->n_streams;
}

/* True if w has been lost for at least that long. */
static inline bool mr__d_is_away(const mr__dispatcher *d, const mr__d_worker *w, int64_t seconds)
{
    return !w->connection && d->now - w->lost_at >= seconds * MR__SECOND;
}

/* The streams that w hosts, and those that move to it, without those that leave it. */
static inline uint64_t mr__d_load(const mr__d_worker *w)
{
    return w->n_streams + w->n_coming - w->n_going;
}

/* True if w may be assigned streams. */
static inline bool mr__d_serves(const mr__d_worker *w)
{
    return w->connection && !w->draining;
}

/* ---- dispatcher_state.c ---- */
extern const char *const mr__d_modes[];   /* names, by Mr__Wire__Mode */
uint64_t mr__d_random(mr__dispatcher *d); /* never 0 */
void mr__d_note(mr__dispatcher *d, mr_log_level level, const char *fmt, ...) MR_PRINTF(3, 4);
/* The same for a line that was printed with `format`. */
void mr__d_note_line(mr__dispatcher *d, mr_log_level level, const char *format, const char *line);
/* Sends Failed to a connection. */
void mr__d_fail(mr__dispatcher *d, uint64_t connection, uint64_t request, uint64_t job_id,
                const mr_status *why);
/* The error for new work while the account cannot be written. */
mr_code mr__d_disk_full(mr_status *st);
/* True if j belongs to `owner`; without names_only: to everyone. */
bool mr__d_is_of(const mr__d_job *j, const char *owner);
/* True if the peer may see and change all jobs, and be a worker. */
bool mr__d_is_operator(const mr__dispatcher *d, const mr__d_connection *x);
/* True if it may read j. */
bool mr__d_owns(const mr__d_connection *x, const mr__d_job *j);
/* True if it may see and cancel j. x NULL: the dispatcher itself. */
bool mr__d_sees(const mr__d_connection *x, const mr__d_job *j);

/* ---- dispatcher_queues.c ---- */
/* Call it when w's load, or the result of mr__d_serves(w), has changed. */
void mr__d_rank(mr__dispatcher *d, mr__d_worker *w);
/* The serving worker that hosts the fewest streams, except not_to; NULL: no other worker serves. */
mr__d_worker *mr__d_least_loaded(const mr__dispatcher *d, const mr__d_worker *not_to);
/* The next serving worker after w in the list, which is a ring: repeated calls visit all. */
mr__d_worker *mr__d_next_serving(mr__dispatcher *d, mr__d_worker *w);
/* Call it when the worker, home, reader or end of s has changed: enters s in the right queue. */
void mr__d_review(mr__d_stream *s);

/* ---- dispatcher_jobs.c ---- */
/* The job of that name and repetition that belongs to `owner`; NULL: none. */
mr__d_job *mr__d_job_named(mr__dispatcher *d, const char *owner, const char *name,
                           uint64_t repetition);
/* Any job of that name and owner except `not`: another repetition of it. */
mr__d_job *mr__d_job_like(mr__dispatcher *d, const char *owner, const char *name,
                          const mr__d_job * not );
/* The last repetition of the job of that name; if no job has that name, the job with that number,
 * in 16 hexadecimal digits. Of the jobs that x sees. NULL: none. */
mr__d_job *mr__d_job_called(const mr__dispatcher *d, const mr__d_connection *x, const char *name);
/* job "NAME", or an anonymous job's number. Valid until the next call. */
const char *mr__d_title(const mr__d_job *j);
mr_code mr__d_job_new(mr__dispatcher *d, uint64_t id, const char *name, const Mr__Wire__Job *spec,
                      mr__d_job **out, mr_status *st) MR_NODISCARD;
void mr__d_job_free(mr__dispatcher *d, mr__d_job *j);
uint64_t mr__d_record_job(mr__dispatcher *d, const mr__d_job *j);
/* Frees j; returns the number of the record of it. */
uint64_t mr__d_forget_job(mr__dispatcher *d, mr__d_job *j);
mr_code mr__d_stream_new(mr__d_job *j, mr__d_stream **out, mr_status *st) MR_NODISCARD;
/* Unlinks s first, except from its job. */
void mr__d_stream_free(mr__d_stream *s);
/* Makes the streams that j begins with. */
mr_code mr__d_job_streams(mr__d_job *j, mr_status *st) MR_NODISCARD;
mr_code mr__d_stream_set(mr__d_stream *s, const Mr__Wire__Place *place, mr_status *st) MR_NODISCARD;
mr_code mr__d_add_split(mr__d_stream *s, uint64_t split, mr_status *st) MR_NODISCARD;
/* The same, with a record. */
mr_code mr__d_record_split(mr__dispatcher *d, mr__d_stream *s, uint64_t split,
                           mr_status *st) MR_NODISCARD;
/* The place of a stream, with the splits that a client of a dynamic job must know; borrows from
 * s. */
Mr__Wire__Place mr__d_place_with_splits(const mr__d_stream *s);
uint64_t mr__d_record_stream(mr__dispatcher *d, const mr__d_stream *s);
/* Ends the move of s, which stays where it is; the new worker drops it. */
void mr__d_cancel_move(mr__d_stream *s);
/* The same for all streams that c reads. */
void mr__d_cancel_moves_of(mr__dispatcher *d, const mr__d_client *c);
/* Takes s out of the list of moves. */
void mr__d_end_move(mr__d_stream *s);
/* Makes w (NULL: none) the host of s; a move of s is cancelled. */
void mr__d_put(mr__d_stream *s, mr__d_worker *w);
/* From now on only w may host s. */
void mr__d_set_home(mr__d_stream *s, mr__d_worker *w);
void mr__d_set_reader(mr__d_stream *s, mr__d_client *c);
bool mr__d_reads(const mr__d_client *c, const mr__d_stream *s); /* of a job that is not shared */
/* Sends the worker of s to its reader, once record `after` is durable. */
void mr__d_tell_reader(mr__dispatcher *d, const mr__d_stream *s, uint64_t after);
/* Sends a warning to a client, and again each time it joins, because it may have missed it. */
void mr__d_tell_warning(mr__dispatcher *d, const mr__d_client *c, const char *text);
/* The same to all clients of j, including those that join later, and to the log. */
void mr__d_warn(mr__dispatcher *d, mr__d_job *j, const char *fmt, ...) MR_PRINTF(3, 4);
/* Sends Finished to the clients of a shared job (`only` that one, if not NULL). */
void mr__d_tell_finished(mr__dispatcher *d, const mr__d_job *j, const mr__d_client *only,
                         uint64_t after);
/* Sends w the order to stop hosting h. */
void mr__d_unhost(mr__dispatcher *d, const mr__d_worker *w, const Mr__Wire__Hosted *h);
/* The same for s, which then has no worker. */
void mr__d_take_off(mr__dispatcher *d, mr__d_stream *s);
/* Takes those streams off their workers that no client reads. */
void mr__d_release_streams(mr__dispatcher *d, mr__d_job *j);

/* ---- dispatcher_streams.c ---- */
/* Makes s wait until `until` for the worker at that address; ends the wait. */
void mr__d_await(mr__d_stream *s, const char *address, int64_t until);
void mr__d_forget_awaited(mr__d_stream *s);
void mr__d_tick_awaiting(mr__dispatcher *d, int64_t now);
/* Lets s begin to move to w. */
void mr__d_move(mr__dispatcher *d, mr__d_stream *s, mr__d_worker *w);
/* The client can continue s at its new worker, or cannot read from it. */
void mr__d_take_prepared(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Prepared *p);
/* Assigns s to its home, or to the worker that it moves to, or to the one with the least load,
 * avoiding `not_to` if there is another one, and notifies its client. Without a worker it waits. */
void mr__d_assign(mr__dispatcher *d, mr__d_stream *s, const mr__d_worker *not_to);
/* Assigns the streams in to_assign. */
void mr__d_assign_all(mr__dispatcher *d);
/* Moves the streams of w, which is lost, to other workers. */
void mr__d_move_all(mr__dispatcher *d, mr__d_worker *w);
/* Makes c the reader of its streams: those of its number; in a shared job, those that it reports,
 * unless they have been assigned to another client since. */
void mr__d_take_streams(mr__d_job *j, mr__d_client *c, const Mr__Wire__Join *join);
/* Shared: assigns streams without a reader to the clients; true if there were any. */
bool mr__d_share_out(mr__dispatcher *d, mr__d_job *j);
/* Assigns the streams of `gone`, which is no longer a client of j, to another client, or leaves
 * them waiting. */
void mr__d_lose_reader(mr__dispatcher *d, mr__d_job *j, mr__d_client *gone);
/* Makes streams for the clients and workers of j that need one; only: just for this worker. */
void mr__d_make_streams(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only);
/* parallel_epochs: the same, even if all streams of j have ended. */
void mr__d_make_own(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only);
/* parallel_epochs: true if a worker is missing that, by the account or a client, was here
 * recently. */
bool mr__d_awaits_workers(const mr__dispatcher *d, int64_t now);
/* Warns about those of these workers that have no stream of j. */
void mr__d_go_on_without(mr__dispatcher *d, mr__d_job *j);
void mr__d_take_want(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__WantSplit *want);

/* ---- dispatcher_balance.c ---- */
/* Lets streams move while some worker has at least two more than another; only: of this job (NULL:
 * of all). at_once: also those that were moved lately. Returns the number of moves that begin. */
size_t mr__d_balance(mr__dispatcher *d, const mr__d_job *only, bool at_once);
/* The same when loads were uneven for MR__UNEVEN_S; cancels moves that cannot end. */
void mr__d_tick_balance(mr__dispatcher *d, int64_t now);

/* ---- dispatcher_target.c ---- */
/* Adds what a peer reports of its work. */
void mr__d_take_usage(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Pulse *pulse);
/* Computes the target, once a second. */
void mr__d_tick_target(mr__dispatcher *d, int64_t now);

/* ---- dispatcher_workers.c ---- */
/* The worker with that address; NULL: none. */
mr__d_worker *mr__d_worker_at(mr__dispatcher *d, const char *address);
/* The same; an unknown one is created, in the state lost. */
mr_code mr__d_worker_known(mr__dispatcher *d, const char *address, mr__d_worker **out,
                           mr_status *st) MR_NODISCARD;
void mr__d_free_worker(mr__dispatcher *d, mr__d_worker *w);
/* Puts w on the list of the static modes at i, unless that place is taken. */
void mr__d_list_worker(mr__dispatcher *d, size_t i, mr__d_worker *w);
/* Enters the streams that w reports as hosted if their jobs are known by now. */
void mr__d_adopt_orphans(mr__dispatcher *d, mr__d_worker *w);
/* Makes all workers drop the streams of that job that they report as hosted. */
void mr__d_drop_orphans(mr__dispatcher *d, uint64_t job_id);
/* True if the dispatcher has just started, so that workers may not have found it yet. */
bool mr__d_has_just_started(const mr__dispatcher *d);
/* True if w is away and may be one of those workers. */
bool mr__d_may_come(const mr__dispatcher *d, const mr__d_worker *w);
/* Records that a tool drains w, or (is_out is false) that the drain is over. */
void mr__d_take_out(mr__dispatcher *d, mr__d_worker *w, bool is_out);
/* Asks w to end. */
void mr__d_ask_to_end(mr__dispatcher *d, const mr__d_worker *w);
/* Answers the tools that wait for w to end. */
void mr__d_say_drained(mr__dispatcher *d, const mr__d_worker *w);
void mr__d_lose_worker(mr__dispatcher *d, mr__d_worker *w, const char *how, int64_t now);
void mr__d_take_register(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Register *r,
                         int64_t now);
void mr__d_take_returned(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Returned *r);
void mr__d_take_pulse(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Pulse *p);

/* ---- dispatcher_rebuild.c ---- */
/* Takes over the state of s that its returning client reports, if it is newer. */
mr_code mr__d_take_news(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p,
                        mr_status *st) MR_NODISCARD;
/* Makes the job from the streams reported by a client that was in it or restores a position; other
 * clients may follow while it is rebuilding.
 * errors   MR_DATA_LOSS: the client names no splits, or those of other clients */
mr_code mr__d_rebuild(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join,
                      mr_status *st) MR_NODISCARD;
/* A client restores a position of j: undoes all assignments. */
void mr__d_unmake(mr__dispatcher *d, mr__d_job *j);
/* After the account is loaded: continues if the dispatcher died while it was rebuilding j. */
void mr__d_go_on_rebuilding(mr__dispatcher *d, mr__d_job *j);
/* All clients have joined: makes streams for splits that no client named. Returns the number of
 * those splits; parallel_epochs: the number of streams that begin again. */
uint64_t mr__d_rebuilt(mr__dispatcher *d, mr__d_job *j);

/* ---- dispatcher_join.c ---- */
void mr__d_take_join(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Join *join,
                     int64_t now);
void mr__d_take_lists(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Lists *lists,
                      int64_t now);
/* Makes j wait for the clients of a former job of its name, if nothing of j was assigned yet and
 * these clients exist (seen) or may exist: this dispatcher began without an account, and workers
 * host streams of an unknown job. */
void mr__d_await_former(mr__dispatcher *d, mr__d_job *j, bool seen, int64_t now);
void mr__d_drop_client(mr__dispatcher *d, mr__d_client *c, int64_t now);
void mr__d_refuse_waiting(mr__dispatcher *d, mr__d_job *j, const mr_status *why);
/* Asks a worker for the lists of all jobs that have none yet. */
void mr__d_ask_for_lists(mr__dispatcher *d);

/* ---- dispatcher_report.c ---- */
/* As mr__dispatcher_report, of the jobs that x sees. */
char *mr__d_report(const mr__dispatcher *d, const mr__d_connection *x, const char *what,
                   const char *name, int64_t now);
/* Measures the elements per second of each job, once a second. */
void mr__d_measure(mr__dispatcher *d, int64_t now);

/* ---- dispatcher_tools.c ---- */
void mr__d_take_ask(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Ask *ask, int64_t now);
mr_code mr__d_add_dataset(mr__dispatcher *d, const char *id, const void *graph, size_t bytes,
                          mr__d_dataset **out, mr_status *st) MR_NODISCARD;
#endif
