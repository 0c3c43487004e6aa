/* SPDX-License-Identifier: Apache-2.0 */
/* Elements are kept as views until the batch is full; then each component is padded at the end of
 * each axis into one tensor.
 *
 * padded_shapes and padding_values have the structure of the element: a tuple for a tuple, a record
 * for a record, and for a component a shape (a list of sizes; -1 or none: the largest in the batch)
 * or a value. */
#include "pipeline/ops/batch.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/streams/collect.h"
#include "pipeline/params/infer.h"

enum {
    SHORT_BYTES = 1 << 10, /* a row of at most this many is short */
    ZEROED_BYTES = 8 << 10 /* which stay in the first-level cache until they are overwritten */
};

struct params {
    int64_t batch_size;
    mr_padded_batch_opts o;
};

/* The shape and value with which one component is padded. */
struct target {
    bool given; /* shape was */
    int rank;
    int64_t shape[MR_MAX_RANK]; /* -1: the largest in the batch */
    bool zero;                  /* the padding's bytes are all 0 (and "" for strings) */
    unsigned char value[sizeof(mr_bytes)];
    mr_array padding; /* owner of a string value */
};

struct state {
    mr__collected collected;
    struct target *targets;
    size_t n_targets;
};

/* ---- parameters ---- */

static mr_code one_size(const mr_value *v, int64_t *size, mr_status *st)
{
    if (v->kind == MR_V_NONE || v->kind == MR_V_UNKNOWN || (v->kind == MR_V_INT && v->i == -1))
        *size = -1;
    else if (v->kind == MR_V_INT && v->i >= 0)
        *size = v->i;
    else
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "padded_shapes: a size must be an integer of at least 0, or -1 or none");
    return MR_OK;
}

static mr_code sizes_of_tensor(const mr_array *a, struct target *t, mr_status *st)
{
    int64_t n = a->rank == 1 ? mr_array_row_shape(a, 0)[0] : -1;
    if (n < 0 || n > MR_MAX_RANK || (n && a->dtype != MR_INT64))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "padded_shapes: a shape must be a list of at most %d integers", MR_MAX_RANK);
    t->rank = (int)n;
    for (int64_t d = 0; d < n; d++) {
        mr_value v = {.kind = MR_V_INT, .i = ((const int64_t *)a->data)[d]};
        MR_TRY(one_size(&v, &t->shape[d], st));
    }
    return MR_OK;
}

static mr_code resolve_shape(const mr_value *v, const mr_leaf *leaf, struct target *t,
                             bool *unknown, mr_status *st)
{
    if (v->kind == MR_V_UNSET || v->kind == MR_V_NONE)
        return MR_OK;
    if (v->kind == MR_V_UNKNOWN) {
        *unknown = true;
        return MR_OK;
    }
    t->given = true;
    if (v->kind == MR_V_TENSOR)
        MR_TRY(sizes_of_tensor(&v->tensor, t, st));
    else if (v->kind == MR_V_LIST || v->kind == MR_V_TUPLE) {
        if (v->n > MR_MAX_RANK)
            return mr_fail(st, MR_INVALID_ARGUMENT, "padded_shapes: more than %d axes",
                           MR_MAX_RANK);
        t->rank = (int)v->n;
        for (size_t d = 0; d < v->n; d++)
            MR_TRY(one_size(&v->items[d], &t->shape[d], st));
    } else
        return mr_fail(st, MR_INVALID_ARGUMENT, "padded_shapes: expected a list of sizes");
    if (leaf->rank >= 0 && leaf->rank != t->rank)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "padded_shapes: a component has %d axes, its padded shape has %d",
                       leaf->rank, t->rank);
    for (int d = 0; d < leaf->rank; d++)
        if (t->shape[d] >= 0 && leaf->shape[d] > t->shape[d])
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "padded_shapes: cannot pad axis %d of size %" PRId64
                           " to the smaller size %" PRId64,
                           d, leaf->shape[d], t->shape[d]);
    return MR_OK;
}

