/* SPDX-License-Identifier: Apache-2.0 */
/* Models with several inputs and shared layers: gradients against finite differences, shared
 * running means against their own formula, training on any number of replicas, saving, errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/ops/apply.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "tests/trainer/kit/pass.h"
#include "trainer/loop/fit.h"
#include "trainer/model/model.h"
#include "trainer/exchange/saved_model.h"

enum { ROWS = PASS_ROWS, MAX_WEIGHTS = 512 };
static mr_status st;

MR_TEST(gradients_agree_with_finite_differences)
{
    static const char *const models[] = {
        "a = input(3); b = input(2); concat(a, b).dense(4, activation=\"tanh\").dense(2)",
        "a = input(2, 3); b = input(2, 4); concat(a, b, axis=-1).flatten().dense(2)",
        "a = input(2, 3); b = input(1, 3); c = a.dense(3); concat(c, b, a, axis=1).dense(2)",
        "a = input(4); add(a, a, a.dense(4), a).dense(2)",
        "a = input(4); b = input(4); subtract(a.dense(4), b).dense(1)",
        "a = input(4); b = a.dense(4); average(a, b, b.dense(4)).dense(1)",
        "a = input(3); b = input(3); c = input(3); multiply(a, b.dense(3), c).dense(2)",
        "a = input(3); multiply(a, a.dense(3)).dense(2)",
        "a = input(3); b = input(3); t = dense(4, activation=\"tanh\"); "
        "subtract(a.t(), t(b)).dense(1)",
        "a = input(4); t = dense(4, activation=\"tanh\"); a.t().t().t()",
        "a = input(4); b = input(4); t = dense(4).residual(dense(4, "
        "activation=\"tanh\")).dense(3); "
        "add(t(a), t(b), t(add(a, b)))",
        "a = input(4); d = dense(4); t = activation(\"tanh\").d().residual(dense(3), "
        "projection=true).layer_norm(); "
        "concat(a.t(), a.d()).dense(1)",
        "x = input(5, 5, 2); c = conv2d(3, 2, activation=\"tanh\"); y = x.c().flatten(); "
        "concat(y.dense(2), x.average_pool(2).flatten()).dense(2)",
        "a = input(3); b = input(3); y = add(a, b); z = multiply(y, y); z",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t replicas = 1; replicas <= 4; replicas += 3) /* one of four has no rows */
            pass_check_gradients(models[i], replicas, false);
}

/* Differences of a result say nothing of values that are always the same. */
MR_TEST(joining_layers_give_their_values)
{
    enum { A = 3, B = 4 };
    mr_strategy *s = open_strategy(1);
    pass p = pass_open("a = input(2, 3); b = input(2, 4); concat(a, b)", s, NULL);
    const float *a = p.x[0].data, *b = p.x[1].data;
    mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
    for (size_t i = 0; i < ROWS * 2; i++) {
        mr_eq_mem(p.y[0] + i * (A + B), a + i * A, A * sizeof *a);
        mr_eq_mem(p.y[0] + i * (A + B) + A, b + i * B, B * sizeof *b);
        mr_eq_mem(p.dx[0] + i * A, p.dy[0] + i * (A + B), A * sizeof *a);
        mr_eq_mem(p.dx[1] + i * B, p.dy[0] + i * (A + B) + A, B * sizeof *b);
    }
    pass_close(&p);
    static const char *const models[] = {"add(a, b, c)", "average(a, b, c)", "multiply(a, b, c)",
                                         "subtract(a, b).add(c)"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char text[128];
        snprintf(text, sizeof text, "a = input(4); b = input(4); c = input(4); %s", models[i]);
        mr_test_context("%s", text);
        p = pass_open(text, s, NULL);
        mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
        for (size_t k = 0; k < ROWS * 4; k++) {
            double x = ((float *)p.x[0].data)[k], y = ((float *)p.x[1].data)[k],
                   z = ((float *)p.x[2].data)[k];
            const double want[] = {x + y + z, (x + y + z) / 3, x * y * z, x - y + z};
            mr_eq_f64(p.y[0][k], want[i], 1e-5);
        }
        pass_close(&p);
    }
    mr_strategy_free(s);
}

