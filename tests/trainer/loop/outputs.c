/* SPDX-License-Identifier: Apache-2.0 */
/* Models with several outputs: gradients against finite differences; losses, weights and metrics of
 * each against plain loops; labels in every structure; saving, resuming, errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "tests/trainer/kit/pass.h"
#include "trainer/loop/callback.h"
#include "trainer/loop/checkpoint.h"
#include "trainer/loop/fit.h"
#include "trainer/model/model.h"
#include "trainer/model/onnx.h"
#include "trainer/exchange/saved_model.h"

static mr_status st;

MR_TEST(gradients_agree_with_finite_differences)
{
    static const char *const models[] = {
        "x = input(4); h = x.dense(3, activation=\"tanh\"); a = h.dense(2); b = h.dense(1)",
        /* an output that another reads, one that is another, one in another shape */
        "x = input(4); h = x.dense(6, activation=\"tanh\"); a = h; b = h.dense(2)",
        "x = input(4); h = x.dense(3); a = h; b = h",
        "x = input(4); h = x.dense(4); a = h.reshape(2, 2); b = h; c = h.flatten().dense(2)",
        ("x = input(4); h = x.dense(4, activation=\"tanh\"); g = h.dense(4); a = add(h, g); b = g; "
         "c = h; d = multiply(g, h)"),
        /* an input, and layers of variables that the text has before others */
        "x = input(3); h = x.dense(3); a = x.flatten(); b = h.dense(2); c = x.dense(1)",
        "x = input(4); t = dense(4, activation=\"tanh\"); y = x.t(); a = y.t(); b = x.t()",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t replicas = 1; replicas <= 4; replicas += 3) /* one of four has no rows */
            pass_check_gradients(models[i], replicas, false);
}

/* ---- training, against loops ---- */

enum { N = 10, BATCH = 4, EPOCHS = 3 };

static const char heads[] = "x = input(3); h = x.dense(2, use_bias=false);"
                            "a = h.dense(1, use_bias=false); b = h.dense(2, use_bias=false)";

static mr_dataset *read_data(const char *labels, const char *weights)
{
    char text[1024];
    snprintf(text, sizeof text,
             "range(10).map(i => cast(i, \"float32\") / 10.0).map(f => ([f, 1.0 - f, f * f], "
             "%s%s%s)).batch(4)",
             labels, *weights ? ", " : "", weights);
    mr_test_context("%s", text);
    return mr_test_graph(text);
}

/* One dense layer h [3, 2] under a [2, 1] and b [2, 2]. */
typedef struct plain {
    double h[6], a[2], b[4];
    double loss, loss_a, loss_b, mae_b; /* of the epoch */
} plain;

/* One step of descent on rows [from, to). wa, wb: weights of the losses. */
static void plain_step(plain *p, size_t from, size_t to, double wa, double wb, bool weighted)
{
    double gh[6] = {0}, ga[2] = {0}, gb[4] = {0}, rows = (double)(to - from), la = 0, lb = 0;
    for (size_t i = from; i < to; i++) {
        double f = (double)i / 10, x[3] = {f, 1 - f, f * f}, h[2] = {0}, dh[2] = {0};
        double want_b[2] = {f, 1}, ya = 0, sa = weighted ? 1 + f : 1, sb = weighted ? 2 - f : 1;
        for (size_t j = 0; j < 2; j++) {
            for (size_t k = 0; k < 3; k++)
                h[j] += x[k] * p->h[k * 2 + j];
            ya += h[j] * p->a[j];
        }
        double ea = ya - (2 * f - 0.5), da = wa * sa * 2 * ea / rows;
        la += sa * ea * ea / rows;
        for (size_t j = 0; j < 2; j++) {
            ga[j] += da * h[j];
            dh[j] += da * p->a[j];
        }
        for (size_t c = 0; c < 2; c++) {
            double eb = h[0] * p->b[c] + h[1] * p->b[2 + c] - want_b[c];
            double db = wb * sb * eb / rows; /* half of two, for the mean over two values */
            lb += sb * eb * eb / 2 / rows;
            p->mae_b += fabs(eb) / 2 / N;
            for (size_t j = 0; j < 2; j++) {
                gb[j * 2 + c] += db * h[j];
                dh[j] += db * p->b[j * 2 + c];
            }
        }
        for (size_t k = 0; k < 3; k++)
            for (size_t j = 0; j < 2; j++)
                gh[k * 2 + j] += dh[j] * x[k];
    }
    for (size_t i = 0; i < 6; i++)
        p->h[i] -= 0.1 * gh[i];
    for (size_t i = 0; i < 2; i++)
        p->a[i] -= 0.1 * ga[i];
    for (size_t i = 0; i < 4; i++)
        p->b[i] -= 0.1 * gb[i];
    p->loss_a += la * rows / N;
    p->loss_b += lb * rows / N;
    p->loss += (wa * la + wb * lb) * rows / N;
}

