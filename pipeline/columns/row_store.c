/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of strings: a cell of class c has (8 + c % 8) * 2^(c / 8) bytes, from 8 to 15 * 2^13;
 * longer strings are allocated individually. A free cell contains the address of the next free
 * cell of its class. */
#include "pipeline/columns/row_store.h"

#include <assert.h>
#include <string.h>

#include "pipeline/columns/batch_builder.h"
#include "pipeline/memory/object.h"

enum {
    CHUNK_BYTES = 1 << 20,
    SLAB_BYTES = 1 << 18,
    FIRST_SLAB_BYTES = 1 << 13, /* each is twice as large as the previous one */
    MAX_CHUNKS = 1 << 26,
    PREFETCH_ROWS = 8,
    PREFETCH_BYTES = 1024
};

/* ---- slots ---- */

static mr_code reserve_slots(mr__row_store *s, size_t n, mr_status *st)
{
    if (n <= s->n_free)
        return MR_OK;
    size_t more = n - s->n_free, all = s->n_slots + more;
    if (all > UINT32_MAX)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "shuffle can hold at most %u elements; use a smaller buffer", UINT32_MAX);
    MR_TRY(MR_GROW(s->free_slots, s->free_capacity, all, UINT32_MAX, "the slots of shuffle", st));
    /* Slots in use return to the top of the list; the new ones go above the free ones. */
    for (size_t i = 0; i < more; i++)
        s->free_slots[s->n_free + i] = (uint32_t)(all - 1 - i);
    s->n_free += more;
    s->n_slots = all;
    return MR_OK;
}

static char *slot_at(const mr__store_column *c, uint32_t slot)
{
    size_t in_chunk = slot & (((size_t)1 << c->shift) - 1);
    return c->base[slot >> c->shift] + in_chunk * c->stride;
}

/* Chunks for all slots up to `slots`. */
static mr_code reserve_chunks(mr__store_column *c, size_t slots, mr_status *st)
{
    size_t need = (slots + ((size_t)1 << c->shift) - 1) >> c->shift;
    MR_TRY(MR_GROW(c->chunks, c->chunks_capacity, need, MAX_CHUNKS, "the chunks of shuffle", st));
    MR_TRY(MR_GROW(c->base, c->bases_capacity, need, MAX_CHUNKS, "the chunks of shuffle", st));
    while (c->n_chunks < need) {
        mr_buffer *b;
        size_t bytes = c->stride << c->shift;
        MR_TRY(mr_buffer_alloc(&b, bytes ? bytes : 1, st));
        if (c->keep == MR_KEEP_VIEW || c->keep == MR_KEEP_STRING) /* an unused slot is all zero */
            memset(mr_buffer_data(b), 0, bytes);
        c->base[c->n_chunks] = mr_buffer_data(b);
        c->chunks[c->n_chunks++] = b;
    }
    return MR_OK;
}

static void set_stride(mr__store_column *c, size_t stride, uint64_t expected)
{
    c->stride = stride;
    c->shift = 0;
    while (c->shift < 16 && stride << (c->shift + 1) <= CHUNK_BYTES &&
           (expected == 0 || (uint64_t)1 << c->shift < expected))
        c->shift++;
}

static void drop_chunks(mr__store_column *c)
{
    for (size_t i = 0; i < c->n_chunks; i++)
        mr_buffer_unref(c->chunks[i]);
    mr_free(c->chunks);
    mr_free(c->base);
    c->chunks = NULL;
    c->base = NULL;
    c->n_chunks = c->chunks_capacity = c->bases_capacity = 0;
}

/* ---- cells of strings ---- */

static size_t class_bytes(size_t c)
{
    return (8 + c % 8) << (c / 8);
}

/* The class of a string; MR_STORE_CLASSES: it has a separate allocation. */
static size_t class_of(size_t bytes)
{
    if (bytes <= 8)
        return 0;
    if (bytes > class_bytes(MR_STORE_CLASSES - 1))
        return MR_STORE_CLASSES;
    unsigned top = 63 - (unsigned)__builtin_clzll(bytes - 1);
    /* 2^top <= bytes - 1 < 2^(top + 1); the step between classes there is 2^(top - 3). */
    size_t step = (bytes - 1) >> (top - 3);
    return (size_t)(top - 3) * 8 + (step - 8) + 1;
}