/* Writes v as a value of an integer type; false: it has no such value. */
static bool put_int(int64_t v, mr_dtype dtype, void *to)
{
    size_t bytes = mr_dtype_size(dtype);
    bool is_signed =
        dtype == MR_INT8 || dtype == MR_INT16 || dtype == MR_INT32 || dtype == MR_INT64;
    int64_t high = bytes == 8 ? 0 : v >> (8 * bytes - is_signed); /* what does not fit */
    if (high != 0 && !(is_signed && high == -1))
        return false;
    if (!is_signed && v < 0)
        return false;
    memcpy(to, &v, bytes); /* the low bytes: little-endian */
    return true;
}

static void put_double(double v, mr_dtype dtype, void *to)
{
    float f = (float)v;
    uint16_t half = dtype == MR_FLOAT16 ? mr_double_to_half(v) : mr_double_to_bfloat(v);
    memcpy(to,
           dtype == MR_FLOAT64   ? (void *)&v
           : dtype == MR_FLOAT32 ? (void *)&f
                                 : (void *)&half,
           mr_dtype_size(dtype));
}

/* Converts a number that is written as such, which has no type yet, to the component's. */
static mr_code padding_array(const mr_value *v, const mr_leaf *leaf, mr_array *out, mr_status *st)
{
    bool to_int = mr_dtype_is_integer(leaf->dtype), to_float = mr_dtype_is_floating(leaf->dtype);
    bool is_int = v->kind == MR_V_INT;
    if (!(is_int && (to_int || to_float)) && !(v->kind == MR_V_FLOAT && to_float))
        return mr_value_to_array(v, out, st);
    MR_TRY(mr_array_alloc(out, leaf->dtype, 0, NULL, 1, st));
    if (to_float)
        put_double(is_int ? (double)v->i : v->f, leaf->dtype, out->data);
    else if (!put_int(v->i, leaf->dtype, out->data)) {
        mr_array_reset(out);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "padding_values: %" PRId64 " is not a value of the component's type %s",
                       v->i, mr_dtype_name(leaf->dtype));
    }
    return MR_OK;
}

static mr_code resolve_padding(const mr_value *v, const mr_leaf *leaf, struct target *t,
                               mr_status *st)
{
    t->zero = true;
    if (v->kind == MR_V_UNSET || v->kind == MR_V_NONE || v->kind == MR_V_UNKNOWN)
        return MR_OK;
    mr_array a;
    MR_TRY(padding_array(v, leaf, &a, st));
    mr_code rc = MR_OK;
    if (a.rank != 0 || a.dtype != leaf->dtype)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "padding_values: expected a scalar of the component's type %s, found %s",
                     mr_dtype_name(leaf->dtype), mr_dtype_name(a.dtype));
    else {
        size_t bytes = mr_dtype_size(a.dtype);
        memcpy(t->value, a.data, bytes);
        for (size_t i = 0; i < bytes; i++)
            t->zero &= t->value[i] == 0;
        mr_array_slice(&t->padding, &a, 0, 1);
    }
    mr_array_reset(&a);
    return rc;
}

/* The value for child i of spec in v, which follows spec's structure. */
static mr_code child_value(const mr_spec *spec, size_t i, const mr_value *v, const char *what,
                           const mr_value **out, mr_status *st)
{
    size_t n = mr_spec_n_children(spec);
    if (v->kind == MR_V_UNSET || v->kind == MR_V_NONE || v->kind == MR_V_UNKNOWN) {
        *out = v;
        return MR_OK;
    }
    const char *name = mr_spec_child_name(spec, i);
    if (name && v->kind == MR_V_RECORD && v->n == n) {
        for (size_t k = 0; k < n; k++)
            if (strcmp(v->names[k], name) == 0) {
                *out = &v->items[k];
                return MR_OK;
            }
    }
    if (!name && (v->kind == MR_V_TUPLE || v->kind == MR_V_LIST) && v->n == n) {
        *out = &v->items[i];
        return MR_OK;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: expected a %s of %zu like the element, or none for all of it", what,
                   name ? "record" : "tuple", n);
}

