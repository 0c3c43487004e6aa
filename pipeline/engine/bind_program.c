/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of an iterator's ops. */
#include "pipeline/engine/run.h"
#include "pipeline/functions/compiler/job_binding.h"

void mr_iter_bind_program(const mr_iter *it, const mr_program *p)
{
    mr__program_bind(p, mr__function_seed(&it->run->opts), it->run->cancel);
}

mr_code mr_iter_program(const mr_iter *it, mr_fn *fn, const mr_spec *in, const mr_program **out,
                        mr_status *st)
{
    MR_TRY(mr_program_get(fn, in, out, st));
    mr_iter_bind_program(it, *out);
    return MR_OK;
}
