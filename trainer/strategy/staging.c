/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy/staging.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/completion.h"
#include "trainer/device/timeline_impl.h"

/* One replica's rows of one column. */
typedef struct cell {
    void *pinned, *device;
    size_t capacity; /* bytes of each */
} cell;

typedef struct slot {
    mr__completion copied;          /* without copies: the step has read it */
    cell *cells;                    /* [column * replicas + replica] */
    mr_event **arrived, **released; /* one per replica */
    size_t *rows;                   /* one per replica */
    int64_t *first;                 /* number of each replica's first row in the global batch */
    size_t all_rows;                /* of the global batch */
    mr_array *columns;              /* dtype and shape of each, no data */
} slot;

struct mr__staging {
    mr_strategy *s;
    size_t depth, n_replicas, n_columns; /* n_columns 0: no batch seen yet */
    mr_stream **copies;                  /* one per replica; without copies, the replica's own */
    slot *slots;
    size_t next;       /* the slot to fill */
    size_t full_rows;  /* largest number that a replica got so far; 0: none */
    size_t *row_bytes; /* of each column in the latest batch */
    mr_segment *segments;
    mr_destination destination;
    bool direct; /* the host fills the memory that the devices read: there are no copies */
    bool wished; /* the destination was returned for the reserved slot */
    uint64_t placed;
};

static mr_device *device_of(const mr__staging *g, size_t r)
{
    return mr_replica_device(mr_strategy_replica(g->s, r));
}

static void free_slot(mr__staging *g, slot *s)
{
    for (size_t i = 0; s->cells && i < g->n_columns * g->n_replicas; i++) {
        mr_device_free(device_of(g, i % g->n_replicas), MR_MEMORY_PINNED, s->cells[i].pinned);
        if (!g->direct)
            mr_device_free(device_of(g, i % g->n_replicas), MR_MEMORY_DEVICE, s->cells[i].device);
    }
    for (size_t r = 0; r < g->n_replicas; r++) {
        if (s->arrived)
            mr_event_free(s->arrived[r]);
        if (s->released)
            mr_event_free(s->released[r]);
    }
    mr__completion_destroy(&s->copied);
    mr_free(s->arrived);
    mr_free(s->released);
    mr_free(s->rows);
    mr_free(s->first);
    mr_free(s->cells);
    mr_free(s->columns);
}

/* A failed device no longer uses any memory. */
static void await_readers(const mr__staging *g, slot *s)
{
    mr_code rc = MR_OK;
    for (size_t r = 0; s->released && r < g->n_replicas; r++)
        if (s->released[r])
            rc = mr_event_synchronize(s->released[r], NULL);
    if (g->direct)
        rc = mr__completion_await(&s->copied, g->copies, g->n_replicas, NULL);
    (void)rc;
}

void mr__staging_free(mr__staging *g)
{
    if (!g)
        return;
    for (size_t i = 0; g->slots && i < g->depth; i++)
        await_readers(g, &g->slots[i]);
    for (size_t r = 0; g->copies && r < g->n_replicas && !g->direct; r++)
        mr_stream_free(g->copies[r]);
    for (size_t i = 0; g->slots && i < g->depth; i++)
        free_slot(g, &g->slots[i]);
    mr_free(g->copies);
    mr_free(g->slots);
    mr_free(g->row_bytes);
    mr_free(g->segments);
    mr_free(g);
}

static mr_code make_slot(mr__staging *g, slot *s, mr_status *st)
{
    s->arrived = mr_calloc(g->n_replicas, sizeof *s->arrived);
    s->released = mr_calloc(g->n_replicas, sizeof *s->released);
    s->rows = mr_calloc(g->n_replicas, sizeof *s->rows);
    s->first = mr_calloc(g->n_replicas, sizeof *s->first);
    if (!s->arrived || !s->released || !s->rows || !s->first)
        return mr_fail_memory(st, g->n_replicas * sizeof *s->arrived, "a staging slot");
    for (size_t r = 0; r < g->n_replicas; r++) {
        MR_TRY(mr_event_new(&s->arrived[r], device_of(g, r), st));
        MR_TRY(mr_event_new(&s->released[r], device_of(g, r), st));
    }
    return MR_OK;
}