/* A pass that does not go on to the inputs leaves out what nothing learns from, and no more. */
MR_TEST(variables_behind_any_input_of_a_layer_learn)
{
    static const char *const models[] = {
        "a = input(3); b = input(3); add(a, b.dense(3)).dense(1)",
        "a = input(3); b = input(3); multiply(a.dense(3), b).dense(1)",
        "a = input(3); b = input(3); c = a.flatten(); concat(c, b, b.dense(3)).dense(1)"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        float got[4][MAX_WEIGHTS];
        mr_test_context("%s", models[i]);
        mr_strategy *s = open_strategy(1);
        pass p = pass_open(models[i], s, NULL);
        size_t n = mr_model_n_variables(p.m);
        mr_eq_u64(n, 4);
        p.no_dx = true; /* first: what is left out then has no gradient of a pass before */
        mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
        for (size_t v = 0; v < n; v++)
            memcpy(got[v], p.grads[v], mr_variable_size(mr_model_variable(p.m, v)) * sizeof(float));
        p.no_dx = false;
        mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
        for (size_t v = 0; v < n; v++)
            mr_eq_mem(got[v], p.grads[v],
                      mr_variable_size(mr_model_variable(p.m, v)) * sizeof(float));
        pass_close(&p);
        mr_strategy_free(s);
    }
}

MR_TEST(statements_end_outside_of_strings_and_comments)
{
    static const char text[] = "# first; second\n"
                               "a = input(1); # third; fourth\n"
                               "b = a # fifth; sixth\n"
                               ".lookup([\"x;\", 'y;', \"z\\\";\", '#']).embedding(5, 2);\n"
                               "b.flatten().dense(1)";
    mr_model *m = NULL;
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_eq_u64(mr_model_n_inputs(m), 1);
    mr_has_str(mr_model_text(m), "z\\\";");
    mr_model_free(m);
}

/* Keras moves them once for each use, in order. */
MR_TEST(a_shared_layer_s_running_means_move_once_for_each_use)
{
    mr_strategy *s = open_strategy(1);
    pass p = pass_open("a = input(1); b = input(1); c = input(1); n = batch_norm(momentum=0.5); "
                       "concat(a.n(), b.n(), c.n())",
                       s, NULL);
    float moving;
    double want = 0;
    mr_ok(mr_optimizer_parse(&p.o, "sgd(0.0)", &st), &st);
    mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
    for (size_t i = 0; i < 3; i++) {
        double mean = 0;
        for (size_t k = 0; k < ROWS; k++)
            mean += (double)((float *)p.x[i].data)[k] / ROWS;
        want = 0.5 * want + 0.5 * mean;
    }
    mr_eq_u64(mr_model_n_variables(p.m), 4);
    mr_eq_str(mr_variable_name(mr_model_variable(p.m, 2)), "batch_norm/moving_mean");
    mr_ok(mr_variable_read(mr_model_variable(p.m, 2), &moving, &st), &st);
    mr_eq_f64(moving, want, 1e-6);
    mr_optimizer_free(p.o);
    pass_close(&p);
    mr_strategy_free(s);
}

static const char siamese[] = "# two pictures, one tower\n"
                              "left = input(3); right = input(3);\n"
                              "tower = dense(4, activation=\"tanh\").dense(3);\n"
                              "subtract(tower(left), tower(right)).concat(left).dense(1)";

/* Examples as a tuple, and as a record in another order. */
static mr_dataset *data(bool record)
{
    const char *const as_tuple =
        "range(10).map(i => cast(i, \"float32\") / 10.0)"
        ".map(f => (([f, 1.0 - f, f * f], [f * 0.5, f, 1.0]), [f * 2.0 - 0.5])).batch(4)";
    const char *const as_record =
        "range(10).map(i => cast(i, \"float32\") / 10.0)"
        ".map(f => ({\"right\": [f * 0.5, f, 1.0], \"left\": [f, 1.0 - f, f * f]}, "
        "[f * 2.0 - 0.5])).batch(4)";
    return mr_test_graph(record ? as_record : as_tuple);
}

typedef struct outputs {
    float v[10];
    size_t n;
} outputs;

static mr_code take(void *ctx, const mr_array *y, mr_status *status)
{
    outputs *o = ctx;
    size_t n = mr_array_row_values(y);
    (void)status;
    memcpy(o->v + o->n, y->data, n * sizeof *o->v);
    o->n += n;
    return MR_OK;
}