static mr_code cell_new(mr__store_column *c, size_t bytes, char **out, mr_status *st)
{
    size_t class = class_of(bytes);
    if (class == MR_STORE_CLASSES) {
        *out = mr_malloc(bytes);
        return *out ? MR_OK : mr_fail_memory(st, bytes, "a record in shuffle");
    }
    if (c->cells[class]) {
        *out = c->cells[class];
        memcpy(&c->cells[class], *out, sizeof(void *));
        return MR_OK;
    }
    size_t size = class_bytes(class);
    if (c->fresh_bytes < size) {
        mr_buffer *b;
        size_t usual = c->n_slabs < 5 ? (size_t)FIRST_SLAB_BYTES << c->n_slabs : SLAB_BYTES;
        size_t slab = size > usual / 8 ? 4 * size : usual;
        MR_TRY(MR_GROW(c->slabs, c->slabs_capacity, c->n_slabs + 1, MAX_CHUNKS,
                       "the slabs of shuffle", st));
        MR_TRY(mr_buffer_alloc(&b, slab, st));
        c->slabs[c->n_slabs++] = b;
        c->fresh = mr_buffer_data(b);
        c->fresh_bytes = slab;
    }
    *out = c->fresh;
    c->fresh += size;
    c->fresh_bytes -= size;
    return MR_OK;
}

static void cell_free(mr__store_column *c, char *cell, size_t bytes)
{
    size_t class = class_of(bytes);
    if (class == MR_STORE_CLASSES) {
        mr_free(cell);
        return;
    }
    memcpy(cell, &c->cells[class], sizeof(void *));
    c->cells[class] = cell;
}

/* ---- ways of keeping ---- */

static bool same_shape(const mr_array *a, const mr_array *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
}

static mr__keep way_of(const mr_array *a)
{
    if (a->storage == MR_RAGGED || a->storage == MR_DATASETS)
        return MR_KEEP_VIEW;
    if (a->resident && a->owner)
        return MR_KEEP_POINT;
    if (a->storage == MR_BYTES)
        return a->rank == 0 ? MR_KEEP_STRING : MR_KEEP_VIEW;
    return MR_KEEP_COPY;
}

static mr_code start_column(mr__store_column *c, const mr_array *a, uint64_t expected,
                            mr_status *st)
{
    c->keep = way_of(a);
    c->like = *a;
    c->like.owner = NULL;
    c->like.data = NULL;
    c->like.rows = 0;
    c->like.resident = false;
    switch (c->keep) {
    case MR_KEEP_COPY:
        set_stride(c, mr_array_row_bytes(a), expected);
        break;
    case MR_KEEP_POINT:
        set_stride(c, sizeof(char *), expected);
        return mr_buffer_alloc(&c->holder, 1, st);
    case MR_KEEP_STRING:
        set_stride(c, sizeof(mr_bytes), expected);
        break;
    case MR_KEEP_VIEW:
        set_stride(c, sizeof(mr_array), expected);
        break;
    }
    return MR_OK;
}

static bool takes(const mr__store_column *c, const mr_array *a)
{
    switch (c->keep) {
    case MR_KEEP_COPY:
        return a->storage == MR_DENSE && same_shape(&c->like, a);
    case MR_KEEP_POINT: /* a row that is not resident is held by its block; this is rare */
        return (a->storage == MR_DENSE || a->storage == MR_BYTES) && a->owner &&
               same_shape(&c->like, a);
    case MR_KEEP_STRING:
        return a->storage == MR_BYTES && a->rank == 0;
    default:
        return true;
    }
}

/* A view of one row of a column that does not store views. */
static mr_code view_of_slot(mr__store_column *c, uint32_t slot, mr_array *view, mr_status *st)
{
    char *at = slot_at(c, slot);
    *view = c->like;
    view->rows = 1;
    if (c->keep == MR_KEEP_COPY) {
        view->data = at;
        view->owner = mr_buffer_ref(c->chunks[slot >> c->shift]);
        return MR_OK;
    }
    if (c->keep == MR_KEEP_POINT) {
        memcpy(&view->data, at, sizeof view->data);
        view->owner = mr_buffer_ref(c->holder);
        if (view->storage == MR_DENSE)
            return MR_OK;
        /* The buffers that the holder holds keep the strings themselves alive. */
        mr_array strings;
        MR_TRY(mr_array_alloc(&strings, view->dtype, view->rank, view->shape, 1, st));
        memcpy(strings.data, view->data, mr_array_row_bytes(view));
        mr_code rc = mr_buffer_hold(strings.owner, c->holder, st);
        mr_array_reset(view);
        *view = strings;
        return rc;
    }
    mr_array string;
    mr_bytes b;
    memcpy(&b, at, sizeof b);
    MR_TRY(mr_array_alloc(&string, MR_STRING, 0, NULL, 1, st));
    mr_buffer *text = NULL;
    mr_code rc = mr_buffer_alloc(&text, b.size ? b.size : 1, st);
    if (rc == MR_OK) {
        if (b.size)
            memcpy(mr_buffer_data(text), b.data, b.size);
        *(mr_bytes *)string.data = (mr_bytes){mr_buffer_data(text), b.size};
        rc = mr_buffer_hold(string.owner, text, st);
    }
    mr_buffer_unref(text);
    if (rc != MR_OK)
        mr_array_reset(&string);
    *view = string;
    return rc;
}

