/* SPDX-License-Identifier: Apache-2.0 */
/* hash(x, buckets=none): XXH3 with 64 bits and seed 0. hashing(x, num_bins) is equal to the
 * layer of that name. */
#include "pipeline/functions/library/texts.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mr__string_hash(const void *p, size_t n)
{
    return XXH3_64bits(n ? p : "", n);
}

struct params {
    int64_t buckets;
    bool has_buckets;
};

static mr_code type(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = *c->in[0];
    c->out.dtype = ((const struct params *)c->params)->has_buckets ? MR_INT64 : MR_UINT64;
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const mr_array *x = &r->in[0];
    const mr_bytes *v = x->data;
    size_t n = x->rows * mr_array_row_values(x);
    MR_TRY(
        mr_array_alloc(out, p->has_buckets ? MR_INT64 : MR_UINT64, x->rank, x->shape, x->rows, st));
    uint64_t *z = out->data;
    for (size_t i = 0; i < n; i++)
        z[i] = mr__string_hash(v[i].data, v[i].size);
    for (size_t i = 0; i < n && p->has_buckets; i++)
        z[i] %= (uint64_t)p->buckets;
    return MR_OK;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "Strings."),
    MR_PARAM_WITH(struct params, buckets, MR_P_OPTIONAL | MR_P_NONE, .min.i = 1, .max.i = INT64_MAX,
                  .has_at = offsetof(struct params, has_buckets),
                  .doc = "The number of buckets, from 0; none: the whole hash, a uint64."),
    {0}};
const mr_function mr_function_hash = {
    .abi = MR_ABI_VERSION,
    .name = "hash",
    .doc = "A number for each string that never changes: its 64-bit XXH3 with seed 0, reduced to "
           "an int64 below buckets, or the whole uint64.",
    .example = "from_tensor_slices([\"a\", \"b\"]).map(x => hash(x, buckets=10))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};

static const mr_param bins_table[] = {MR_INPUT(mr_input_strings, "x", "Strings."),
                                      {.name = "num_bins",
                                       .doc = "The number of bins, from 0.",
                                       .type = MR_PT_I64,
                                       .flags = MR_P_POSITIONAL,
                                       .min.i = 1,
                                       .max.i = INT64_C(1) << 40,
                                       .at = offsetof(struct params, buckets),
                                       .has_at = offsetof(struct params, has_buckets)},
                                      {0}};
const mr_function mr_function_hashing = {
    .abi = MR_ABI_VERSION,
    .name = "hashing",
    .doc = "The bin of each string, hash(x, buckets=num_bins), as the layer.",
    .example = "from_tensor_slices([\"a\", \"b\"]).map(x => hashing(x, num_bins=10))",
    .params = bins_table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
