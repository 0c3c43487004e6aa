/* SPDX-License-Identifier: Apache-2.0 */
/* The encoding of positions.
 *
 *   number      LEB128: 7 bits per byte, low bits first; signed: zigzag
 *   bytes       their number, then the bytes
 *   status      -code, errno, message, op, file, offset, record, element
 *   block       rows, columns, has identities; each column: storage, dtype, rank, then
 *                 DENSE     shape, values as in memory (little-endian)
 *                 BYTES     shape, each string as bytes
 *                 RAGGED    each row: shape, has splits, [splits], values as above
 *                 DATASETS  each graph in its protobuf form, as bytes
 *               identities: each row the number of its identities, then four numbers for each
 *   names       number of files, then source, file and name (bytes) of each
 *
 * Every length is checked against the remaining bytes before memory is allocated. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/run.h"
#include "pipeline/engine/position.h"
#include "pipeline/functions/descriptor.h"
#include "pipeline/memory/object.h"
#include "pipeline/varint.h"

enum { MAX_STATE_BYTES = INT32_MAX };

mr_code mr_state_damaged(mr_status *st, const char *what)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %s", what);
}

bool mr_state_is_of_0_1(const mr_state_r *r)
{
    return r->is_of_0_1;
}

void mr__state_w_reset(mr_state_w *w)
{
    mr_free(w->data);
    mr__ledger_names_reset(&w->names);
    memset(w, 0, sizeof *w);
}

static mr_code put(mr_state_w *w, const void *p, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(w->data, w->capacity, w->size + n, MAX_STATE_BYTES, "a position", st));
    if (n)
        memcpy(w->data + w->size, p, n);
    w->size += n;
    return MR_OK;
}

mr_code mr_state_put_u64(mr_state_w *w, uint64_t v, mr_status *st)
{
    uint8_t b[MR__VARINT_MOST];
    return put(w, b, (size_t)(mr__varint_put(b, v) - b), st);
}

mr_code mr_state_put_i64(mr_state_w *w, int64_t v, mr_status *st)
{
    return mr_state_put_u64(w, mr__zigzag(v), st);
}

mr_code mr_state_put_bytes(mr_state_w *w, const void *p, size_t n, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, n, st));
    return put(w, p, n, st);
}

mr_code mr_state_get_u64(mr_state_r *r, uint64_t *v, mr_status *st)
{
    uint64_t x;
    const uint8_t *next = mr__varint(r->at, r->end, &x);
    if (!next || (next - r->at == MR__VARINT_MOST && next[-1] > 1))
        return mr_state_damaged(st, "a number is cut short or has more than 64 bits");
    r->at = next;
    *v = x;
    return MR_OK;
}

mr_code mr_state_get_i64(mr_state_r *r, int64_t *v, mr_status *st)
{
    uint64_t u;
    MR_TRY(mr_state_get_u64(r, &u, st));
    *v = mr__unzigzag(u);
    return MR_OK;
}

mr_code mr_state_get_bytes(mr_state_r *r, const void **p, size_t *n, mr_status *st)
{
    uint64_t size;
    MR_TRY(mr_state_get_u64(r, &size, st));
    if (size > (uint64_t)(r->end - r->at))
        return mr_state_damaged(st, "it ends within a string");
    *p = r->at;
    *n = (size_t)size;
    r->at += size;
    return MR_OK;
}

/* ---- errors ---- */

mr_code mr_state_put_status(mr_state_w *w, const mr_status *e, mr_status *st)
{
    MR_TRY(mr_state_put_i64(w, e->code, st));
    MR_TRY(mr_state_put_i64(w, e->sys_errno, st));
    MR_TRY(mr_state_put_bytes(w, e->message, strlen(e->message), st));
    MR_TRY(mr_state_put_bytes(w, e->op, strlen(e->op), st));
    MR_TRY(mr_state_put_bytes(w, e->file, strlen(e->file), st));
    MR_TRY(mr_state_put_i64(w, e->offset, st));
    MR_TRY(mr_state_put_i64(w, e->record, st));
    return mr_state_put_i64(w, e->element, st);
}