static void drop_rows(mr__store_column *c, const uint32_t *slots, size_t n)
{
    if (c->keep == MR_KEEP_STRING)
        for (size_t i = 0; i < n; i++) {
            mr_bytes b;
            memcpy(&b, slot_at(c, slots[i]), sizeof b);
            cell_free(c, (char *)(uintptr_t)b.data, b.size);
            memset(slot_at(c, slots[i]), 0, sizeof b);
        }
    else if (c->keep == MR_KEEP_VIEW)
        for (size_t i = 0; i < n; i++)
            mr_array_reset((mr_array *)(void *)slot_at(c, slots[i]));
}

static void reset_column(mr__store_column *c)
{
    bool owns = c->keep == MR_KEEP_VIEW || c->keep == MR_KEEP_STRING;
    for (size_t i = 0; owns && c->chunks && i < c->n_chunks << c->shift; i++) {
        char *at = slot_at(c, (uint32_t)i);
        if (c->keep == MR_KEEP_VIEW)
            mr_array_reset((mr_array *)(void *)at);
        mr_bytes b = {0};
        if (c->keep == MR_KEEP_STRING)
            memcpy(&b, at, sizeof b);
        if (class_of(b.size) == MR_STORE_CLASSES)
            mr_free((char *)(uintptr_t)b.data);
    }
    drop_chunks(c);
    mr_buffer_unref(c->holder);
    for (size_t i = 0; i < c->n_slabs; i++)
        mr_buffer_unref(c->slabs[i]);
    mr_free(c->slabs);
    *c = (mr__store_column){0};
}

/* The slots that hold rows: all except the free ones. *out has n_slots flags. */
static mr_code used_slots(const mr__row_store *s, bool **out, mr_status *st)
{
    bool *used = mr_malloc(s->n_slots ? s->n_slots : 1);
    if (!used)
        return mr_fail_memory(st, s->n_slots, "the slots of shuffle");
    memset(used, 1, s->n_slots);
    for (size_t i = 0; i < s->n_free; i++)
        used[s->free_slots[i]] = false;
    *out = used;
    return MR_OK;
}

static mr_code become_views(mr__row_store *s, mr__store_column *c, mr_status *st)
{
    bool *used = NULL;
    mr__store_column views = {.keep = MR_KEEP_VIEW, .like = c->like};
    set_stride(&views, sizeof(mr_array), s->expected);
    MR_TRY(used_slots(s, &used, st));
    mr_code rc = reserve_chunks(&views, s->n_slots, st);
    for (size_t i = 0; i < s->n_slots && rc == MR_OK; i++) {
        mr_array view = {0};
        if (!used[i])
            continue;
        rc = view_of_slot(c, (uint32_t)i, &view, st);
        if (rc == MR_OK)
            memcpy(slot_at(&views, (uint32_t)i), &view, sizeof view);
    }
    mr_free(used);
    reset_column(rc == MR_OK ? c : &views);
    if (rc == MR_OK)
        *c = views;
    return rc;
}

/* ---- putting ---- */

static void copy_rows(mr__store_column *c, const mr_array *a, size_t from, const uint32_t *slots,
                      size_t n)
{
    const char *row = mr_array_at(a, from);
    size_t bytes = c->stride;
    for (size_t i = 0; i < n && bytes;) {
        /* New slots are adjacent: one copy for each run of adjacent slots. */
        size_t run = 1;
        char *to = slot_at(c, slots[i]);
        while (i + run < n && slots[i + run] == slots[i] + run &&
               slots[i + run] >> c->shift == slots[i] >> c->shift)
            run++;
        memcpy(to, row, run * bytes);
        row += run * bytes;
        i += run;
    }
}

