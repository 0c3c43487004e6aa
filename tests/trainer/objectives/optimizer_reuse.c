/* SPDX-License-Identifier: Apache-2.0 */
/* One optimizer for models that come and go: what it keeps belongs to the variable, not to its
 * address. */
#include <stdio.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/fit.h"
#include "trainer/objectives/optimizer_impl.h"

static mr_status st;

static const char data[] =
    "range(64).map(i => ([cast(i % 8, \"float32\") / 8.0, 1.0], [cast(i % 8, \"float32\")]))"
    ".batch(16)";

static mr_dataset *made(void)
{
    return mr_test_graph(data);
}

/* Trains a new model of this text, and frees it; its loss. */
static float loss_of(mr_strategy *s, const char *text, mr_loss *l, mr_optimizer *o, mr_dataset *ds)
{
    mr_model *m = NULL;
    mr_fit_result r;
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_ok(mr_model_build(m, s, 1, (int64_t[]){2}, &(mr_model_opts){.seed = 1}, &st), &st);
    mr_ok(mr_fit(s, m, ds, l, o, &(mr_fit_opts){.epochs = 2, .seed = 1}, &r, &st), &st);
    mr_model_free(m);
    return r.loss;
}

/* Every optimizer with slots, also those whose formula counts updates. */
static const char *const optimizers[] = {"sgd(0.05, momentum=0.9)", "adam(0.01)", "rmsprop(0.01)",
                                         "adagrad(0.1)", "adam(0.01, global_clipnorm=1.0)"};

MR_TEST(models_of_one_size_in_turn_train_alike)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (size_t replicas = 1; replicas <= 2; replicas++) {
            mr_test_context("%s, %zu replicas", optimizers[i], replicas);
            parts p = parts_make(replicas, "dense(1)", "mse", optimizers[i], made());
            float first = loss_of(p.s, "dense(1)", p.loss, p.o, p.ds);
            for (int k = 1; k < 3; k++)
                mr_eq_f64(loss_of(p.s, "dense(1)", p.loss, p.o, p.ds), first, 0);
            parts_drop(&p);
        }
}

MR_TEST(models_of_growing_sizes_in_turn_train_as_with_an_optimizer_of_their_own)
{
    static const char *const models[] = {"dense(4).dense(1)", "dense(512).dense(1)",
                                         "dense(900).dense(1)", "dense(4).dense(1)"};
    for (size_t i = 0; i < 2; i++) {
        parts p = parts_make(1, "dense(1)", "mse", optimizers[i], made());
        for (size_t k = 0; k < 4; k++) {
            mr_optimizer *own = NULL;
            mr_test_context("%s, %s", optimizers[i], models[k]);
            mr_ok(mr_optimizer_parse(&own, optimizers[i], &st), &st);
            float alone = loss_of(p.s, models[k], p.loss, own, p.ds);
            mr_eq_f64(loss_of(p.s, models[k], p.loss, p.o, p.ds), alone, 0);
            mr_optimizer_free(own);
        }
        parts_drop(&p);
    }
}

/* A strategy each, which is freed before the optimizer. */
MR_TEST(strategies_may_come_and_go_too)
{
    mr_optimizer *o = NULL;
    mr_loss *l = NULL;
    mr_dataset *ds = made();
    float first = 0;
    mr_ok(mr_optimizer_parse(&o, "adam(0.01)", &st), &st);
    mr_ok(mr_loss_parse(&l, "mse", &st), &st);
    for (size_t replicas = 1; replicas <= 3; replicas++) {
        mr_strategy *s = NULL;
        mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = replicas}, &st), &st);
        float loss = loss_of(s, "dense(1)", l, o, ds);
        first = replicas == 1 ? loss : first;
        mr_eq_f64(loss, first, 1e-5);
        mr_strategy_free(s);
    }
    mr_eq_i64(mr_optimizer_iterations(o), 3 * 8); /* updates continue */
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_dataset_unref(ds);
}

MR_TEST(a_schedule_goes_on_with_the_next_model)
{
    parts p = parts_make(1, "dense(1)", "mse",
                         "sgd(piecewise_constant_decay([8], [0.5, 0.25]), momentum=0.5)", made());
    mr_eq_f64(mr_optimizer_learning_rate(p.o), 0.5, 0);
    loss_of(p.s, "dense(1)", p.loss, p.o, p.ds);
    loss_of(p.s, "dense(1)", p.loss, p.o, p.ds);
    mr_eq_f64(mr_optimizer_learning_rate(p.o), 0.25, 0);
    parts_drop(&p);
}

/* Whichever goes first: sanitizers see what is left. */
MR_TEST(a_variable_and_its_optimizers_may_be_freed_in_any_order)
{
    for (int order = 0; order < 2; order++) {
        parts p = parts_make(1, "dense(3).dense(1)", "mse", "adam(0.01)", made());
        mr_optimizer *other = NULL;
        mr_ok(mr_optimizer_parse(&other, "sgd(0.01, momentum=0.9)", &st), &st);
        mr_ok(parts_fit(&p, NULL, NULL, &st), &st);
        mr_ok(mr_fit(p.s, p.m, p.ds, p.loss, other, NULL, NULL, &st), &st);
        mr_check(mr__optimizer_knows(p.o, mr_model_variable(p.m, 0)));
        if (order == 0)
            mr_optimizer_free(other);
        mr_model_free(p.m);
        p.m = NULL;
        if (order == 1)
            mr_optimizer_free(other);
        parts_drop(&p);
    }
}

/* A bias correction counts the updates of the variable: a checkpoint of a second model says how
 * many were made before it. */
MR_TEST(a_variable_counts_its_own_updates)
{
    parts p = parts_make(1, "dense(1)", "mse", "adam(0.01)", made());
    loss_of(p.s, "dense(1)", p.loss, p.o, p.ds);
    mr_ok(parts_fit(&p, &(mr_fit_opts){.epochs = 1}, NULL, &st), &st);
    mr_variable *v = mr_model_variable(p.m, 0);
    mr_eq_i64(mr_optimizer_iterations(p.o), 8 + 4);
    mr_eq_i64(mr__optimizer_slots_from(p.o, v), 8);
    mr__optimizer_forget(p.o, v);
    mr_check(!mr__optimizer_knows(p.o, v));
    mr_eq_i64(mr__optimizer_slots_from(p.o, v), 0);
    parts_drop(&p);
}