static bool is_scalar(const mr_value *v)
{
    return v->kind == MR_V_BOOL || v->kind == MR_V_INT || v->kind == MR_V_FLOAT ||
           v->kind == MR_V_STRING || (v->kind == MR_V_TENSOR && v->tensor.rank == 0);
}

/* Fills targets of spec's leaves; *next is the first of them. */
static mr_code resolve(const mr_spec *spec, const mr_value *shapes, const mr_value *values,
                       struct target *targets, size_t *next, bool *unknown, mr_status *st)
{
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF) {
        const mr_leaf *leaf = mr_spec_leaf(spec, 0);
        struct target *t = &targets[(*next)++];
        if (leaf->dtype == MR_DATASET || leaf->ragged)
            return mr_fail(st, MR_INVALID_ARGUMENT, "component %zu is %s, which cannot be padded",
                           *next - 1, leaf->ragged ? "ragged" : "a dataset");
        MR_TRY(resolve_shape(shapes, leaf, t, unknown, st));
        if (!t->given && leaf->rank < 0 && !*unknown)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "component %zu has an unknown number of axes; give padded_shapes",
                           *next - 1);
        return resolve_padding(values, leaf, t, st);
    }
    for (size_t i = 0; i < mr_spec_n_children(spec); i++) {
        const mr_value *shape = NULL, *value = values;
        MR_TRY(child_value(spec, i, shapes, "padded_shapes", &shape, st));
        if (!is_scalar(values))
            MR_TRY(child_value(spec, i, values, "padding_values", &value, st));
        MR_TRY(resolve(mr_spec_child(spec, i), shape, value, targets, next, unknown, st));
    }
    return MR_OK;
}

static void free_targets(struct target *targets, size_t n)
{
    for (size_t i = 0; targets && i < n; i++)
        mr_array_reset(&targets[i].padding);
    mr_free(targets);
}

static mr_code make_targets(const mr_spec *spec, const struct params *p, struct target **out,
                            mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec), next = 0;
    bool unknown = false;
    struct target *targets = mr_calloc(n ? n : 1, sizeof *targets);
    if (!targets)
        return mr_fail_memory(st, n * sizeof *targets, "padded shapes");
    mr_code rc =
        resolve(spec, &p->o.padded_shapes, &p->o.padding_values, targets, &next, &unknown, st);
    if (rc != MR_OK) {
        free_targets(targets, n);
        return rc;
    }
    *out = targets;
    return MR_OK;
}

/* ---- padding ---- */

static mr_code refuse(int64_t limit, int64_t size, size_t row, int d, size_t column, mr_status *st)
{
    if (size < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "element %zu of component %zu is ragged and cannot be padded", row, column);
    return mr_fail(st, MR_DATA_LOSS,
                   "attempted to pad to a smaller size than the input element: axis %d of "
                   "component %zu is to have %" PRId64 ", element %zu has %" PRId64,
                   d, column, limit, row, size);
}

/* Open axes get the largest size of a row's, the others are checked. */
static mr_code batch_shape(const struct target *t, const mr_array *a, size_t column, int64_t *shape,
                           mr_status *st)
{
    if (t->given && t->rank != a->rank)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "component %zu has %d axes, its padded shape has %d; the numbers must be equal", column,
            a->rank, t->rank);
    const mr_row *rows = a->data;
    int64_t limit[MR_MAX_RANK];
    for (int d = 0; d < a->rank; d++) {
        bool open = !t->given || t->shape[d] < 0;
        limit[d] = open ? INT64_MAX : t->shape[d];
        shape[d] = open ? 0 : t->shape[d];
    }
    size_t bad = a->rows; /* the first row that is, in axis `at` */
    int at = 0;
    for (int d = 0; d < a->rank; d++) {
        int64_t most = shape[d];
        for (size_t r = 0; r < bad; r++) {
            int64_t size = rows[r].shape[d];
            if ((uint64_t)size > (uint64_t)limit[d]) { /* -1, of a ragged row, too */
                bad = r;
                at = d;
            }
            most = size > most ? size : most;
        }
        shape[d] = most;
    }
    if (bad < a->rows)
        return refuse(limit[at], rows[bad].shape[at], bad, at, column, st);
    return MR_OK;
}

