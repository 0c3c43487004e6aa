/* SPDX-License-Identifier: Apache-2.0 */
/* One element for each index of axis 0, whose length is the same for all components. The slices
 * of a list of datasets are the datasets. */
#include "pipeline/ops/sources.h"

#include <string.h>

#include "pipeline/columns/constant.h"

struct params {
    mr_value components; /* a TUPLE of them, or a RECORD */
};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, components, MR_P_POSITIONAL | MR_P_VARIADIC,
                  .doc = "Tensors of rank 1 or more, each a component of the elements."),
    {0}};

const mr_op mr_op_from_tensor_slices = {
    .abi = MR_ABI_VERSION,
    .name = "from_tensor_slices",
    .doc = "Emits the slices of its components along axis 0.",
    .example = "from_tensor_slices([[1, 2], [3, 4]])",
    .order_doc = "by row",
    .memory_doc = "the values, which belong to the graph",
    .state_doc = "a counter",
    .count_doc = "the size of axis 0",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__constant),
    .role = MR_ROLE_SOURCE,
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

mr_dataset *mr_from_tensor_slices(const mr_array *components, const char *const *names, size_t n)
{
    return mr__constant_dataset(&mr_op_from_tensor_slices, components, names, n);
}

mr_dataset *mr_from_strings(const char *const *strings, size_t n)
{
    mr_status st;
    const int64_t shape[1] = {(int64_t)n};
    mr_array list = {0};
    mr_buffer *text = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(strings[i]);
    mr_code rc = mr_array_alloc(&list, MR_STRING, 1, shape, 1, &st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&text, bytes, &st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(list.owner, text, &st);
    char *at = rc == MR_OK ? mr_buffer_data(text) : NULL;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        mr_bytes *v = (mr_bytes *)list.data + i;
        *v = (mr_bytes){at, strlen(strings[i])};
        memcpy(at, strings[i], v->size);
        at += v->size;
    }
    mr_dataset *ds = rc == MR_OK ? mr_from_tensor_slices(&list, NULL, 1) : mr_dataset_fail(&st);
    mr_buffer_unref(text);
    mr_array_reset(&list);
    return ds;
}
