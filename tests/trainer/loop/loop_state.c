/* SPDX-License-Identifier: Apache-2.0 */
/* A custom training loop that is interrupted and restored ends as if it had not been. */
#include "trainer/loop/loop_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"

static mr_status st;

static const char data[] =
    "range(24).shuffle(8, seed=3).map(i => ([cast(i % 8, \"float32\") / 8.0, 1.0], "
    "[cast(i % 8, \"float32\")])).batch(4)";

enum { STEPS = 12 }; /* two passes over the data */

typedef struct loop {
    mr_strategy *s;
    mr_model *m[2]; /* the second one is frozen: only its masks move */
    mr_optimizer *o[2];
    mr_loss *l;
    mr_metric *metric;
    mr_variable *scale;
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
    mr_step step;
    int64_t steps;
    double best;
    float noise; /* of the last step's masks */
} loop;

static loop open_loop(size_t replicas, const char *optimizer)
{
    loop l = {.s = open_strategy(replicas), .best = INFINITY};
    mr_dataset *ds = mr_test_graph(data);
    const mr_distribute_opts how = {.replicas = (int64_t)replicas};
    const mr_dist_iterator_opts run = {.run = {.positions = true}};
    mr_ok(mr_distribute_dataset(ds, &how, &l.dd, &st), &st);
    mr_ok(mr_dist_iterator_open(&l.it, l.dd, &run, &st), &st);
    mr_dataset_unref(ds);
    mr_ok(mr_model_parse(&l.m[0], "dense(8, activation=\"relu\").dropout(0.5).dense(1)", &st), &st);
    mr_ok(mr_model_parse(&l.m[1], "dense(4).dropout(0.5)", &st), &st);
    for (int k = 0; k < 2; k++)
        mr_ok(mr_model_build(l.m[k], l.s, 1, (int64_t[]){2}, &(mr_model_opts){.seed = 7}, &st),
              &st);
    mr_ok(mr_optimizer_parse(&l.o[0], optimizer, &st), &st);
    mr_ok(mr_optimizer_parse(&l.o[1], "sgd(0.1, momentum=0.5)", &st), &st);
    mr_ok(mr_loss_parse(&l.l, "mse", &st), &st);
    mr_ok(mr_metric_parse(&l.metric, "mse", &st), &st);
    mr_ok(mr_variable_new(&l.scale, l.s, 0, NULL, &(mr_variable_opts){.name = "scale"}, &st), &st);
    return l;
}

static void close_loop(loop *l)
{
    mr_variable_free(l->scale);
    mr_metric_free(l->metric);
    mr_loss_free(l->l);
    for (int k = 0; k < 2; k++) {
        mr_optimizer_free(l->o[k]);
        mr_model_free(l->m[k]);
    }
    mr_dist_iterator_close(l->it);
    mr_dist_dataset_free(l->dd);
    mr_strategy_free(l->s);
}

static mr_code step(mr_replica *r, void *ctx, mr_status *status)
{
    loop *l = ctx;
    size_t id = mr_replica_id(r), rows = 0, before = 0;
    mr_array x, y, labels, noise;
    void *one;
    for (size_t k = 0; k < l->step.n_replicas; k++) {
        rows += (size_t)l->step.replicas[k].columns[0].shape[0];
        before += k < id ? (size_t)l->step.replicas[k].columns[0].shape[0] : 0;
    }
    const mr_forward_opts how = {.training = true, .first_row = (int64_t)before};
    MR_TRY(mr_replica_to_device(r, &l->step.replicas[id].columns[0], &x, status));
    MR_TRY(mr_replica_to_device(r, &l->step.replicas[id].columns[1], &labels, status));
    MR_TRY(mr_model_forward(l->m[0], r, &x, &how, &y, status));
    MR_TRY(mr_model_loss(l->m[0], r, 0, l->l, &labels, &(mr_loss_opts){.scale = 1.0 / (double)rows},
                         NULL, status));
    MR_TRY(mr_metric_update(l->metric, r, &labels, &y, status));
    MR_TRY(mr_model_backward(l->m[0], r, status));
    MR_TRY(mr_model_apply_gradients(l->m[0], r, l->o[0], status));
    MR_TRY(mr_model_forward(l->m[1], r, &x, &how, &noise, status));
    if (id == 0)
        MR_TRY(
            mr_stream_copy(mr_replica_stream(r), &l->noise, noise.data, sizeof l->noise, status));
    MR_TRY(mr_replica_scratch(r, sizeof(float), &one, status));
    const mr_math_fill fill = {1, id == 0, one};
    float *gradient = one;
    MR_TRY(mr_replica_math(r)->fill(mr_replica_stream(r), &fill, status));
    return mr_optimizer_apply_gradients(l->o[1], r, &l->scale, &gradient, 1, status);
}