static void fill(char *to, size_t bytes, const struct target *t, size_t size)
{
    if (t->zero)
        memset(to, 0, bytes);
    else
        for (size_t at = 0; at < bytes; at += size)
            memcpy(to + at, t->value, size);
}

/* Makes a tensor of `shape` from one of from_shape, which is placed in its corner. */
static void pad(char *to, const int64_t *shape, const char *from, const int64_t *from_shape,
                int rank, const struct target *t, size_t size)
{
    if (rank == 0) {
        memcpy(to, from, size);
        return;
    }
    size_t to_step = size, from_step = size, n = (size_t)from_shape[0];
    for (int d = 1; d < rank; d++) {
        to_step *= (size_t)shape[d];
        from_step *= (size_t)from_shape[d];
    }
    if (to_step != from_step)
        for (size_t i = 0; i < n; i++)
            pad(to + i * to_step, shape + 1, from + i * from_step, from_shape + 1, rank - 1, t,
                size);
    else if (n && from_step)
        memcpy(to, from, n * from_step);
    fill(to + n * to_step, ((size_t)shape[0] - n) * to_step, t, size);
}

/* Pads rows of one axis with zeros, a few KiB at a time: writes zeros first, then the values
 * over them. One memset for many rows is faster than one for the end of each, whose length is
 * hard to predict for the processor. */
static void pad_vectors(char *to, size_t bytes, const mr_row *rows, size_t n, size_t size)
{
    size_t part = ZEROED_BYTES / bytes;
    for (size_t at = 0; at < n; at += part) {
        part = part < n - at ? part : n - at;
        memset(to + at * bytes, 0, part * bytes);
        for (size_t r = at; r < at + part; r++)
            if (rows[r].shape[0])
                memcpy(to + r * bytes, rows[r].data, (size_t)rows[r].shape[0] * size);
    }
}

static mr_code pad_column(const struct target *t, const mr_array *a, size_t column, mr_array *out,
                          mr_status *st)
{
    int64_t shape[MR_MAX_RANK];
    MR_TRY(batch_shape(t, a, column, shape, st));
    mr_array rows;
    MR_TRY(mr_array_alloc(&rows, a->dtype, a->rank, shape, a->rows, st));
    mr_code rc = MR_OK;
    if (a->dtype == MR_STRING) {
        rc = mr_buffer_hold_all(rows.owner, a->owner, st);
        if (rc == MR_OK && t->padding.owner)
            rc = mr_buffer_hold_all(rows.owner, t->padding.owner, st);
    }
    size_t size = mr_dtype_size(a->dtype), bytes = mr_array_row_bytes(&rows), first = 0;
    if (rc == MR_OK && a->rank == 1 && t->zero && bytes && bytes <= SHORT_BYTES) {
        pad_vectors(rows.data, bytes, a->data, a->rows, size);
        first = a->rows;
    }
    for (size_t r = first; r < a->rows && rc == MR_OK; r++) {
        const mr_row *row = (const mr_row *)a->data + r;
        pad((char *)rows.data + r * bytes, shape, row->data, row->shape, a->rank, t, size);
    }
    if (rc == MR_OK && a->rank == MR_MAX_RANK)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "a batch would have a shape of more than %d axes",
                     MR_MAX_RANK);
    if (rc == MR_OK)
        mr_array_group(out, &rows, a->rows);
    mr_array_reset(&rows);
    return rc;
}