static mr_code make_all(mr__staging *g, mr_status *st)
{
    g->copies = mr_calloc(g->n_replicas, sizeof *g->copies);
    g->slots = mr_calloc(g->depth, sizeof *g->slots);
    if (!g->copies || !g->slots)
        return mr_fail_memory(st, g->depth * sizeof *g->slots, "a staging ring");
    for (size_t i = 0; i < g->depth; i++)
        mr__completion_init(&g->slots[i].copied);
    for (size_t r = 0; r < g->n_replicas; r++)
        if (g->direct)
            g->copies[r] = mr_replica_stream(mr_strategy_replica(g->s, r));
        else
            MR_TRY(mr_stream_new(&g->copies[r], device_of(g, r), MR_STREAM_COPY, st));
    for (size_t i = 0; i < g->depth; i++)
        MR_TRY(make_slot(g, &g->slots[i], st));
    return MR_OK;
}

bool mr__staging_is_direct(mr_strategy *s)
{
    bool direct = true;
    for (size_t r = 0; r < mr_strategy_num_local_replicas(s); r++) {
        mr_device_properties p;
        mr_device_describe(mr_replica_device(mr_strategy_replica(s, r)), &p);
        direct = direct && p.unified;
    }
    return direct;
}

mr_code mr__staging_new(mr__staging **out, mr_strategy *s, size_t depth, mr_status *st)
{
    mr__staging *g = mr_calloc(1, sizeof *g);
    if (!g)
        return mr_fail_memory(st, sizeof *g, "a staging ring");
    g->s = s;
    g->depth = depth;
    g->n_replicas = mr_strategy_num_local_replicas(s);
    g->direct = mr__staging_is_direct(s);
    mr_code rc = make_all(g, st);
    if (rc != MR_OK) {
        mr__staging_free(g);
        return rc;
    }
    *out = g;
    return MR_OK;
}

static mr_code see_columns(mr__staging *g, size_t n, mr_status *st)
{
    mr_code rc = MR_OK;
    g->row_bytes = mr_calloc(n, sizeof *g->row_bytes);
    g->segments = mr_calloc(n * g->n_replicas, sizeof *g->segments);
    if (!g->row_bytes || !g->segments)
        rc = mr_fail_memory(st, n * sizeof *g->segments, "a staging ring");
    for (size_t i = 0; i < g->depth && rc == MR_OK; i++) {
        g->slots[i].cells = mr_calloc(n * g->n_replicas, sizeof(cell));
        g->slots[i].columns = mr_calloc(n, sizeof(mr_array));
        if (!g->slots[i].cells || !g->slots[i].columns)
            rc = mr_fail_memory(st, n * g->n_replicas * sizeof(cell), "a staging ring");
    }
    if (rc == MR_OK) {
        g->n_columns = n;
        return MR_OK;
    }
    for (size_t i = 0; i < g->depth; i++) {
        mr_free(g->slots[i].cells);
        mr_free(g->slots[i].columns);
        g->slots[i].cells = NULL;
        g->slots[i].columns = NULL;
    }
    mr_free(g->row_bytes);
    mr_free(g->segments);
    g->row_bytes = NULL;
    g->segments = NULL;
    return rc;
}

mr_code mr__staging_reserve(mr__staging *g, const mr_destination **destination, mr_status *st)
{
    slot *s = &g->slots[g->next];
    /* The host waits here only if the ring is full, as for any full queue. */
    mr__span *span =
        mr__completion_is_done(&s->copied) ? NULL : mr__span_begin(MR_SPAN_WAIT, "staging slot");
    mr_code rc = mr__completion_await(&s->copied, g->copies, g->n_replicas, st);
    mr__span_end(span);
    MR_TRY(rc);
    g->wished = g->full_rows > 0;
    for (size_t i = 0; i < g->n_columns * g->n_replicas && g->wished; i++) {
        size_t bytes = g->full_rows * g->row_bytes[i / g->n_replicas];
        g->segments[i] = (mr_segment){s->cells[i].pinned, bytes};
        g->wished = bytes <= s->cells[i].capacity;
    }
    g->destination = (mr_destination){g->n_columns, g->n_replicas, g->segments};
    *destination = g->wished ? &g->destination : NULL;
    return MR_OK;
}

