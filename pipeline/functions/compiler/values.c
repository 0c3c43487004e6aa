/* SPDX-License-Identifier: Apache-2.0 */
/* Converts parameter values to columns of one row, and back: the values of names in expressions. */
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/memory/object.h"

static mr_code no_memory(mr_status *st)
{
    return mr_fail_memory(st, sizeof(mr_value), "a value");
}

mr_code mr__value_columns(const mr_value *v, mr_array *columns, mr_status *st)
{
    if (v->kind == MR_V_DATASET) {
        MR_TRY(mr_array_alloc_datasets(columns, 1, st));
        *(mr_dataset **)columns->data = mr_dataset_ref(v->dataset);
        return MR_OK;
    }
    if (v->kind != MR_V_TUPLE && v->kind != MR_V_RECORD)
        return mr_value_to_array(v, columns, st);
    mr_spec *spec = NULL;
    MR_TRY(mr__value_spec(v, &spec, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < v->n && rc == MR_OK; i++) {
        /* A tuple of one component is that component, and has no children. */
        bool group = mr_spec_kind_of(spec) != MR_SPEC_LEAF && v->n > 1;
        size_t child = v->kind == MR_V_RECORD ? (size_t)mr_spec_find(spec, v->names[i]) : i;
        size_t first = group ? mr_spec_first_leaf(spec, child) : 0;
        rc = mr__value_columns(&v->items[i], columns + first, st);
    }
    mr_spec_unref(spec);
    return rc;
}

mr_code mr__value_of_columns(const mr_spec *spec, const mr_array *columns, const bool *constant,
                             size_t row, mr_value *out, mr_status *st)
{
    size_t n = mr_spec_n_children(spec);
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF) {
        size_t at = constant && *constant ? 0 : row;
        if (columns->storage != MR_RAGGED)
            return mr_value_from_array(out, columns, at, st);
        *out = (mr_value){.kind = MR_V_TENSOR};
        const mr_row *r = (const mr_row *)columns->data + at;
        if (r->splits) {
            mr_array_slice(&out->tensor, columns, at, 1);
            return MR_OK;
        }
        out->tensor = (mr_array){.dtype = columns->dtype,
                                 .storage = columns->dtype == MR_STRING ? MR_BYTES : MR_DENSE,
                                 .rank = columns->rank,
                                 .rows = 1,
                                 .data = (void *)(uintptr_t)r->data,
                                 .owner = columns->owner ? mr_buffer_ref(columns->owner) : NULL};
        memcpy(out->tensor.shape, r->shape, (size_t)columns->rank * sizeof *r->shape);
        return MR_OK;
    }
    bool record = mr_spec_kind_of(spec) == MR_SPEC_RECORD;
    *out = (mr_value){.kind = record ? MR_V_RECORD : MR_V_TUPLE};
    out->items = mr_calloc(n, sizeof *out->items);
    if (record)
        out->names = mr_calloc(n, sizeof *out->names);
    mr_code rc = out->items && (!record || out->names) ? MR_OK : no_memory(st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        size_t first = mr_spec_first_leaf(spec, i);
        rc = mr__value_of_columns(mr_spec_child(spec, i), columns + first,
                                  constant ? constant + first : NULL, row, &out->items[i], st);
        if (rc == MR_OK && record && !(out->names[i] = mr_strdup(mr_spec_child_name(spec, i))))
            rc = no_memory(st);
        out->n = i + 1;
    }
    if (rc != MR_OK)
        mr_value_reset(out);
    return rc;
}
