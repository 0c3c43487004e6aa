/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/staging.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

/* One replica's rows of one column. */
typedef struct cell {
    void *pinned, *device;
    size_t capacity; /* bytes of both */
} cell;

typedef struct slot {
    cell *cells;                    /* [column * replicas + replica] */
    mr_event **arrived, **released; /* one a replica */
    size_t rows;
    mr_array *columns; /* dtype and shape of each, no data */
} slot;

struct mr__staging {
    mr_strategy *s;
    size_t depth, n_replicas, n_columns; /* n_columns 0: no batch seen yet */
    mr_stream **copies;                  /* one a replica */
    slot *slots;
    size_t next;       /* the slot to fill */
    size_t full_rows;  /* of the largest batch seen; 0: none */
    size_t *row_bytes; /* of each column, when it was seen */
    mr_segment *segments;
    mr_into into;
    bool wished; /* into was given out for the slot reserved */
    uint64_t placed;
};

static mr_device *device_of(const mr__staging *g, size_t r)
{
    return mr_replica_device(mr_strategy_replica(g->s, r));
}

static size_t slice_rows(size_t rows, size_t n, size_t r, size_t *first)
{
    size_t w = rows / n + (rows % n != 0);
    size_t from = r * w < rows ? r * w : rows;
    *first = from;
    return rows - from < w ? rows - from : w;
}

static void free_slot(mr__staging *g, slot *s)
{
    for (size_t i = 0; s->cells && i < g->n_columns * g->n_replicas; i++) {
        mr_device_free(device_of(g, i % g->n_replicas), MR_MEMORY_PINNED, s->cells[i].pinned);
        mr_device_free(device_of(g, i % g->n_replicas), MR_MEMORY_DEVICE, s->cells[i].device);
    }
    for (size_t r = 0; r < g->n_replicas; r++) {
        if (s->arrived)
            mr_event_free(s->arrived[r]);
        if (s->released)
            mr_event_free(s->released[r]);
    }
    mr_free(s->arrived);
    mr_free(s->released);
    mr_free(s->cells);
    mr_free(s->columns);
}

void mr__staging_free(mr__staging *g)
{
    if (!g)
        return;
    for (size_t i = 0; g->slots && i < g->depth; i++)
        for (size_t r = 0; r < g->n_replicas; r++)
            if (g->slots[i].released && g->slots[i].released[r])
                mr_event_synchronize(g->slots[i].released[r]);
    for (size_t r = 0; g->copies && r < g->n_replicas; r++)
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
    if (!s->arrived || !s->released)
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
    for (size_t r = 0; r < g->n_replicas; r++)
        MR_TRY(mr_stream_new(&g->copies[r], device_of(g, r), st));
    for (size_t i = 0; i < g->depth; i++)
        MR_TRY(make_slot(g, &g->slots[i], st));
    return MR_OK;
}

mr_code mr__staging_new(mr__staging **out, mr_strategy *s, size_t depth, mr_status *st)
{
    mr__staging *g = mr_calloc(1, sizeof *g);
    if (!g)
        return mr_fail_memory(st, sizeof *g, "a staging ring");
    g->s = s;
    g->depth = depth;
    g->n_replicas = mr_strategy_num_replicas_in_sync(s);
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

mr_code mr__staging_reserve(mr__staging *g, const mr_into **into, mr_status *st)
{
    (void)st;
    slot *s = &g->slots[g->next];
    /* Only a ring that is full makes the host wait here: for room, as any full queue does. */
    for (size_t r = 0; r < g->n_replicas; r++)
        mr_event_synchronize(s->arrived[r]);
    g->wished = g->full_rows > 0;
    for (size_t c = 0; c < g->n_columns && g->wished; c++)
        for (size_t r = 0; r < g->n_replicas; r++) {
            size_t first, i = c * g->n_replicas + r;
            size_t bytes = slice_rows(g->full_rows, g->n_replicas, r, &first) * g->row_bytes[c];
            g->segments[i] = (mr_segment){s->cells[i].pinned, bytes};
            g->wished = g->wished && bytes <= s->cells[i].capacity;
        }
    g->into = (mr_into){g->n_columns, g->n_replicas, g->segments};
    *into = g->wished ? &g->into : NULL;
    return MR_OK;
}

static mr_code check_column(const mr__staging *g, const mr_block *b, size_t c, mr_status *st)
{
    const mr_array *a = &b->columns[c], *first = &b->columns[0];
    if (a->storage != MR_DENSE && !(a->storage == MR_PLACED && g->wished))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "component %zu of the batches is not a dense tensor of numbers (%s); decode or "
            "pad it in the pipeline",
            c, mr_dtype_name(a->dtype));
    if (a->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component %zu is a scalar; batch the dataset first (with the global batch "
                       "size)",
                       c);
    if (a->shape[0] != first->shape[0])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component %zu has %" PRId64 " rows where component 0 has %" PRId64, c,
                       a->shape[0], first->shape[0]);
    return MR_OK;
}

static mr_code make_room(mr__staging *g, slot *s, size_t i, size_t bytes, mr_status *st)
{
    cell *x = &s->cells[i];
    size_t r = i % g->n_replicas;
    if (bytes <= x->capacity)
        return MR_OK;
    mr_event_synchronize(s->released[r]); /* the last step that read it may still be running */
    void *pinned, *device;
    MR_TRY(mr_device_alloc(device_of(g, r), MR_MEMORY_PINNED, bytes, &pinned, st));
    mr_code rc = mr_device_alloc(device_of(g, r), MR_MEMORY_DEVICE, bytes, &device, st);
    if (rc != MR_OK) {
        mr_device_free(device_of(g, r), MR_MEMORY_PINNED, pinned);
        return rc;
    }
    mr_device_free(device_of(g, r), MR_MEMORY_PINNED, x->pinned);
    mr_device_free(device_of(g, r), MR_MEMORY_DEVICE, x->device);
    *x = (cell){pinned, device, bytes};
    return MR_OK;
}

