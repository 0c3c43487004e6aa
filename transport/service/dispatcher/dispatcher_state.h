/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_STATE_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_STATE_H
/* Inside of the dispatcher: dispatcher.c takes the messages, dispatcher_jobs.c keeps jobs,
 * dispatcher_streams.c gives their streams to workers and readers, dispatcher_report.c describes
 * all. Private to service/. */
#include <stdbool.h>
#include "transport/service/dispatcher/dispatcher.h"
#include "pipeline/memory/id_map.h"
#include "transport/service/status/recent.h"

#define MR__SECOND ((int64_t)1000000000)
enum {
    MR__WORKER_SILENT_S = 5,  /* then a worker is lost */
    MR__AWAITED_S = 5,        /* how long a stream waits for the worker that had it */
    MR__ORPHAN_S = 60,        /* how long a worker keeps streams of jobs nobody asked for */
    MR__FINISHED_S = 600,     /* how long a finished job keeps its name, and a lost worker */
    MR__DRAINED_S = 86400,    /* how long a drain waits for a worker that is lost */
    MR__CLIENT_SILENT_S = 30, /* the default of client_timeout */
    MR__SLEPT_S = 3,          /* without a tick: the process slept */
    MR__COME_BACK_S = 10,     /* until all found a dispatcher that started again */
    MR__ROOM = 16,            /* streams that dynamic jobs give a worker of their own accord */
    MR__MOST_STREAMS = 65536  /* of a job */
};

typedef struct mr__d_worker mr__d_worker;
typedef struct mr__d_stream mr__d_stream;
typedef struct mr__d_job mr__d_job;
typedef struct mr__d_client mr__d_client;

/* Streams that want a worker. */
typedef struct mr__d_queue {
    mr__d_stream *first, *last;
} mr__d_queue;

struct mr__d_worker {
    mr__d_worker *next, *prev; /* all that were not forgotten */
    uint64_t connection;       /* 0: lost */
    char *address;
    bool draining, listed; /* listed: on the list of the static modes */
    bool taken_out;        /* a tool drains it, on record: it is to end, and is not awaited */
    uint64_t instance;     /* which one came last to this address; 0: it does not say */
    uint64_t recorded;     /* number of the last record that it is, or is no more, taken out */
    int64_t heard, lost_at;
    int64_t back_until;    /* the account, or a client, names it: until then it may come; 0: no */
    mr__d_stream *streams; /* hosted here */
    size_t n_streams;
    Mr__Wire__Hosted *orphans; /* hosted by its own word, of jobs that are not known (yet) */
    size_t n_orphans;
    int64_t orphans_since;
    mr__d_worker *same; /* the next whose address has the same hash */
    size_t place;       /* in the heap of those that serve, from 1; 0: it is not in it */
    uint64_t given;     /* when it was given a stream last, in streams given */
    mr__d_stream *own;  /* streams that it alone may host */
};

struct mr__d_stream {
    mr__d_job *job;
    uint32_t index;
    uint64_t generation;
    mr__d_worker *worker;      /* NULL: nobody hosts it */
    mr__d_stream *next, *prev; /* of the worker */
    mr__d_worker *home;        /* the one that may host it; NULL: any */
    mr__d_stream *own_next, *own_prev;
    mr__d_client *reader; /* NULL: nobody reads it now */
    uint64_t owner;       /* the client that was given it last */
    mr__d_queue *queue;   /* that it is in: ready, awaiting, or none */
    mr__d_stream *q_next, *q_prev;
    bool missed;      /* its worker does not see a file of it */
    uint64_t *splits; /* dynamic: what it was given, in order */
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
    bool let_in; /* Joined was sent on its connection, and Placed is news */
};

/* A client that waits until the job is prepared. */
typedef struct mr__d_waiting {
    struct mr__d_waiting *next;
    uint64_t connection;
    Mr__Wire__Join *join; /* a copy */
} mr__d_waiting;

