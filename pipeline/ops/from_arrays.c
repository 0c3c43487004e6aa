/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of arrays in the caller's memory, without a copy. In the graph each column is one tensor
 * whose axis 0 enumerates the rows; because it may have any size, it has no text form. */
#include "pipeline/ops/sources.h"

#include "pipeline/columns/constant.h"

struct params {
    mr_value columns; /* a TUPLE of them, or a RECORD */
};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, columns, MR_P_POSITIONAL | MR_P_VARIADIC,
                  .doc = "Tensors with the elements along axis 0, one for each component."),
    {0}};

const mr_op mr_op_from_arrays = {
    .abi = MR_ABI_VERSION,
    .name = "from_arrays",
    .doc = "Emits the rows of C arrays.",
    .example = "from_arrays([1, 2, 3])",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__constant),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_INTERNAL,
    .infer = mr__slices_infer,
    .cardinality = mr__slices_cardinality,
    .open = mr__slices_open,
    .next = mr__constant_next,
    .close = mr__constant_close,
    .save = mr__constant_save,
    .restore = mr__constant_restore,
    .skip = mr__constant_skip,
    .at = mr__constant_at,
};

/* Its fields can be those of an array in memory. */
static mr_code check_column(const mr_array *a, size_t column, mr_status *st)
{
    const char *bad = NULL;
    size_t bytes = 0;
    if ((unsigned)a->dtype >= MR_N_DTYPES)
        bad = "has an unknown dtype";
    else
        bytes = mr_dtype_size(a->dtype);
    if (!bad && __builtin_mul_overflow(bytes, a->rows, &bytes))
        bad = "exceeds the address space";
    for (int d = 0; d < a->rank && !bad; d++)
        if (a->shape[d] < 0)
            bad = "has a negative size";
        else if (__builtin_mul_overflow(bytes, (size_t)a->shape[d], &bytes))
            bad = "exceeds the address space";
    if (!bad && bytes && !a->data)
        bad = "has no data";
    return bad ? mr_fail(st, MR_INVALID_ARGUMENT, "from_arrays: column %zu %s", column, bad)
               : MR_OK;
}

/* The rows of each column as one tensor. Owned. */
static mr_code group_columns(const mr_array *columns, size_t n, mr_array *out, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        const mr_array *a = &columns[i];
        if ((a->storage != MR_DENSE && a->storage != MR_BYTES) || a->rank < 0 ||
            a->rank >= MR_MAX_RANK)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "from_arrays: column %zu must be dense, with fewer than %d axes", i,
                           MR_MAX_RANK);
        MR_TRY(check_column(a, i, st));
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
    mr_array *tensors = mr_calloc(n ? n : 1, sizeof *tensors);
    mr_code rc = tensors ? group_columns(columns, n, tensors, &st)
                         : mr_fail_memory(&st, n * sizeof *tensors, "the columns of from_arrays");
    mr_dataset *ds = rc == MR_OK ? mr__constant_dataset(&mr_op_from_arrays, tensors, names, n)
                                 : mr_dataset_fail(&st);
    for (size_t i = 0; tensors && i < n; i++)
        mr_array_reset(&tensors[i]);
    mr_free(tensors);
    return ds;
}
