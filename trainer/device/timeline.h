/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_TIMELINE_H
#define MR_TRAINER_TIMELINE_H
/* What mr_fit did and when: what the loop and each replica's host thread submitted and waited for,
 * and what the devices' streams ran, step by step. Streams read the clock themselves when they come
 * to a place, so nothing waits for them; a GPU's stands still for some microseconds each time.
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
    MR_ROW_LOOP,   /* the thread that called mr_fit, between steps; there is one */
    MR_ROW_HOST,   /* a replica's host thread; the first replica's is that of the loop */
    MR_ROW_STREAM, /* a replica's stream */
    MR_ROW_SUMS    /* the stream on which values are summed for a replica */
} mr_timeline_row;

typedef enum mr_span_kind {
    MR_SPAN_WORK,
    MR_SPAN_WAIT, /* it waited: the loop for results or data, a stream for a sum */
    MR_SPAN_SYNC  /* a call of the device table that may wait for a device: of mr_device_backend,
                     `what` names it */
} mr_span_kind;

/* Spans of one row are nested or come one after the other. */
typedef struct mr_timeline_span {
    mr_timeline_row row;
    mr_span_kind kind;
    size_t replica;       /* of all replicas of all workers; 0 for the loop */
    const char *what;     /* "enqueue"; static text */
    const char *callback; /* its name, borrowed from it; NULL: it has none, or it is no callback */
    int64_t step;         /* that it belongs to, as in mr_train_event; 0: before the first */
    uint64_t bytes;       /* of a replica's values in a sum; else 0 */
    double begin_seconds; /* of CLOCK_MONOTONIC */
    double seconds;
} mr_timeline_span;

/* A timeline with room for so many spans, of about 80 bytes each; recording allocates nothing. It
 * must outlive the calls of mr_fit that it was given to, of which one at a time may use it. Returns
 * owned.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_timeline_new(mr_timeline **out, size_t capacity, mr_status *st) MR_NODISCARD;
MR_API void mr_timeline_free(mr_timeline *t); /* NULL: nothing */
/* Up to `capacity` of the spans that have ended, in the order in which they were submitted; returns
 * how many. *left_out: so many came when there was no room any more. */
MR_API size_t mr_timeline_read(const mr_timeline *t, mr_timeline_span *out, size_t capacity,
                               size_t *left_out);

#ifdef __cplusplus
}
#endif
#endif
