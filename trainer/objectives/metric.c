/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/metric.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/objectives/metric_desc.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/builtins.h"
#include "trainer/strategy/strategy_impl.h"

/* The totals of one replica, in its device's memory. */
typedef struct part {
    mr_replica *r;     /* NULL: nothing yet */
    uint64_t strategy; /* its mr__strategy_serial */
    double *totals;
} part;

struct mr_metric {
    const mr_metric_desc *desc; /* for a loss: that of the mean */
    void *params;
    mr_loss *loss; /* its mean is the metric; NULL: defined by desc */
    char *output;  /* "kind" of "kind.accuracy"; NULL: none */
    char *name;    /* with an output; NULL: the descriptor's or loss's */
    bool weighted; /* its text is weighted(...) */
    double threshold;
    bool logits;
    size_t n_totals;
    part *parts; /* MR_MAX_REPLICAS of them */
    bool shown;  /* the result is that of totals alone, else of them and the parts */
    double *totals;
};

extern const mr_metric_desc mr__metric_mean;

static bool is_known(mr__registry *r, const mr_expr *e)
{
    const mr_component *c;
    return mr__registry_find(r, e, &c, NULL) == MR_OK;
}

/* Length of an output's name before a '.' in the text; 0: none. */
static size_t output_length(const char *text)
{
    size_t n = 0;
    if (isalpha((unsigned char)*text) || *text == '_')
        while (isalnum((unsigned char)text[n]) || text[n] == '_')
            n++;
    return text[n] == '.' ? n : 0;
}

static bool is_in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* The first name in the text, after blanks and a quote. */
static const char *find_name(const char *text, size_t *n)
{
    while (*text && !is_in_name(*text))
        text++;
    for (*n = 0; is_in_name(text[*n]);)
        ++*n;
    return text;
}

/* What is weighted in the text "weighted(kind.accuracy)"; NULL: nothing. */
static const char *find_weighted(const char *text)
{
    static const char word[] = "weighted";
    size_t n;
    const char *name = find_name(text, &n);
    if (n != sizeof word - 1 || memcmp(name, word, n) != 0)
        return NULL;
    name += n + strspn(name + n, " ");
    return *name == '(' ? name + 1 : NULL;
}

/* The name of a metric without arguments, "kind.accuracy". */
static const char *base_name(const char *text, size_t *n, bool *weighted)
{
    const char *inner = find_weighted(text);
    *weighted = inner != NULL;
    return find_name(inner ? inner : text, n);
}

void mr_metric_value_name(const char *const *metrics, size_t i, char *out, size_t size)
{
    size_t n, of_before, all = 0, weighted_before = 0, number, dot = 0;
    bool weighted, is_weighted, first_is_weighted = false;
    const char *name = base_name(metrics[i], &n, &weighted);
    for (size_t k = 0; k < i; k++) {
        const char *before = base_name(metrics[k], &of_before, &is_weighted);
        if (n != of_before || memcmp(name, before, n) != 0)
            continue;
        first_is_weighted = all == 0 ? is_weighted : first_is_weighted;
        all++;
        weighted_before += is_weighted;
    }
    bool says = weighted && all > 0;
    number = says ? weighted_before - first_is_weighted : all;
    for (size_t k = 0; k < n; k++)
        dot = name[k] == '.' ? k + 1 : dot;
    int at = snprintf(out, size, "%.*s%s%.*s", (int)dot, name, says ? "weighted_" : "",
                      (int)(n - dot), name + dot);
    if (number > 0 && (size_t)at < size)
        snprintf(out + at, size - (size_t)at, "_%zu", number);
    for (char *c = out; *c; c++)
        if (*c == '.')
            *c = '_';
}

