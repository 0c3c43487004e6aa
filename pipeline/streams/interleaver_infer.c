/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/interleaver.h"

mr_code mr__cycle_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    mr_fn *const *fn = params;
    const mr_program *program;
    MR_TRY(mr_program_get(*fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, st));
    const mr_spec *made = mr_program_output(program);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) == MR_SPEC_LEAF && mr_spec_leaf(made, 0)->dtype == MR_DATASET) {
        *out = mr_spec_ref(mr_spec_leaf(made, 0)->element);
    } else {
        char text[256];
        mr_spec_format(made, text, sizeof text);
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "%s: fn must return a dataset, not %s; use map for that",
                     mr_dataset_op(self)->name, text);
    }
    mr_program_unref(program);
    return rc;
}