static mr_code get_text(mr_state_r *r, char *buf, size_t size, mr_status *st)
{
    const void *p;
    size_t n;
    MR_TRY(mr_state_get_bytes(r, &p, &n, st));
    if (n >= size || memchr(p, 0, n))
        return mr_state_damaged(st, "a message is too long");
    memcpy(buf, p, n);
    buf[n] = '\0';
    return MR_OK;
}

mr_code mr_state_get_status(mr_state_r *r, mr_status *e, mr_status *st)
{
    int64_t code, err;
    mr_status_init(e);
    MR_TRY(mr_state_get_i64(r, &code, st));
    MR_TRY(mr_state_get_i64(r, &err, st));
    if (code >= 0 || code < MR_DATA_LOSS || err < 0 || err > 4095)
        return mr_state_damaged(st, "an error has an unknown code");
    e->code = (mr_code)code;
    e->sys_errno = (int)err;
    MR_TRY(get_text(r, e->message, sizeof e->message, st));
    MR_TRY(get_text(r, e->op, sizeof e->op, st));
    MR_TRY(get_text(r, e->file, sizeof e->file, st));
    MR_TRY(mr_state_get_i64(r, &e->offset, st));
    MR_TRY(mr_state_get_i64(r, &e->record, st));
    return mr_state_get_i64(r, &e->element, st);
}

/* ---- blocks ---- */

static mr_code put_values(mr_state_w *w, mr_dtype t, const void *values, size_t n, mr_status *st)
{
    if (t != MR_STRING)
        return put(w, values, n * mr_dtype_size(t), st);
    const mr_bytes *s = values;
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_state_put_bytes(w, s[i].data, s[i].size, st));
    return MR_OK;
}

static size_t values_of_row(const mr_array *a, const mr_row *row)
{
    size_t n = 1;
    for (int d = 0; d < a->rank; d++)
        if (row->splits && d == 0)
            n *= (size_t)row->splits[row->shape[0]];
        else if (!(row->splits && d == 1))
            n *= (size_t)row->shape[d];
    return n;
}

static mr_code put_ragged(mr_state_w *w, const mr_array *a, mr_status *st)
{
    const mr_row *rows = a->data;
    for (size_t i = 0; i < a->rows; i++) {
        for (int d = 0; d < a->rank; d++)
            MR_TRY(mr_state_put_i64(w, rows[i].shape[d], st));
        MR_TRY(mr_state_put_u64(w, rows[i].splits != NULL, st));
        if (rows[i].splits)
            for (int64_t k = 0; k <= rows[i].shape[0]; k++)
                MR_TRY(mr_state_put_i64(w, rows[i].splits[k], st));
        MR_TRY(put_values(w, a->dtype, rows[i].data, values_of_row(a, &rows[i]), st));
    }
    return MR_OK;
}

static mr_code put_datasets(mr_state_w *w, const mr_array *a, mr_status *st)
{
    mr_dataset *const *refs = a->data;
    for (size_t i = 0; i < a->rows; i++) {
        void *bytes;
        size_t n;
        MR_TRY(mr__stored_dataset_writes(refs[i], st));
        MR_TRY(mr_dataset_to_proto(refs[i], &bytes, &n, st));
        mr_code rc = mr_state_put_bytes(w, bytes, n, st);
        mr_free(bytes);
        MR_TRY(rc);
    }
    return MR_OK;
}

/* Notes the name that the run's ledger has for the file of id, if any. */
static mr_code note_name(mr_state_w *w, const mr_identity *id, mr_status *st)
{
    const mr__ledger_file *added;
    if (w->looked_up && w->source == id->source && w->file == id->file)
        return MR_OK;
    w->looked_up = true;
    w->source = id->source;
    w->file = id->file;
    const char *name = mr__ledger_names_find(&w->names, id->source, id->file)
                           ? NULL
                           : mr_ledger_name_set(w->ledger, id);
    return name ? mr__ledger_names_add(&w->names, id->source, id->file, name, strlen(name), &added,
                                       st)
                : MR_OK;
}