/* A metric by its name, or the mean of a loss by the loss's name. */
static mr_code read_metric(mr_metric *m, const char *text, mr_status *st)
{
    const mr_component *c;
    const mr_expr *e;
    MR_TRY(mr_expr_parse(text, strlen(text), &e, st));
    bool named = e->kind == MR_EX_NAME || e->kind == MR_EX_CALL || e->kind == MR_EX_STRING;
    bool is_loss = named && !is_known(&mr__metrics, e) && is_known(&mr__losses, e);
    mr_expr_unref(e);
    if (is_loss) {
        m->desc = &mr__metric_mean;
        return mr_loss_parse(&m->loss, text, st);
    }
    MR_TRY(mr__registry_parse(&mr__metrics, text, &c, &m->params, st));
    m->desc = (const mr_metric_desc *)c;
    return MR_OK;
}

static mr_code name_output(mr_metric *m, const char *text, size_t n, mr_status *st)
{
    const char *what = mr_metric_name(m);
    m->output = mr_strndup(text, n);
    m->name = mr_strf("%.*s_%s", (int)n, text, what);
    return m->output && m->name ? MR_OK : mr_fail_memory(st, n, "a metric");
}

/* Reads "weighted(kind.accuracy)" or what is in the brackets. */
static mr_code read_text(mr_metric *m, const char *text, mr_status *st)
{
    const char *inner = find_weighted(text);
    size_t n = inner ? strlen(inner) : 0;
    while (n > 0 && isspace((unsigned char)inner[n - 1]))
        n--;
    if (inner && !(n > 1 && inner[n - 1] == ')' && !find_weighted(inner)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "metric %.200s: expected one metric in brackets, as in weighted(accuracy)",
                       text);
    m->weighted = inner != NULL;
    char *own = inner ? mr_strndup(inner, n - 1) : mr_strdup(text);
    if (!own)
        return mr_fail_memory(st, strlen(text), "a metric");
    n = output_length(own);
    mr_code rc = read_metric(m, own + n + (n > 0), st);
    if (rc == MR_OK && n > 0)
        rc = name_output(m, own, n, st);
    mr_free(own);
    return rc;
}

mr_code mr_metric_parse(mr_metric **out, const char *text, mr_status *st)
{
    text = text ? text : "";
    mr_metric *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(st, sizeof *m, "a metric");
    mr_code rc = read_text(m, text, st);
    if (rc == MR_OK) {
        m->threshold = 0.5;
        m->n_totals = m->desc->totals ? m->desc->totals(m->params) : 2;
        m->parts = mr_calloc(MR_MAX_REPLICAS, sizeof *m->parts);
        m->totals = mr_calloc(m->n_totals, sizeof *m->totals);
        if (!m->parts || !m->totals)
            rc = mr_fail_memory(st, MR_MAX_REPLICAS * sizeof(part), "a metric");
    }
    if (rc != MR_OK) {
        mr_metric_free(m);
        return rc;
    }
    *out = m;
    return MR_OK;
}

void mr_metric_free(mr_metric *m)
{
    if (!m)
        return;
    for (size_t i = 0; m->parts && i < MR_MAX_REPLICAS; i++)
        if (m->parts[i].r)
            mr_stream_release(mr_replica_stream(m->parts[i].r), m->parts[i].totals);
    if (m->desc)
        mr__component_free_params(&m->desc->is, m->params);
    mr_loss_free(m->loss);
    mr_free(m->output);
    mr_free(m->name);
    mr_free(m->totals);
    mr_free(m->parts);
    mr_free(m);
}

mr_code mr_metric_register(const mr_metric_desc *d, mr_status *st)
{
    bool complete = d && d->update && !d->totals == !d->result;
    return mr__registry_add(&mr__metrics, (const mr_component *)d, complete, st);
}

const char *mr_metric_name(const mr_metric *m)
{
    if (m->name)
        return m->name;
    return m->loss ? mr_loss_name(m->loss) : m->desc->is.name;
}

const char *mr__metric_output(const mr_metric *m)
{
    return m->output;
}

void mr_metric_set_threshold(mr_metric *m, double threshold)
{
    m->threshold = threshold;
}

void mr__metric_fit_model(mr_metric *m, const mr_loss *loss, const mr_activation *last)
{
    const char *of = loss ? mr__loss_probabilities(loss) : NULL;
    /* Where the activation makes probabilities, the loss reads its input, but a metric does not. */
    m->logits = of && loss->from_logits && !(last && strcmp(last->name, of) == 0);
    if (m->logits) /* a probability of one half is the logit 0 */
        m->threshold = 0;
    if (m->loss)
        mr__loss_fit_model(m->loss, last);
}

size_t mr__metric_totals(const mr_metric *m)
{
    return m->n_totals;
}

/* The replica's part, allocated and zeroed on first use. */
static mr_code part_of(mr_metric *m, mr_replica *r, part **out, mr_status *st)
{
    part *p = &m->parts[mr_replica_id(r)];
    void *totals;
    uint64_t strategy = mr__strategy_serial(mr_replica_strategy(r));
    *out = p;
    if (p->r && p->strategy != strategy)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "metric %s has totals on the devices of another strategy; each strategy "
                       "needs a separate metric",
                       mr_metric_name(m));
    if (p->r)
        return MR_OK;
    MR_TRY(mr_device_alloc(mr_replica_device(r), MR_MEMORY_DEVICE, m->n_totals * sizeof(double),
                           &totals, st));
    *p = (part){r, strategy, totals};
    return mr_stream_set(mr_replica_stream(r), totals, 0, m->n_totals * sizeof(double), st);
}