static mr_code put_strings(mr__store_column *c, const mr_array *a, size_t from,
                           const uint32_t *slots, size_t n, mr_status *st)
{
    const mr_bytes *v = mr_array_at(a, from);
    for (size_t i = 0; i < n; i++) {
        mr_bytes b = {.size = v[i].size};
        char *cell = NULL;
        mr_code rc = cell_new(c, b.size, &cell, st);
        if (rc != MR_OK) {
            drop_rows(c, slots, i);
            return rc;
        }
        if (b.size)
            memcpy(cell, v[i].data, b.size);
        b.data = cell;
        memcpy(slot_at(c, slots[i]), &b, sizeof b);
        c->put_bytes += b.size;
    }
    c->put_rows += n;
    return MR_OK;
}

static mr_code put_column(mr__store_column *c, const mr_array *a, size_t from,
                          const uint32_t *slots, size_t n, mr_status *st)
{
    switch (c->keep) {
    case MR_KEEP_COPY:
        copy_rows(c, a, from, slots, n);
        return MR_OK;
    case MR_KEEP_POINT: {
        MR_TRY(mr_buffer_hold(c->holder, a->owner, st));
        if (a->storage == MR_BYTES)
            MR_TRY(mr_buffer_hold_all(c->holder, a->owner, st));
        const char *row = mr_array_at(a, from);
        size_t bytes = mr_array_row_bytes(a);
        for (size_t i = 0; i < n; i++, row += bytes)
            memcpy(slot_at(c, slots[i]), &row, sizeof row);
        return MR_OK;
    }
    case MR_KEEP_STRING:
        return put_strings(c, a, from, slots, n, st);
    case MR_KEEP_VIEW:
        c->mixed |= a->rank != c->like.rank;
        for (size_t i = 0; i < n; i++)
            mr_array_slice((mr_array *)(void *)slot_at(c, slots[i]), a, from + i, 1);
        return MR_OK;
    }
    return MR_OK;
}

static mr_code start(mr__row_store *s, const mr_block *b, mr_status *st)
{
    s->columns = mr_calloc(b->n_columns ? b->n_columns : 1, sizeof *s->columns);
    if (!s->columns)
        return mr_fail_memory(st, b->n_columns * sizeof *s->columns, "the columns of shuffle");
    s->n_columns = b->n_columns;
    s->has_ids = b->ids.ids != NULL;
    for (size_t c = 0; c < b->n_columns; c++) {
        mr_code rc = start_column(&s->columns[c], &b->columns[c], s->expected, st);
        if (rc != MR_OK) {
            mr__row_store_reset(s);
            return rc;
        }
    }
    return MR_OK;
}

static mr_code prepare(mr__row_store *s, const mr_block *b, size_t n, mr_status *st)
{
    if (!s->columns)
        MR_TRY(start(s, b, st));
    MR_TRY(reserve_slots(s, n, st));
    for (size_t c = 0; c < s->n_columns; c++) {
        if (!takes(&s->columns[c], &b->columns[c]))
            MR_TRY(become_views(s, &s->columns[c], st));
        MR_TRY(reserve_chunks(&s->columns[c], s->n_slots, st));
    }
    if (!s->has_ids)
        return MR_OK;
    size_t had = s->ids_capacity;
    MR_TRY(
        MR_GROW(s->ids, s->ids_capacity, s->n_slots, UINT32_MAX, "the identities of shuffle", st));
    if (s->ids_capacity > had)
        memset(s->ids + had, 0, (s->ids_capacity - had) * sizeof *s->ids);
    return MR_OK;
}

mr_code mr__row_store_put(mr__row_store *s, const mr_block *b, size_t from, size_t n,
                          uint32_t *slots, mr_status *st)
{
    MR_TRY(prepare(s, b, n, st));
    for (size_t i = 0; i < n; i++)
        slots[i] = s->free_slots[s->n_free - 1 - i];
    for (size_t c = 0; c < s->n_columns; c++) {
        mr_code rc = put_column(&s->columns[c], &b->columns[c], from, slots, n, st);
        if (rc != MR_OK) {
            while (c--)
                drop_rows(&s->columns[c], slots, n);
            return rc;
        }
    }
    for (size_t i = 0; s->has_ids && i < n; i++)
        mr_identities_take(&s->ids[slots[i]], &b->ids, from + i, 1);
    s->n_free -= n;
    return MR_OK;
}