struct mr__d_job {
    mr__d_job *next, *prev;
    mr__dispatcher *d;
    uint64_t id;
    char *name; /* "" anonymous */
    Mr__Wire__Job *spec;
    bool prepared;     /* lists and streams are known */
    bool made_now;     /* nobody was let in yet: the first client may say where it stands */
    bool awaits;       /* parallel_epochs: it does not end before workers that are named are back */
    uint64_t recorded; /* number of the last record of it or a stream */
    uint64_t matching; /* connection of the worker that looks patterns up; 0: none */
    mr__d_waiting *waiting;
    mr__d_stream **streams;
    uint32_t n_streams, n_ended;
    size_t streams_capacity;
    uint64_t next_split;     /* dynamic: repetition * splits + number, of the next to hand out */
    uint64_t split_recorded; /* number of the last split's record */
    uint64_t generation;     /* that streams begin with */
    mr__d_client *clients;
    int64_t finished_at, left_at; /* left_at: when its last client left */
    uint64_t elements;            /* acknowledged, of all streams */
    mr__rate rate;                /* of them, lately */
    bool holding; /* shared, after a start: streams wait for the clients that had them, */
    int64_t hold_until;
    bool rebuilding;    /* dynamic: and splits, for the clients that know which they were given */
    uint64_t former;    /* what of: the job that its clients were in; 0: nobody said */
    mr__id_map rebuilt; /* then: of a split + 1, its stream */
    char *warning;      /* what its clients heard last; NULL: nothing */
};

typedef struct mr__d_dataset {
    struct mr__d_dataset *next;
    char *id;
    void *graph;
    size_t graph_bytes;
} mr__d_dataset;

/* Who a connection is. */
typedef struct mr__d_connection {
    uint64_t id;
    Mr__Wire__Role role;
    char *host;
    uint32_t process;
    mr__d_worker *worker;
    mr__d_client *client;
    mr__d_worker *drains; /* a tool's: it is answered when this one has ended; NULL: none */
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
    mr__d_worker **heap; /* those that serve, by load */
    size_t n_heap, n_workers, heap_capacity;
    uint64_t n_given;
    size_t n_with_orphans; /* workers */
    mr__d_worker **listed; /* static modes: by index */
    size_t n_listed;       /* that are known */
    mr__d_queue ready;     /* streams that can be given out */
    mr__d_queue awaiting;  /* those whose former worker may come back first */
    mr__d_job *jobs;
    size_t n_jobs;
    mr__d_dataset *datasets;
    size_t n_draining; /* connections of tools that wait for a worker to end */
    char title[160];   /* what mr__d_title gave last */
};

/* The last repetition of that name; NULL: there is none. */
extern const char *const mr__d_modes[]; /* names, by Mr__Wire__Mode */
uint64_t mr__d_random(mr__dispatcher *d);
void mr__d_note(mr__dispatcher *d, mr_log_level level, const char *fmt, ...) MR_PRINTF(3, 4);
/* Tells a connection that its request failed. */
void mr__d_fail(mr__dispatcher *d, uint64_t connection, uint64_t request, uint64_t job_id,
                const mr_status *why);

/* ---- dispatcher_jobs.c ---- */
/* The job of that name and repetition; NULL: none. */
mr__d_job *mr__d_job_named(mr__dispatcher *d, const char *name, uint64_t repetition);
/* Any job of that name but `not`: another repetition of it. */
mr__d_job *mr__d_job_like(mr__dispatcher *d, const char *name, const mr__d_job * not );
/* The last repetition of the job of that name; or, where no job has it, the one whose number it is,
 * of 16 hexadecimal digits. NULL: none. */
mr__d_job *mr__d_job_called(const mr__dispatcher *d, const char *name);
/* What people call it: job "NAME", or an anonymous one by its number. Good until the next call. */
const char *mr__d_title(const mr__d_job *j);
mr_code mr__d_job_new(mr__dispatcher *d, uint64_t id, const char *name, const Mr__Wire__Job *spec,
                      mr__d_job **out, mr_status *st) MR_NODISCARD;
void mr__d_job_free(mr__dispatcher *d, mr__d_job *j);
/* The streams that it begins with. */
mr_code mr__d_job_streams(mr__d_job *j, mr_status *st) MR_NODISCARD;
mr_code mr__d_stream_set(mr__d_stream *s, const Mr__Wire__Place *place, mr_status *st) MR_NODISCARD;
Mr__Wire__Place mr__d_place(const mr__d_stream *s); /* borrows from s */
/* s and all that points to it. */
void mr__d_stream_free(mr__d_stream *s);
uint64_t mr__d_record_job(mr__dispatcher *d, const mr__d_job *j);
uint64_t mr__d_record_stream(mr__dispatcher *d, const mr__d_stream *s);
/* Puts s on a worker, or takes it off (NULL). */
void mr__d_put(mr__d_stream *s, mr__d_worker *w);
/* Tells the stream's client where it is, once record `after` is durable. */
void mr__d_tell_reader(mr__dispatcher *d, const mr__d_stream *s, uint64_t after);
/* Tells a client what went wrong; once more each time that it joins, as it may not have heard. */
void mr__d_tell_warning(mr__dispatcher *d, const mr__d_client *c, const char *text);
/* The same for all clients of j, those that come later too, and for the log. */
void mr__d_warn(mr__dispatcher *d, mr__d_job *j, const char *fmt, ...) MR_PRINTF(3, 4);
/* Tells the clients of a shared job (NULL: all) that all of it has ended. */
void mr__d_tell_finished(mr__dispatcher *d, const mr__d_job *j, const mr__d_client *only,
                         uint64_t after);