static void plain_epoch(plain *p, double wa, double wb, bool weighted)
{
    p->loss = p->loss_a = p->loss_b = p->mae_b = 0;
    for (size_t from = 0; from < N; from += BATCH)
        plain_step(p, from, from + BATCH < N ? from + BATCH : N, wa, wb, weighted);
}

static void read_doubles(const mr_model *m, size_t v, double *to)
{
    float f[6];
    mr_ok(mr_variable_read(mr_model_variable(m, v), f, &st), &st);
    for (size_t i = 0; i < mr_variable_size(mr_model_variable(m, v)); i++)
        to[i] = (double)f[i];
}

static mr_model *build_heads(mr_strategy *s)
{
    mr_model *m = NULL;
    mr_ok(mr_model_parse(&m, heads, &st), &st);
    mr_ok(mr_model_build(m, s, 1, (int64_t[]){3}, &(mr_model_opts){.seed = 8}, &st), &st);
    return m;
}

/* Training of such a model. */
static parts make(size_t replicas, const char *loss, const char *optimizer, const char *labels,
                  const char *weights)
{
    parts x = parts_make(replicas, heads, loss, optimizer, read_data(labels, weights));
    mr_ok(mr_model_build(x.m, x.s, 1, (int64_t[]){3}, &(mr_model_opts){.seed = 8}, &st), &st);
    return x;
}

static double last_of(const mr_history *h, const char *name, size_t epoch)
{
    mr_test_context("%s", name);
    const double *v = mr_history_values(h, name);
    mr_check(v != NULL);
    return v[epoch];
}

static void train_and_compare(size_t replicas, const char *loss, const char *loss_weights,
                              double wa, double wb, const char *labels, const char *weights)
{
    static const char *const metrics[] = {"b.mae", "a.mse"};
    parts x = make(replicas, loss, "sgd(0.1)", labels, weights);
    mr_history *h = NULL;
    mr_fit_result r, again;
    plain p = {.loss = 0};
    read_doubles(x.m, 0, p.h);
    read_doubles(x.m, 1, p.a);
    read_doubles(x.m, 2, p.b);
    if (loss_weights)
        mr_ok(mr_loss_weigh(x.loss, loss_weights, &st), &st);
    mr_ok(mr_history_new(&h, &st), &st);
    const mr_fit_opts opts = {.epochs = EPOCHS,
                              .metrics = metrics,
                              .n_metrics = 2,
                              .history = h,
                              .validation = x.ds,
                              .check_replicas = true};
    mr_ok(parts_fit(&x, &opts, &r, &st), &st);
    for (size_t e = 0; e < EPOCHS; e++) {
        plain_epoch(&p, wa, wb, *weights != '\0');
        mr_eq_f64(last_of(h, "loss", e), p.loss, 1e-5);
        mr_eq_f64(last_of(h, "a_loss", e), p.loss_a, 1e-5);
        mr_eq_f64(last_of(h, "b_loss", e), p.loss_b, 1e-5);
        mr_eq_f64(last_of(h, "b_mae", e), p.mae_b, 1e-5);
    }
    mr_eq_u64(r.outputs.n, 2);
    mr_eq_str(r.outputs.names[1], "b");
    mr_eq_f64((double)r.outputs.values[1], p.loss_b, 1e-5);
    mr_ok(mr_evaluate(x.s, x.m, x.ds, x.loss, &opts, &again, &st), &st);
    mr_eq_f64((double)again.loss, last_of(h, "val_loss", EPOCHS - 1), 0);
    mr_eq_f64((double)again.outputs.values[0], last_of(h, "val_a_loss", EPOCHS - 1), 0);
    mr_eq_f64(again.metrics[0], last_of(h, "val_b_mae", EPOCHS - 1), 0);
    mr_eq_f64((double)again.loss,
              wa * (double)again.outputs.values[0] + wb * (double)again.outputs.values[1], 1e-6);
    mr_history_free(h);
    parts_drop(&x);
}

