/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/metric.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/call_text.h"
#include "trainer/metric_desc.h"

/* Each on a cache line of its own: replicas add at the same time. */
typedef struct part {
    _Alignas(64) double total;
    double count;
} part;

struct mr_metric {
    const mr__metric_desc *desc;
    double threshold;
    part *parts; /* MR_MAX_REPLICAS of them */
};

static const mr__metric_desc *const metrics[] = {
#define MR_METRIC(name) &mr__metric_##name,
#include "trainer/metrics.def"
#undef MR_METRIC
};
enum { N_METRICS = sizeof metrics / sizeof *metrics };

static mr_code make(mr_metric **out, const mr__call_text *c, mr_status *st)
{
    static const mr__arg none[] = {{0}};
    char unused;
    const mr__metric_desc *d = NULL;
    for (size_t i = 0; i < N_METRICS && !d; i++)
        if (mr__call_text_is(c, metrics[i]->name) || mr__call_text_is(c, metrics[i]->alias))
            d = metrics[i];
    if (!d)
        return mr__args_fail(
            &c->src, c->e, st,
            "there is no metric '%s'; there are accuracy, "
            "sparse_categorical_accuracy, categorical_accuracy, binary_accuracy, mse "
            "and mean",
            c->e->text);
    MR_TRY(mr__args_bind(&c->src, c->e, none, &unused, st));
    mr_metric *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(st, sizeof *m, "a metric");
    m->desc = d;
    m->threshold = 0.5;
    m->parts = mr_aligned_alloc(_Alignof(part), MR_MAX_REPLICAS * sizeof *m->parts);
    if (!m->parts) {
        mr_free(m);
        return mr_fail_memory(st, MR_MAX_REPLICAS * sizeof(part), "a metric");
    }
    mr_metric_reset(m);
    *out = m;
    return MR_OK;
}

mr_code mr_metric_parse(mr_metric **out, const char *text, mr_status *st)
{
    mr__call_text c;
    MR_TRY(mr__call_text_parse(&c, text, "a metric", st));
    mr_code rc = make(out, &c, st);
    mr_expr_unref(c.e);
    return rc;
}

void mr_metric_free(mr_metric *m)
{
    if (!m)
        return;
    mr_free(m->parts);
    mr_free(m);
}

const char *mr_metric_name(const mr_metric *m)
{
    return m->desc->name;
}

void mr_metric_set_threshold(mr_metric *m, double threshold)
{
    m->threshold = threshold;
}

mr_code mr_metric_update(mr_metric *m, const mr_replica *r, const mr_array *labels,
                         const mr_array *predictions, mr_status *st)
{
    const mr_array *x = predictions;
    if (x->dtype != MR_FLOAT32 || x->storage != MR_DENSE || x->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: predictions must be a float32 tensor of rank 1 or more", m->desc->name);
    if (m->desc->needs_labels &&
        (!labels || labels->storage != MR_DENSE || labels->dtype >= MR_STRING || labels->rank < 1))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: labels must be a tensor of numbers of rank 1 or more", m->desc->name);
    mr__metric_pass p = {.labels = labels, .predictions = x, .threshold = m->threshold};
    MR_TRY(m->desc->update(&p, st));
    part *mine = &m->parts[r ? mr_replica_id(r) : 0];
    mine->total += p.total;
    mine->count += p.count;
    return MR_OK;
}

double mr_metric_result(const mr_metric *m)
{
    double total = 0, count = 0;
    for (size_t i = 0; i < MR_MAX_REPLICAS; i++) {
        total += m->parts[i].total;
        count += m->parts[i].count;
    }
    return count > 0 ? total / count : 0;
}

void mr_metric_reset(mr_metric *m)
{
    memset(m->parts, 0, MR_MAX_REPLICAS * sizeof *m->parts);
}
