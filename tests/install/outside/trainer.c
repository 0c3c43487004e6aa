/* SPDX-License-Identifier: Apache-2.0 */
/* A program with its own layer, loss, optimizer and metric: they are found by their names, take
 * arguments by their tables, and train together with those of the library. */
#include <millrace/millrace-trainer.h>
#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>

/* ---- y = factor * x ---- */

struct scale_params {
    double factor;
    const mr_activation *activation;
};

static mr_code scale_forward(const mr_layer_pass *p, mr_status *st)
{
    const struct scale_params *o = p->layer->params;
    size_t n = mr_dims_values(&p->layer->in);
    const mr_math_combine times = {.n = p->rows * n, .a = (float)o->factor, .x = p->x, .y = p->y};
    const mr_math_activate f = {o->activation->function, p->rows, n, p->y, p->y};
    if (p->math->combine(p->stream, &times, st) != MR_OK)
        return st->code;
    return p->math->activate(p->stream, &f, st);
}

static mr_code scale_backward(const mr_layer_pass *p, mr_status *st)
{
    const struct scale_params *o = p->layer->params;
    size_t n = mr_dims_values(&p->layer->in);
    const mr_math_activate_backward f = {o->activation->function, p->rows, n, p->y, p->dy, p->dy};
    const mr_math_combine times = {.n = p->rows * n, .a = (float)o->factor, .x = p->dy, .y = p->dx};
    if (p->math->activate_backward(p->stream, &f, st) != MR_OK)
        return st->code;
    return p->dx ? p->math->combine(p->stream, &times, st) : MR_OK;
}

static const mr_param scale_table[] = {
    MR_ARG(struct scale_params, factor, .min.f = -100, .max.f = 100, .doc = "What x is times."),
    MR_PARAM_OWN(struct scale_params, activation, mr_param_activation, .def.s = "linear",
                 .doc = "Applied to the result."),
    {0}};
static const mr_layer_desc scale = {.is = {.abi = MR_ABI_VERSION,
                                           .name = "scale",
                                           .doc = "Multiplies by a constant.",
                                           .example = "input(2).scale(3.0).dense(1)",
                                           .params = scale_table,
                                           .params_size = sizeof(struct scale_params)},
                                    .forward = scale_forward,
                                    .backward = scale_backward};

/* ---- weight * |x - y| ---- */

struct absolute_params {
    double weight;
};

/* What no operation does is a kernel of one's own: here a function of the processor. */
struct absolute_args {
    size_t n, width;
    float weight, scale;
    const float *x, *y;
    float *per_example, *gradient;
    double *sum;
};

static void absolute_kernel(void *args)
{
    const struct absolute_args *a = args;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++) {
        float loss = 0;
        for (size_t j = i * a->width; j < (i + 1) * a->width; j++) {
            float d = a->x[j] - a->y[j];
            loss += a->weight * (d < 0 ? -d : d);
            if (a->gradient)
                a->gradient[j] = a->weight * (d < 0 ? -a->scale : a->scale);
        }
        sum += loss;
        if (a->per_example)
            a->per_example[i] = loss;
    }
    if (a->sum)
        *a->sum = sum;
}

static mr_code absolute_compute(const mr_loss_pass *p, mr_status *st)
{
    const struct absolute_params *o = p->params;
    struct absolute_args a = {p->n, p->width,       (float)o->weight, p->scale, p->predictions,
                              NULL, p->per_example, p->gradient,      p->sum};
    size_t n = p->n * p->width;
    void *labels;
    if (mr_replica_scratch(p->replica, n * sizeof(float), &labels, st) != MR_OK)
        return st->code;
    const mr_math_cast cast = {n, p->label_dtype, 1, 0, p->labels, labels};
    a.y = labels;
    if (p->math->cast(p->stream, &cast, st) != MR_OK)
        return st->code;
    return mr_stream_launch(p->stream, absolute_kernel, &a, sizeof a, st);
}

static const mr_param absolute_table[] = {
    MR_PARAM(struct absolute_params, weight, .def.f = 1, .max.f = 10, .doc = "A factor."), {0}};
static const mr_loss_desc absolute = {.is = {.abi = MR_ABI_VERSION,
                                             .name = "absolute",
                                             .doc = "Sum of the absolute differences.",
                                             .example = "absolute(weight=2.0)",
                                             .params = absolute_table,
                                             .params_size = sizeof(struct absolute_params)},
                                      .compute = absolute_compute};

/* ---- w -= learning_rate * sign(g) ---- */

struct sign_params {
    double learning_rate;
};

static size_t sign_slots(const void *params)
{
    (void)params;
    return 0;
}

