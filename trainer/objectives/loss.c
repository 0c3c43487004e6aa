/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/loss.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/builtins.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"

/* Parses a loss, or a record or list of losses for several outputs. */
static mr_code read_loss(mr_loss *l, const char *text, mr_status *st)
{
    const mr_component *c;
    const mr_expr *e;
    mr_code rc = mr_expr_parse(text, strlen(text), &e, st);
    MR_TRY(rc);
    bool several = e->kind == MR_EX_RECORD || e->kind == MR_EX_LIST;
    if (several)
        rc = mr__loss_parse_parts(l, e, st);
    mr_expr_unref(e);
    if (several)
        return rc;
    MR_TRY(mr__registry_parse(&mr__losses, text, &c, &l->params, st));
    l->desc = (const mr_loss_desc *)c;
    mr_tri given = l->desc->has_logits ? *(const mr_tri *)l->params : MR_DEFAULT;
    l->from_logits_given = given != MR_DEFAULT;
    l->from_logits = given != MR_NO;
    return MR_OK;
}

mr_code mr_loss_parse(mr_loss **out, const char *text, mr_status *st)
{
    text = text ? text : "";
    mr_loss *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(st, sizeof *l, "a loss");
    mr_code rc = MR_OK;
    if (!(l->text = mr_strdup(text)))
        rc = mr_fail_memory(st, strlen(text), "a loss");
    if (rc == MR_OK)
        rc = read_loss(l, text, st);
    if (rc != MR_OK) {
        mr_loss_free(l);
        return rc;
    }
    *out = l;
    return MR_OK;
}

void mr_loss_free(mr_loss *l)
{
    if (!l)
        return;
    if (l->desc)
        mr__component_free_params(&l->desc->is, l->params);
    mr__loss_parts_free(l);
    mr_free(l->text);
    mr_free(l);
}

mr_code mr_loss_register(const mr_loss_desc *d, mr_status *st)
{
    bool complete = d && d->compute && (!d->has_logits || (d->probabilities && d->is.params));
    return mr__registry_add(&mr__losses, (const mr_component *)d, complete, st);
}

const char *mr_loss_text(const mr_loss *l)
{
    return l->text;
}

const char *mr_loss_name(const mr_loss *l)
{
    return l->desc ? l->desc->is.name : l->text;
}

const char *mr__loss_probabilities(const mr_loss *l)
{
    return l->desc && l->desc->has_logits ? l->desc->probabilities : NULL;
}

bool mr__loss_reads_logits(const mr_loss *l, const mr_activation *last)
{
    const char *of = mr__loss_probabilities(l);
    return of && (l->from_logits_given ? l->from_logits : !last || strcmp(last->name, of) != 0);
}

void mr__loss_fit_model(mr_loss *l, const mr_activation *last)
{
    l->from_logits = mr__loss_reads_logits(l, last);
}

mr_math_loss mr_loss_operation(const mr_loss_pass *p, mr_math_loss_kind kind)
{
    return (mr_math_loss){.kind = kind,
                          .n = p->n,
                          .width = p->width,
                          .losses_per_row = p->per_row,
                          .losses_per_weight = p->per_weight,
                          .x = p->predictions,
                          .label_dtype = p->label_dtype,
                          .labels = p->labels,
                          .weights = p->weights,
                          .scale = p->scale,
                          .first_row = (uint64_t)p->first_row,
                          .per_example = p->per_example,
                          .gradient = p->gradient,
                          .sum = p->sum,
                          .fault = p->fault};
}

mr_code mr_loss_submit(const mr_loss_pass *p, mr_math_loss_kind kind, mr_status *st)
{
    const mr_math_loss l = mr_loss_operation(p, kind);
    return p->math->loss(p->stream, &l, st);
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

/* A hint for the most frequent cause of labels of another rank. */
static const char *shape_hint(const mr_loss_desc *d, const mr_array *labels, int rank, int wanted)
{
    if (!d->sparse && mr_dtype_is_integer(labels->dtype) && rank + 1 == wanted)
        return "; use sparse_categorical_crossentropy for class numbers, or one_hot(y, n) in the "
               "pipeline";
    if (d->sparse && rank == 1 && wanted > 1)
        return "; use flatten() or global_average_pool() before the last layer for one prediction "
               "per example";
    return "";
}

/* Labels [n, ...] may lack or have trailing axes of length 1. */
static mr_code check_labels(const mr_loss_desc *d, const mr_array *labels, const mr_array *x,
                            mr_status *st)
{
    if (labels->storage != MR_DENSE || labels->dtype >= MR_STRING)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: labels are %s, expected numbers", d->is.name,
                       mr_dtype_name(labels->dtype));
    if (d->sparse && !mr_dtype_is_integer(labels->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: labels are %s, expected class numbers; use cast(y, \"int64\")",
                       d->is.name, mr_dtype_name(labels->dtype));
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
                       d->is.name, labels->rank < 1 ? 1 : labels->shape[0], x->shape[0]);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: the label of an example has shape %s, expected %s for what the model "
                   "predicts%s",
                   d->is.name, have, need, shape_hint(d, labels, rank, wanted));
}