/* Tells w that it hosts h no more. */
void mr__d_unhost(mr__dispatcher *d, const mr__d_worker *w, const Mr__Wire__Hosted *h);
/* The same for s, which is then nobody's. */
void mr__d_take_off(mr__dispatcher *d, mr__d_stream *s);
/* The streams of one worker move. */
void mr__d_move_all(mr__dispatcher *d, mr__d_worker *w);
/* What nobody reads any more is not hosted. */
void mr__d_release_streams(mr__dispatcher *d, mr__d_job *j);
/* Returns the number of the record that says so. */
uint64_t mr__d_forget_job(mr__dispatcher *d, mr__d_job *j);
bool mr__d_reads(const mr__d_client *c, const mr__d_stream *s); /* of a job that is not shared */
bool mr__d_finished(const mr__d_job *j);                        /* all of it was acknowledged */

/* ---- dispatcher_streams.c ---- */
/* w's load changed, or whether it serves. */
void mr__d_rank(mr__dispatcher *d, mr__d_worker *w);
/* s has another worker, reader or end: whether it wants a worker. */
void mr__d_review(mr__d_stream *s);
/* s waits for the worker at that address until then; and no more. */
void mr__d_await(mr__d_stream *s, const char *address, int64_t until);
void mr__d_forget_awaited(mr__d_stream *s);
void mr__d_tick_awaiting(mr__dispatcher *d, int64_t now);
/* Hands s to its home, or to the worker that hosts the fewest, not to `not_to` if another is there;
 * its client is informed. Without a worker it waits. */
void mr__d_assign(mr__dispatcher *d, mr__d_stream *s, const mr__d_worker *not_to);
/* Hands out every stream that has a reader, no worker, and awaits none. */
void mr__d_assign_all(mr__dispatcher *d);
/* dynamic, parallel_epochs: clients come and go while it runs, and share its streams. */
bool mr__d_shared(const mr__d_job *j);
bool mr__d_static(const mr__d_job *j); /* stream i is the listed worker i's */
void mr__d_set_reader(mr__d_stream *s, mr__d_client *c);
/* c reads what is its: by its number; of a shared job, what it says it has, if nobody else was
 * given it. */
void mr__d_take_streams(mr__d_job *j, mr__d_client *c, const Mr__Wire__Join *join);
/* Shared: streams that nobody reads go to the clients there are; whether there were some. */
bool mr__d_share_out(mr__dispatcher *d, mr__d_job *j);
/* The streams of `gone`, which is no client of j any more, go to another, or wait. */
void mr__d_lose_reader(mr__dispatcher *d, mr__d_job *j, mr__d_client *gone);
mr_code mr__d_stream_new(mr__d_job *j, mr__d_stream **out, mr_status *st) MR_NODISCARD;
/* Only w may host s. */
void mr__d_set_home(mr__d_stream *s, mr__d_worker *w);
/* parallel_epochs: a worker is not here that the account, or a client, says was here lately. */
bool mr__d_awaits_workers(const mr__dispatcher *d, int64_t now);
/* Those of them that have no stream of j were not back in time. */
void mr__d_go_on_without(mr__dispatcher *d, mr__d_job *j);
/* Streams for clients and workers of j that call for one; only: for this worker. */
void mr__d_make_streams(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only);
/* The place with the splits that a client of a dynamic job is to know. */
Mr__Wire__Place mr__d_place_with_splits(const mr__d_stream *s);
/* What the client that has s says of it as it comes back, where that is more than is known. */
mr_code mr__d_take_news(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p,
                        mr_status *st) MR_NODISCARD;