MR_TEST(training_is_the_same_on_all_numbers_of_replicas_and_is_saved)
{
    float losses[5];
    for (size_t n = 1; n <= 4; n++) {
        mr_test_context("%zu replicas", n);
        parts p = parts_make(n, siamese, "mse", "adam(0.01)", data(n % 2 == 0));
        mr_dataset *features = NULL;
        mr_model *read = NULL;
        mr_saved *saved = NULL;
        mr_fit_result r, again;
        outputs y = {.n = 0}, y2 = {.n = 0};
        const char *path = mr_test_path("saved");
        mr_fit_opts opts = {.epochs = 8, .seed = 4, .check_replicas = true, .validation = p.ds};
        mr_ok(parts_fit(&p, &opts, &r, &st), &st);
        losses[n] = r.loss;
        mr_check(r.loss < 0.4f);
        mr_eq_f64(losses[n], losses[1], 1e-5);
        mr_ok(mr_evaluate(p.s, p.m, p.ds, p.loss, NULL, &r, &st), &st);
        mr_ok(mr_model_save(p.m, path, NULL, &st), &st);
        mr_ok(mr_saved_open(&saved, path, &st), &st);
        mr_ok(mr_model_parse(&read, mr_saved_model_text(saved), &st), &st);
        mr_ok(mr_saved_build(saved, read, p.s, NULL, &st), &st);
        mr_ok(mr_evaluate(p.s, read, p.ds, p.loss, NULL, &again, &st), &st);
        mr_eq_f64(again.loss, r.loss, 0);
        mr_ok(mr_predict(p.s, read, p.ds, take, &y, NULL, &st), &st);
        features = mr_map(mr_dataset_ref(p.ds), mr_fn_text("(x, y) => x"), NULL);
        mr_ok(mr_predict(p.s, p.m, features, take, &y2, NULL, &st), &st);
        mr_eq_u64(y.n, 10);
        mr_eq_u64(y2.n, 10);
        mr_eq_mem(y.v, y2.v, sizeof y.v);
        mr_dataset_unref(features);
        mr_saved_close(saved);
        mr_model_free(read);
        parts_drop(&p);
    }
}

/* Text and numbers of one example, each prepared by its own layer. */
MR_TEST(each_input_is_prepared_by_its_own_layers)
{
    static const char model[] =
        "colour = input(1); size = input(2); flag = input(1);\n"
        "c = colour.lookup([\"red\", \"green\"]).embedding(3, 2).flatten();\n"
        "concat(c, size, flag.cast()).dense(1)";
    static const char text[] =
        "from_tensor_slices([[\"red\"], [\"blue\"], [\"green\"]], [[1.0, 2.0], [3.0, 4.0], [5.0, "
        "6.0]], "
        "[[1], [0], [1]], [[1.0], [0.0], [1.0]]).map((c, s, f, y) => "
        "({\"flag\": f, \"colour\": c, \"size\": cast(s, \"float32\"), \"more\": s}, y)).batch(2)";
    parts p = parts_make(2, model, "mse", "adam(0.05)", mr_test_graph(text));
    mr_fit_result first, last;
    mr_ok(parts_fit(&p, NULL, &first, &st), &st);
    mr_ok(parts_fit(&p, &(mr_fit_opts){.epochs = 200}, &last, &st), &st);
    mr_check(last.loss < first.loss / 4);
    parts_drop(&p);
}

MR_TEST(memory_may_run_out)
{
    mr_fault_each_allocation(n)
    {
        mr_strategy *s = NULL;
        mr_model *m = NULL;
        mr_dataset *ds = NULL, *prepared = NULL;
        mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
        if (rc == MR_OK)
            rc = mr_model_parse(&m, siamese, &st);
        if (rc == MR_OK)
            rc = mr_model_build(m, s, 1, (int64_t[]){3}, NULL, &st);
        static const char text[] =
            "from_tensors([1.0]).map(x => ({\"right\": x, \"left\": x}, x)).batch(1)";
        if (rc == MR_OK)
            rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
        if (rc == MR_OK)
            rc = mr_model_prepare(m, ds, &prepared, &st);
        mr_fault_expect(rc, &st);
        mr_dataset_unref(prepared);
        mr_dataset_unref(ds);
        mr_model_free(m);
        mr_strategy_free(s);
    }
}