static size_t n_losses(const mr_array *x)
{
    return (size_t)x->shape[0] * mr_loss_values_per_example(x);
}

/* x: predictions, or the logits that the loss prefers. */
static mr_code add_losses(mr_metric *m, const mr_metric_pass *p, const mr_array *x,
                          bool from_logits, mr_status *st)
{
    size_t n = n_losses(x);
    void *losses;
    MR_TRY(mr_replica_scratch(p->replica, n * sizeof(float), &losses, st));
    MR_TRY(
        mr__loss_compute(m->loss, p->replica, p->labels, x, from_logits, NULL, losses, NULL, st));
    const mr_math_metric mean = {.kind = MR_METRIC_MEAN,
                                 .n = n,
                                 .width = 1,
                                 .x = losses,
                                 .label_dtype = MR_FLOAT32,
                                 .total = p->total,
                                 .weights = p->weights,
                                 .values_per_weight = p->losses_per_weight};
    return p->math->metric(p->stream, &mean, st);
}

mr_code mr__metric_add(mr_metric *m, mr_replica *r, const mr_array *labels,
                       const mr_array *predictions, const mr_array *logits,
                       const mr_array *sample_weight, mr_status *st)
{
    const mr_array *x = predictions;
    part *mine;
    if (x->dtype != MR_FLOAT32 || x->storage != MR_DENSE || x->rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: predictions must be a float32 tensor of rank 1 or more",
                       mr_metric_name(m));
    if ((m->desc->needs_labels || m->loss) &&
        (!labels || labels->storage != MR_DENSE || labels->dtype >= MR_STRING || labels->rank < 1))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: labels must be a tensor of numbers of rank 1 or more",
                       mr_metric_name(m));
    if (sample_weight && !m->desc->weighs)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s does not take sample weights",
                       mr_metric_name(m));
    MR_TRY(part_of(m, r, &mine, st));
    mr_metric_pass p = {.params = m->params,
                        .replica = r,
                        .stream = mr_replica_stream(r),
                        .math = mr_replica_math(r),
                        .labels = labels,
                        .predictions = x,
                        .threshold = m->threshold,
                        .logits = m->logits,
                        .total = mine->totals,
                        .name = mr_metric_name(m),
                        .losses_per_weight = 1};
    mr_code rc = MR_OK;
    if (sample_weight)
        rc = mr__weights_read(sample_weight, r, (size_t)x->shape[0], n_losses(x), &p.weights,
                              &p.losses_per_weight, st);
    if (rc != MR_OK)
        mr_status_prefix(st, "%s", mr_metric_name(m));
    MR_TRY(rc);
    if (m->loss)
        return add_losses(m, &p, logits ? logits : x, logits || m->loss->from_logits, st);
    return m->desc->update(&p, st);
}

