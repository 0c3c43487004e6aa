/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient by a model's features, against finite differences, and two models that train against
 * each other. */
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/pass.h"

static mr_status st;

MR_TEST(agrees_with_finite_differences)
{
    static const char *const models[] = {
        "input(6).dense(4, activation=\"tanh\").dense(3)",
        "input(2, 3).rescaling(0.5).activation(\"sigmoid\").flatten()", /* no variable at all */
        "input(2, 3).flatten().normalization([0.5], [4.0]).dense(3)",
        "input(5, 5, 2).conv2d(3, 2, activation=\"tanh\").average_pool(2).flatten().dense(2)",
        "input(6).residual(dense(6, activation=\"tanh\")).dense(2)",
        "input(6).residual(dense(4).residual(dense(4), projection=true), projection=true)",
        "input(4, 4, 2).residual(activation(\"tanh\")).residual(conv2d(3, 3, padding=\"same\", "
        "strides=2), projection=true)",
        "input(6).layer_norm().dense(3)",
        /* A pool that fills the image, one that does not, windows that overlap; not the only one to
         * read what the convolution gives. */
        "input(5, 5, 2).conv2d(3, 2, activation=\"tanh\").max_pool(2).flatten().dense(2)",
        "input(6, 4, 2).conv2d(3, 2, activation=\"sigmoid\").max_pool(2).flatten().dense(2)",
        "input(5, 5, 2).conv2d(3, 2, activation=\"softmax\").max_pool(2).flatten().dense(2)",
        "input(5, 5, 2).conv2d(3, 2, activation=\"tanh\").max_pool(3, "
        "strides=1).flatten().dense(2)",
        "input(7, 7, 2).conv2d(3, 2, activation=\"tanh\").max_pool(3).flatten().dense(2)",
        "a = input(5, 5, 2); c = a.conv2d(3, 2, activation=\"tanh\"); "
        "concat(c.max_pool(2).flatten(), c.flatten()).dense(2)",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t replicas = 1; replicas <= 4; replicas += 3) /* one of four has no rows */
            pass_check_gradients(models[i], replicas, i % 2 == 1);
}

/* A frozen pass leaves no trace: what is trained before and after it is as without. */
MR_TEST(a_frozen_pass_changes_nothing_and_cannot_be_applied)
{
    float w[2][2][3];
    for (int frozen = 0; frozen < 2; frozen++) {
        mr_strategy *s = open_strategy(2);
        mr_optimizer *o = NULL;
        pass p = pass_open("input(2).dense(1)", s, NULL);
        mr_ok(mr_optimizer_parse(&o, "sgd(0.1, momentum=0.9)", &st), &st);
        for (int step = 0; step < 2; step++) {
            p.o = o;
            mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
            p.o = NULL;
            p.frozen = true;
            if (frozen)
                mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
            p.frozen = false;
            for (size_t v = 0; v < 2; v++)
                mr_ok(mr_variable_read(mr_model_variable(p.m, v), w[frozen][v], &st), &st);
        }
        p.frozen = true;
        p.o = o;
        mr_code_is(mr_strategy_run(s, pass_run, &p, &st), MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, "frozen");
        p.frozen = false; /* and continues after that */
        mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
        mr_optimizer_free(o);
        pass_close(&p);
        mr_strategy_free(s);
    }
    mr_eq_mem(w[1][0], w[0][0], 2 * sizeof(float));
    mr_eq_mem(w[1][1], w[0][1], sizeof(float));
}