MR_TEST(errors_of_the_text_name_the_place)
{
    static const struct {
        const char *model, *message;
    } cases[] = {
        {"a = input(2); c.dense(1)", "column 15: c is not defined"},
        {"a = input(2);\nb = c.dense(2);\nc = b.dense(2);\nc.dense(1)",
         "line 2, column 5: c is used"},
        {"a = input(2); b = a.dense(2); a.dense(1)", "b is not used"},
        {"a = input(2); d = dense(2); a.dense(1)", "d is not used"},
        {"d = dense(2).d(); a = input(2); a.d()", "d is defined by itself"},
        {"a = input(2); a = input(3); a.dense(1)", "a is defined twice"},
        {"add = input(2); add.dense(1)", "the name of a kind of layer"},
        {"a = input(2); a.a()", "cannot be applied"},
        {"a = input(2); d = dense(3); d.dense(2)", "d is a layer, not a layer's output"},
        {"a = input(2); d = dense(3); a.d(4)", "has its arguments already"},
        {"a = input(2); d = dense(3); d(a, a)", "d takes one input, found 2"},
        {"a = input(2); add(a)", "add joins two or more inputs, found 1"},
        {"a = input(2); add(a, dense(2))", "dense has no input"},
        {"a = input(2); concat(a, a, axis=\"x\")", "axis"},
        {"a = input(2); a", "at least one layer"},
        {"a = input(2); dense(3)", "must start from a named value"},
        {"a = input(2); a.dense(2); a.dense(3)", "only the last statement may be without a name"},
        {"a = input(2); a.dense(2, name=\"x\").dense(2, name=\"x\")", "two layers are called"},
        {"a = input(2); a.dense(3).lookup([\"b\"])", "cannot follow dense"},
        {"a = input(2); concat(a, a.lookup([\"b\"]))", "another layer reads too"},
        {"a = input(2); a.dense(", "found the end of the text"},
        {"a = input(2); a.residual(add(a, a))", "name them"},
        {"dense(2).concat(dense(3))", "name them"},
        {"a = ; a.dense(1)", "expected a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].model);
        mr_code_is(mr_model_parse(&m, cases[i].model, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
    }
}

MR_TEST(shapes_that_do_not_fit_are_both_named)
{
    static const struct {
        const char *model, *message;
    } cases[] = {
        {"a = input(2); b = input(3); add(a, b)", "first has [2] and number 2 has [3]"},
        {"a = input(2, 2); b = input(2, 3); concat(a, b, axis=1)",
         "only in axis 1, but the first has [2, 2] and number 2 has [2, 3]"},
        {"a = input(2, 2); b = input(4); concat(a, b)", "first has [2, 2] and number 2 has [4]"},
        {"a = input(2, 3); b = input(2); add(a, b)", "first has [2, 3] and number 2 has [2]"},
        {"a = input(2); b = input(2, 1); multiply(a, b)", "first has [2] and number 2 has [2, 1]"},
        {"a = input(2); concat(a, a, axis=2)", "has no axis 2"},
        {"a = input(2); concat(a, a, axis=0)", "has no axis 0"},
        {"a = input(2); subtract(a, a, a)", "expected two inputs, found 3"},
        {"a = input(2); d = dense(3); concat(a.d(), a.dense(4).d())",
         "kernel was made for an input of shape [2] and does not fit one of shape [4]"},
    };
    mr_strategy *s = open_strategy(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        int rank;
        const int64_t *shape;
        mr_test_context("%s", cases[i].model);
        mr_ok(mr_model_parse(&m, cases[i].model, &st), &st);
        mr_model_input_shape(m, &rank, &shape);
        mr_code_is(mr_model_build(m, s, rank, shape, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
        mr_model_free(m);
    }
    mr_strategy_free(s);
}

MR_TEST(data_that_do_not_fit_the_inputs_are_refused)
{
    static const struct {
        const char *data, *message;
    } cases[] = {
        {"from_tensors([1.0, 2.0, 3.0], [1.0]).batch(1)", "has 2 inputs, so the data must yield"},
        {"from_tensors([1.0]).map(x => ((x, x, x), x)).batch(1)", "the features have 3 components"},
        {"from_tensors([1.0]).map(x => ({\"left\": x, \"b\": x}, x)).batch(1)",
         "no component \"right\""},
        {"from_tensors([1.0, 2.0, 3.0]).map(x => cast(x, \"float32\")).map(x => ((x, x[:2]), x))"
         ".batch(1)",
         "input right of an example has shape [2], but the model was built for [3]"},
        {"from_tensors([1.0, 2.0, 3.0]).map(x => cast(x, \"float32\")).map(x => ((x, cast(x, "
         "\"int64\")), x)).batch(1)",
         "features of input right are int64"},
        {"from_tensors([1.0, 2.0, 3.0]).map(x => cast(x, \"float32\")).map(x => ((x, x), x, x, x))"
         ".batch(1)",
         "found 5 components in all"},
        {"from_tensors([1.0, 2.0, 3.0]).map(x => cast(x, \"float32\")).map(x => ((x, (x, x)), x))"
         ".batch(1)",
         "a structure, not a tensor"},
        {"from_tensors([1.0, 2.0, 3.0]).map(x => cast(x, \"float32\"))"
         ".map(x => ({\"left\": x, \"right\": (x, x)}, x)).batch(1)",
         "component \"right\" of the features is a structure"},
    };
    mr_strategy *s = open_strategy(2);
    mr_loss *loss = NULL;
    mr_optimizer *o = NULL;
    mr_ok(mr_loss_parse(&loss, "mse", &st), &st);
    mr_ok(mr_optimizer_parse(&o, "sgd", &st), &st);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].data);
        mr_ok(mr_model_parse(&m, siamese, &st), &st);
        mr_dataset *ds = mr_test_graph(cases[i].data);
        mr_code_is(mr_fit(s, m, ds, loss, o, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].message);
        mr_dataset_unref(ds);
        mr_model_free(m);
    }
    mr_optimizer_free(o);
    mr_loss_free(loss);
    mr_strategy_free(s);
}
