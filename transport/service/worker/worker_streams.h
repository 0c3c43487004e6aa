/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_HOST_H
#define MR_TRANSPORT_SERVICE_HOST_H
/* A worker's side of its streams: which it hosts, who reads them, and how much may be sent. A state
 * machine without I/O; worker_run.c drives it on a loop with a thread for each stream that
 * produces, the tests on a virtual clock with streams of numbers.
 *
 *     dispatcher --Host, Unhost--> +------+ <--Open, Credit, Shut-- client
 *                <--Returned------ | host | --block, StreamError, StreamEnd-->
 *                                  +------+
 *                     start, stop, go |  ^ produced, failed, ended
 *                                     v  |
 *                                  producers (an iterator each, in a thread of its own)
 *
 * Rules:
 *  1. A producer is started by the client's Open, at the element that the client wants: restored
 *     from the place that Host gave, elements before it skipped.
 *  2. A block goes out while the stream's credit is positive, and may bring it below zero: so one
 *     block of each stream can always be under way. A producer makes one block ahead and waits.
 *  3. An Open of another generation than Host gave, or of a stream that is not hosted, is answered
 *     by a fatal StreamError; what a producer of an older generation brings is dropped.
 *  4. Streams live on while the dispatcher is away; connecting again, it learns what is hosted.
 *  5. Draining returns every stream with the position after the last element sent.
 *  6. dynamic: a producer that wants a split waits for it; where the dispatcher is away, until it
 *     is back. What was given is kept, so that a producer that starts again is given the same.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "pipeline/log.h"
#include "transport/wire/messages.h"

typedef struct mr__host mr__host;

/* A block that a producer made; the host hands it on unseen. */
typedef struct mr__made {
    uint64_t first, rows; /* numbers of its elements */
    size_t bytes;
    const void *position; /* after its last; borrowed during the call */
    size_t position_bytes;
    void *block; /* the driver's; taken over */
} mr__made;

typedef struct mr__host_out {
    void (*to_dispatcher)(void *ctx, const mr__message *m);
    void (*to_client)(void *ctx, uint64_t client, const mr__message *m);
    /* Sends a block that a producer made. */
    void (*block)(void *ctx, uint64_t client, const Mr__Wire__Hosted *stream, const mr__made *made,
                  uint32_t compression);
    void (*drop)(void *ctx, void *block); /* lets one go that nobody gets */
    /* Starts a producer (number `producer`, never used twice) of the stream that was given to this
     * worker, at the element that `client` opened it at. It makes one block and waits for `go`. */
    void (*start)(void *ctx, uint64_t producer, uint64_t client, const Mr__Wire__Host *what,
                  const Mr__Wire__Open *open);
    void (*go)(void *ctx, uint64_t producer);   /* makes the next block */
    void (*stop)(void *ctx, uint64_t producer); /* ends it; nothing more of it is heard */
    /* Dynamic: the split that it wants, number `index` of its stream (those before it: what->place
     * of start); end: its repetition has no more. NULL: no producer wants splits. */
    void (*split)(void *ctx, uint64_t producer, uint64_t index, uint64_t split, bool end);
    /* Looks up the job's patterns; mr__host_matched follows. */
    void (*match)(void *ctx, uint64_t job_id, const Mr__Wire__Job *job);
    void (*close_client)(void *ctx, uint64_t client, const mr_status *why);
    void (*close_dispatcher)(void *ctx); /* it is silent: connect again */
    void (*note)(void *ctx, mr_log_level level, const char *line);
} mr__host_out;

/* instance: another one for each worker that starts, also at the same address. */
mr_code mr__host_new(mr__host **out, const char *address, uint64_t instance,
                     const char *const *tags, size_t n_tags, const mr__host_out *to, void *ctx,
                     mr_status *st) MR_NODISCARD;
void mr__host_free(mr__host *h); /* blocks not sent are dropped */

/* The connection to the dispatcher is up (Register is sent), or lost. */
void mr__host_dispatcher_opened(mr__host *h, int64_t now);
void mr__host_dispatcher_message(mr__host *h, const mr__message *m, int64_t now);
void mr__host_dispatcher_closed(mr__host *h, int64_t now);
/* Of a client's connection, by a number that is never used twice. */
void mr__host_client_message(mr__host *h, uint64_t client, const mr__message *m, int64_t now);
void mr__host_client_closed(mr__host *h, uint64_t client, int64_t now);
/* What producers bring: a block; an error in the place of element `first` (position after it), or a
 * fatal one where the stream cannot be opened; the end after `elements` in all, and its
 * position. */
void mr__host_made(mr__host *h, uint64_t producer, const mr__made *made, int64_t now);
void mr__host_failed(mr__host *h, uint64_t producer, uint64_t first, const mr_status *why,
                     const void *position, size_t position_bytes, bool fatal, int64_t now);
/* Dynamic: a producer has used the first `index` splits of its stream, and wants one more for this
 * repetition of its source; mr__host_out.split follows, maybe at once. */
void mr__host_wants_split(mr__host *h, uint64_t producer, uint64_t index, uint64_t repetition,
                          int64_t now);
void mr__host_ended(mr__host *h, uint64_t producer, uint64_t elements, const void *position,
                    size_t position_bytes, int64_t now);
void mr__host_matched(mr__host *h, uint64_t job_id, const Mr__Wire__Lists *lists, int64_t now);
/* Gives all streams back; true once nothing is left and the worker may end. */
bool mr__host_drain(mr__host *h, int64_t now);
/* The dispatcher asked it to drain, or mr__host_drain did. */
bool mr__host_draining(const mr__host *h);
/* When it must be called next. */
int64_t mr__host_tick(mr__host *h, int64_t now);
#endif
