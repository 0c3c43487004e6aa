/* SPDX-License-Identifier: Apache-2.0 */
/* The Arrow tree of a column is a chain: one list level per axis of a row, then the values. Each
 * node owns the memory of its buffers, since a consumer may move any child out of its parent. */
#include "pipeline/memory/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* DLPack */

typedef struct exported_tensor {
    union {
        mr_dl_managed_tensor managed;
        mr_dl_versioned_tensor versioned;
    } as;
    int64_t shape[MR_MAX_RANK + 1], strides[MR_MAX_RANK + 1];
    mr_buffer *owner;
} exported_tensor;

static void free_tensor(exported_tensor *t)
{
    mr_buffer_unref(t->owner);
    mr_free(t);
}

static void delete_managed(mr_dl_managed_tensor *self)
{
    free_tensor(self->manager_ctx);
}

static void delete_versioned(mr_dl_versioned_tensor *self)
{
    free_tensor(self->manager_ctx);
}

static uint8_t dlpack_code(mr_dtype t)
{
    if (t == MR_BOOL)
        return 6;
    if (t == MR_BFLOAT16)
        return 4;
    if (mr_dtype_is_floating(t))
        return 2;
    return t >= MR_UINT8;
}

static mr_code export_tensor(exported_tensor **out, mr_dl_tensor *tensor, const mr_array *a,
                             mr_status *st)
{
    if (a->storage != MR_DENSE)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a dense column for dlpack, found one of %s%s; export it to arrow "
                       "or make its rows dense first",
                       a->storage == MR_RAGGED ? "ragged " : "", mr_dtype_name(a->dtype));
    exported_tensor *t = mr_malloc(sizeof *t);
    if (!t)
        return mr_fail_memory(st, sizeof *t, "a dlpack tensor");
    t->owner = a->owner ? mr_buffer_ref(a->owner) : NULL;
    int ndim = a->rank + 1;
    t->shape[0] = (int64_t)a->rows;
    memcpy(t->shape + 1, a->shape, (size_t)a->rank * sizeof *a->shape);
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t->strides[i] = stride;
        stride *= t->shape[i];
    }
    *tensor = (mr_dl_tensor){.data = a->data,
                             .device_type = 1,
                             .ndim = ndim,
                             .code = dlpack_code(a->dtype),
                             .bits = (uint8_t)(8 * mr_dtype_size(a->dtype)),
                             .lanes = 1,
                             .shape = t->shape,
                             .strides = t->strides};
    *out = t;
    return MR_OK;
}

mr_code mr_export_dlpack(mr_dl_managed_tensor **out, const mr_array *a, mr_status *st)
{
    exported_tensor *t;
    mr_dl_tensor tensor;
    MR_TRY(export_tensor(&t, &tensor, a, st));
    t->as.managed = (mr_dl_managed_tensor){tensor, t, delete_managed};
    *out = &t->as.managed;
    return MR_OK;
}

mr_code mr_export_dlpack_versioned(mr_dl_versioned_tensor **out, const mr_array *a, mr_status *st)
{
    exported_tensor *t;
    mr_dl_tensor tensor;
    uint64_t flags = mr_array_writable(a, 0) ? 0 : MR_DL_READ_ONLY;
    MR_TRY(export_tensor(&t, &tensor, a, st));
    t->as.versioned = (mr_dl_versioned_tensor){1, 0, t, delete_versioned, flags, tensor};
    *out = &t->as.versioned;
    return MR_OK;
}

/* Arrow */

typedef struct array_node {
    const void *buffers[3];
    mr_buffer *owners[3];
    struct ArrowArray child, *children[1];
} array_node;

typedef struct schema_node {
    char format[32];
    struct ArrowSchema child, *children[1];
    char name[]; /* NUL-ended */
} schema_node;

static void release_array(struct ArrowArray *a)
{
    array_node *node = a->private_data;
    if (node->child.release)
        node->child.release(&node->child);
    for (int i = 0; i < 3; i++)
        mr_buffer_unref(node->owners[i]);
    mr_free(node);
    a->release = NULL;
}

