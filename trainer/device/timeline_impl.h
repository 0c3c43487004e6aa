/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_TIMELINE_IMPL_H
#define MR_TRAINER_DEVICE_TIMELINE_IMPL_H
/* Recording of spans in a timeline. Each thread knows the timeline it records to, and its place in
 * it; a thread without a timeline records nothing, at the cost of one check.
 *
 * thread   any */
#include <stdatomic.h>
#include "trainer/device/device.h"
#include "trainer/device/timeline.h"

/* A span in the timeline; its fields are valid until it has ended. */
typedef struct mr__span {
    mr_timeline_row row;
    mr_span_kind kind;
    size_t replica; /* within this process */
    const char *what, *callback;
    int64_t step;
    uint64_t bytes;
    double began;
    _Atomic double ended; /* 0: not yet */
} mr__span;

/* The place of a thread in a timeline. */
typedef struct mr__timeline_place {
    mr_timeline *t; /* NULL: nothing is recorded */
    mr_timeline_row row;
    size_t replica; /* within this process */
    int64_t step;
} mr__timeline_place;

extern _Thread_local mr__timeline_place mr__timeline_here;

/* Sets the place of the calling thread; returns the previous one. */
mr__timeline_place mr__timeline_enter(mr__timeline_place now);
/* The first replica of this process has the global number `first`. */
void mr__timeline_set_first(mr_timeline *t, size_t first);

/* Begins a span now, in the row and step of the calling thread. NULL: nothing is recorded, or the
 * timeline is full. */
mr__span *mr__span_new(mr_span_kind kind, const char *what);
static inline mr__span *mr__span_begin(mr_span_kind kind, const char *what)
{
    return mr__timeline_here.t ? mr__span_new(kind, what) : NULL;
}
void mr__span_end(mr__span *s); /* NULL: nothing */

/* The same in stream order, for a replica of this process and the thread's step: the timestamp is
 * taken between the work submitted to the stream before and after. *out NULL: as above. */
mr_code mr__span_submit(mr__span **out, mr_stream *stream, mr_timeline_row row, size_t replica,
                        const char *what, mr_status *st) MR_NODISCARD;
mr_code mr__span_submit_end(mr__span *s, mr_stream *stream, mr_status *st) MR_NODISCARD;
#endif
