/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/params/literal.h"

typedef struct field {
    const char *name; /* of the spec's */
    size_t bytes;     /* of a value */
    int rank;
    int64_t shape[MR_MAX_RANK];
} field;

struct mr_npy_encoder {
    mr_spec *spec;
    size_t n;
    field *fields;
    char *descr;
    uint8_t *entry;
    size_t size; /* of an entry */
};

/* numpy's notation of a type; NULL: not supported. */
static const char *type_code(mr_dtype t)
{
    switch (t) {
    case MR_BOOL:
        return "|b1";
    case MR_INT8:
        return "|i1";
    case MR_INT16:
        return "<i2";
    case MR_INT32:
        return "<i4";
    case MR_INT64:
        return "<i8";
    case MR_UINT8:
        return "|u1";
    case MR_UINT16:
        return "<u2";
    case MR_UINT32:
        return "<u4";
    case MR_UINT64:
        return "<u8";
    case MR_FLOAT16:
        return "<f2";
    case MR_FLOAT32:
        return "<f4";
    case MR_FLOAT64:
        return "<f8";
    default:
        return NULL;
    }
}

mr_code mr_npy_encoder_new(mr_npy_encoder **out, const mr_spec *spec, mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec);
    const char *const *names = mr_spec_leaf_names(spec);
    mr_npy_encoder *e = mr_calloc(1, sizeof *e);
    if (e)
        e->fields = mr_calloc(n ? n : 1, sizeof *e->fields);
    if (!e || !e->fields || !names) {
        mr_npy_encoder_free(e);
        return mr_fail_memory(st, n * sizeof(field), "an encoder");
    }
    e->spec = mr_spec_ref(spec);
    e->n = n;
    for (size_t i = 0; i < n; i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        const char *name = names[i][0] ? names[i] : "value";
        e->fields[i] = (field){.name = name, .bytes = mr_dtype_size(leaf->dtype)};
        if (type_code(leaf->dtype))
            continue;
        mr_code rc = mr_fail(st, MR_INVALID_ARGUMENT,
                             "component '%s' is %s, for which npy files have no type; write "
                             "numbers or bools, or use another format",
                             name, mr_dtype_name(leaf->dtype));
        mr_npy_encoder_free(e);
        return rc;
    }
    *out = e;
    return MR_OK;
}

void mr_npy_encoder_free(mr_npy_encoder *e)
{
    if (!e)
        return;
    mr_spec_unref(e->spec);
    mr_free(e->fields);
    mr_free(e->descr);
    mr_free(e->entry);
    mr_free(e);
}

/* A name as a Python literal. */
static mr_code put_name(mr__text *t, const char *name, mr_status *st)
{
    char piece[8];
    MR_TRY(mr__text_puts(t, "'", st));
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '\'' || c == '\\')
            snprintf(piece, sizeof piece, "\\%c", c);
        else
            snprintf(piece, sizeof piece, c < ' ' || c == 0x7f ? "\\x%02x" : "%c", c);
        MR_TRY(mr__text_puts(t, piece, st));
    }
    return mr__text_puts(t, "'", st);
}

/* ('name', '<f4', (2, 3)) */
static mr_code put_field(mr__text *t, const field *d, const char *code, mr_status *st)
{
    char piece[32];
    MR_TRY(mr__text_puts(t, "(", st));
    MR_TRY(put_name(t, d->name, st));
    snprintf(piece, sizeof piece, ", '%s'", code);
    MR_TRY(mr__text_puts(t, piece, st));
    for (int k = 0; k < d->rank; k++) {
        snprintf(piece, sizeof piece, "%s%" PRId64, k ? ", " : ", (", d->shape[k]);
        MR_TRY(mr__text_puts(t, piece, st));
    }
    return mr__text_puts(t, d->rank == 1 ? ",))" : d->rank ? "))" : ")", st);
}