static mr_code check_column(const mr__staging *g, const mr_array *a, size_t c, mr_status *st)
{
    if (a->storage != MR_DENSE && !(a->storage == MR_PLACED && g->wished))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "component %zu of the batches is not a dense tensor of numbers (%s); decode or "
            "pad it in the pipeline",
            c, mr_dtype_name(a->dtype));
    if (a->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component %zu is a scalar, expected a batch: end the data with .batch(N), "
                       "N being the global batch size",
                       c);
    return MR_OK;
}

/* Checks a column on every replica; *rows = those of the global batch, *widest = the maximum of a
 * replica. */
static mr_code measure_column(mr__staging *g, const mr_step *step, size_t c, size_t *rows,
                              size_t *widest, mr_status *st)
{
    *rows = *widest = 0;
    for (size_t r = 0; r < g->n_replicas; r++) {
        const mr_array *a = &step->replicas[r].columns[c];
        MR_TRY(check_column(g, a, c, st));
        size_t n = (size_t)a->shape[0];
        *rows += n;
        *widest = n > *widest ? n : *widest;
        if (n > 0)
            g->row_bytes[c] = mr_array_row_bytes(a) / n;
    }
    return MR_OK;
}

/* All cells of a column have the same capacity, so that a smaller batch, whose slices are narrower,
 * fits wherever the larger one did. */
static mr_code make_room(mr__staging *g, slot *s, size_t i, size_t bytes, mr_status *st)
{
    cell *x = &s->cells[i];
    size_t r = i % g->n_replicas;
    if (bytes <= x->capacity)
        return MR_OK;
    void *pinned, *device;
    mr_stream *copies = g->copies[r];
    MR_TRY(mr_device_alloc(device_of(g, r), MR_MEMORY_PINNED, bytes, &pinned, st));
    mr_device_free(device_of(g, r), MR_MEMORY_PINNED, x->pinned); /* its copies have completed */
    x->pinned = pinned;
    x->capacity = 0;
    if (g->direct) { /* the step that read the old memory has run */
        *x = (cell){pinned, pinned, bytes};
        return MR_OK;
    }
    /* The last step that read the old memory may still be running. */
    MR_TRY(mr_stream_wait(copies, s->released[r], st));
    MR_TRY(mr_stream_alloc(copies, bytes, &device, st));
    mr_stream_release(copies, x->device);
    *x = (cell){pinned, device, bytes};
    return MR_OK;
}

static mr_code fill_column(mr__staging *g, slot *s, const mr_step *step, size_t c, size_t widest,
                           mr_status *st)
{
    for (size_t r = 0; r < g->n_replicas; r++) {
        const mr_array *a = &step->replicas[r].columns[c];
        size_t i = c * g->n_replicas + r, bytes = (size_t)a->shape[0] * g->row_bytes[c];
        if (a->storage == MR_PLACED) {
            if (bytes > s->cells[i].capacity || bytes != mr_array_row_bytes(a))
                return mr_fail(st, MR_INTERNAL, "%zu bytes were placed in a slot of %zu",
                               mr_array_row_bytes(a), s->cells[i].capacity);
            g->placed += bytes;
            continue;
        }
        MR_TRY(make_room(g, s, i, widest * g->row_bytes[c], st));
        if (bytes > 0)
            memcpy(s->cells[i].pinned, a->data, bytes);
    }
    return MR_OK;
}

static mr_code start_copies_of(mr__staging *g, slot *s, size_t r, mr_status *st)
{
    mr_stream *copies = g->copies[r];
    MR_TRY(mr_stream_wait(copies, s->released[r], st));
    for (size_t c = 0; c < g->n_columns; c++) {
        const cell *x = &s->cells[c * g->n_replicas + r];
        MR_TRY(mr_stream_copy(copies, x->device, x->pinned, s->rows[r] * g->row_bytes[c], st));
    }
    MR_TRY(mr_stream_record(copies, s->arrived[r], st));
    MR_TRY(mr__completion_expect(&s->copied, copies, st));
    mr_stream_flush(copies);
    return MR_OK;
}