static mr_code finish(struct state *s, mr_block *out, mr_status *st)
{
    mr__batch_builder *k = &s->collected.stack;
    mr_code rc = MR_OK;
    if (k->misfit)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "all elements of a padded batch must have the same number of axes; %s",
                     k->error.message);
    if (rc == MR_OK)
        rc = mr_block_prepare(out, k->rows.n_columns, st);
    for (size_t c = 0; c < k->rows.n_columns && rc == MR_OK; c++) {
        mr_array rows;
        rc = mr_array_to_ragged(&rows, &k->rows.columns[c], st);
        if (rc != MR_OK)
            break;
        rc = pad_column(&s->targets[c], &rows, c, &out->columns[c], st);
        mr_array_reset(&rows);
    }
    if (rc == MR_OK)
        rc = mr_identities_group(&out->ids, &k->rows.ids, k->rows.rows, k->rows.rows, st);
    out->rows = 1;
    mr__batch_builder_drop(k);
    if (rc == MR_OK)
        mr__place(out);
    return rc;
}

/* ---- slots ---- */

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    const mr_spec *spec = mr_iter_input_spec(it, 0);
    MR_TRY(make_targets(spec, it->params, &s->targets, st));
    s->n_targets = mr_spec_n_leaves(spec);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->collected.stack.ragged = true;
    MR_TRY(mr__collect_batch(it, want, (size_t)p->batch_size, p->o.drop_remainder, st));
    return finish(s, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__collected_close(it);
    free_targets(s->targets, s->n_targets);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    const struct params *q = p;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    size_t n = mr_spec_n_leaves(in);
    bool known = q->o.drop_remainder &&
                 !mr_param_unknown(self, offsetof(struct params, batch_size)) &&
                 !mr_param_unknown(self, offsetof(struct params, o.drop_remainder));
    struct target *targets = NULL;
    MR_TRY(make_targets(in, q, &targets, st));
    mr_leaf *leaves = mr_calloc(n ? n : 1, sizeof *leaves);
    mr_code rc = leaves ? MR_OK : mr_fail_memory(st, n * sizeof *leaves, "a spec");
    mr_spec *padded = NULL;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        leaves[i] = *mr_spec_leaf(in, i);
        if (targets[i].given)
            leaves[i].rank = (int8_t)targets[i].rank;
        for (int d = 0; d < leaves[i].rank; d++)
            if (targets[i].given)
                leaves[i].shape[d] = targets[i].shape[d];
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_with_leaves(in, leaves), &padded, st);
    if (rc == MR_OK)
        rc = mr__batched_spec(padded, known ? q->batch_size : -1, out, st);
    mr_spec_unref(padded);
    mr_free(leaves);
    free_targets(targets, n);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    return mr__count_batches(in[0], q->batch_size, q->o.drop_remainder);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, batch_size, MR_P_POSITIONAL | MR_P_DIMENSION | MR_P_HOLDS,
                  .min.i = 1, .max.i = INT64_MAX, .doc = "Elements in a batch, at least 1."),
    MR_OPT(
        struct params, padded_shapes, .flags = MR_P_OPTIONAL,
        .doc =
            "Shapes to pad to, structured like the element; -1 or none: the largest in the batch."),
    MR_OPT(
        struct params, padding_values, .flags = MR_P_OPTIONAL,
        .doc =
            "Value to pad with, for all components or structured like the element; a number takes "
            "the component's type. Default: 0 or \"\"."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops a last batch of fewer than batch_size elements."),
    {0}};

const mr_op mr_op_padded_batch = {
    .abi = MR_ABI_VERSION,
    .name = "padded_batch",
    .doc = "Groups consecutive elements, each padded to a common shape.",
    .example = "range(1, 5).map(x => zeros([x])).padded_batch(2)",
    .memory_doc = "a batch",
    .count_doc = "n / batch_size, rounded up; down with drop_remainder",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS | MR_OP_BATCHES,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = mr__collected_save,
    .restore = mr__collected_restore,
};

mr_dataset *mr_padded_batch(mr_dataset *input, int64_t batch_size, const mr_padded_batch_opts *opts)
{
    struct params p = {.batch_size = batch_size};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_padded_batch, &p, &input, 1);
}
