/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of arrays in the caller's memory, without a copy. In the graph each column is one tensor
 * whose axis 0 are the rows; as it may be of any size, it has no text form. */
#include "pipeline/ops/source.h"

#include "pipeline/ops/constant.h"

struct params {
    mr_value columns; /* a TUPLE of them, or a RECORD */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    mr_constant *s = it->state;
    return mr__constant_block(&p->columns, MR_SLICES, it->spec, &s->all, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    const struct params *q = p;
    int64_t count = -1;
    return mr__constant_spec(&q->columns, MR_SLICES, out, &count, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    const struct params *q = p;
    mr_spec *spec = NULL;
    int64_t count = -1;
    if (mr__constant_spec(&q->columns, MR_SLICES, &spec, &count, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_spec_unref(spec);
    return count >= 0 ? count : MR_UNKNOWN_COUNT;
}

static const mr_param table[] = {{.name = "columns",
                                  .doc = "Tensors whose axis 0 are the elements, each a component.",
                                  .type = MR_PT_VALUE,
                                  .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
                                  .at = offsetof(struct params, columns)},
                                 {0}};

const mr_op mr_op_from_arrays = {
    .abi = MR_ABI_VERSION,
    .name = "from_arrays",
    .doc = "Gives the rows of C arrays.",
    .example = "from_arrays([1, 2, 3])",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr_constant),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_INTERNAL,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__constant_next,
    .close = mr__constant_close,
    .save = mr__constant_save,
    .restore = mr__constant_restore,
};

/* The rows of each column as one tensor. Owned. */
static mr_code group_columns(const mr_array *columns, size_t n, mr_array *out, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        const mr_array *a = &columns[i];
        if ((a->storage != MR_DENSE && a->storage != MR_BYTES) || a->rank == MR_MAX_RANK)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "from_arrays: column %zu must be dense, with fewer than %d axes", i,
                           MR_MAX_RANK);
        if (a->rows)
            mr_array_group(&out[i], a, a->rows);
        else {
            int64_t shape[MR_MAX_RANK] = {0};
            for (int d = 0; d < a->rank; d++)
                shape[d + 1] = a->shape[d];
            MR_TRY(mr_array_alloc(&out[i], a->dtype, a->rank + 1, shape, 1, st));
        }
    }
    return MR_OK;
}

mr_dataset *mr_from_arrays(const mr_array *columns, const char *const *names, size_t n)
{
    mr_status st;
    mr_status_init(&st);
    struct params p = {0};
    mr_dataset *ds = NULL;
    mr_array *tensors = mr_calloc(n ? n : 1, sizeof *tensors);
    mr_code rc = tensors ? group_columns(columns, n, tensors, &st)
                         : mr_fail_memory(&st, n * sizeof *tensors, "the columns of from_arrays");
    if (rc == MR_OK)
        rc = mr__constant_value(tensors, names, n, &p.columns, &st);
    ds = rc == MR_OK ? mr_dataset_new(&mr_op_from_arrays, &p, NULL, 0) : mr_dataset_fail(&st);
    mr_value_reset(&p.columns);
    for (size_t i = 0; tensors && i < n; i++)
        mr_array_reset(&tensors[i]);
    mr_free(tensors);
    return ds;
}