static void release_schema(struct ArrowSchema *s)
{
    schema_node *node = s->private_data;
    if (node->child.release)
        node->child.release(&node->child);
    mr_free(node);
    s->release = NULL;
}

/* Makes *a a node of `length` entries; the caller sets the buffers. The old *a, unless it was
 * empty, becomes its child. */
static mr_code push_array(struct ArrowArray *a, int64_t length, int n_buffers, mr_status *st)
{
    array_node *node = mr_calloc(1, sizeof *node);
    if (!node)
        return mr_fail_memory(st, sizeof *node, "an arrow array");
    node->child = *a;
    node->children[0] = &node->child;
    bool parent = node->child.release;
    *a = (struct ArrowArray){
        .length = length,
        .n_buffers = n_buffers,
        .buffers = node->buffers,
        .n_children = parent,
        .children = parent ? node->children : NULL,
        .release = release_array,
        .private_data = node,
    };
    return MR_OK;
}

/* takes owner (NULL allowed) */
static void set_buffer(struct ArrowArray *a, int i, const void *data, mr_buffer *owner)
{
    array_node *node = a->private_data;
    node->buffers[i] = data;
    node->owners[i] = owner;
}

static mr_code push_schema(struct ArrowSchema *s, const char *format, const char *name,
                           mr_status *st)
{
    size_t name_size = strlen(name) + 1;
    schema_node *node = mr_calloc(1, sizeof *node + name_size);
    if (!node)
        return mr_fail_memory(st, sizeof *node + name_size, "an arrow schema");
    snprintf(node->format, sizeof node->format, "%s", format);
    memcpy(node->name, name, name_size);
    node->child = *s;
    node->children[0] = &node->child;
    bool parent = node->child.release;
    *s = (struct ArrowSchema){
        .format = node->format,
        .name = node->name,
        .n_children = parent,
        .children = parent ? node->children : NULL,
        .release = release_schema,
        .private_data = node,
    };
    return MR_OK;
}

/* NULL: Arrow has no such type. */
static const char *arrow_format(mr_dtype t)
{
    static const char *const formats[MR_N_DTYPES] = {
        [MR_BOOL] = "b",   [MR_INT8] = "c",    [MR_INT16] = "s",   [MR_INT32] = "i",
        [MR_INT64] = "l",  [MR_UINT8] = "C",   [MR_UINT16] = "S",  [MR_UINT32] = "I",
        [MR_UINT64] = "L", [MR_FLOAT16] = "e", [MR_FLOAT32] = "f", [MR_FLOAT64] = "g",
        [MR_STRING] = "Z",
    };
    return formats[t];
}

/* All values of a column, contiguous. */
typedef struct values {
    const void *data;
    size_t n;
    mr_buffer *owner; /* a reference, or NULL */
} values;

/* Sets offsets[i + 1] to the end of string i; returns whether the strings are contiguous. */
static bool measure_strings(const mr_bytes *v, size_t n, int64_t *offsets)
{
    bool contiguous = true;
    const char *next = NULL;
    size_t at = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (v[i].size) {
            contiguous &= !next || next == v[i].data;
            next = v[i].data + v[i].size;
        }
        at += v[i].size;
        offsets[i + 1] = (int64_t)at;
    }
    return contiguous;
}

static const char *first_bytes(const mr_bytes *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].size)
            return v[i].data;
    }
    return "";
}

