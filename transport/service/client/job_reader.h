/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_JOB_READER_H
#define MR_TRANSPORT_SERVICE_JOB_READER_H
/* A client's side of a job: joins it, reads its streams from whoever hosts them, keeps what came in
 * order, and acknowledges what was consumed. A state machine without I/O; client_run.c drives it on
 * a loop, the tests on a virtual clock.
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
 *     and one of another generation is dropped.
 *     An error takes the number of an element.
 *  2. An element counts as acknowledged when the consumer has asked for what comes after it.
 *     Acknowledgements go to the dispatcher every second, and at once when asked for (saving,
 *     closing); they are cumulative, so that one that is lost does no harm.
 *  3. A worker that is lost, or whose stream is refused, is reported by Lost with the generation;
 *     the stream goes on where Placed says next, from the element after the last one received.
 *  4. Credit is bytes: `most_bytes` over all streams, one block of each stream in any case; what
 *     the consumer has taken is given again.
 *  5. A dispatcher that is away is tried again, 50 ms to 5 s apart, jittered; streams go on.
 *  6. Shared modes (dynamic, parallel_epochs): streams come while the job runs, and go where this
 *     client was taken for dead; the job is over when the dispatcher says so.
 *  7. dynamic: a dispatcher that lost its account learns from Join which splits streams have.
 *     Until it has answered, a stream that comes to another split stands still: that one may be
 *     given out again.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "pipeline/log.h"
#include "transport/wire/messages.h"

typedef struct mr__job_reader mr__job_reader;

/* What came in of a stream: a block, an error in an element's place, or the end. */
typedef struct mr__arrival {
    enum {
        MR__ARRIVED_BLOCK,
        MR__ARRIVED_ERROR,
        MR__ARRIVED_END,
        /* In shared modes only: */
        MR__ARRIVED_STREAM, /* a stream that Joined did not name is this client's from here on */
        MR__ARRIVED_SPLITS, /* dynamic: a stream was given more splits */
        MR__ARRIVED_GONE,   /* a stream is another's: what was not handed out of it is dropped */
        MR__ARRIVED_OVER    /* nothing more comes of any stream */
    } kind;
    uint32_t stream;
    uint64_t first, rows; /* after cutting off what was there already */
    size_t bytes;         /* to be named to mr__job_reader_consumed when it is released */
    size_t skip;          /* rows of the block to leave out at its front; STREAM: elements from
                             `position` to `first` */
    const void *position; /* after its last element; borrowed during the call */
    size_t position_bytes;
    const mr_status *status; /* ERROR */
    const char *home;        /* STREAM: the worker that alone may host it; "" any */
    const uint64_t *splits;  /* STREAM, SPLITS: all that it was given so far; borrowed */
    size_t n_splits;
    void *block; /* the driver's; taken over by deliver */
} mr__arrival;

typedef struct mr__job_reader_out {
    void (*connect_dispatcher)(void *ctx);
    void (*close_dispatcher)(void *ctx); /* mr__job_reader_dispatcher_closed does not follow */
    void (*to_dispatcher)(void *ctx, const mr__message *m);
    /* Connections to workers are by address: opened once, mr__job_reader_worker_* follow. */
    void (*connect_worker)(void *ctx, const char *address);
    void (*to_worker)(void *ctx, const char *address, const mr__message *m);
    void (*close_worker)(void *ctx, const char *address); /* nor mr__job_reader_worker_closed */
    void (*deliver)(void *ctx, const mr__arrival *a);
    void (*drop)(void *ctx, void *block);
    /* The job is known: how many streams, which of them are this client's (places), what a position
     * must carry. Once. */
    void (*joined)(void *ctx, const Mr__Wire__Joined *j);
    /* All acknowledgements asked for by mr__job_reader_flush are durable. */
    void (*flushed)(void *ctx);
    void (*failed)(void *ctx, const mr_status *why); /* nothing comes any more */
    void (*note)(void *ctx, mr_log_level level, const char *line);
} mr__job_reader_out;

/* Memory is for so many streams at least where clients share a job: more may come. */
enum { MR__LEAST_BYTES = 16 << 20, MR__SHARED_STREAMS = 8 };

typedef struct mr__job_reader_opts {
    const char *dispatcher;     /* its address, for messages */
    const Mr__Wire__Join *join; /* borrowed for the reader's life */
    int64_t connect_timeout_ns; /* until the first connection; then UNAVAILABLE */
    int64_t stall_timeout_ns;   /* without any arrival while the consumer waits; 0: none */
    bool missing_moves;         /* a file that a worker cannot see may be there for another one */
    bool local_workers;         /* reads from workers of this host alone */
    uint64_t most_bytes;        /* outstanding; 0: 4 blocks of each stream, at least 16 MiB */
    uint32_t compression;
    bool measured; /* compression where the link is slower than that */
    uint64_t seed; /* fresh and random: of the jitter, and this client's number */
} mr__job_reader_opts;

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
/* A block: its place, rows, bytes, and what the driver has for it (taken over). */
void mr__job_reader_worker_block(mr__job_reader *r, const char *address,
                                 const Mr__Wire__BlockHead *head, size_t bytes, void *block,
                                 int64_t now);
/* why->code MR_INVALID_ARGUMENT: that worker cannot be read from as is wanted. With local_workers
 * its streams move on to the next worker, else reading fails. */
void mr__job_reader_worker_closed(mr__job_reader *r, const char *address, const mr_status *why,
                                  int64_t now);
/* The consumer is done with the first `elements` elements of the stream; the place to go on from is
 * `skip` elements after `position`. bytes: of blocks released since the last call, for credit. */
void mr__job_reader_consumed(mr__job_reader *r, uint32_t stream, uint64_t elements,
                             const void *position, size_t position_bytes, uint64_t skip,
                             size_t bytes, int64_t now);
/* The consumer waits for this stream (or not any more). */
void mr__job_reader_waits(mr__job_reader *r, bool waits, int64_t now);
/* Acknowledges at once; `flushed` follows. leave: and leaves the job. */
void mr__job_reader_flush(mr__job_reader *r, bool leave, int64_t now);
/* Leaves the job without an answer, where that was not done yet: the last that is called before all
 * connections are closed. A dispatcher that does not hear of it keeps the job until this client is
 * missed. */
void mr__job_reader_leave(mr__job_reader *r);
int64_t mr__job_reader_tick(mr__job_reader *r, int64_t now);
#endif
