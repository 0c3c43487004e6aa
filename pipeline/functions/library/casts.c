/* SPDX-License-Identifier: Apache-2.0 */
/* cast(x, dtype): between numbers and bools. */
#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    mr_dtype dtype;
};

static mr_code type(mr_call *c, mr_status *st)
{
    mr_dtype from = c->in[0]->dtype, to = ((const struct params *)c->params)->dtype;
    if (from == MR_STRING || to == MR_STRING || to == MR_DATASET)
        return mr_call_fail(c, st, -1, "cast converts between numbers and bools, not %s to %s",
                            mr_dtype_name(from), mr_dtype_name(to));
    c->out = *c->in[0];
    c->out.dtype = to;
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    return mr__kernel_cast(&r->in[0], ((const struct params *)r->params)->dtype, out, st);
}

static const mr_param table[] = {
    MR_INPUT(mr_input_tensor, "x", "Numbers or bools."),
    {.name = "dtype",
     .doc = "The type to convert to; the quotes around its name may be omitted.",
     .type = MR_PT_OWN,
     .kind = &mr_option_dtype,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, dtype)},
    {0}};
const mr_function mr_function_cast = {
    .abi = MR_ABI_VERSION,
    .name = "cast",
    .doc = "The values as another type; floats are truncated towards zero and clamped to the range "
           "of an integer type.",
    .example = "range(3).map(x => cast(x, \"float32\") / 2)",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE,
    .type = type,
    .run = run,
};
