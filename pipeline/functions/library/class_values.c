/* SPDX-License-Identifier: Apache-2.0 */
/* category_encoding(x, num_tokens, output_mode): class numbers as vectors that are 1 at each
 * class, like the layer of the same name. one_hot(x, n) is for single classes, and accepts
 * numbers out of range. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    int64_t num_tokens;
    char *output_mode;
};

struct plan {
    bool replaces; /* the classes replace the last axis */
};

enum { MULTI_HOT, ONE_HOT, COUNT };
static const char *const modes[] = {"multi_hot", "one_hot", "count", NULL};

static bool is(const struct params *p, int mode)
{
    return strcmp(p->output_mode, modes[mode]) == 0;
}

static void free_plan(void *plan)
{
    mr_free(plan);
}

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *p = c->params;
    const mr_leaf *x = c->in[0];
    if (x->rank < 0)
        return mr_call_fail(c, st, 0, "category_encoding: the number of axes is not known here");
    struct plan *plan = c->plan = mr_calloc(1, sizeof *plan);
    if (!plan)
        return mr_fail_memory(st, sizeof *plan, "classes");
    plan->replaces = x->rank > 0 && (!is(p, ONE_HOT) || x->shape[x->rank - 1] == 1);
    if (!plan->replaces && x->rank == MR_MAX_RANK)
        return mr_call_fail(c, st, 0, "category_encoding: there are too many axes");
    c->out = *x;
    c->out.dtype = MR_FLOAT32;
    c->out.rank = (int8_t)(x->rank + !plan->replaces);
    c->out.shape[c->out.rank - 1] = p->num_tokens;
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const struct plan *plan = r->plan;
    const mr_array *x = &r->in[0];
    size_t per_row = mr_array_row_values(x), classes = (size_t)p->num_tokens, per = 1;
    int64_t shape[MR_MAX_RANK];
    int rank = x->rank + !plan->replaces;
    for (int d = 0; d < x->rank; d++)
        shape[d] = x->shape[d];
    if (plan->replaces) /* the numbers along it make one row of classes */
        per = (size_t)x->shape[x->rank - 1];
    shape[rank - 1] = p->num_tokens;
    mr_array ids = {0};
    bool big = x->dtype == MR_UINT64;
    MR_TRY(mr__kernel_cast(x, big ? MR_UINT64 : MR_INT64, &ids, st));
    mr_code rc = mr_array_alloc(out, MR_FLOAT32, rank, shape, x->rows, st);
    size_t bytes = rc == MR_OK ? x->rows * mr_array_row_bytes(out) : 0;
    if (bytes)
        memset(out->data, 0, bytes);
    const uint64_t *v = ids.data;
    float *z = out->data;
    for (size_t i = 0, n = x->rows * per_row; i < n && rc == MR_OK; i++) {
        if (v[i] >= classes) { /* negative ones too */
            if (big)
                mr_row_fail(r, i / per_row, MR_INVALID_ARGUMENT,
                            "category_encoding: %" PRIu64 " is not a class from 0 to below %zu",
                            v[i], classes);
            else
                mr_row_fail(r, i / per_row, MR_INVALID_ARGUMENT,
                            "category_encoding: %" PRId64 " is not a class from 0 to below %zu",
                            (int64_t)v[i], classes);
            continue;
        }
        float *at = z + i / per * classes + v[i];
        *at = is(p, COUNT) ? *at + 1 : 1;
    }
    mr_array_reset(&ids);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_integers, "x", "Class numbers."),
    MR_ARG(struct params, num_tokens, .min.i = 1, .max.i = 1 << 24, .doc = "Number of classes."),
    MR_PARAM(struct params, output_mode, .def.s = "multi_hot", .names = modes,
             .doc = "The output: 1 if a class is among the numbers along the last axis "
                    "(multi_hot), or how often it is (count); a row for each number (one_hot)."),
    {0}};
const mr_function mr_function_category_encoding = {
    .abi = MR_ABI_VERSION,
    .name = "category_encoding",
    .doc = "Float32 values for each class instead of the last axis, 1 or more for classes that "
           "occur and 0 for others, as the layer. Fails for a number that is not a class.",
    .example = "range(3).map(x => category_encoding([x, 1], 3, output_mode=\"count\"))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
