/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_WORKER_STREAMS_H
#define MR_TRANSPORT_SERVICE_WORKER_WORKER_STREAMS_H
/* The streams that a worker hosts: which they are, which clients read them, and how much may be
 * sent. A state machine without I/O; worker_run.c drives it on a loop with a thread for each stream
 * that is produced, the tests on a virtual clock with streams of numbers.
 *
 *     dispatcher --Host, Unhost--> +---------+ <--Open, Credit, Shut-- client
 *                <--Returned------ | streams | --block, StreamError, StreamEnd-->
 *                                  +---------+
 *                      start, stop, go |  ^ made, failed, ended
 *                                      v  |
 *                                  producers (an iterator each, in its own thread)
 *
 * Rules:
 *  1. A client's Open starts a producer at the element that the client asks for: restored from the
 *     place in Host, with the elements before it skipped.
 *  2. A block is sent while the stream's credit is positive, and may make it negative: so one block
 *     of each stream can always be in flight. A producer makes one block ahead and waits.
 *  3. An Open of a generation older than Host's is answered by a fatal StreamError. One of a later
 *     generation, or of a stream that is not hosted, may have overtaken its Host, which contains
 *     the whole graph: it waits for it, at most until the dispatcher answers a Pulse that was sent
 *     after the Open; then it is answered by a fatal StreamError too. Without a dispatcher it does
 *     not wait. What a producer of an older generation makes is dropped.
 *  4. Streams survive while the dispatcher is away. When it is back, Register lists them.
 *  5. Draining returns every stream with the position after the last element sent.
 *  6. dynamic: a producer that needs a split waits for it, if the dispatcher is away until it is
 *     back. Splits are kept, so that a producer that starts again receives the same ones.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "transport/service/note.h"
#include "transport/wire/messages.h"

typedef struct mr__worker_streams mr__worker_streams;

/* A block that a producer made. */
typedef struct mr__made {
    uint64_t first, rows; /* numbers of its elements */
    size_t bytes;
    const void *position; /* after its last element; borrowed during the call */
    size_t position_bytes;
    void *block; /* opaque, belongs to the driver; taken over */
} mr__made;

typedef struct mr__worker_streams_out {
    void (*to_dispatcher)(void *ctx, const mr__message *m);
    void (*to_client)(void *ctx, uint64_t client, const mr__message *m);
    /* Sends a block that a producer made. */
    void (*block)(void *ctx, uint64_t client, const Mr__Wire__Hosted *stream, const mr__made *made,
                  uint32_t compression);
    void (*drop)(void *ctx, void *block); /* frees a block that no client receives */
    /* Starts a producer (number `producer`, never used twice) of a hosted stream, at the element
     * that `client` opened it at. The producer makes one block and waits for `go`. */
    void (*start)(void *ctx, uint64_t producer, uint64_t client, const Mr__Wire__Host *what,
                  const Mr__Wire__Open *open);
    void (*go)(void *ctx, uint64_t producer);   /* makes the next block */
    void (*stop)(void *ctx, uint64_t producer); /* ends it; it makes no more calls */
    /* dynamic: passes split number `index` of the producer's stream (those before it are in
     * what->place of start), or (end) the end of its repetition. NULL: no producer requests
     * splits. */
    void (*split)(void *ctx, uint64_t producer, uint64_t index, uint64_t split, bool end);
    /* Looks up the job's patterns; mr__worker_streams_matched follows. */
    void (*match)(void *ctx, uint64_t job_id, const Mr__Wire__Job *job);
    void (*close_client)(void *ctx, uint64_t client, const mr_status *why);
    void (*close_dispatcher)(void *ctx); /* it is silent: connect again */
    /* *cpu_ns = the processor time of this process so far, *cpus = how many it may use. */
    void (*cpu)(void *ctx, int64_t *cpu_ns, uint32_t *cpus);
    mr__note_fn note;
} mr__worker_streams_out;

/* instance: differs for each worker that starts, also at the same address. weight: its share of the
 * streams, in thousandths of a core. */
mr_code mr__worker_streams_new(mr__worker_streams **out, const char *address, uint64_t instance,
                               uint32_t weight, const char *const *tags, size_t n_tags,
                               const mr__worker_streams_out *to, void *ctx,
                               mr_status *st) MR_NODISCARD;
void mr__worker_streams_free(mr__worker_streams *ws); /* drops blocks that were not sent */

/* The connection to the dispatcher is up (sends Register), or lost. */
void mr__worker_streams_dispatcher_opened(mr__worker_streams *ws, int64_t now);
void mr__worker_streams_dispatcher_message(mr__worker_streams *ws, const mr__message *m,
                                           int64_t now);
void mr__worker_streams_dispatcher_closed(mr__worker_streams *ws, int64_t now);
/* From a client's connection, by a number that is never used twice. */
void mr__worker_streams_client_message(mr__worker_streams *ws, uint64_t client,
                                       const mr__message *m, int64_t now);
void mr__worker_streams_client_closed(mr__worker_streams *ws, uint64_t client, int64_t now);
/* From a producer: a block. */
void mr__worker_streams_made(mr__worker_streams *ws, uint64_t producer, const mr__made *made,
                             int64_t now);
/* An error instead of element `first`, and the position after it; fatal: the stream cannot be
 * opened. */
void mr__worker_streams_failed(mr__worker_streams *ws, uint64_t producer, uint64_t first,
                               const mr_status *why, const void *position, size_t position_bytes,
                               bool fatal, int64_t now);
/* The producer was busy for that long, with what it brings next. */
void mr__worker_streams_busy(mr__worker_streams *ws, uint64_t producer, int64_t ns);
/* dynamic: the producer has used the first `index` splits of its stream and requests another one,
 * for this repetition of its source; mr__worker_streams_out.split follows, maybe during this
 * call. */
void mr__worker_streams_wants_split(mr__worker_streams *ws, uint64_t producer, uint64_t index,
                                    uint64_t repetition, int64_t now);
/* The end of the stream, after `elements` elements in total, and its position. */
void mr__worker_streams_ended(mr__worker_streams *ws, uint64_t producer, uint64_t elements,
                              const void *position, size_t position_bytes, int64_t now);
void mr__worker_streams_matched(mr__worker_streams *ws, uint64_t job_id,
                                const Mr__Wire__Lists *lists, int64_t now);
/* Returns all streams to the dispatcher; true once nothing is left and the worker may end. */
bool mr__worker_streams_drain(mr__worker_streams *ws, int64_t now);
/* The dispatcher asked it to drain, or mr__worker_streams_drain did. */
bool mr__worker_streams_draining(const mr__worker_streams *ws);
/* The share of the last seconds in which the producers of streams that are read were busy. */
double mr__worker_streams_busy_ratio(const mr__worker_streams *ws);
/* Returns the time of the next call. */
int64_t mr__worker_streams_tick(mr__worker_streams *ws, int64_t now);
#endif