static mr_code make_descr(mr_npy_encoder *e, mr_status *st)
{
    mr__text t = {0};
    mr_code rc = MR_OK;
    char alone[8];
    if (e->n == 1) {
        snprintf(alone, sizeof alone, "'%s'", type_code(mr_spec_leaf(e->spec, 0)->dtype));
        rc = mr__text_puts(&t, alone, st);
    } else
        rc = mr__text_puts(&t, "[", st);
    for (size_t i = 0; e->n != 1 && i < e->n && rc == MR_OK; i++) {
        rc = mr__text_puts(&t, i ? ", " : "", st);
        if (rc == MR_OK)
            rc = put_field(&t, &e->fields[i], type_code(mr_spec_leaf(e->spec, i)->dtype), st);
    }
    if (rc == MR_OK && e->n != 1)
        rc = mr__text_puts(&t, "]", st);
    if (rc == MR_OK)
        rc = mr__text_finish(&t, &e->descr, st);
    mr_free(t.s);
    return rc;
}

/* The shape of a row of column i; fails if the row is ragged. */
static mr_code row_shape(const mr_npy_encoder *e, const mr_block *b, size_t i, size_t row,
                         const int64_t **shape, mr_status *st)
{
    const mr_array *a = &b->columns[i];
    *shape = mr_array_row_shape(a, row);
    if (a->storage == MR_RAGGED && ((const mr_row *)a->data)[row].splits)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component '%s' is ragged, which npy files cannot hold", e->fields[i].name);
    return MR_OK;
}

mr_code mr_npy_encoder_begin(mr_npy_encoder *e, const mr_block *b, mr_npy_entry *out, mr_status *st)
{
    size_t size = 0;
    for (size_t i = 0; i < e->n; i++) {
        const mr_leaf *leaf = mr_spec_leaf(e->spec, i);
        field *d = &e->fields[i];
        const int64_t *shape = leaf->shape;
        d->rank = b ? b->columns[i].rank : leaf->rank < 0 ? 0 : leaf->rank;
        if (b)
            MR_TRY(row_shape(e, b, i, 0, &shape, st));
        size_t bytes = d->bytes;
        for (int k = 0; k < d->rank; k++) {
            d->shape[k] = shape[k] < 0 ? 0 : shape[k];
            if (__builtin_mul_overflow(bytes, (size_t)d->shape[k], &bytes))
                bytes = SIZE_MAX;
        }
        if (__builtin_add_overflow(size, bytes, &size))
            return mr_fail(st, MR_INVALID_ARGUMENT, "an element is too large for an npy file");
    }
    e->entry = mr_malloc(size ? size : 1);
    if (!e->entry)
        return mr_fail_memory(st, size, "an element");
    e->size = size;
    MR_TRY(make_descr(e, st));
    *out = (mr_npy_entry){e->descr, e->n == 1 ? e->fields[0].rank : 0, e->fields[0].shape};
    return MR_OK;
}

static mr_code fail_shape(const field *d, int rank, const int64_t *shape, mr_status *st)
{
    char first[128], this[128];
    mr_shape_format(d->rank, d->shape, first, sizeof first);
    mr_shape_format(rank, shape, this, sizeof this);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "component '%s' has shape %s, the first element %s: an npy file holds one "
                   "shape; pad or batch them, or use another format",
                   d->name, this, first);
}

mr_code mr_npy_encode(mr_npy_encoder *e, const mr_block *b, size_t row, mr_bytes *entry,
                      mr_status *st)
{
    size_t at = 0;
    for (size_t i = 0; i < e->n; i++) {
        const mr_array *a = &b->columns[i];
        const field *d = &e->fields[i];
        const int64_t *shape;
        MR_TRY(row_shape(e, b, i, row, &shape, st));
        size_t bytes = d->bytes;
        for (int k = 0; k < d->rank && a->rank == d->rank; k++)
            bytes *= (size_t)d->shape[k];
        if (a->rank != d->rank ||
            (d->rank && memcmp(shape, d->shape, (size_t)d->rank * sizeof *shape) != 0))
            return fail_shape(d, a->rank, shape, st);
        const void *data =
            a->storage == MR_RAGGED ? ((const mr_row *)a->data)[row].data : mr_array_at(a, row);
        if (bytes)
            memcpy(e->entry + at, data, bytes);
        at += bytes;
    }
    *entry = (mr_bytes){(const char *)e->entry, e->size};
    return MR_OK;
}
