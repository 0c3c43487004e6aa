/* SPDX-License-Identifier: Apache-2.0 */
/* How much an op buffers, according to its parameters and the types of the graph. */
#include "pipeline/graph/op.h"

#include "pipeline/params/infer.h"

/* The value of the parameter MR_P_HOLDS; all elements for an op that keeps its input in memory. */
static int64_t held_elements(const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    const char *params = mr_dataset_params(ds);
    bool in_file = false;
    for (const mr_param *p = op->params; p && p->name; p++) {
        if (p->flags & MR_P_HOLDS) {
            int64_t n = *(const int64_t *)(const void *)(params + p->at);
            if (n >= 0)
                return n;
            return p->flags & MR_P_AUTO ? MR_UNKNOWN_COUNT : MR_INFINITE;
        }
        if (p->flags & MR_P_KEEPS_FILE) {
            const char *name = *(char *const *)(const void *)(params + p->at);
            in_file = in_file || (name && *name);
        }
    }
    return (op->props & MR_OP_REMEMBERS) && !in_file ? MR_INFINITE : 0;
}

void mr_dataset_held(const mr_dataset *ds, int64_t *elements, int64_t *bytes)
{
    *elements = *bytes = 0;
    if (mr_dataset_check(ds, NULL) != MR_OK || !mr_dataset_n_inputs(ds))
        return;
    const mr_dataset *input = mr_dataset_input(ds, 0);
    int64_t n = held_elements(ds), all = n ? mr_dataset_cardinality(input) : 0;
    if (all >= 0 && (n > all || n == MR_INFINITE)) /* not more than the input has */
        n = all;
    size_t one = mr__row_bytes(mr_dataset_spec(input));
    *elements = n;
    if (n && (n < 0 || !one || __builtin_mul_overflow((uint64_t)n, one, bytes)))
        *bytes = -1;
}

void mr_dataset_note(const mr_dataset *ds, char *text, size_t size)
{
    if (size)
        *text = 0;
    if (size && mr_dataset_check(ds, NULL) == MR_OK && mr_dataset_op(ds)->note)
        mr_dataset_op(ds)->note(ds, mr_dataset_params(ds), text, size);
}
