/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_H
#define MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_H
/* A client's side of a job: joins it, reads its streams from the workers that host them, delivers
 * elements in order, and acknowledges what was consumed. A state machine without I/O; client_run.c
 * drives it on a loop, the tests on a virtual clock.
 *
 *     dispatcher <--Join, Acknowledge, Lost-- +--------+ --Open, Credit--> workers
 *                --Joined, Placed-----------> | reader | <--block, StreamError, StreamEnd--
 *                                             +--------+
 *                                 deliver, over |  ^ consumed
 *                                               v  |
 *                                 consumer: the op distribute, in its own thread
 *
 * Rules:
 *  1. Elements of a stream are delivered in order, without gap or repetition: a block must begin
 *     with the element after the last one received; parts that were received before are cut off,
 *     and a block of another generation is dropped. An error takes the number of an element.
 *  2. An element counts as acknowledged when the consumer has requested the one after it.
 *     Acknowledgements are sent every second, and at once on request (saving, closing). They are
 *     cumulative, so losing one does no harm.
 *  3. A lost worker, or one that refuses a stream, is reported by Lost with the generation. The
 *     stream continues where Placed says, from the element after the last one received.
 *     If three connections in a row end because what a worker sent cannot be decoded, and no
 *     element of the stream arrived meanwhile, the job fails.
 *  4. A stream that is to move (Prepare) is opened at its new worker while the old one serves. Once
 *     the new one has the element that follows those received, or after 5 s, Prepared says so;
 *     with Placed the stream continues there, and what the old one sent stays valid.
 *  5. Credit is in bytes: `most_bytes` over all streams, at least one block of each stream; what
 *     the consumer has taken is granted again.
 *  6. While the dispatcher is unreachable, the reader reconnects after 50 ms to 5 s, with jitter;
 *     streams continue.
 *  7. Shared modes (dynamic, parallel_epochs): streams are added while the job runs, and removed if
 *     this client was considered dead; the job is over when the dispatcher says so.
 *  8. dynamic: a dispatcher that lost its account learns from Join which splits the streams have.
 *     Until it answers, a stream that reaches a further split waits, because that split may be
 *     assigned again.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "transport/service/note.h"
#include "transport/wire/messages.h"

typedef struct mr__job_reader mr__job_reader;

/* Data that arrived for a stream: a block, an error in place of an element, or the end. */
typedef struct mr__arrival {
    enum {
        MR__ARRIVED_BLOCK,
        MR__ARRIVED_ERROR,
        MR__ARRIVED_END,
        /* In shared modes only: */
        MR__ARRIVED_STREAM, /* this client reads one more stream from now on */
        MR__ARRIVED_SPLITS, /* dynamic: more splits were assigned to a stream */
        MR__ARRIVED_GONE,   /* another client reads the stream: unconsumed data is dropped */
        MR__ARRIVED_OVER    /* no stream has any more elements */
    } kind;
    uint32_t stream;
    uint64_t first, rows; /* excluding rows received before */
    size_t bytes;         /* for mr__job_reader_consumed, when it is released */
    size_t skip;          /* rows of the block to leave out at its front; STREAM: elements from
                             `position` to `first` */
    const void *position; /* after its last element; borrowed during the call */
    size_t position_bytes;
    const mr_status *status; /* ERROR */
    const char *home;        /* STREAM: the only worker that may host it; "": any may */
    const uint64_t *splits;  /* STREAM, SPLITS: all assigned to it so far; borrowed */
    size_t n_splits;
    void *block; /* the driver's; taken over by deliver */
} mr__arrival;

typedef struct mr__job_reader_out {
    void (*connect_dispatcher)(void *ctx);
    void (*close_dispatcher)(void *ctx); /* mr__job_reader_dispatcher_closed does not follow */
    void (*to_dispatcher)(void *ctx, const mr__message *m);
    /* Connections to workers are identified by address. Each is opened once; calls of
     * mr__job_reader_worker_* follow. */
    void (*connect_worker)(void *ctx, const char *address);
    void (*to_worker)(void *ctx, const char *address, const mr__message *m);
    void (*close_worker)(void *ctx, const char *address); /* mr__job_reader_worker_closed does not
                                                              follow */
    void (*deliver)(void *ctx, const mr__arrival *a);
    void (*drop)(void *ctx, void *block);
    /* The job is known: its number of streams, the places of this client's streams, and what a
     * position must contain. Called once. */
    void (*joined)(void *ctx, const Mr__Wire__Joined *j);
    /* All acknowledgements requested by mr__job_reader_flush are durable. */
    void (*flushed)(void *ctx);
    void (*failed)(void *ctx, const mr_status *why); /* no more arrivals */
    mr__note_fn note;
} mr__job_reader_out;