struct sign_args {
    size_t n;
    float rate;
    const float *gradient, *skip;
    float *w;
};

static void sign_kernel(void *args)
{
    const struct sign_args *a = args;
    for (size_t i = 0; i < a->n && *a->skip == 0; i++)
        a->w[i] -= a->gradient[i] < 0 ? -a->rate : a->rate;
}

static mr_code sign_update(const mr_optimizer_step *u, mr_status *st)
{
    const struct sign_args a = {u->n, (float)u->learning_rate, u->gradient, u->skip, u->w};
    return mr_stream_launch(u->stream, sign_kernel, &a, sizeof a, st);
}

static const mr_param sign_table[] = {
    MR_PARAM(struct sign_params, learning_rate, .def.f = 0.125, .max.f = 1, .doc = "Step size."),
    {0}};
static const mr_optimizer_desc sign = {.is = {.abi = MR_ABI_VERSION,
                                              .name = "sign",
                                              .doc = "Steps of one size.",
                                              .example = "sign(learning_rate=0.125)",
                                              .params = sign_table,
                                              .params_size = sizeof(struct sign_params)},
                                       .slots = sign_slots,
                                       .update = sign_update};

/* ---- how many were seen ---- */

struct seen_args {
    double rows, *total;
};

static void seen_kernel(void *args)
{
    const struct seen_args *a = args;
    a->total[0] += a->rows;
    a->total[1] += 1;
}

static mr_code seen_update(const mr_metric_pass *p, mr_status *st)
{
    const struct seen_args a = {(double)p->predictions->shape[0], p->total};
    return mr_stream_launch(p->stream, seen_kernel, &a, sizeof a, st);
}

static const mr_metric_desc seen = {.is = {.abi = MR_ABI_VERSION,
                                           .name = "seen",
                                           .doc = "Mean rows of a batch on a replica.",
                                           .example = "seen"},
                                    .update = seen_update};

static int expect(int holds, const char *what, const mr_status *st)
{
    if (!holds)
        fprintf(stderr, "%s: %s\n", what, st->message);
    return holds;
}

static int train(mr_status *st)
{
    static const char data[] = "range(8).map(i => ([1.0, 1.0], [0.0, 0.0])).batch(4)";
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_optimizer *o = NULL;
    mr_dataset *ds = NULL;
    mr_fit_result r;
    const char *metrics[] = {"seen"};
    int ok = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, st) == MR_OK &&
             mr_model_parse(&m,
                            "input(2).dense(2, kernel_initializer=\"zeros\", bias_initializer="
                            "constant(0.5)).scale(4.0, activation=\"relu\")",
                            st) == MR_OK &&
             mr_loss_parse(&l, "absolute(weight=0.5)", st) == MR_OK &&
             mr_optimizer_parse(&o, "sign", st) == MR_OK &&
             mr_dataset_from_text(data, sizeof data - 1, NULL, &ds, st) == MR_OK &&
             mr_fit(s, m, ds, l, o, &(mr_fit_opts){.epochs = 1, .metrics = metrics, .n_metrics = 1},
                    &r, st) == MR_OK;
    /* An example's first loss is 0.5 * (4 * 0.5) for each of two values: 2. The update takes 0.125
     * from two weights and the bias, which leaves 4 * 0.125 of each: 0.5. */
    ok = expect(ok, "training", st) && expect(r.loss == 1.25f, "the mean of 2 and 0.5", st) &&
         expect(r.metrics[0] == 2, "two rows on each replica", st);
    mr_dataset_unref(ds);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    mr_strategy_free(s);
    return ok;
}

int main(void)
{
    mr_device *device = NULL;
    mr_status st = {0};
    if (mr_device_open(&device, "cpu:0", &st) != MR_OK) {
        fprintf(stderr, "%s\n", st.message);
        return 1;
    }
    int ok = strcmp(mr_device_name(device), "cpu:0") == 0;
    mr_device_close(device);
    ok = ok && expect(mr_layer_register(&scale, &st) == MR_OK, "a layer", &st) &&
         expect(mr_loss_register(&absolute, &st) == MR_OK, "a loss", &st) &&
         expect(mr_optimizer_register(&sign, &st) == MR_OK, "an optimizer", &st) &&
         expect(mr_metric_register(&seen, &st) == MR_OK, "a metric", &st);
    mr_model *m = NULL;
    ok = ok && expect(mr_layer_register(&scale, &st) == MR_ALREADY_EXISTS, "twice", &st) &&
         expect(mr_model_parse(&m, "scale(200)", &st) == MR_INVALID_ARGUMENT &&
                    strstr(st.message, "scale: factor must be at most 100, not 200"),
                "a bad argument", &st);
    return ok && train(&st) ? 0 : 1;
}
