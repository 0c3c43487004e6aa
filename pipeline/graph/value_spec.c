/* SPDX-License-Identifier: Apache-2.0 */
/* The spec of a parameter's value as an element. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/memory/object.h"

static mr_code no_memory(mr_status *st)
{
    return mr_fail_memory(st, sizeof(mr_value), "a value");
}

static mr_code group_spec(const mr_value *v, mr_spec **out, mr_status *st)
{
    mr_spec **specs = mr_calloc(v->n + 1, sizeof *specs);
    mr_code rc = specs ? MR_OK : no_memory(st);
    size_t got = 0;
    for (; got < v->n && rc == MR_OK; got++)
        rc = mr__value_spec(&v->items[got], &specs[got], st);
    if (rc == MR_OK) {
        *out = v->kind == MR_V_RECORD ? mr_spec_record((const char *const *)v->names, specs, v->n)
                                      : mr_spec_tuple(specs, v->n);
        rc = *out ? MR_OK : no_memory(st);
    } else
        for (size_t i = 0; specs && i < got; i++)
            mr_spec_unref(specs[i]);
    mr_free(specs);
    return rc;
}

mr_code mr__value_spec(const mr_value *v, mr_spec **out, mr_status *st)
{
    switch (v->kind) {
    case MR_V_BOOL:
        *out = mr_spec_scalar(MR_BOOL);
        break;
    case MR_V_INT:
        *out = mr_spec_scalar(MR_INT64);
        break;
    case MR_V_FLOAT:
        *out = mr_spec_scalar(MR_FLOAT32);
        break;
    case MR_V_STRING:
        *out = mr_spec_scalar(MR_STRING);
        break;
    case MR_V_TENSOR:
        if (v->tensor.storage == MR_RAGGED) {
            mr_leaf leaf = {.dtype = v->tensor.dtype, .rank = v->tensor.rank};
            const mr_row *row = v->tensor.data;
            leaf.ragged = row->splits != NULL;
            memcpy(leaf.shape, row->shape, (size_t)leaf.rank * sizeof *leaf.shape);
            *out = mr_spec_of_leaf(&leaf);
        } else
            *out = mr_spec_tensor(v->tensor.dtype, v->tensor.rank, v->tensor.shape);
        break;
    case MR_V_DATASET:
        MR_TRY(mr_dataset_check(v->dataset, st));
        *out = mr_spec_dataset(mr_spec_ref(mr_dataset_spec(v->dataset)));
        break;
    case MR_V_TUPLE:
    case MR_V_RECORD:
        return group_spec(v, out, st);
    case MR_V_UNKNOWN:
        *out = mr_spec_ref(v->spec);
        break;
    default:
        return mr_fail(st, MR_INVALID_ARGUMENT, "none, auto and mixed lists cannot be elements");
    }
    return *out ? MR_OK : no_memory(st);
}