static mr_code push_strings(struct ArrowArray *out, const values *v, mr_status *st)
{
    MR_TRY(push_array(out, (int64_t)v->n, 3, st));
    const mr_bytes *strings = v->data;
    mr_buffer *offsets, *bytes;
    MR_TRY(mr_buffer_alloc(&offsets, (v->n + 1) * sizeof(int64_t), st));
    int64_t *ends = mr_buffer_data(offsets);
    bool contiguous = measure_strings(strings, v->n, ends);
    set_buffer(out, 1, ends, offsets);
    if (contiguous) {
        set_buffer(out, 2, first_bytes(strings, v->n), v->owner ? mr_buffer_ref(v->owner) : NULL);
        return MR_OK;
    }
    MR_TRY(mr_buffer_alloc(&bytes, (size_t)ends[v->n], st));
    char *to = mr_buffer_data(bytes);
    for (size_t i = 0; i < v->n; i++) {
        if (strings[i].size)
            memcpy(to + ends[i], strings[i].data, strings[i].size);
    }
    set_buffer(out, 2, to, bytes);
    return MR_OK;
}

static mr_code push_bits(struct ArrowArray *out, const values *v, mr_status *st)
{
    MR_TRY(push_array(out, (int64_t)v->n, 2, st));
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, v->n / 8 + 1, st));
    uint8_t *bits = mr_buffer_data(b);
    memset(bits, 0, v->n / 8 + 1);
    const uint8_t *bytes = v->data;
    for (size_t i = 0; i < v->n; i++)
        bits[i / 8] |= (uint8_t)((bytes[i] != 0) << (i % 8));
    set_buffer(out, 1, bits, b);
    return MR_OK;
}

static mr_code push_values(struct ArrowArray *out, mr_dtype t, const values *v, mr_status *st)
{
    if (t == MR_STRING)
        return push_strings(out, v, st);
    if (t == MR_BOOL)
        return push_bits(out, v, st);
    MR_TRY(push_array(out, (int64_t)v->n, 2, st));
    set_buffer(out, 1, v->data, v->owner ? mr_buffer_ref(v->owner) : NULL);
    return MR_OK;
}

/* Ragged rows: for each axis, the number of lists in all rows and the offsets of their ends. */

typedef struct axes {
    size_t n_lists[MR_MAX_RANK + 1]; /* the last: values */
    mr_buffer *offsets[MR_MAX_RANK];
} axes;

/* Number of lists that one row has on axis k; for k = rank, of values. */
static size_t lists_of_row(const mr_row *r, int k)
{
    size_t n = 1;
    for (int i = 0; i < k; i++) {
        if (i == 0 && r->splits && k > 1) {
            n = (size_t)r->splits[r->shape[0]]; /* covers axes 0 and 1 */
            i = 1;
        } else {
            n *= (size_t)r->shape[i];
        }
    }
    return n;
}

/* Appends the list ends of one row on axis k. `ends` points to the last one so far; returns the
 * address of the new last one. */
static int64_t *add_ends(int64_t *ends, const mr_row *r, int k)
{
    size_t n = lists_of_row(r, k);
    bool split = k == 1 && r->splits;
    for (size_t i = 0; i < n; i++, ends++)
        ends[1] = ends[0] + (split ? r->splits[i + 1] - r->splits[i] : r->shape[k]);
    return ends;
}

static mr_code measure_ragged(axes *x, const mr_array *a, mr_status *st)
{
    const mr_row *rows = a->data;
    for (int k = 0; k <= a->rank; k++) {
        for (size_t i = 0; i < a->rows; i++)
            x->n_lists[k] += lists_of_row(&rows[i], k);
    }
    for (int k = 0; k < a->rank; k++) {
        MR_TRY(mr_buffer_alloc(&x->offsets[k], (x->n_lists[k] + 1) * sizeof(int64_t), st));
        int64_t *ends = mr_buffer_data(x->offsets[k]);
        ends[0] = 0;
        for (size_t i = 0; i < a->rows; i++)
            ends = add_ends(ends, &rows[i], k);
    }
    return MR_OK;
}

