/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_PRODUCER_H
#define MR_TRANSPORT_SERVICE_WORKER_PRODUCER_H
/* Produces a stream on a worker: an iterator in a separate thread, which makes blocks ahead, as
 * frames: up to 16 of them or 4 MiB, and one of any size; at a memory limit only that one. The loop
 * receives them in order, each on request; so the thread and the loop wake each other once for
 * several blocks, not for each. When another stream needs memory that the iterator has filled with
 * what it read ahead, the iterator frees it, and reads that again for the next block.
 *
 *     loop --go, stop--> [thread: next, position, frame] --posted--> made, failed, ended, gone
 *
 * Blocks grow as long as one takes less than a tenth of a second to make, so that an element of a
 * slow graph does not wait long for the rest of its block.
 *
 * thread   the loop's */
#include "pipeline/engine/iterator.h"
#include "transport/net/loop.h"
#include "transport/service/worker/worker_streams.h"
#include "transport/wire/block_frame.h"

typedef struct mr__producer mr__producer;

/* A block ready to be sent, and the number of its producer. */
typedef struct mr__produced {
    mr__outgoing frame;
    uint64_t producer;
    size_t held; /* bytes that count against a memory limit */
} mr__produced;

typedef struct mr__producer_out {
    /* made->block is an mr__produced *, owned: mr__producer_drop. No further call before
     * mr__producer_go. */
    void (*made)(void *ctx, uint64_t number, const mr__made *made);
    void (*failed)(void *ctx, uint64_t number, uint64_t first, const mr_status *why,
                   const void *position, size_t position_bytes, bool fatal);
    void (*ended)(void *ctx, uint64_t number, uint64_t elements, const void *position,
                  size_t position_bytes);
    /* Before one of these: how long the thread took to make it. NULL: not of interest. */
    void (*busy)(void *ctx, uint64_t number, int64_t ns);
    /* As mr__worker_streams_wants_split; mr__producer_split answers. */
    void (*wants_split)(void *ctx, uint64_t number, uint64_t index, uint64_t repetition);
    /* After mr__producer_stop, the last call: its thread is joined and its memory is freed. */
    void (*gone)(void *ctx, uint64_t number);
} mr__producer_out;

typedef struct mr__producer_opts {
    mr__loop *loop;
    mr_executor *executor;
    bool watch;           /* as mr_iterator_opts.watch */
    int64_t memory_limit; /* of the process; 0: none */
    const char *worker;   /* its address, for errors; borrowed */
    mr__lender *lender;   /* memory shared with its client; NULL: none. Borrowed during the call */
    const mr__producer_out *out;
    void *ctx;
} mr__producer_opts;

/* Starts a producer of the stream `what` at the element that `open` requests. This also requests
 * the first block. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__producer_start(mr__producer **out, uint64_t number, const Mr__Wire__Host *what,
                           const Mr__Wire__Open *open, const mr__producer_opts *opts,
                           mr_status *st) MR_NODISCARD;
/* Of `most` bytes that may wait for a client, as many as are allowed under a memory limit (0:
 * none), whose estimate of a stream does not count them. */
size_t mr__producer_most_bytes(int64_t limit, size_t most);
/* Requests the next block. link: bytes per second that its client receives; 0: unlimited. */
void mr__producer_go(mr__producer *p, double link);
/* True if a memory limit is reached, so that nothing should wait to be sent. */
bool mr__producer_is_tight(mr__producer *p);
/* Passes split number `index` of its stream, or (end) the end of its repetition. */
void mr__producer_split(mr__producer *p, uint64_t index, uint64_t split, bool end);
/* Stops it; only `gone` follows. */
void mr__producer_stop(mr__producer *p);
void mr__producer_drop(mr__produced *block);
#endif