/* The pipeline filled the segments one after the other as if the batch were full; this one has
 * fewer rows, so slices are shorter and every row moves to the same or a later replica. Going from
 * the last row down, a row never overwrites one that has not moved yet. */
static void cut_again(mr__staging *g, slot *s, size_t c, size_t rows)
{
    size_t old = (g->full_rows + g->n_replicas - 1) / g->n_replicas;
    size_t now = (rows + g->n_replicas - 1) / g->n_replicas;
    size_t bytes = g->row_bytes[c];
    for (size_t i = rows; i-- > 0 && now < old;) {
        char *from = s->cells[c * g->n_replicas + i / old].pinned;
        char *to = s->cells[c * g->n_replicas + i / now].pinned;
        memmove(to + i % now * bytes, from + i % old * bytes, bytes);
    }
}

static mr_code fill_column(mr__staging *g, slot *s, const mr_array *a, size_t c, mr_status *st)
{
    size_t rows = (size_t)a->shape[0], first;
    size_t bytes = rows ? mr_array_row_bytes(a) / rows : 0;
    if (a->storage == MR_PLACED) {
        if (rows > g->full_rows || (rows > 0 && bytes != g->row_bytes[c]))
            return mr_fail(st, MR_INTERNAL, "a batch of %zu rows was placed in room for %zu", rows,
                           g->full_rows);
        cut_again(g, s, c, rows);
        g->placed += rows * bytes;
        return MR_OK;
    }
    for (size_t r = 0; r < g->n_replicas; r++) {
        size_t n = slice_rows(rows, g->n_replicas, r, &first), i = c * g->n_replicas + r;
        MR_TRY(make_room(g, s, i, n * bytes, st));
        if (n > 0)
            memcpy(s->cells[i].pinned, (const char *)a->data + first * bytes, n * bytes);
    }
    return MR_OK;
}

static void start_copies(mr__staging *g, slot *s)
{
    for (size_t r = 0; r < g->n_replicas; r++) {
        size_t first, n = slice_rows(s->rows, g->n_replicas, r, &first);
        mr_stream_wait(g->copies[r], s->released[r]);
        for (size_t c = 0; c < g->n_columns; c++) {
            const cell *x = &s->cells[c * g->n_replicas + r];
            mr_stream_copy(g->copies[r], x->device, x->pinned, n * g->row_bytes[c]);
        }
        mr_stream_record(g->copies[r], s->arrived[r]);
    }
}

mr_code mr__staging_put(mr__staging *g, const mr_block *b, size_t *slot_, mr_status *st)
{
    slot *s = &g->slots[g->next];
    if (g->n_columns == 0)
        MR_TRY(see_columns(g, b->n_columns, st));
    if (b->n_columns != g->n_columns)
        return mr_fail(st, MR_INVALID_ARGUMENT, "batches of %zu components, then of %zu",
                       g->n_columns, b->n_columns);
    for (size_t c = 0; c < g->n_columns; c++)
        MR_TRY(check_column(g, b, c, st));
    s->rows = (size_t)b->columns[0].shape[0];
    for (size_t c = 0; c < g->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        MR_TRY(fill_column(g, s, a, c, st));
        s->columns[c] =
            (mr_array){.dtype = a->dtype, .storage = MR_DENSE, .rank = a->rank, .rows = 1};
        memcpy(s->columns[c].shape, a->shape, sizeof a->shape);
    }
    for (size_t c = 0; c < g->n_columns && s->rows > 0; c++)
        g->row_bytes[c] = mr_array_row_bytes(&b->columns[c]) / s->rows;
    if (s->rows > g->full_rows)
        g->full_rows = s->rows;
    start_copies(g, s);
    *slot_ = g->next;
    g->next = (g->next + 1) % g->depth;
    return MR_OK;
}

size_t mr__staging_rows(const mr__staging *g, size_t i)
{
    return g->slots[i].rows;
}

int64_t mr__staging_first_row(const mr__staging *g, size_t i, size_t r)
{
    size_t first;
    slice_rows(g->slots[i].rows, g->n_replicas, r, &first);
    return (int64_t)first;
}

size_t mr__staging_n_columns(const mr__staging *g)
{
    return g->n_columns;
}

void mr__staging_tensor(const mr__staging *g, size_t i, size_t r, size_t column, mr_array *t)
{
    size_t first;
    *t = g->slots[i].columns[column];
    t->shape[0] = (int64_t)slice_rows(g->slots[i].rows, g->n_replicas, r, &first);
    t->data = g->slots[i].cells[column * g->n_replicas + r].device;
}

void mr__staging_hand_over(mr__staging *g, size_t i)
{
    for (size_t r = 0; r < g->n_replicas; r++)
        mr_stream_wait(mr_replica_stream(mr_strategy_replica(g->s, r)), g->slots[i].arrived[r]);
}

void mr__staging_give_back(mr__staging *g, size_t i)
{
    for (size_t r = 0; r < g->n_replicas; r++)
        mr_stream_record(mr_replica_stream(mr_strategy_replica(g->s, r)), g->slots[i].released[r]);
}

uint64_t mr__staging_placed_bytes(const mr__staging *g)
{
    return g->placed;
}
