/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/ops/pass.h"

mr_code mr__inferred(mr_spec *spec, mr_spec **out, mr_status *st)
{
    if (!spec)
        return mr_fail_memory(st, sizeof(mr_leaf), "a spec");
    *out = spec;
    return MR_OK;
}

mr_code mr__infer_pass(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    return mr__inferred(mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0))), out, st);
}

int64_t mr__cardinality_pass(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)p;
    return in[0];
}

mr_code mr__damaged(mr_status *st, const char *what)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %s", what);
}

size_t mr__row_bytes(const mr_spec *spec)
{
    size_t all = 0;
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        size_t bytes = mr_dtype_size(leaf->dtype);
        for (int d = 0; d < leaf->rank; d++)
            if (leaf->shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)leaf->shape[d], &bytes))
                return 0;
        if (leaf->rank < 0 || leaf->dtype == MR_STRING || __builtin_add_overflow(all, bytes, &all))
            return 0;
    }
    return all;
}
