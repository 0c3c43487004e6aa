/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/row_filter.h"

mr_code mr__predicate_check(const mr_dataset *self, mr_fn *fn, mr_status *st)
{
    const mr_program *program;
    MR_TRY(mr_program_get(fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, st));
    const mr_spec *made = mr_program_output(program);
    const mr_leaf *leaf = mr_spec_leaf(made, 0);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) != MR_SPEC_LEAF || leaf->dtype != MR_BOOL || leaf->rank > 0) {
        char text[256];
        mr_spec_format(made, text, sizeof text);
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: fn must return one scalar bool, not %s",
                     mr_dataset_op(self)->name, text);
    }
    mr_program_unref(program);
    return rc;
}

mr_code mr__predicate_check_verdict(const char *op, const mr_block *verdict, mr_status *st)
{
    if (verdict->rows == 0 ||
        (verdict->columns[0].storage == MR_DENSE && verdict->columns[0].rank == 0))
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s expects a scalar bool of each element, found one of shape with rank %d", op,
                   verdict->columns[0].rank);
}

mr_code mr__pick_rows(mr_block *in, const uint32_t *index, size_t n, mr_block *out, mr_status *st)
{
    if (n == in->rows) {
        mr_block_move(out, in);
        return MR_OK;
    }
    if (n && index[n - 1] - index[0] == n - 1)
        return mr_block_slice(out, in, index[0], n, st);
    mr_block_clear(out);
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_block_start(out, in, n, st));
    return mr_block_append_rows(out, in, index, n, st);
}