static const char as_record[] = "{\"b\": [f, 1.0], \"more\": f, \"a\": [f * 2.0 - 0.5]}",
                  as_tuple[] = "([f * 2.0 - 0.5], [f, 1.0])";

MR_TEST(training_agrees_with_plain_loops)
{
    for (size_t n = 1; n <= 4; n++) {
        train_and_compare(n, "mse", NULL, 1, 1, as_record, "");
        train_and_compare(n, "{\"b\": mse, \"a\": \"mse\"}", "{\"b\": 0.25}", 1, 0.25, as_tuple,
                          "");
        train_and_compare(n, "[mse, mse]", "[2, 0.5]", 2, 0.5, as_record, "");
        train_and_compare(n, "{\"a\": 3 * mse, \"b\": 0 * mse}", NULL, 3, 0, as_tuple, "");
    }
}

MR_TEST(sample_weights_are_of_each_output)
{
    for (size_t n = 1; n <= 2; n++) {
        train_and_compare(n, "mse", "{\"a\": 1.5, \"b\": 2}", 1.5, 2, as_record,
                          "{\"b\": 2.0 - f, \"a\": 1.0 + f}");
        train_and_compare(n, "mse", NULL, 1, 1, as_tuple, "(1.0 + f, 2.0 - f)");
    }
}

/* The last epoch of a fit on other data or with other losses. */
static mr_fit_result fit_once(const char *loss, const char *labels, const char *weights)
{
    parts x = make(2, loss, "sgd(0.1)", labels, weights);
    mr_fit_result r;
    mr_ok(parts_fit(&x, &(mr_fit_opts){.epochs = 2}, &r, &st), &st);
    parts_drop(&x);
    return r;
}

MR_TEST(one_tensor_of_sample_weights_is_for_all_outputs)
{
    mr_fit_result one = fit_once("mse", as_tuple, "1.0 + f");
    mr_fit_result both = fit_once("mse", as_tuple, "{\"a\": 1.0 + f, \"b\": 1.0 + f}");
    mr_eq_f64((double)one.loss, (double)both.loss, 0);
    mr_check(one.loss != fit_once("mse", as_tuple, "").loss);
}

MR_TEST(an_output_without_a_loss_needs_no_labels)
{
    mr_fit_result alone = fit_once("{\"b\": mse}", "{\"b\": [f, 1.0]}", "");
    mr_fit_result zero = fit_once("{\"a\": 0 * mse, \"b\": mse}", as_record, "");
    mr_eq_u64(alone.outputs.n, 1);
    mr_eq_f64((double)alone.loss, (double)zero.loss, 0);
    mr_eq_f64((double)alone.outputs.values[0], (double)zero.outputs.values[1], 0);
}