mr_code mr_metric_update(mr_metric *m, mr_replica *r, const mr_array *labels,
                         const mr_array *predictions, mr_status *st)
{
    return mr__metric_add(m, r, labels, predictions, NULL, NULL, st);
}

mr_code mr_metric_update_weighted(mr_metric *m, mr_replica *r, const mr_array *labels,
                                  const mr_array *predictions, const mr_array *sample_weight,
                                  mr_status *st)
{
    return mr__metric_add(m, r, labels, predictions, NULL, sample_weight, st);
}

bool mr__metric_is_weighted(const mr_metric *m)
{
    return m->weighted;
}

const char *mr__metric_probabilities(const mr_metric *m)
{
    return m->loss ? mr__loss_probabilities(m->loss) : NULL;
}

mr_code mr__metric_fetch(mr_metric *m, mr_replica *r, double *out, mr_status *st)
{
    part *mine;
    MR_TRY(part_of(m, r, &mine, st));
    return mr_stream_copy(mr_replica_stream(r), out, mine->totals, m->n_totals * sizeof(double),
                          st);
}

mr_code mr__metric_read(mr_metric *m, mr_replica *r, double *out, mr_status *st)
{
    part *mine;
    MR_TRY(part_of(m, r, &mine, st));
    return mr__replica_read(r, out, mine->totals, m->n_totals * sizeof(double), st);
}

mr_code mr__metric_write(mr_metric *m, mr_replica *r, const double *in, mr_status *st)
{
    part *mine;
    MR_TRY(part_of(m, r, &mine, st));
    return mr__replica_write(r, mine->totals, in, m->n_totals * sizeof(double), st);
}

void mr__metric_show(mr_metric *m, const double *totals)
{
    m->shown = true;
    for (size_t i = 0; i < m->n_totals; i++)
        m->totals[i] = totals ? totals[i] : 0;
}

static double result_of(const mr_metric *m, const double *totals)
{
    if (m->desc->result)
        return m->desc->result(m->params, totals);
    return totals[1] > 0 ? totals[0] / totals[1] : 0;
}

double mr_metric_result(const mr_metric *m)
{
    size_t bytes = m->n_totals * sizeof(double);
    double *sum = mr_calloc(2, bytes), *one = sum ? sum + m->n_totals : NULL, result = (double)NAN;
    bool well = sum != NULL;
    if (sum)
        memcpy(sum, m->totals, bytes);
    for (size_t i = 0; i < MR_MAX_REPLICAS && !m->shown && well; i++) {
        const part *p = &m->parts[i];
        if (!p->r)
            continue;
        well = mr__replica_read(p->r, one, p->totals, bytes, NULL) == MR_OK;
        for (size_t k = 0; k < m->n_totals && well; k++)
            sum[k] += one[k];
    }
    if (well)
        result = result_of(m, sum);
    mr_free(sum);
    return result;
}

mr_code mr_metric_reset(mr_metric *m, mr_status *st)
{
    memset(m->totals, 0, m->n_totals * sizeof *m->totals);
    for (size_t i = 0; i < MR_MAX_REPLICAS; i++)
        if (m->parts[i].r)
            MR_TRY(mr_stream_set(mr_replica_stream(m->parts[i].r), m->parts[i].totals, 0,
                                 m->n_totals * sizeof(double), st));
    return MR_OK;
}

mr_code mr__metric_settings(const mr_metric *m, mr__settings *out, mr_status *st)
{
    MR_TRY(mr__settings_add(out, "output", m->output ? m->output : "", st));
    MR_TRY(mr__settings_add(out, "weighted", m->weighted ? "true" : "false", st));
    if (m->loss)
        return mr__loss_settings(m->loss, out, st);
    return mr__settings_add_table(out, "metric", m->desc->is.name, m->desc->is.params, m->params,
                                  st);
}