static void run_to(loop *l, int64_t steps)
{
    while (l->steps < steps) {
        mr_code rc = mr_dist_iterator_next(l->it, NULL, &l->step, &st);
        if (rc == MR_END) {
            mr_ok(mr_dist_iterator_rewind(l->it, &st), &st);
            continue;
        }
        mr_ok(rc, &st);
        mr_ok(mr_strategy_run(l->s, step, l, &st), &st);
        l->steps++;
        l->best = 1.0 / (double)l->steps;
    }
}

typedef struct state {
    mr_loop_number numbers[2];
    mr_loop_state all;
} state;

static void state_of(loop *l, state *x)
{
    x->numbers[0] = (mr_loop_number){"step", .i = &l->steps};
    x->numbers[1] = (mr_loop_number){"best loss", .f = &l->best};
    x->all = (mr_loop_state){.strategy = l->s,
                             .models = l->m,
                             .n_models = 2,
                             .variables = &l->scale,
                             .n_variables = 1,
                             .optimizers = l->o,
                             .n_optimizers = 2,
                             .metrics = &l->metric,
                             .n_metrics = 1,
                             .data = &l->it,
                             .n_data = 1,
                             .numbers = x->numbers,
                             .n_numbers = 2};
}

static void save(loop *l, const char *path)
{
    state x;
    state_of(l, &x);
    mr_ok(mr_loop_save(&x.all, path, &st), &st);
}

static mr_code restore(loop *l, const char *path)
{
    state x;
    bool found = false;
    state_of(l, &x);
    mr_code rc = mr_loop_restore(&x.all, path, &found, &st);
    mr_check(rc != MR_OK || found);
    return rc;
}

/* What the loop has computed, for comparisons to the bit. */
typedef struct result {
    float w[3][16], scale, noise;
    double metric, best;
    int64_t iterations;
} result;

static result result_of(loop *l)
{
    result x;
    memset(&x, 0, sizeof x);
    for (size_t v = 0; v < 3; v++)
        mr_ok(mr_variable_read(mr_model_variable(l->m[0], v), x.w[v], &st), &st);
    mr_ok(mr_variable_read(l->scale, &x.scale, &st), &st);
    x.noise = l->noise;
    x.metric = mr_metric_result(l->metric);
    x.best = l->best;
    x.iterations = mr_optimizer_iterations(l->o[0]);
    return x;
}

static const char *const optimizers[] = {
    "adam(0.05)", "sgd(exponential_decay(0.1, decay_steps=2, decay_rate=0.5), momentum=0.9)"};

MR_TEST(a_restored_loop_continues_to_the_bit)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t replicas = 1; replicas <= 2; replicas++) {
            mr_test_context("%s, %zu replicas", optimizers[k], replicas);
            loop whole = open_loop(replicas, optimizers[k]);
            run_to(&whole, STEPS);
            result want = result_of(&whole);
            close_loop(&whole);
            for (int64_t at = 0; at < STEPS; at += 1 + at / 3) {
                loop a = open_loop(replicas, optimizers[k]);
                run_to(&a, at);
                save(&a, mr_test_path("state"));
                close_loop(&a);
                loop b = open_loop(replicas, optimizers[k]);
                mr_ok(restore(&b, mr_test_path("state")), &st);
                mr_eq_i64(b.steps, at);
                run_to(&b, STEPS);
                result have = result_of(&b);
                mr_eq_mem(&have, &want, sizeof want);
                close_loop(&b);
            }
        }
}

/* Back to an earlier state in one process: also slots that were made after it are gone. */
MR_TEST(a_loop_goes_back_to_an_earlier_state)
{
    loop l = open_loop(2, "adam(0.05)");
    save(&l, mr_test_path("0"));
    run_to(&l, 5);
    save(&l, mr_test_path("5"));
    run_to(&l, STEPS);
    result want = result_of(&l);
    for (int64_t at = 0; at <= 5; at += 5) {
        close_loop(&l);
        l = open_loop(2, "adam(0.05)");
        run_to(&l, 3);
        mr_dist_iterator_close(l.it); /* positions are restored before the first step */
        mr_ok(mr_dist_iterator_open(&l.it, l.dd,
                                    &(mr_dist_iterator_opts){.run = {.positions = true}}, &st),
              &st);
        mr_ok(restore(&l, mr_test_path(at ? "5" : "0")), &st);
        run_to(&l, STEPS);
        result have = result_of(&l);
        mr_eq_mem(&have, &want, sizeof want);
    }
    close_loop(&l);
}