MR_TEST(each_loss_follows_what_its_output_ends_in)
{
    static const char text[] =
        "x = input(3); p = x.dense(2, activation=\"softmax\"); q = x.dense(2)";
    static const char rows[] =
        "range(8).map(i => ([cast(i, \"float32\"), 1.0, 0.5], (i % 2, i % 2))).batch(8)";
    mr_strategy *s = open_strategy(1);
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_fit_result r;
    float kernel[6];
    mr_dataset *ds = mr_test_graph(rows);
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_ok(mr_model_build(m, s, 1, (int64_t[]){3}, NULL, &st), &st);
    mr_ok(mr_variable_read(mr_model_variable(m, 0), kernel, &st), &st);
    mr_ok(mr_variable_assign(mr_model_variable(m, 2), kernel, &st), &st);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy", &st), &st);
    mr_ok(mr_evaluate(s, m, ds, l, NULL, &r, &st), &st);
    mr_eq_f64((double)r.outputs.values[0], (double)r.outputs.values[1], 1e-5);
    mr_loss_free(l);
    mr_model_free(m);
    mr_dataset_unref(ds);
    mr_strategy_free(s);
}

/* ---- files ---- */

typedef struct taken {
    float a[N], b[2 * N];
    size_t n;
} taken;

static mr_code take(void *ctx, const mr_array *y, mr_status *status)
{
    taken *t = ctx;
    size_t rows = (size_t)y[0].shape[0];
    (void)status;
    mr_eq_i64(y[1].shape[0], y[0].shape[0]);
    memcpy(t->a + t->n, y[0].data, rows * sizeof(float));
    memcpy(t->b + 2 * t->n, y[1].data, 2 * rows * sizeof(float));
    t->n += rows;
    return MR_OK;
}

MR_TEST(predictions_are_the_same_on_all_numbers_of_replicas_and_from_files)
{
    taken first = {.n = 0};
    const char *path = mr_test_path("saved");
    for (size_t n = 1; n <= 4; n++) {
        taken now = {.n = 0};
        mr_strategy *s = open_strategy(n);
        mr_dataset *ds = read_data(as_record, "");
        mr_model *m = NULL;
        mr_saved *saved = NULL;
        mr_loss *l = NULL;
        if (n == 1) {
            m = build_heads(s);
            mr_ok(mr_loss_parse(&l, "mse", &st), &st);
            mr_ok(mr_loss_weigh(l, "{\"a\": 1, \"b\": 0.1}", &st), &st);
            mr_ok(mr_model_save(m, path, &(mr_save_opts){.loss = l}, &st), &st);
            mr_ok(mr_predict(s, m, ds, take, &first, NULL, &st), &st);
            mr_eq_u64(first.n, N);
            mr_loss_free(l);
            mr_model_free(m);
        }
        mr_ok(mr_saved_open(&saved, path, &st), &st);
        mr_eq_str(mr_saved_loss(saved), "{\"a\": 1 * mse, \"b\": 0.10000000000000001 * mse}");
        mr_ok(mr_model_parse(&m, mr_saved_model_text(saved), &st), &st);
        mr_ok(mr_saved_build(saved, m, s, NULL, &st), &st);
        mr_ok(mr_predict(s, m, ds, take, &now, NULL, &st), &st);
        for (size_t i = 0; i < N; i++) {
            mr_eq_f64((double)now.a[i], (double)first.a[i], 1e-6);
            mr_eq_f64((double)now.b[2 * i], (double)first.b[2 * i], 1e-6);
            mr_eq_f64((double)now.b[2 * i + 1], (double)first.b[2 * i + 1], 1e-6);
        }
        mr_eq_u64(now.n, N);
        mr_saved_close(saved);
        mr_model_free(m);
        mr_dataset_unref(ds);
        mr_strategy_free(s);
    }
}

static mr_code restore(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_checkpoint_restore(e, ctx, status);
}

