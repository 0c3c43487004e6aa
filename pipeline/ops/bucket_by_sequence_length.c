/* SPDX-License-Identifier: Apache-2.0 */
/* Works like group_by_window with the bucket's number as the key, and padded_batch or batch applied
 * to each group. Bucket i contains lengths from boundaries[i - 1] up to, but not including,
 * boundaries[i]. */
#include "pipeline/ops/batch.h"

#include <inttypes.h>

#include "pipeline/ops/rows.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/groups.h"

struct params {
    mr_fn *length_fn;
    mr_ints boundaries, batch_sizes;
    mr_bucket_opts o;
};

static mr_code bucket_of(mr_iter *it, int64_t length, int64_t *bucket, mr_status *st)
{
    (void)st;
    const struct params *p = it->params;
    size_t lo = 0, hi = p->boundaries.n; /* the first boundary above the length */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (p->boundaries.v[mid] > length)
            hi = mid;
        else
            lo = mid + 1;
    }
    *bucket = (int64_t)lo;
    return MR_OK;
}

static mr_code size_of(mr_iter *it, int64_t bucket, int64_t *size, mr_status *st)
{
    (void)st;
    const struct params *p = it->params;
    *size = p->batch_sizes.v[bucket];
    return MR_OK;
}

/* ---- shapes ---- */

static mr_code fill_tensor(const mr_array *a, int64_t size, mr_value *out, mr_status *st)
{
    int64_t n = a->rank == 1 && a->dtype == MR_INT64 ? mr_array_row_shape(a, 0)[0] : -1;
    if (n < 0) /* padded_batch says what is wrong with it */
        return mr_value_from_array(out, a, 0, st);
    MR_TRY(mr_array_alloc(&out->tensor, MR_INT64, 1, &n, 1, st));
    out->kind = MR_V_TENSOR;
    for (int64_t d = 0; d < n; d++) {
        int64_t had = ((const int64_t *)a->data)[d];
        ((int64_t *)out->tensor.data)[d] = had == -1 ? size : had;
    }
    return MR_OK;
}

/* The shape of a leaf as a value, or padded_shapes as given, with `size` for unknown dimensions.
 * The spec determines which lists are shapes and which contain shapes. */
static mr_code fill_shapes(const mr_spec *spec, const mr_value *given, int64_t size, mr_value *out,
                           mr_status *st)
{
    bool absent = given->kind == MR_V_UNSET || given->kind == MR_V_NONE;
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF && given->kind == MR_V_TENSOR)
        return fill_tensor(&given->tensor, size, out, st);
    const mr_leaf *leaf = mr_spec_leaf(spec, 0);
    bool is_leaf = mr_spec_kind_of(spec) == MR_SPEC_LEAF;
    size_t n = !absent   ? given->n
               : is_leaf ? (size_t)(leaf->rank < 0 ? 0 : leaf->rank)
                         : mr_spec_n_children(spec);
    if (is_leaf && absent && leaf->rank < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "bucket_by_sequence_length: a component has an unknown number of axes; give "
                       "padded_shapes");
    bool record = mr_spec_kind_of(spec) == MR_SPEC_RECORD;
    if (!absent && !is_leaf && (n != mr_spec_n_children(spec) || record != (given->names != NULL)))
        return mr_value_copy(out, given, st); /* padded_batch says what is wrong with it */
    out->items = mr_calloc(n ? n : 1, sizeof *out->items);
    out->names = record ? mr_calloc(n ? n : 1, sizeof *out->names) : NULL;
    if (!out->items || (record && !out->names))
        return mr_fail_memory(st, n * sizeof *out->items, "padded shapes");
    out->kind = is_leaf ? MR_V_LIST : record ? MR_V_RECORD : MR_V_TUPLE;
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = record ? absent ? mr_spec_child_name(spec, i) : given->names[i] : NULL;
        int64_t child = name ? mr_spec_find(spec, name) : (int64_t)i;
        if (name && !(out->names[i] = mr_strdup(name)))
            return mr_fail_memory(st, 16, "a name");
        if (!is_leaf && child >= 0)
            MR_TRY(fill_shapes(mr_spec_child(spec, (size_t)child),
                               absent ? given : &given->items[i], size, &out->items[i], st));
        else if (!is_leaf)
            MR_TRY(mr_value_copy(&out->items[i], &given->items[i], st));
        else if (absent)
            out->items[i] =
                (mr_value){.kind = MR_V_INT, .i = leaf->shape[i] < 0 ? size : leaf->shape[i]};
        else if (given->items[i].kind == MR_V_NONE ||
                 (given->items[i].kind == MR_V_INT && given->items[i].i == -1))
            out->items[i] = (mr_value){.kind = MR_V_INT, .i = size};
        else
            MR_TRY(mr_value_copy(&out->items[i], &given->items[i], st));
    }
    return MR_OK;
}

/* ---- batches ---- */

/* The batches of `group` (taken over), elements `in` of a bucket; to: size to which unknown
 * dimensions are padded, -1: the largest in the batch. */
static mr_dataset *batches(const struct params *p, const mr_spec *in, mr_dataset *group,
                           int64_t size, int64_t to)
{
    if (p->o.no_padding)
        return mr_batch(group, size, &(mr_batch_opts){.drop_remainder = p->o.drop_remainder});
    mr_padded_batch_opts o = {.padded_shapes = p->o.padded_shapes,
                              .padding_values = p->o.padding_values,
                              .drop_remainder = p->o.drop_remainder};
    mr_value filled = {0};
    mr_status st;
    if (to >= 0) {
        if (fill_shapes(in, &p->o.padded_shapes, to, &filled, &st) != MR_OK) {
            mr_dataset_unref(group);
            mr_value_reset(&filled);
            return mr_dataset_fail(&st);
        }
        o.padded_shapes = filled;
    }
    mr_dataset *ds = mr_padded_batch(group, size, &o);
    mr_value_reset(&filled);
    return ds;
}

