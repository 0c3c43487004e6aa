/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_H
/* The dispatcher: it knows the jobs, the worker that hosts each stream, and the acknowledged part
 * of each stream. A state machine without I/O: connections and time are passed in by calls, actions
 * go out through mr__dispatcher_out. dispatcher_run.c drives it on a loop, the tests on a virtual
 * clock.
 *
 *     clients --Join, Acknowledge--> +------------+ <--Register, Pulse-- workers
 *             <--Joined, Placed----- | dispatcher | --Host, Unhost--->
 *                                    +------------+
 *                                      | record            every change that must outlive it
 *                                      v
 *                                    account (SQLite)
 *
 * Rules:
 *  1. Anything that a peer may act on is recorded before it is sent: `send` names the record that
 *     must be durable first.
 *  2. A stream has one generation at a time. Every hand-over increments it; Acknowledge, Returned,
 *     Lost and Hosted of another generation are dropped (Hosted: answered by Unhost).
 *  3. Acknowledged elements never decrease, except if a client restores a position.
 *  4. A worker is lost when its connection closes, or 5 s after its last Pulse; its streams move at
 *     once to the worker that hosts the fewest, or wait for one; those that it alone may host
 *     (static modes, parallel_epochs) wait for it.
 *  5. A stream's number determines its reader (the consumer). dynamic and parallel_epochs are
 *     shared: any number of clients; a stream has one reader at a time, which inherits the streams
 *     of clients that leave or fall silent. In these modes, streams are made while the job runs,
 *     and Finished ends it.
 *  6. dynamic: a split belongs to one stream forever, from WantSplit on.
 *  7. Streams of exactly_once and dynamic move to workers with less load, at most as loaded as the
 *     old one is after it. The new worker restores the stream, in the next generation, while the
 *     old one serves it; the generation changes when the client says that it can continue there.
 *  8. A worker that a tool drains is asked to end each time it connects, until it has ended; a new
 *     worker at its address serves normally.
 *  9. With names_only, a peer learns and changes nothing of jobs of another name: their names are
 *     other names, and their blocks need a key that workers and the clients of the job have.
 *
 * thread   one at a time per object */
#include "transport/service/status/status_page.h"
#include "transport/service/note.h"
#include "transport/wire/messages.h"

typedef struct mr__dispatcher mr__dispatcher;

/* A change of the account. Strings and bytes are borrowed during the call. */
typedef enum mr__record_kind {
    MR__RECORD_JOB,     /* name, job */
    MR__RECORD_STREAM,  /* place: the stream's whole state */
    MR__RECORD_FORGET,  /* the job and its streams are deleted */
    MR__RECORD_DATASET, /* name: its id; graph */
    MR__RECORD_SPLIT,   /* stream: `split` is assigned to it, after its other splits */
    MR__RECORD_DRAIN /* name: address of a worker that must end, if it is this instance; 0: none */
} mr__record_kind;
typedef struct mr__record {
    mr__record_kind kind;
    uint64_t job_id;
    const char *name;
    const Mr__Wire__Job *job;
    const Mr__Wire__Place *place;
    const void *graph;
    size_t graph_bytes;
    uint32_t stream;
    uint64_t split, instance;
} mr__record;

typedef struct mr__dispatcher_out {
    /* Sends m (borrowed) to connection `to` once record number `after` is durable (0: at once).
     * Messages to one connection keep their order. */
    void (*send)(void *ctx, uint64_t to, const mr__message *m, uint64_t after);
    /* Closes a connection; mr__dispatcher_closed does not follow. */
    void (*close)(void *ctx, uint64_t connection, const mr_status *why);
    /* Adds to the account; returns the record's number, from 1 (0: there is no account). Records
     * become durable in order. */
    uint64_t (*record)(void *ctx, const mr__record *r);
    /* A line for the log and for the status page's last events. */
    mr__note_fn note;
} mr__dispatcher_out;

typedef struct mr__dispatcher_opts {
    uint64_t seed; /* for the numbers of jobs and clients */
    /* *n = the number of streams that the graph of a job with known lists is cut into; dynamic: the
     * number of its splits; job.h. Not called in the other modes. */
    mr_code (*streams)(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st);
    void *streams_ctx;
    const char *state;          /* "memory" or the directory, for reports */
    const char *const *workers; /* static modes: their addresses, borrowed during new; NULL: the
                                 * first n_workers that register */
    size_t n_workers;           /* 0: no static modes */
    double min_workers, max_workers; /* bounds of the target; max_workers 0: none */
    bool no_balance;                 /* streams move only when their worker is lost or drained */
    /* A job belongs to the name of the client that began it, and other names do not see it, except
     * `operators`, who see all and are the only workers. Borrowed during new. */
    bool names_only;
    const char *const *operators;
    size_t n_operators;
} mr__dispatcher_opts;

mr_code mr__dispatcher_new(mr__dispatcher **out, const mr__dispatcher_opts *opts,
                           const mr__dispatcher_out *to, void *ctx, mr_status *st) MR_NODISCARD;
void mr__dispatcher_free(mr__dispatcher *d);

/* Takes a record that was read from the account; before anything else. errors MR_DATA_LOSS */
mr_code mr__dispatcher_load(mr__dispatcher *d, const mr__record *r, mr_status *st) MR_NODISCARD;

/* A connection (any number, never used twice) has completed its handshake. */
void mr__dispatcher_opened(mr__dispatcher *d, uint64_t connection, Mr__Wire__Role role,
                           const char *host, uint32_t process, int64_t now);
/* After that: the name that the peer has shown, which names_only needs. */
void mr__dispatcher_named(mr__dispatcher *d, uint64_t connection, const char *name);
void mr__dispatcher_message(mr__dispatcher *d, uint64_t connection, const mr__message *m,
                            int64_t now);
void mr__dispatcher_closed(mr__dispatcher *d, uint64_t connection, int64_t now);
/* The account cannot be written (or can again): the dispatcher accepts no new work. */
void mr__dispatcher_disk(mr__dispatcher *d, bool full, int64_t now);
/* Does everything that is due; returns the time of the next call (INT64_MAX: none). */
int64_t mr__dispatcher_tick(mr__dispatcher *d, int64_t now);

/* The service as JSON, for the status page and for tools; owned, mr_free. NULL: out of memory.
 * `what` is as Ask.what: "status", "jobs", "workers", "streams" (name: the job), "page": all of
 * these, cut to a readable length, with the last events. */
char *mr__dispatcher_report(const mr__dispatcher *d, const char *what, const char *name,
                            int64_t now);
/* The view of "page". */
extern const mr__status_table mr__dispatcher_view[];
#endif