/* The second epoch's losses, of a run that may continue from a checkpoint within it. */
static mr_output_losses resume(const char *saving, char *from, int64_t steps)
{
    parts x = make(2, "mse", "adam(0.1)", as_record, "");
    mr_fit_result r;
    mr_callback c = {.ctx = from, .train_begin = restore};
    if (saving)
        mr_ok(mr_callback_parse(&c, saving, &st), &st);
    const mr_fit_opts opts = {.epochs = 2, .steps = steps, .callbacks = &c, .n_callbacks = 1};
    mr_ok(parts_fit(&x, &opts, &r, &st), &st);
    if (saving)
        mr_callback_reset(&c);
    parts_drop(&x);
    return r.outputs;
}

MR_TEST(training_goes_on_within_an_epoch)
{
    char saving[700], from[600];
    snprintf(from, sizeof from, "%s", mr_test_path("k/ckpt_5"));
    snprintf(saving, sizeof saving, "checkpoint(\"%s\", save_freq=5)",
             mr_test_path("k/ckpt_{step}"));
    mr_output_losses whole = resume(saving, NULL, 6), rest = resume(NULL, from, 6);
    mr_eq_u64(whole.n, 2);
    mr_eq_u64(rest.n, 2);
    mr_check(whole.values[0] > 0);
    mr_eq_mem(rest.values, whole.values, 2 * sizeof *whole.values);
}

/* ---- errors ---- */

