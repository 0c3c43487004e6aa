/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loss.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/call_text.h"
#include "trainer/loss_desc.h"
#include "trainer/tensor.h"

static const mr__loss_desc *const losses[] = {
#define MR_LOSS(name) &mr__loss_##name,
#include "trainer/losses.def"
#undef MR_LOSS
};
enum { N_LOSSES = sizeof losses / sizeof *losses };

static mr_code make(mr_loss **out, const mr__call_text *c, mr_status *st)
{
    const mr__loss_desc *d = NULL;
    for (size_t i = 0; i < N_LOSSES && !d; i++)
        if (mr__call_text_is(c, losses[i]->name) || mr__call_text_is(c, losses[i]->alias))
            d = losses[i];
    if (!d)
        return mr__args_fail(&c->src, c->e, st,
                             "there is no loss '%s'; there are mse, binary_crossentropy and "
                             "sparse_categorical_crossentropy",
                             c->e->text);
    mr_loss *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(st, sizeof *l, "a loss");
    l->desc = d;
    mr_code rc = mr__call_text_bind(c, d->args, d->params_size, &l->params, st);
    if (rc != MR_OK) {
        mr_free(l);
        return rc;
    }
    int8_t given = d->has_logits ? *(const int8_t *)l->params : -1;
    l->from_logits_given = given >= 0;
    l->from_logits = given != 0;
    *out = l;
    return MR_OK;
}

mr_code mr_loss_parse(mr_loss **out, const char *text, mr_status *st)
{
    mr__call_text c;
    MR_TRY(mr__call_text_parse(&c, text, "a loss", st));
    mr_code rc = make(out, &c, st);
    mr_expr_unref(c.e);
    return rc;
}

void mr_loss_free(mr_loss *l)
{
    if (!l)
        return;
    mr_free(l->params);
    mr_free(l);
}

const char *mr_loss_name(const mr_loss *l)
{
    return l->desc->name;
}

void mr__loss_fit_model(mr_loss *l, const mr__activation *last)
{
    if (!l->from_logits_given && l->desc->has_logits)
        l->from_logits = !last || strcmp(last->name, l->desc->probabilities) != 0;
}

void mr__labels_to_float(mr_dtype t, const void *labels, size_t from, size_t n, float *out)
{
    if (t == MR_FLOAT32) {
        memcpy(out, (const float *)labels + from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)mr__value_as_double(t, labels, from + i);
}

size_t mr_loss_values_per_example(const mr_array *predictions)
{
    size_t n = 1;
    for (int i = 1; i + 1 < predictions->rank; i++)
        n *= (size_t)predictions->shape[i];
    return n;
}

/* The rank without trailing axes of length 1, but at least 1. */
static int core_rank(const mr_array *a)
{
    int rank = a->rank;
    while (rank > 1 && a->shape[rank - 1] == 1)
        rank--;
    return rank;
}

/* Labels [n, ...] may lack or have trailing axes of length 1. */
static mr_code check_labels(const mr__loss_desc *d, const mr_array *labels, const mr_array *x,
                            mr_status *st)
{
    if (labels->storage != MR_DENSE || labels->dtype >= MR_STRING)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: labels are %s, expected numbers", d->name,
                       mr_dtype_name(labels->dtype));
    if (d->sparse && !mr_dtype_is_integer(labels->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: labels are %s, expected class numbers; use cast(y, \"int64\")", d->name,
                       mr_dtype_name(labels->dtype));
    mr_array want = *x;
    if (d->sparse)
        want.rank--;
    int rank = core_rank(labels), wanted = core_rank(&want);
    bool fits = labels->rank >= 1 && rank == wanted;
    for (int i = 0; fits && i < rank; i++)
        fits = labels->shape[i] == want.shape[i];
    if (fits)
        return MR_OK;
    char have[128], need[128];
    mr__shape_text(labels->rank - 1, labels->shape + 1, have, sizeof have);
    mr__shape_text(want.rank - 1, want.shape + 1, need, sizeof need);
    if (labels->rank < 1 || labels->shape[0] != x->shape[0])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: %" PRId64 " labels for %" PRId64
                       " predictions; batch features and labels "
                       "together",
                       d->name, labels->rank < 1 ? 1 : labels->shape[0], x->shape[0]);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: the label of an example has shape %s, expected %s for what the model "
                   "predicts",
                   d->name, have, need);
}

mr_code mr_loss_compute(const mr_loss *l, const mr_array *labels, const mr_array *predictions,
                        int64_t first_row, double scale, float *per_example, float *gradient,
                        mr_status *st)
{
    const mr_array *x = predictions;
    if (x->dtype != MR_FLOAT32 || x->storage != MR_DENSE || x->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: predictions must be a float32 tensor of rank 1 or more", l->desc->name);
    mr_array columns = *x;
    if (x->rank == 1) { /* one value an example */
        columns.rank = 2;
        columns.shape[1] = 1;
    }
    MR_TRY(check_labels(l->desc, labels, &columns, st));
    mr__loss_pass p = {.params = l->params,
                       .from_logits = l->from_logits,
                       .width = (size_t)columns.shape[columns.rank - 1],
                       .per_row = mr_loss_values_per_example(&columns),
                       .first_row = first_row,
                       .predictions = x->data,
                       .label_dtype = labels->dtype,
                       .labels = labels->data,
                       .scale = (float)scale,
                       .per_example = per_example,
                       .gradient = gradient};
    p.n = (size_t)x->shape[0] * p.per_row;
    if (p.width == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: predictions have no values", l->desc->name);
    return l->desc->compute(&p, st);
}