/* Makes the values of all rows contiguous, by a copy if necessary. */
static mr_code join_values(values *out, const mr_array *a, size_t n, mr_status *st)
{
    const mr_row *rows = a->data;
    size_t size = mr_dtype_size(a->dtype), at = 0;
    const char *start = NULL;
    bool contiguous = true;
    for (size_t i = 0; i < a->rows; i++) {
        size_t bytes = lists_of_row(&rows[i], a->rank) * size;
        if (bytes && !start)
            start = rows[i].data;
        contiguous &= bytes == 0 || (const char *)rows[i].data == start + at;
        at += bytes;
    }
    if (contiguous) {
        *out = (values){start ? start : "", n, a->owner ? mr_buffer_ref(a->owner) : NULL};
        return MR_OK;
    }
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, n * size, st));
    /* Copies of strings are views too. */
    mr_code rc = a->dtype == MR_STRING ? mr_buffer_hold_all(b, a->owner, st) : MR_OK;
    if (rc) {
        mr_buffer_unref(b);
        return rc;
    }
    char *to = mr_buffer_data(b);
    for (size_t i = 0; i < a->rows; i++) {
        size_t bytes = lists_of_row(&rows[i], a->rank) * size;
        if (bytes)
            memcpy(to, rows[i].data, bytes);
        to += bytes;
    }
    *out = (values){mr_buffer_data(b), n, b};
    return MR_OK;
}

static mr_code ragged_array(struct ArrowArray *out, const mr_array *a, mr_status *st)
{
    axes x = {0};
    values v = {0};
    mr_code rc = measure_ragged(&x, a, st);
    if (rc)
        goto out;
    rc = join_values(&v, a, x.n_lists[a->rank], st);
    if (rc)
        goto out;
    rc = push_values(out, a->dtype, &v, st);
    for (int k = a->rank - 1; k >= 0 && rc == MR_OK; k--) {
        rc = push_array(out, (int64_t)x.n_lists[k], 2, st);
        if (rc == MR_OK) {
            set_buffer(out, 1, mr_buffer_data(x.offsets[k]), x.offsets[k]);
            x.offsets[k] = NULL;
        }
    }
out:
    mr_buffer_unref(v.owner);
    for (int k = 0; k < MR_MAX_RANK; k++)
        mr_buffer_unref(x.offsets[k]);
    return rc;
}

static mr_code dense_array(struct ArrowArray *out, const mr_array *a, mr_status *st)
{
    size_t lengths[MR_MAX_RANK + 1] = {a->rows};
    for (int k = 0; k < a->rank; k++)
        lengths[k + 1] = lengths[k] * (size_t)a->shape[k];
    values v = {a->data, lengths[a->rank], a->owner};
    MR_TRY(push_values(out, a->dtype, &v, st));
    for (int k = a->rank - 1; k >= 0; k--)
        MR_TRY(push_array(out, (int64_t)lengths[k], 1, st));
    return MR_OK;
}

static mr_code build_schema(struct ArrowSchema *out, const mr_array *a, const char *name,
                            mr_status *st)
{
    MR_TRY(push_schema(out, arrow_format(a->dtype), a->rank ? "item" : name, st));
    for (int k = a->rank - 1; k >= 0; k--) {
        char format[32] = "+L";
        if (a->storage != MR_RAGGED)
            snprintf(format, sizeof format, "+w:%" PRId64, a->shape[k]);
        MR_TRY(push_schema(out, format, k ? "item" : name, st));
    }
    return MR_OK;
}

mr_code mr_export_arrow(struct ArrowArray *array, struct ArrowSchema *schema, const mr_array *a,
                        const char *name, mr_status *st)
{
    if (a->storage == MR_PLACED || !arrow_format(a->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a column of a type that arrow supports, found %s%s%s",
                       a->storage == MR_PLACED ? "placed " : "", mr_dtype_name(a->dtype),
                       a->dtype == MR_BFLOAT16 ? "; cast it to float32" : "");
    struct ArrowArray built = {0};
    struct ArrowSchema type = {0};
    mr_code rc = build_schema(&type, a, name ? name : "", st);
    if (rc == MR_OK)
        rc = a->storage == MR_RAGGED ? ragged_array(&built, a, st) : dense_array(&built, a, st);
    if (rc) {
        if (built.release)
            built.release(&built);
        if (type.release)
            type.release(&type);
        return rc;
    }
    *array = built;
    *schema = type;
    return MR_OK;
}
