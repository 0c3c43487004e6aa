/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_TIMELINE_IMPL_H
#define MR_TRAINER_TIMELINE_IMPL_H
/* How spans get into a timeline. A thread knows which one it works for, and for what; one that
 * works for none records nothing, at the price of a look.
 *
 * thread   any */
#include <stdatomic.h>
#include "trainer/device/device.h"
#include "trainer/device/timeline.h"

/* One of the timeline's; the fields are set until it has ended. */
typedef struct mr__span {
    mr_timeline_row row;
    mr_span_kind kind;
    size_t replica; /* of this process */
    const char *what, *callback;
    int64_t step;
    uint64_t bytes;
    double began;
    _Atomic double ended; /* 0: not yet */
} mr__span;

/* Where a thread is at work. */
typedef struct mr__timeline_place {
    mr_timeline *t; /* NULL: nothing is recorded */
    mr_timeline_row row;
    size_t replica; /* of this process */
    int64_t step;
} mr__timeline_place;

extern _Thread_local mr__timeline_place mr__timeline_here;

/* The calling thread is at work there from now on; returns where it was. */
mr__timeline_place mr__timeline_enter(mr__timeline_place now);
/* The first replica of this process is that number of all. */
void mr__timeline_set_first(mr_timeline *t, size_t first);

/* Begins now, in the row and step of the calling thread. NULL: nothing is recorded, or there is no
 * room. */
mr__span *mr__span_new(mr_span_kind kind, const char *what);
static inline mr__span *mr__span_begin(mr_span_kind kind, const char *what)
{
    return mr__timeline_here.t ? mr__span_new(kind, what) : NULL;
}
void mr__span_end(mr__span *s); /* NULL: nothing */

/* The same in stream order, of a replica of this process and of the thread's step: what was
 * submitted to the stream before has run, what comes later has not. *out NULL: as above. */
mr_code mr__span_submit(mr__span **out, mr_stream *stream, mr_timeline_row row, size_t replica,
                        const char *what, mr_status *st) MR_NODISCARD;
mr_code mr__span_submit_end(mr__span *s, mr_stream *stream, mr_status *st) MR_NODISCARD;
#endif
