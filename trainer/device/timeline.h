/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_TIMELINE_H
#define MR_TRAINER_DEVICE_TIMELINE_H
/* Records what mr_fit did and when, step by step: what the loop and each replica's host thread
 * submitted and waited for, and what the devices' streams ran. Streams take the timestamps
 * themselves, so nothing waits for them; this stalls a GPU stream for a few microseconds.
 *
 *     mr_timeline_new(&t, 100000, &st);
 *     mr_fit(s, model, ds, loss, optimizer, &(mr_fit_opts){.timeline = t}, &result, &st);
 *     size_t n = mr_timeline_read(t, spans, 100000, &left_out);
 *
 * thread   any
 * since    0.1 */
#include <stddef.h>
#include "../../pipeline/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_timeline mr_timeline;

typedef enum mr_timeline_row {
    MR_ROW_LOOP,   /* the thread that called mr_fit, between steps; exactly one */
    MR_ROW_HOST,   /* a replica's host thread; the first replica's is that of the loop */
    MR_ROW_STREAM, /* a replica's stream */
    MR_ROW_SUMS    /* the stream on which values are summed for a replica */
} mr_timeline_row;

typedef enum mr_span_kind {
    MR_SPAN_WORK,
    MR_SPAN_WAIT, /* waiting: the loop for results or data, a stream for a sum */
    MR_SPAN_SYNC  /* a call of a mr_device_backend slot, named by `what`, that may wait for a
                   * device */
} mr_span_kind;

/* Spans of one row are nested or disjoint. */
typedef struct mr_timeline_span {
    mr_timeline_row row;
    mr_span_kind kind;
    size_t replica;       /* of all replicas of all workers; 0 for the loop */
    const char *what;     /* "enqueue"; static text */
    const char *callback; /* its name, borrowed from it; NULL: unnamed, or not a callback */
    int64_t step;         /* its step, as in mr_train_event; 0: before the first */
    uint64_t bytes;       /* size of a replica's values in a sum; else 0 */
    double begin_seconds; /* of CLOCK_MONOTONIC */
    double seconds;
} mr_timeline_span;

/* A timeline with room for `capacity` spans of about 80 bytes each; recording does not allocate. It
 * must outlive the mr_fit calls that use it, only one of which may run at a time. Returns owned.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_timeline_new(mr_timeline **out, size_t capacity, mr_status *st) MR_NODISCARD;
MR_API void mr_timeline_free(mr_timeline *t); /* NULL: nothing */
/* Copies up to `capacity` of the finished spans, in the order of submission, and returns their
 * number. *left_out: number of spans dropped because the buffer was full. */
MR_API size_t mr_timeline_read(const mr_timeline *t, mr_timeline_span *out, size_t capacity,
                               size_t *left_out);

#ifdef __cplusplus
}
#endif
#endif