static mr_code put_identities(mr_state_w *w, const mr_block *b, mr_status *st)
{
    for (size_t i = 0; i < b->rows; i++) {
        uint64_t from = b->ids.offsets ? b->ids.offsets[i] : i;
        uint64_t to = b->ids.offsets ? b->ids.offsets[i + 1] : i + 1;
        MR_TRY(mr_state_put_u64(w, to - from, st));
        for (uint64_t k = from; k < to; k++) {
            const mr_identity *id = &b->ids.ids[k];
            MR_TRY(mr_state_put_u64(w, id->source, st));
            MR_TRY(mr_state_put_u64(w, id->file, st));
            MR_TRY(mr_state_put_u64(w, id->ordinal, st));
            MR_TRY(mr_state_put_u64(w, id->epoch, st));
            if (w->ledger)
                MR_TRY(note_name(w, id, st));
        }
    }
    return MR_OK;
}

mr_code mr_state_put_block(mr_state_w *w, const mr_block *b, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, b->rows, st));
    MR_TRY(mr_state_put_u64(w, b->n_columns, st));
    MR_TRY(mr_state_put_u64(w, b->ids.ids != NULL, st));
    for (size_t c = 0; c < b->n_columns && b->rows; c++) {
        const mr_array *a = &b->columns[c];
        if (a->storage == MR_PLACED)
            return mr_fail(st, MR_INTERNAL, "rows in the consumer's memory cannot be saved");
        MR_TRY(mr_state_put_u64(w, a->storage, st));
        MR_TRY(mr_state_put_u64(w, a->dtype, st));
        MR_TRY(mr_state_put_u64(w, (uint64_t)a->rank, st));
        if (a->storage == MR_RAGGED) {
            MR_TRY(put_ragged(w, a, st));
            continue;
        }
        for (int d = 0; d < a->rank; d++)
            MR_TRY(mr_state_put_i64(w, a->shape[d], st));
        if (a->storage == MR_DATASETS)
            MR_TRY(put_datasets(w, a, st));
        else
            MR_TRY(put_values(w, a->dtype, a->data, a->rows * mr_array_row_values(a), st));
    }
    return b->ids.ids ? put_identities(w, b, st) : MR_OK;
}

/* A shape whose number of values fits the remaining bytes, at one byte per value or more. */
static mr_code get_shape(mr_state_r *r, int rank, int64_t *shape, bool *splits, size_t *values,
                         mr_status *st)
{
    size_t n = 1;
    for (int d = 0; d < rank; d++) {
        MR_TRY(mr_state_get_i64(r, &shape[d], st));
        bool inner = splits && d == 1 && shape[d] == -1;
        if (inner)
            continue;
        if (shape[d] < 0 || __builtin_mul_overflow(n, (size_t)shape[d], &n))
            return mr_state_damaged(st, "a shape is out of range");
    }
    *values = n;
    return MR_OK;
}

static mr_code get_values(mr_state_r *r, mr_dtype t, void *values, size_t n, mr_buffer *owner,
                          mr_status *st)
{
    if (t != MR_STRING) {
        size_t bytes = n * mr_dtype_size(t);
        if (bytes > (size_t)(r->end - r->at))
            return mr_state_damaged(st, "it ends within a tensor");
        if (bytes)
            memcpy(values, r->at, bytes);
        r->at += bytes;
        return MR_OK;
    }
    /* All strings go into one buffer: measure, then copy. */
    mr_bytes *s = values;
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        const void *p;
        MR_TRY(mr_state_get_bytes(r, &p, &s[i].size, st));
        s[i].data = p;
        all += s[i].size;
    }
    mr_buffer *text;
    MR_TRY(mr_buffer_alloc(&text, all, st));
    char *at = mr_buffer_data(text);
    for (size_t i = 0; i < n; i++) {
        if (s[i].size)
            memcpy(at, s[i].data, s[i].size);
        s[i].data = at;
        at += s[i].size;
    }
    mr_code rc = mr_buffer_hold(owner, text, st);
    mr_buffer_unref(text);
    return rc;
}