MR_TEST(errors_of_the_text_name_the_place)
{
    static const struct {
        const char *model, *message;
    } cases[] = {
        {"a = input(2); b = a.dense(2); a.dense(1)", "b is not used"},
        {"a = input(2); a.dense(2); b = a.dense(1)", "give each of several outputs a name"},
        {"a = input(2); d = dense(2); b = a.dense(1)", "d is not used"},
        {"a = input(2); c = input(2); b = a.dense(1)", "c is not used"},
        {"a = input(2); val = a.dense(1); b = a.dense(1)", "cannot be called val"},
        {"a = input(2); val_b = a.dense(1); b = a.dense(1)", "cannot be called val_b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].model);
        mr_code_is(mr_model_parse(&m, cases[i].model, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
    }
}

MR_TEST(weights_that_fit_no_loss_are_refused)
{
    static const struct {
        const char *loss, *weights, *message;
    } cases[] = {
        {"{\"a\": mse}", "{\"b\": 1}", "no loss, for b"},
        {"{\"a\": mse}", "[1]", "the losses have names"},
        {"[mse, mse]", "[1]", "as many weights as losses"},
        {"mse", "2", "a record of numbers"},
        {"mse", "{\"a\": -1}", "a number from 0 on"},
        {"mse", "{\"a\": 1e400}", "a number from 0 on"},
        {"mse", "{\"a\": \"x\"}", "a number from 0 on"},
        {"mse", "[]", "a record of numbers"},
    };
    mr_loss *l = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s of %s", cases[i].weights, cases[i].loss);
        mr_ok(mr_loss_parse(&l, cases[i].loss, &st), &st);
        mr_code_is(mr_loss_weigh(l, cases[i].weights, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
        mr_eq_str(mr_loss_text(l), cases[i].loss);
        mr_loss_free(l);
    }
    double a = 0, b = 0; /* none of the weights is taken where one is refused */
    mr_ok(mr_loss_parse(&l, "{\"a\": mse, \"b\": mae}", &st), &st);
    mr_code_is(mr_loss_weigh(l, "{\"a\": 2, \"c\": 1}", &st), MR_INVALID_ARGUMENT, &st);
    mr_check(mr_loss_of_output(l, "a", 0, &a) && mr_loss_of_output(l, "b", 1, &b));
    mr_eq_f64(a, 1, 0);
    mr_eq_f64(b, 1, 0);
    mr_loss_free(l);
    mr_code_is(mr_loss_parse(&l, "{\"a\": [mse]}", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "expected the loss of one output");
    mr_code_is(mr_loss_parse(&l, "{\"a\": mze}", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "mze");
    mr_code_is(mr_loss_parse(&l, "[]", &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(what_does_not_fit_the_outputs_is_refused)
{
    static const struct {
        const char *loss, *metric, *labels, *weights, *message;
    } cases[] = {
        {"mse", NULL, "[f]", "", "the labels are one tensor, but the model has 2 outputs (a, b)"},
        {"mse", NULL, "{\"a\": [f], \"c\": [f]}", "", "no component \"b\""},
        {"mse", NULL, "{\"c\": [f]}", "", "the names of the model's outputs (a, b)"},
        {"mse", NULL, "([f], [f], [f])", "", "a tuple of 2 of them; they have 3 components"},
        {"mse", NULL, "([f], ([f], [f]))", "", "a tuple of 2 of them"},
        {"mse", NULL, "([f], [f])", "", "output b: mse: the label of an example has shape"},
        {"mse", NULL, as_tuple, "(f, f, f)", "the sample weights must be a record"},
        {"mse", NULL, as_tuple, "f, f", "found 4 components"},
        {"mse", NULL, as_tuple, "{\"a\": f, \"B\": f}", "have a component \"B\""},
        {"{\"a\": mse, \"c\": mse}", NULL, as_tuple, "", "a loss for c"},
        {"[mse, mse, mse]", NULL, as_tuple, "", "losses for 3 outputs, but the model has 2"},
        {"mse", "mae", as_tuple, "", "name one, as in a.mae"},
        {"mse", "c.mae", as_tuple, "", "the model's outputs are called a, b"},
        {"{\"a\": mse}", "b.mae", "{\"a\": [f]}", "", "no component \"b\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mr_fit_opts opts = {.metrics = &cases[i].metric,
                                  .n_metrics = cases[i].metric != NULL};
        parts x = parts_make(2, heads, cases[i].loss, "sgd",
                             read_data(cases[i].labels, cases[i].weights));
        mr_test_context("%s %s", cases[i].loss, cases[i].labels);
        mr_code_is(parts_fit(&x, &opts, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
        parts_drop(&x);
    }
}

MR_TEST(weights_of_one_loss_for_all_name_every_output)
{
    parts x = parts_make(1, heads, "mse", "sgd", read_data(as_tuple, ""));
    mr_ok(mr_loss_weigh(x.loss, "{\"a\": 2}", &st), &st);
    mr_code_is(parts_fit(&x, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "weights for 1 output, but the model has 2 (a, b)");
    parts_drop(&x);
}

MR_TEST(class_weights_are_for_one_output)
{
    parts x = make(1, "mse", "sgd", as_tuple, "");
    const mr_fit_opts opts = {.class_weights = (double[]){1, 2}, .n_class_weights = 2};
    mr_code_is(parts_fit(&x, &opts, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "models with one output");
    parts_drop(&x);
}

MR_TEST(memory_may_run_out)
{
    static const char *const metrics[] = {"b.mae"};
    mr_fault_exact(100);
    mr_fault_each_allocation(n)
    {
        mr_strategy *s = NULL;
        mr_model *m = NULL;
        mr_loss *l = NULL;
        mr_dataset *ds = NULL;
        static const char text[] = "from_tensors([1.0, 0.5, 0.2]).map(x => cast(x, \"float32\"))"
                                   ".map(x => (x, {\"b\": x[:2], \"a\": x[:1]})).batch(1)";
        mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
        if (rc == MR_OK)
            rc = mr_model_parse(&m, heads, &st);
        if (rc == MR_OK)
            rc = mr_loss_parse(&l, "mse", &st);
        if (rc == MR_OK)
            rc = mr_loss_weigh(l, "{\"a\": 1.0, \"b\": 0.5}", &st);
        if (rc == MR_OK)
            rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
        if (rc == MR_OK)
            rc = mr_evaluate(s, m, ds, l, &(mr_fit_opts){.metrics = metrics, .n_metrics = 1}, NULL,
                             &st);
        if (rc == MR_OK)
            rc = mr_onnx_export(m, mr_test_path("m.onnx"), &st);
        mr_fault_expect(rc, &st);
        mr_dataset_unref(ds);
        mr_loss_free(l);
        mr_model_free(m);
        mr_strategy_free(s);
    }
}