/* ---- taking ---- */

#define GATHER(size, address)                                                                      \
    for (size_t i = 0; i < n; i++) {                                                               \
        memcpy(to, (address), (size));                                                             \
        to += (size);                                                                              \
    }

static inline const char *pointed(const mr__store_column *c, uint32_t slot)
{
    const char *p;
    memcpy(&p, slot_at(c, slot), sizeof p);
    return p;
}

static inline const char *row_of(const mr__store_column *c, uint32_t slot)
{
    return c->keep == MR_KEEP_POINT ? pointed(c, slot) : slot_at(c, slot);
}

static void gather(const mr__store_column *c, const uint32_t *slots, size_t n, char *to,
                   size_t bytes)
{
    if (bytes == 8 && c->keep == MR_KEEP_COPY) {
        GATHER(8, slot_at(c, slots[i]))
        return;
    }
    size_t ahead = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
    for (size_t i = 0; i < n; i++) {
        if (i + PREFETCH_ROWS < n) {
            const char *next = row_of(c, slots[i + PREFETCH_ROWS]);
            for (size_t at = 0; at < ahead; at += 64)
                __builtin_prefetch(next + at);
        }
        memcpy(to, row_of(c, slots[i]), bytes);
        to += bytes;
    }
}

/* Straight into the consumer's segments, if each takes whole rows and the rows fill all. */
static bool gather_into(const mr__store_column *c, const uint32_t *slots, size_t n,
                        const mr_destination *destination, size_t column)
{
    size_t bytes = mr_array_row_bytes(&c->like);
    if (!destination || column >= destination->n_columns || bytes == 0 ||
        n * bytes != mr__segment_bytes(destination, column))
        return false;
    const mr_segment *s = &destination->segments[column * destination->n_segments];
    for (size_t i = 0; i < destination->n_segments; i++)
        if (s[i].bytes % bytes)
            return false;
    for (size_t i = 0; i < destination->n_segments; i++) {
        size_t rows = s[i].bytes / bytes;
        gather(c, slots, rows, s[i].data, bytes);
        slots += rows;
    }
    return true;
}

static mr_code take_dense(const mr__store_column *c, const uint32_t *slots, size_t n,
                          const mr_destination *destination, size_t column, mr_array *out,
                          mr_status *st)
{
    const mr_array *like = &c->like;
    if (like->storage == MR_DENSE && gather_into(c, slots, n, destination, column)) {
        *out = *like;
        out->storage = MR_PLACED;
        out->rows = n;
        return MR_OK;
    }
    MR_TRY(mr_array_alloc(out, like->dtype, like->rank, like->shape, n, st));
    if (like->storage == MR_BYTES)
        MR_TRY(mr_buffer_hold(out->owner, c->holder, st));
    gather(c, slots, n, out->data, mr_array_row_bytes(out));
    return MR_OK;
}

static mr_code take_strings(const mr__store_column *c, const uint32_t *slots, size_t n,
                            mr_array *out, mr_status *st)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += ((const mr_bytes *)(const void *)slot_at(c, slots[i]))->size;
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, n, st));
    mr_buffer *text;
    MR_TRY(mr_buffer_alloc(&text, bytes, st));
    mr_code rc = mr_buffer_hold(out->owner, text, st);
    char *to = mr_buffer_data(text);
    mr_buffer_unref(text);
    MR_TRY(rc);
    mr_bytes *v = out->data;
    for (size_t i = 0; i < n; i++) {
        if (i + PREFETCH_ROWS < n) {
            mr_bytes next;
            memcpy(&next, slot_at(c, slots[i + PREFETCH_ROWS]), sizeof next);
            size_t ahead = next.size < PREFETCH_BYTES ? next.size : PREFETCH_BYTES;
            for (size_t at = 0; at < ahead; at += 64)
                __builtin_prefetch(next.data + at);
        }
        mr_bytes b;
        memcpy(&b, slot_at(c, slots[i]), sizeof b);
        if (b.size)
            memcpy(to, b.data, b.size);
        v[i] = (mr_bytes){to, b.size};
        to += b.size;
    }
    return MR_OK;
}