/* MR__SHARED_STREAMS: memory is divided by at least this number if clients share the job, since
 * more streams may be added. */
enum { MR__LEAST_BYTES = 16 << 20, MR__SHARED_STREAMS = 8 };

typedef struct mr__job_reader_opts {
    const char *dispatcher;     /* its address, for messages */
    const Mr__Wire__Join *join; /* borrowed for the reader's life */
    int64_t connect_timeout_ns; /* until the first connection; then UNAVAILABLE */
    int64_t stall_timeout_ns;   /* without an arrival while the consumer waits; 0: none */
    bool missing_moves;         /* a file that a worker cannot see may be visible to another one */
    bool local_workers;         /* reads from workers on this host only */
    uint64_t most_bytes;        /* outstanding; 0: 4 blocks of each stream, at least 16 MiB */
    uint32_t compression;
    bool measured; /* compress only if the link is slower than compressing */
    uint64_t seed; /* fresh and random; for the jitter and this client's id */
} mr__job_reader_opts;

/* errors   MR_RESOURCE_EXHAUSTED: memory, or the job is too large for a message */
mr_code mr__job_reader_new(mr__job_reader **out, const mr__job_reader_opts *opts,
                           const mr__job_reader_out *to, void *ctx, int64_t now,
                           mr_status *st) MR_NODISCARD;
void mr__job_reader_free(mr__job_reader *r);

void mr__job_reader_dispatcher_opened(mr__job_reader *r, int64_t now);
void mr__job_reader_dispatcher_message(mr__job_reader *r, const mr__message *m, int64_t now);
void mr__job_reader_dispatcher_closed(mr__job_reader *r, const mr_status *why, int64_t now);
void mr__job_reader_worker_opened(mr__job_reader *r, const char *address, int64_t now);
/* StreamError, StreamEnd and StreamSplits. */
void mr__job_reader_worker_message(mr__job_reader *r, const char *address, const mr__message *m,
                                   int64_t now);
/* A block arrived. bytes: counted against the credit; block: the driver's object (taken over). */
void mr__job_reader_worker_block(mr__job_reader *r, const char *address,
                                 const Mr__Wire__BlockHead *head, size_t bytes, void *block,
                                 int64_t now);
/* why->code MR_INVALID_ARGUMENT: that worker cannot be read as the options require. With
 * local_workers its streams move to the next worker, else reading fails. */
void mr__job_reader_worker_closed(mr__job_reader *r, const char *address, const mr_status *why,
                                  int64_t now);
/* The consumer is done with the first `elements` elements of the stream; reading would continue
 * `skip` elements after `position`. bytes: of blocks released since the last call, for credit. */
void mr__job_reader_consumed(mr__job_reader *r, uint32_t stream, uint64_t elements,
                             const void *position, size_t position_bytes, uint64_t skip,
                             size_t bytes, int64_t now);
/* How long, since the start, the consumer waited for elements, and how long it had other work. */
void mr__job_reader_pace(mr__job_reader *r, int64_t wait_ns, int64_t own_ns);
/* The consumer starts or stops waiting for elements. */
void mr__job_reader_waits(mr__job_reader *r, bool waits, int64_t now);
/* Acknowledges at once; `flushed` follows. leave: and leaves the job. */
void mr__job_reader_flush(mr__job_reader *r, bool leave, int64_t now);
/* Leaves the job, unless it has left already, without waiting for an answer: the last call before
 * all connections are closed. If the message is lost, the dispatcher keeps the job until it
 * considers this client dead. */
void mr__job_reader_leave(mr__job_reader *r);
/* Runs what is due. Returns the time of the next call; INT64_MAX: none is due. */
int64_t mr__job_reader_tick(mr__job_reader *r, int64_t now);
#endif