MR_TEST(a_learning_rate_that_was_set_stays)
{
    loop l = open_loop(1, "adam(0.05)");
    mr_optimizer_set_learning_rate(l.o[0], 0.125);
    save(&l, mr_test_path("state"));
    close_loop(&l);
    l = open_loop(1, "adam(0.05)");
    mr_ok(restore(&l, mr_test_path("state")), &st);
    mr_eq_f64(mr_optimizer_learning_rate(l.o[0]), 0.125, 0);
    close_loop(&l);
}

MR_TEST(without_a_state_the_loop_begins_anew)
{
    loop l = open_loop(1, "adam(0.05)");
    state x;
    bool found = true;
    state_of(&l, &x);
    mr_ok(mr_loop_restore(&x.all, mr_test_path("nothing"), &found, &st), &st);
    mr_check(!found);
    const mr_loop_state none = {.strategy = l.s};
    mr_ok(mr_loop_save(&none, mr_test_path("deep/er/none"), &st), &st);
    mr_ok(mr_loop_restore(&none, mr_test_path("deep/er/none"), NULL, &st), &st);
    close_loop(&l);
}

/* Nothing is changed by a state that does not fit. */
MR_TEST(a_state_of_another_loop_is_refused)
{
    loop l = open_loop(1, "adam(0.05)"), k = open_loop(1, "sgd(0.1, momentum=0.9)");
    run_to(&l, 3);
    save(&l, mr_test_path("state"));
    result before = result_of(&k);
    mr_code_is(restore(&k, mr_test_path("state")), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "optimizer 0");
    state x;
    state_of(&k, &x);
    x.all.n_optimizers = 1;
    mr_code_is(mr_loop_restore(&x.all, mr_test_path("state"), NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "2 optimizers, this one has 1");
    state_of(&k, &x);
    x.numbers[1].name = "worst loss";
    mr_code_is(mr_loop_restore(&x.all, mr_test_path("state"), NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "worst loss");
    mr_model *models[] = {k.m[1], k.m[0]};
    state_of(&k, &x);
    x.all.models = models;
    mr_code_is(mr_loop_restore(&x.all, mr_test_path("state"), NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "dense/kernel");
    result after = result_of(&k);
    mr_eq_mem(&after, &before, sizeof after);
    close_loop(&k);
    k = open_loop(2, "adam(0.05)");
    mr_code_is(restore(&k, mr_test_path("state")), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "1 replicas");
    state_of(&k, &x);
    x.all.strategy = NULL;
    mr_code_is(mr_loop_save(&x.all, mr_test_path("state"), &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_loop_restore(&x.all, mr_test_path("state"), NULL, &st), MR_INVALID_ARGUMENT, &st);
    x.all.strategy = mr_model_strategy(l.m[0]);
    mr_code_is(mr_loop_save(&x.all, mr_test_path("state"), &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another strategy");
    state_of(&k, &x);
    x.numbers[0].name = x.numbers[1].name;
    mr_code_is(mr_loop_save(&x.all, mr_test_path("state"), &st), MR_INVALID_ARGUMENT, &st);
    close_loop(&k);
    close_loop(&l);
}

MR_TEST(other_content_is_left_alone_and_damage_is_found)
{
    loop l = open_loop(1, "adam(0.05)");
    char path[600];
    state x;
    state_of(&l, &x);
    snprintf(path, sizeof path, "%s", mr_test_file("notes.txt", "mine"));
    mr_code_is(mr_loop_save(&x.all, mr_test_dir(), &st), MR_ALREADY_EXISTS, &st);
    mr_code_is(mr_loop_save(&x.all, path, &st), MR_ALREADY_EXISTS, &st);
    run_to(&l, 2);
    save(&l, mr_test_path("state"));
    FILE *f = fopen(mr_test_path("state/position-0"), "r+");
    mr_check(f != NULL);
    int c = fgetc(f);
    rewind(f);
    fputc(c ^ 1, f);
    fclose(f);
    mr_code_is(restore(&l, mr_test_path("state")), MR_DATA_LOSS, &st);
    close_loop(&l);
}