static size_t least_bytes(mr_dtype t)
{
    return t == MR_STRING ? 1 : mr_dtype_size(t);
}

static mr_code check_room(mr_state_r *r, mr_dtype t, size_t values, mr_status *st)
{
    if (values > (size_t)(r->end - r->at) / least_bytes(t))
        return mr_state_damaged(st, "a tensor is larger than what is left");
    return MR_OK;
}

static mr_code get_ragged_row(mr_state_r *r, mr_array *a, mr_row *row, int64_t *shape,
                              mr_status *st)
{
    uint64_t has;
    size_t n = 0;
    bool maybe = true;
    MR_TRY(get_shape(r, a->rank, shape, &maybe, &n, st));
    MR_TRY(mr_state_get_u64(r, &has, st));
    bool inner = a->rank >= 2 && shape[1] == -1;
    if (has > 1 || has != (uint64_t)inner)
        return mr_state_damaged(st, "a ragged row is inconsistent");
    row->shape = shape;
    if (has) {
        size_t entries = (size_t)shape[0];
        if (entries >= (size_t)(r->end - r->at))
            return mr_state_damaged(st, "a ragged row is larger than what is left");
        mr_buffer *b;
        MR_TRY(mr_buffer_alloc(&b, (entries + 1) * sizeof(int64_t), st));
        mr_code rc = mr_buffer_hold(a->owner, b, st);
        int64_t *splits = mr_buffer_data(b);
        mr_buffer_unref(b);
        MR_TRY(rc);
        for (size_t k = 0; k <= entries; k++) {
            MR_TRY(mr_state_get_i64(r, &splits[k], st));
            if (k == 0 ? splits[0] != 0 : splits[k] < splits[k - 1])
                return mr_state_damaged(st, "splits of a ragged row do not ascend");
        }
        row->splits = splits;
        n = (size_t)splits[entries];
        for (int d = 2; d < a->rank; d++)
            if (__builtin_mul_overflow(n, (size_t)shape[d], &n))
                return mr_state_damaged(st, "a shape is out of range");
    }
    MR_TRY(check_room(r, a->dtype, n, st));
    mr_buffer *values;
    MR_TRY(mr_buffer_alloc(&values, n * mr_dtype_size(a->dtype), st));
    row->data = mr_buffer_data(values);
    mr_code rc = get_values(r, a->dtype, mr_buffer_data(values), n, values, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a->owner, values, st);
    mr_buffer_unref(values);
    return rc;
}

static bool reads_files(const char *name)
{
    const mr_function *f = mr_function_find(name);
    return f && (f->props & MR_FUNCTION_READS);
}

static mr_code check_stored(const mr_state_r *r, const mr_dataset *ds, mr_status *st)
{
    MR_TRY(mr__stored_dataset_writes(ds, st));
    return r->trusted ? MR_OK : mr__stored_dataset_reads(ds, r->graph, reads_files, st);
}