static mr_code make(mr_iter *it, int64_t bucket, const mr_block *rows, mr_dataset **out,
                    mr_status *st)
{
    const struct params *p = it->params;
    int64_t to = -1;
    if (bucket < 0 || (size_t)bucket > p->boundaries.n) /* it came from a position */
        return mr_state_damaged(st, "an unknown bucket");
    if (p->o.pad_to_bucket_boundary && !p->o.no_padding) {
        if ((size_t)bucket == p->boundaries.n)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "with pad_to_bucket_boundary every length must be less than the last "
                           "boundary, %" PRId64,
                           p->boundaries.n ? p->boundaries.v[bucket - 1] : 0);
        to = p->boundaries.v[bucket] - 1;
        if (to < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "with pad_to_bucket_boundary boundaries must be at least 1, found "
                           "%" PRId64,
                           to + 1);
    }
    mr_dataset *group = mr__rows_dataset(rows, mr_iter_input_spec(it, 0));
    mr_code rc = mr_dataset_check(group, st);
    if (rc != MR_OK) {
        mr_dataset_unref(group);
        return rc;
    }
    mr_dataset *ds = batches(p, mr_iter_input_spec(it, 0), group, p->batch_sizes.v[bucket], to);
    rc = mr_dataset_check(ds, st);
    if (rc == MR_OK)
        *out = ds;
    else
        mr_dataset_unref(ds);
    return rc;
}

/* ---- slots ---- */

static const mr__grouper grouper = {.key = bucket_of, .size = size_of, .make = make};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < p->batch_sizes.n; i++)
        least = p->batch_sizes.v[i] < least ? p->batch_sizes.v[i] : least;
    return mr__groups_open(it->state, it, &grouper, p->length_fn, least, st);
}

static mr_code check_lists(const mr_dataset *self, const struct params *p, mr_status *st)
{
    if (mr_param_unknown(self, offsetof(struct params, boundaries)) ||
        mr_param_unknown(self, offsetof(struct params, batch_sizes)))
        return MR_OK;
    if (p->batch_sizes.n != p->boundaries.n + 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "bucket_by_sequence_length: batch_sizes must have one more number than "
                       "boundaries, found %zu and %zu",
                       p->batch_sizes.n, p->boundaries.n);
    for (size_t i = 1; i < p->boundaries.n; i++)
        if (p->boundaries.v[i] < p->boundaries.v[i - 1])
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "bucket_by_sequence_length: boundaries must ascend, found %" PRId64
                           " after %" PRId64,
                           p->boundaries.v[i], p->boundaries.v[i - 1]);
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    MR_TRY(check_lists(self, p, st));
    MR_TRY(mr__groups_check_number(self, "length_fn", p->length_fn, in, st));
    /* The spec of batches of such elements, of any size. */
    struct params any = *p;
    any.o.drop_remainder = false;
    mr_dataset *ds = batches(&any, in, mr_dataset_ref(mr_dataset_input(self, 0)), 1, -1);
    mr_code rc = mr_dataset_check(ds, st);
    if (rc == MR_OK)
        *out = mr_spec_ref(mr_dataset_spec(ds));
    mr_dataset_unref(ds);
    return rc;
}

static const mr_param table[] = {
    MR_ARG(struct params, length_fn, .doc = "The length of an element, an integer."),
    {.name = "boundaries",
     .doc = "The lengths at which buckets end, in ascending order.",
     .type = MR_PT_INTS,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, boundaries)},
    {.name = "batch_sizes",
     .doc = "Elements in a batch of each bucket; one more number than boundaries.",
     .type = MR_PT_INTS,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, batch_sizes)},
    MR_OPT(struct params, padded_shapes, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .doc = "As for padded_batch; none: to the largest in the batch."),
    MR_OPT(struct params, padding_values, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .doc = "As for padded_batch; none: 0, false or the empty string."),
    MR_OPT(struct params, pad_to_bucket_boundary, .flags = MR_P_OPTIONAL,
           .doc = "Pads open axes to one less than the bucket's boundary."),
    MR_OPT(struct params, no_padding, .flags = MR_P_OPTIONAL,
           .doc = "Batches without padding: the elements of a bucket must have the same shape."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops incomplete batches at the end."),
    {0}};

const mr_op mr_op_bucket_by_sequence_length = {
    .abi = MR_ABI_VERSION,
    .name = "bucket_by_sequence_length",
    .doc = "Makes padded batches of elements of similar length.",
    .example = "range(1, 7).map(x => ones([x])).bucket_by_sequence_length(x => length(x), [3, 5], "
               "[2, 2, 2])",
    .order_doc = "batches as they fill; at the end the remaining ones, by bucket",
    .memory_doc = "up to a batch for each bucket",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__groups),
    .infer = infer,
    .open = open,
    .close = mr__groups_close,
    MR__GROUPS_SLOTS,
};

mr_dataset *mr_bucket_by_sequence_length(mr_dataset *input, mr_fn *length_fn,
                                         const int64_t *boundaries, size_t n,
                                         const int64_t *batch_sizes, const mr_bucket_opts *opts)
{
    struct params p = {.length_fn = length_fn,
                       .boundaries = {(int64_t *)(uintptr_t)boundaries, n},
                       .batch_sizes = {(int64_t *)(uintptr_t)batch_sizes, n + 1}};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_bucket_by_sequence_length, &p, &input, 1);
    mr_fn_unref(length_fn);
    return ds;
}