/* One value per example: reshapes them to a column. */
static mr_array as_columns(const mr_array *x)
{
    mr_array columns = *x;
    if (x->rank == 1) {
        columns.rank = 2;
        columns.shape[1] = 1;
    }
    return columns;
}

/* Replaces unknown sizes by those of `like`, from axis 1 on. */
static mr_array fill_in(const mr_array *a, const mr_array *like, int like_rank)
{
    mr_array whole = *a;
    for (int i = 0; i < a->rank; i++)
        if (whole.shape[i] < 0)
            whole.shape[i] = i < like_rank ? like->shape[i] : 1;
    return whole;
}

mr_code mr__loss_check_labels(const mr_loss *l, const mr_array *labels, const mr_array *predictions,
                              mr_status *st)
{
    mr_array columns = as_columns(predictions);
    mr_array whole = fill_in(labels, &columns, columns.rank - l->desc->sparse);
    return check_labels(l->desc, &whole, &columns, st);
}

/* For `rows` examples with n_losses losses in all. */
static mr_code check_weights(const mr_array *w, size_t rows, size_t n_losses, mr_status *st)
{
    char have[128];
    size_t n = mr_array_row_values(w);
    bool fits = w->rank == 0 || ((size_t)w->shape[0] == rows && (n == rows || n == n_losses));
    if (w->storage == MR_DENSE && w->dtype < MR_STRING && fits)
        return MR_OK;
    mr__shape_text(w->rank, w->shape, have, sizeof have);
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "sample weights are %s of shape %s, expected a number for each of the %zu examples",
        mr_dtype_name(w->dtype), have, rows);
}

mr_code mr__loss_check_weights(const mr_array *w, const mr_array *predictions, mr_status *st)
{
    mr_array columns = as_columns(predictions), whole = fill_in(w, &columns, columns.rank - 1);
    size_t rows = (size_t)columns.shape[0];
    return check_weights(&whole, rows, rows * mr_loss_values_per_example(&columns), st);
}

mr_code mr__weights_read(const mr_array *w, mr_replica *r, size_t rows, size_t n_losses,
                         const float **weights, size_t *per_weight, mr_status *st)
{
    void *floats;
    size_t n = mr_array_row_values(w);
    MR_TRY(check_weights(w, rows, n_losses, st));
    *per_weight = w->rank == 0 ? n_losses : n == n_losses ? 1 : n_losses / rows;
    *per_weight += *per_weight == 0; /* if there are no losses */
    *weights = w->data;
    if (w->dtype == MR_FLOAT32 || n == 0)
        return MR_OK;
    MR_TRY(mr_replica_scratch(r, n * sizeof(float), &floats, st));
    *weights = floats;
    return mr_replica_math(r)->cast(
        mr_replica_stream(r),
        &(mr_math_cast){.n = n, .from = w->dtype, .scale = 1, .src = w->data, .dst = floats}, st);
}

mr_code mr_loss_compute(const mr_loss *l, mr_replica *r, const mr_array *labels,
                        const mr_array *predictions, const mr_loss_opts *opts, float *per_example,
                        float *gradient, mr_status *st)
{
    return mr__loss_compute(l, r, labels, predictions, l->from_logits, opts, per_example, gradient,
                            st);
}

mr_code mr__loss_compute(const mr_loss *l, mr_replica *r, const mr_array *labels,
                         const mr_array *predictions, bool from_logits, const mr_loss_opts *opts,
                         float *per_example, float *gradient, mr_status *st)
{
    const mr_loss_opts none = {.scale = 1};
    const mr_loss_opts *o = opts ? opts : &none;
    const mr_array *x = predictions;
    if (!l->desc)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: these are losses of several outputs; compute each of them "
                       "(mr_loss_of_output)",
                       l->text);
    if (x->dtype != MR_FLOAT32 || x->storage != MR_DENSE || x->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: predictions must be a float32 tensor of rank 1 or more",
                       l->desc->is.name);
    mr_array columns = as_columns(x);
    MR_TRY(check_labels(l->desc, labels, &columns, st));
    mr_loss_pass p = {.params = l->params,
                      .from_logits = from_logits,
                      .replica = r,
                      .stream = mr_replica_stream(r),
                      .math = mr_replica_math(r),
                      .width = (size_t)columns.shape[columns.rank - 1],
                      .per_row = mr_loss_values_per_example(&columns),
                      .first_row = o->first_row,
                      .predictions = x->data,
                      .label_dtype = labels->dtype,
                      .labels = labels->data,
                      .per_weight = 1,
                      .scale = (float)o->scale,
                      .per_example = per_example,
                      .gradient = gradient,
                      .sum = o->sum,
                      .fault = mr__replica_fault(r)};
    p.n = (size_t)x->shape[0] * p.per_row;
    if (p.width == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: predictions have no values", l->desc->is.name);
    if (o->sample_weight)
        MR_TRY(mr__weights_read(o->sample_weight, r, (size_t)x->shape[0], p.n, &p.weights,
                                &p.per_weight, st));
    return l->desc->compute(&p, st);
}