static mr_code get_column(mr_state_r *r, const mr_leaf *leaf, size_t rows, mr_array *a,
                          mr_status *st)
{
    uint64_t storage, dtype, rank;
    MR_TRY(mr_state_get_u64(r, &storage, st));
    MR_TRY(mr_state_get_u64(r, &dtype, st));
    MR_TRY(mr_state_get_u64(r, &rank, st));
    if (storage >= MR_PLACED || dtype != (uint64_t)leaf->dtype || rank > MR_MAX_RANK ||
        (leaf->rank >= 0 && (uint64_t)leaf->rank != rank) ||
        (storage == MR_DATASETS) != (leaf->dtype == MR_DATASET) ||
        (storage == MR_BYTES && leaf->dtype != MR_STRING) ||
        (storage == MR_DENSE && leaf->dtype == MR_STRING))
        return mr_state_damaged(st, "a column is of another type");
    mr_dtype t = leaf->dtype;
    if (rows > (size_t)(r->end - r->at) && storage != MR_DENSE)
        return mr_state_damaged(st, "it has more rows than bytes");
    if (storage == MR_RAGGED) {
        MR_TRY(mr_array_alloc_ragged(a, t, (int)rank, rows, st));
        mr_buffer *shapes;
        MR_TRY(mr_buffer_alloc(&shapes, rows * rank * sizeof(int64_t), st));
        int64_t *shape = mr_buffer_data(shapes);
        mr_code rc = mr_buffer_hold(a->owner, shapes, st);
        mr_buffer_unref(shapes);
        for (size_t i = 0; i < rows && rc == MR_OK; i++)
            rc = get_ragged_row(r, a, (mr_row *)a->data + i, shape + i * rank, st);
        return rc;
    }
    int64_t shape[MR_MAX_RANK];
    size_t values = 0, all;
    MR_TRY(get_shape(r, (int)rank, shape, NULL, &values, st));
    if (!mr_leaf_admits(leaf, (int)rank, shape) || __builtin_mul_overflow(values, rows, &all))
        return mr_state_damaged(st, "a column is of another shape");
    if (storage == MR_DATASETS) {
        MR_TRY(mr_array_alloc_datasets(a, rows, st));
        for (size_t i = 0; i < rows; i++) {
            const void *bytes;
            size_t n;
            MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
            mr_dataset *ds;
            MR_TRY(mr_dataset_from_proto(bytes, n, &ds, st));
            ((mr_dataset **)a->data)[i] = ds;
            MR_TRY(mr_dataset_check(ds, st));
            MR_TRY(check_stored(r, ds, st));
            if (!mr_spec_same_types(mr_dataset_spec(ds), leaf->element))
                return mr_state_damaged(st, "a dataset is of another type");
        }
        return MR_OK;
    }
    MR_TRY(check_room(r, t, all, st));
    MR_TRY(mr_array_alloc(a, t, (int)rank, shape, rows, st));
    return get_values(r, t, a->data, all, a->owner, st);
}

static mr_code get_identities(mr_state_r *r, mr_block *b, mr_status *st)
{
    /* A row may have several: count first, with a separate reader. */
    mr_state_r ahead = *r;
    uint64_t n, v, all = 0;
    for (size_t i = 0; i < b->rows; i++) {
        MR_TRY(mr_state_get_u64(&ahead, &n, st));
        for (uint64_t k = 0; k < n; k++)
            for (int f = 0; f < 4; f++)
                MR_TRY(mr_state_get_u64(&ahead, &v, st));
        all += n;
    }
    mr_buffer *owner;
    size_t id_bytes = (size_t)all * sizeof(mr_identity);
    MR_TRY(mr_buffer_alloc(&owner, id_bytes + (b->rows + 1) * sizeof(uint64_t), st));
    mr_identity *ids = mr_buffer_data(owner);
    uint64_t *offsets = (uint64_t *)((char *)mr_buffer_data(owner) + id_bytes);
    b->ids = (mr_identities){ids, offsets, owner};
    uint64_t at = 0;
    for (size_t i = 0; i < b->rows; i++) {
        offsets[i] = at;
        MR_TRY(mr_state_get_u64(r, &n, st));
        for (uint64_t k = 0; k < n; k++, at++) {
            MR_TRY(mr_state_get_u64(r, &ids[at].source, st));
            MR_TRY(mr_state_get_u64(r, &ids[at].file, st));
            MR_TRY(mr_state_get_u64(r, &ids[at].ordinal, st));
            MR_TRY(mr_state_get_u64(r, &ids[at].epoch, st));
        }
    }
    offsets[b->rows] = at;
    return MR_OK;
}

