/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/timeline_impl.h"
#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/alloc.h"

struct mr_timeline {
    size_t capacity, first;
    atomic_size_t begun; /* may exceed capacity */
    mr__span spans[];    /* zeroed */
};

_Thread_local mr__timeline_place mr__timeline_here;

mr_code mr_timeline_new(mr_timeline **out, size_t capacity, mr_status *st)
{
    mr_timeline *t = capacity <= (SIZE_MAX - sizeof *t) / sizeof *t->spans
                         ? mr_calloc(1, sizeof *t + capacity * sizeof *t->spans)
                         : NULL;
    if (!t)
        return mr_fail_memory(st, capacity, "the spans of a timeline");
    t->capacity = capacity;
    *out = t;
    return MR_OK;
}

void mr_timeline_free(mr_timeline *t)
{
    mr_free(t);
}

size_t mr_timeline_read(const mr_timeline *t, mr_timeline_span *out, size_t capacity,
                        size_t *left_out)
{
    size_t begun = atomic_load(&t->begun), n = 0;
    *left_out = begun > t->capacity ? begun - t->capacity : 0;
    for (size_t i = 0; i < begun && i < t->capacity && n < capacity; i++) {
        const mr__span *s = &t->spans[i];
        double ended = atomic_load_explicit(&s->ended, memory_order_acquire);
        if (ended > 0)
            out[n++] =
                (mr_timeline_span){.row = s->row,
                                   .kind = s->kind,
                                   .replica = s->row == MR_ROW_LOOP ? 0 : t->first + s->replica,
                                   .what = s->what,
                                   .callback = s->callback,
                                   .step = s->step,
                                   .bytes = s->bytes,
                                   .begin_seconds = s->began,
                                   .seconds = ended - s->began};
    }
    return n;
}

mr__timeline_place mr__timeline_enter(mr__timeline_place now)
{
    mr__timeline_place was = mr__timeline_here;
    mr__timeline_here = now;
    return was;
}

void mr__timeline_set_first(mr_timeline *t, size_t first)
{
    t->first = first;
}

/* NULL: the timeline is full. */
static mr__span *take(const mr__timeline_place *at, mr_span_kind kind, const char *what)
{
    size_t i = atomic_fetch_add_explicit(&at->t->begun, 1, memory_order_relaxed);
    if (i >= at->t->capacity)
        return NULL;
    mr__span *s = &at->t->spans[i];
    s->row = at->row;
    s->kind = kind;
    s->replica = at->replica;
    s->what = what;
    s->step = at->step;
    return s;
}

mr__span *mr__span_new(mr_span_kind kind, const char *what)
{
    mr__span *s = take(&mr__timeline_here, kind, what);
    if (s)
        s->began = mr_iter_now();
    return s;
}

void mr__span_end(mr__span *s)
{
    if (s)
        atomic_store_explicit(&s->ended, mr_iter_now(), memory_order_release);
}

static void begin(void *span)
{
    ((mr__span *)span)->began = mr_iter_now();
}

static void end(void *span)
{
    mr__span_end(span);
}

static void begin_here(void *args)
{
    begin(*(mr__span **)args);
}

static void end_here(void *args)
{
    end(*(mr__span **)args);
}

/* A kernel that is a host function does not wake the stream, unlike a host call. */
static mr_code mark(mr_stream *stream, mr__span *s, bool begins, mr_status *st)
{
    return stream->backend->launch
               ? mr_stream_launch(stream, begins ? begin_here : end_here, &s, sizeof s, st)
               : mr_stream_host_call(stream, begins ? begin : end, s, st);
}

mr_code mr__span_submit(mr__span **out, mr_stream *stream, mr_timeline_row row, size_t replica,
                        const char *what, mr_status *st)
{
    mr__timeline_place at = mr__timeline_here;
    *out = NULL;
    if (!at.t)
        return MR_OK;
    at.row = row;
    at.replica = replica;
    *out = take(&at, MR_SPAN_WORK, what);
    return *out ? mark(stream, *out, true, st) : MR_OK;
}

mr_code mr__span_submit_end(mr__span *s, mr_stream *stream, mr_status *st)
{
    return s ? mark(stream, s, false, st) : MR_OK;
}