static mr_code start_copies(mr__staging *g, slot *s, mr_status *st)
{
    for (size_t r = 0; r < g->n_replicas && !g->direct; r++)
        MR_TRY(start_copies_of(g, s, r, st));
    return MR_OK;
}

static mr_code put_column(mr__staging *g, slot *s, const mr_step *step, size_t c, mr_status *st)
{
    const mr_array *a = &step->replicas[0].columns[c];
    size_t rows, widest;
    MR_TRY(measure_column(g, step, c, &rows, &widest, st));
    if (c == 0)
        for (size_t r = 0; r < g->n_replicas; r++)
            s->rows[r] = (size_t)step->replicas[r].columns[0].shape[0];
    size_t expected = 0;
    for (size_t r = 0; r < g->n_replicas; r++)
        expected += s->rows[r];
    if (rows != expected)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component %zu has %zu rows where component 0 has %zu; if these are not "
                       "batches, end the data with .batch(N), N being the global batch size",
                       c, rows, expected);
    MR_TRY(fill_column(g, s, step, c, widest, st));
    s->columns[c] = (mr_array){.dtype = a->dtype, .storage = MR_DENSE, .rank = a->rank, .rows = 1};
    memcpy(s->columns[c].shape, a->shape, sizeof a->shape);
    if (widest > g->full_rows)
        g->full_rows = widest;
    return MR_OK;
}

mr_code mr__staging_put(mr__staging *g, const mr_step *step, size_t *number, mr_status *st)
{
    slot *s = &g->slots[g->next];
    size_t n = step->replicas[0].n_columns;
    if (g->n_columns == 0)
        MR_TRY(see_columns(g, n, st));
    if (n != g->n_columns)
        return mr_fail(st, MR_INVALID_ARGUMENT, "batches of %zu components, then of %zu",
                       g->n_columns, n);
    for (size_t c = 0; c < n; c++)
        MR_TRY(put_column(g, s, step, c, st));
    MR_TRY(start_copies(g, s, st));
    s->all_rows = 0;
    for (size_t r = 0; r < g->n_replicas; r++) {
        s->first[r] = (int64_t)s->all_rows;
        s->all_rows += s->rows[r];
    }
    *number = g->next;
    g->next = (g->next + 1) % g->depth;
    return MR_OK;
}

size_t mr__staging_replica_rows(const mr__staging *g, size_t i, size_t r)
{
    return g->slots[i].rows[r];
}

void mr__staging_number_rows(mr__staging *g, size_t i, const int64_t *first, size_t rows)
{
    memcpy(g->slots[i].first, first, g->n_replicas * sizeof *first);
    g->slots[i].all_rows = rows;
}

size_t mr__staging_rows(const mr__staging *g, size_t i)
{
    return g->slots[i].all_rows;
}

int64_t mr__staging_first_row(const mr__staging *g, size_t i, size_t r)
{
    return g->slots[i].first[r];
}

size_t mr__staging_n_columns(const mr__staging *g)
{
    return g->n_columns;
}

void mr__staging_tensor(const mr__staging *g, size_t i, size_t r, size_t column, mr_array *t)
{
    *t = g->slots[i].columns[column];
    t->shape[0] = (int64_t)g->slots[i].rows[r];
    t->data = g->slots[i].cells[column * g->n_replicas + r].device;
}

mr_code mr__staging_acquire(mr__staging *g, size_t i, size_t r, mr_status *st)
{
    return mr_stream_wait(mr_replica_stream(mr_strategy_replica(g->s, r)), g->slots[i].arrived[r],
                          st);
}

mr_code mr__staging_release(mr__staging *g, size_t i, size_t r, mr_status *st)
{
    mr_stream *s = mr_replica_stream(mr_strategy_replica(g->s, r));
    if (g->direct)
        return mr__completion_expect(&g->slots[i].copied, s, st);
    return mr_stream_record(s, g->slots[i].released[r], st);
}

uint64_t mr__staging_placed_bytes(const mr__staging *g)
{
    return g->placed;
}