mr_code mr_state_get_block(mr_state_r *r, const mr_spec *spec, mr_block *b, mr_status *st)
{
    uint64_t rows, columns, ids;
    MR_TRY(mr_state_get_u64(r, &rows, st));
    MR_TRY(mr_state_get_u64(r, &columns, st));
    MR_TRY(mr_state_get_u64(r, &ids, st));
    if (ids > 1 || rows > INT32_MAX)
        return mr_state_damaged(st, "a block is out of range");
    if (rows == 0) {
        mr_block_clear(b);
        return MR_OK;
    }
    if (columns != mr_spec_n_leaves(spec))
        return mr_state_damaged(st, "a block has another number of columns");
    mr_code rc = mr_block_prepare(b, (size_t)columns, st);
    for (size_t c = 0; c < columns && rc == MR_OK; c++)
        rc = get_column(r, mr_spec_leaf(spec, c), (size_t)rows, &b->columns[c], st);
    b->rows = (size_t)rows;
    if (rc == MR_OK && ids)
        rc = get_identities(r, b, st);
    if (rc != MR_OK)
        mr_block_clear(b);
    return rc;
}

mr_code mr_block_to_bytes(const mr_block *b, void **bytes, size_t *size, mr_status *st)
{
    mr_state_w w = {0};
    mr_code rc = mr_state_put_block(&w, b, st);
    if (rc != MR_OK) {
        mr__state_w_reset(&w);
        return rc;
    }
    *bytes = w.data;
    *size = w.size;
    return MR_OK;
}

mr_code mr_block_from_bytes(const void *bytes, size_t size, const mr_spec *spec, mr_block *b,
                            mr_status *st)
{
    mr_state_r r = {.at = bytes, .end = (const unsigned char *)bytes + size};
    MR_TRY(mr_state_get_block(&r, spec, b, st));
    if (r.at == r.end)
        return MR_OK;
    mr_block_clear(b);
    return mr_state_damaged(st, "bytes are left over");
}

/* ---- outside of a position ---- */

mr_code mr__state_bytes(mr_code (*put_all)(void *ctx, mr_state_w *w, mr_status *st), void *ctx,
                        mr_buffer **out, mr_status *st)
{
    mr_state_w w = {0};
    mr_code rc = put_all(ctx, &w, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(out, w.size, st);
    if (rc == MR_OK && w.size)
        memcpy(mr_buffer_data(*out), w.data, w.size);
    mr__state_w_reset(&w);
    return rc;
}

mr_code mr__state_read(const void *bytes, size_t n,
                       mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                       mr_status *st)
{
    mr_state_r r = {.at = bytes, .end = (const unsigned char *)bytes + n, .trusted = true};
    MR_TRY(get(ctx, &r, st));
    return r.at == r.end ? MR_OK : mr_state_damaged(st, "bytes follow what was expected");
}

/* ---- parts ---- */

mr_code mr__state_put_part(mr_state_w *w,
                           mr_code (*put_all)(void *ctx, mr_state_w *w, mr_status *st), void *ctx,
                           mr_status *st)
{
    uint8_t head[MR__VARINT_MOST];
    size_t from = w->size;
    MR_TRY(put_all(ctx, w, st));
    size_t n = w->size - from, head_size = (size_t)(mr__varint_put(head, n) - head);
    MR_TRY(put(w, head, head_size, st)); /* makes room */
    memmove(w->data + from + head_size, w->data + from, n);
    memcpy(w->data + from, head, head_size);
    return MR_OK;
}

mr_code mr__state_get_part(const mr_state_r *r, const void *bytes, size_t n,
                           mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                           mr_status *st)
{
    mr_state_r part = *r;
    part.at = bytes;
    part.end = part.at + n;
    MR_TRY(get(ctx, &part, st));
    return part.at == part.end ? MR_OK : mr_state_damaged(st, "bytes follow a part of it");
}

/* ---- names of files ---- */

mr_code mr__state_put_names(mr_state_w *w, mr_status *st)
{
    if (w->names.n == 0)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, w->names.n, st));
    for (size_t i = 0; i < w->names.n; i++) {
        const mr__ledger_file *f = &w->names.v[i];
        MR_TRY(mr_state_put_u64(w, f->source, st));
        MR_TRY(mr_state_put_u64(w, f->file, st));
        MR_TRY(mr_state_put_bytes(w, f->name, strlen(f->name), st));
    }
    mr__ledger_names_reset(&w->names);
    return MR_OK;
}