static mr_code take_views(const mr__store_column *c, const uint32_t *slots, size_t n, mr_array *out,
                          mr_status *st)
{
    const mr_array *first = (const mr_array *)(void *)slot_at(c, slots[0]);
    bool differ = false;
    for (size_t i = 1; i < n && !differ; i++)
        differ = !mr_array_fits(first, (const mr_array *)(void *)slot_at(c, slots[i]));
    mr_array like = *first;
    if (differ)
        like.storage = MR_RAGGED;
    MR_TRY(mr_array_start(out, &like, n, st));
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_array_append(out, (const mr_array *)(void *)slot_at(c, slots[i]), 0, 1, st));
    return MR_OK;
}

static mr_code take_ids(const mr__row_store *s, const uint32_t *slots, size_t n, mr_block *out,
                        mr_status *st)
{
    mr_block like = {.rows = 1, .ids = s->ids[slots[0]]}, ids = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_start(&ids, &like, n, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        like.ids = s->ids[slots[i]];
        rc = mr_block_append(&ids, &like, 0, 1, st);
    }
    out->ids = ids.ids;
    ids.ids = (mr_identities){0};
    mr_block_reset(&ids);
    return rc;
}

mr_code mr__row_store_copy(mr__row_store *s, const uint32_t *slots, size_t n, mr_block *out,
                           mr_status *st)
{
    MR_TRY(mr_block_prepare(out, s->n_columns, st));
    for (size_t i = 0; i < s->n_columns; i++) {
        const mr__store_column *c = &s->columns[i];
        mr_array *to = &out->columns[i];
        if (c->keep == MR_KEEP_STRING)
            MR_TRY(take_strings(c, slots, n, to, st));
        else if (c->keep == MR_KEEP_VIEW)
            MR_TRY(take_views(c, slots, n, to, st));
        else
            MR_TRY(take_dense(c, slots, n, out->destination, i, to, st));
    }
    if (s->has_ids)
        MR_TRY(take_ids(s, slots, n, out, st));
    out->rows = n;
    return MR_OK;
}

void mr__row_store_drop(mr__row_store *s, const uint32_t *slots, size_t n)
{
    for (size_t c = 0; c < s->n_columns; c++)
        drop_rows(&s->columns[c], slots, n);
    for (size_t i = 0; s->has_ids && i < n; i++)
        mr_identities_reset(&s->ids[slots[i]]);
    if (n == 0)
        return; /* a store without rows has no lists */
    /* The list has room for every slot. */
    memcpy(s->free_slots + s->n_free, slots, n * sizeof *slots);
    s->n_free += n;
}

mr_code mr__row_store_take(mr__row_store *s, const uint32_t *slots, size_t n, mr_block *out,
                           mr_status *st)
{
    MR_TRY(mr__row_store_copy(s, slots, n, out, st));
    mr__row_store_drop(s, slots, n);
    return MR_OK;
}

size_t mr__row_store_fits(const mr__row_store *s, const uint32_t *slots, size_t n)
{
    for (size_t c = 0; c < s->n_columns; c++) {
        const mr__store_column *k = &s->columns[c];
        if (k->keep != MR_KEEP_VIEW || !k->mixed)
            continue;
        const mr_array *first = (const mr_array *)(void *)slot_at(k, slots[0]);
        for (size_t i = 1; i < n; i++)
            if (((const mr_array *)(void *)slot_at(k, slots[i]))->rank != first->rank)
                n = i;
    }
    return n;
}

size_t mr__row_store_row_bytes(const mr__row_store *s)
{
    size_t bytes = 0;
    for (size_t c = 0; c < s->n_columns; c++)
        if (s->columns[c].keep == MR_KEEP_COPY || s->columns[c].keep == MR_KEEP_POINT)
            bytes += mr_array_row_bytes(&s->columns[c].like);
        else if (s->columns[c].keep == MR_KEEP_STRING && s->columns[c].put_rows)
            bytes += sizeof(mr_bytes) + (size_t)(s->columns[c].put_bytes / s->columns[c].put_rows);
    return bytes;
}

void mr__row_store_reset(mr__row_store *s)
{
    for (size_t c = 0; s->columns && c < s->n_columns; c++)
        reset_column(&s->columns[c]);
    for (size_t i = 0; s->ids && i < s->ids_capacity; i++)
        mr_identities_reset(&s->ids[i]);
    mr_free(s->ids);
    mr_free(s->columns);
    mr_free(s->free_slots);
    *s = (mr__row_store){.expected = s->expected};
}