/* dynamic: the job is made of what a client that was in it, or restores a position, says of its
 * streams; others may follow while it is rebuilding.
 * errors   MR_DATA_LOSS: the client says no splits, or those of others */
mr_code mr__d_rebuild(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join,
                      mr_status *st) MR_NODISCARD;
/* A client restores a position of it: no stream was given to anybody. */
void mr__d_unmake(mr__dispatcher *d, mr__d_job *j);
/* The account is loaded: where its dispatcher died while j was made again, this goes on. */
void mr__d_go_on_rebuilding(mr__dispatcher *d, mr__d_job *j);
/* All have come: splits that nobody named go to a stream of their own. Returns how many; of
 * parallel_epochs, how many streams begin again. */
uint64_t mr__d_rebuilt(mr__dispatcher *d, mr__d_job *j);
mr_code mr__d_add_split(mr__d_stream *s, uint64_t split, mr_status *st) MR_NODISCARD;
void mr__d_take_want(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__WantSplit *want);

/* ---- dispatcher_join.c ---- */
void mr__d_take_join(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Join *join,
                     int64_t now);
/* Nothing of j was given out, and clients of a former job of its name are there (seen), or may be,
 * since this began without an account and workers host streams of one: it waits for them. */
void mr__d_await_former(mr__dispatcher *d, mr__d_job *j, bool seen, int64_t now);
/* Why new work is refused while the account cannot be written. */
mr_code mr__d_disk_full(mr_status *st);
void mr__d_drop_client(mr__dispatcher *d, mr__d_client *c, int64_t now);
void mr__d_refuse_waiting(mr__dispatcher *d, mr__d_job *j, const mr_status *why);
/* The job's lists are final: cuts it, and lets in who waits. */
void mr__d_prepare(mr__dispatcher *d, mr__d_job *j, int64_t now);
/* Asks a worker for the job's lists, where it has none yet. */
void mr__d_ask_for_lists(mr__dispatcher *d, mr__d_job *j);

/* ---- dispatcher_workers.c ---- */
void mr__d_take_register(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Register *r,
                         int64_t now);
void mr__d_take_lists(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Lists *lists,
                      int64_t now);
void mr__d_take_returned(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Returned *r);
void mr__d_take_pulse(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Pulse *p);
mr__d_worker *mr__d_worker_at(mr__dispatcher *d, const char *address);
/* The same; one that was never there is made, as lost. */
mr_code mr__d_worker_known(mr__dispatcher *d, const char *address, mr__d_worker **out,
                           mr_status *st) MR_NODISCARD;
/* Puts w on the list of the static modes at i, where it is not full. */
void mr__d_list_worker(mr__dispatcher *d, size_t i, mr__d_worker *w);
void mr__d_lose_worker(mr__dispatcher *d, mr__d_worker *w, const char *how, int64_t now);
/* Streams that w says it hosts, where their jobs are known now. */
void mr__d_adopt_orphans(mr__dispatcher *d, mr__d_worker *w);
/* What workers say they host of that job is not wanted any more. */
void mr__d_drop_orphans(mr__dispatcher *d, uint64_t job_id);
void mr__d_free_worker(mr__dispatcher *d, mr__d_worker *w);
/* It is lost, and has been for so long. */
bool mr__d_is_away(const mr__dispatcher *d, const mr__d_worker *w, int64_t seconds);

/* ---- dispatcher_report.c ---- */
/* How many elements a second each job has, once a second. */
void mr__d_measure(mr__dispatcher *d, int64_t now);

/* ---- dispatcher_tools.c ---- */
/* The tools hear that wait for w to end, which it has. */
void mr__d_say_drained(mr__dispatcher *d, const mr__d_worker *w);
/* It is away, but the dispatcher has only just started, and may not have been found yet. */
bool mr__d_may_come(const mr__dispatcher *d, const mr__d_worker *w);
/* A tool drains it, as the account is to know; or (is_out is false) it is over. */
void mr__d_take_out(mr__dispatcher *d, mr__d_worker *w, bool is_out);
/* It is asked to end. */
void mr__d_ask_to_end(mr__dispatcher *d, const mr__d_worker *w);
void mr__d_take_ask(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Ask *ask, int64_t now);
mr_code mr__d_add_dataset(mr__dispatcher *d, const char *id, const void *graph, size_t bytes,
                          mr__d_dataset **out, mr_status *st) MR_NODISCARD;
#endif