static mr_code get_name(mr_state_r *r, mr_ledger *ledger, mr_status *st)
{
    mr_identity of = {0};
    const void *bytes;
    size_t n;
    MR_TRY(mr_state_get_u64(r, &of.source, st));
    MR_TRY(mr_state_get_u64(r, &of.file, st));
    MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
    if (n == 0 || memchr(bytes, 0, n))
        return mr_state_damaged(st, "the name of a file");
    if (!ledger)
        return MR_OK;
    char *name = mr_strndup(bytes, n);
    if (!name)
        return mr_fail_memory(st, n, "the name of a file");
    mr_code rc = mr_ledger_name(ledger, &of, name, st);
    mr_free(name);
    return rc;
}

mr_code mr__state_get_names(mr_state_r *r, mr_ledger *ledger, mr_status *st)
{
    uint64_t n;
    MR_TRY(mr_state_get_u64(r, &n, st));
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(get_name(r, ledger, st));
    return MR_OK;
}

/* ---- rows with errors ---- */

mr_code mr__state_put_rows(mr_state_w *w, const mr_block *b, size_t at, mr_status *st)
{
    mr_block left = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_slice(&left, b, at, b->rows - at, st);
    if (rc == MR_OK)
        rc = mr_state_put_block(w, &left, st);
    mr_block_reset(&left);
    return rc;
}

mr_code mr__state_put_rows_errors(mr_state_w *w, const mr_block *b, size_t at,
                                  const mr_row_errors *e, size_t error_at, mr_status *st)
{
    MR_TRY(mr__state_put_rows(w, b, at, st));
    MR_TRY(mr_state_put_u64(w, e->n - error_at, st));
    for (size_t i = error_at; i < e->n; i++) {
        MR_TRY(mr_state_put_u64(w, e->v[i].row - at - error_at, st));
        MR_TRY(mr_state_put_status(w, &e->v[i].status, st));
    }
    return MR_OK;
}

mr_code mr__state_get_rows_errors(mr_state_r *r, const mr_spec *spec, mr_block *b, mr_row_errors *e,
                                  mr_status *st)
{
    uint64_t n, row, last = 0;
    MR_TRY(mr_state_get_block(r, spec, b, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (b->rows == 0 && n == 0)
        return mr_state_damaged(st, "a block has neither rows nor errors");
    for (uint64_t i = 0; i < n; i++) {
        mr_status error;
        MR_TRY(mr_state_get_u64(r, &row, st));
        MR_TRY(mr_state_get_status(r, &error, st));
        if (row > b->rows + i || (i && row <= last))
            return mr_state_damaged(st, "an error lies outside its block");
        last = row;
        MR_TRY(mr_row_errors_add(e, (size_t)row, &error, st));
    }
    return MR_OK;
}

static mr_code put_error(void *ctx, mr_state_w *w, mr_status *st)
{
    return mr_state_put_status(w, ctx, st);
}

static mr_code get_error(void *ctx, mr_state_r *r, mr_status *st)
{
    return mr_state_get_status(r, ctx, st);
}

mr_code mr__status_to_bytes(const mr_status *e, mr_buffer **out, mr_status *st)
{
    return mr__state_bytes(put_error, (void *)(uintptr_t)e, out, st);
}

mr_code mr__status_from_bytes(const mr_buffer *bytes, mr_status *e, mr_status *st)
{
    return mr__state_read(mr_buffer_data(bytes), mr_buffer_size(bytes), get_error, e, st);
}
