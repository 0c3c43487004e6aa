/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of one replica alone, added up over passes and summed once; a gradient that was summed
 * is not summed again. */
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/model/model.h"

static mr_status st;

enum { ROWS = 8, WIDTH = 3, MOST = 6, REPLICAS = 2 };

typedef enum ways {
    WHOLE,        /* one pass over all rows of the replica, applied by the model */
    LOCAL,        /* two passes, whose local gradients are added up */
    SUMMED,       /* two passes, whose summed gradients are, and applied as such */
    SUMMED_TWICE, /* applied as if they were not */
    TAKEN_TWICE,  /* without adding */
    APPLIED       /* a local pass that the model is to apply */
} ways;

typedef struct loop {
    mr_model *m;
    mr_optimizer *o;
    mr_loss *l;
    ways way;
} loop;

static float x[ROWS * WIDTH], z[ROWS]; /* read after the step was submitted */

/* Rows [from, from + n) of those of this replica. */
static mr_code pass_over(loop *l, mr_replica *r, size_t from, size_t n, mr_status *status)
{
    size_t of = ROWS / mr_strategy_num_replicas_in_sync(mr_replica_strategy(r));
    size_t first = mr_replica_id(r) * of + from;
    mr_array in = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {(int64_t)n, WIDTH}};
    mr_array labels = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {(int64_t)n, 1}};
    mr_array y;
    in.data = x + first * WIDTH;
    labels.data = z + first;
    MR_TRY(mr_replica_to_device(r, &in, &in, status));
    MR_TRY(mr_replica_to_device(r, &labels, &labels, status));
    MR_TRY(mr_model_forward(l->m, r, &in, &(mr_forward_opts){.training = true}, &y, status));
    MR_TRY(mr_model_loss(l->m, r, 0, l->l, &labels, &(mr_loss_opts){.scale = 1.0 / ROWS}, NULL,
                         status));
    const mr_backward_opts how = {.local = l->way == LOCAL || l->way == APPLIED};
    return mr_model_backward_with(l->m, r, &how, NULL, status);
}

static mr_code step(mr_replica *r, void *ctx, mr_status *status)
{
    loop *l = ctx;
    mr_variable *v[MOST];
    float *sums[MOST];
    size_t n = 0, of = ROWS / mr_strategy_num_replicas_in_sync(mr_replica_strategy(r));
    if (l->way == WHOLE || l->way == APPLIED) {
        MR_TRY(pass_over(l, r, 0, of, status));
        return mr_model_apply_gradients(l->m, r, l->o, status);
    }
    for (size_t half = 0; half < 2; half++) {
        MR_TRY(pass_over(l, r, half * of / 2, of / 2, status));
        n = 0;
        for (size_t i = 0; i < mr_model_n_variables(l->m); i++) {
            mr_variable *one = mr_model_variable(l->m, i);
            const float *g;
            void *room;
            if (mr_variable_role_of(one) != MR_LEARNED)
                continue;
            MR_TRY(l->way == LOCAL ? mr_model_local_gradient(l->m, r, i, &g, status)
                                   : mr_model_gradient(l->m, r, i, &g, status));
            v[n] = one;
            if (half == 0) {
                MR_TRY(mr_replica_scratch(r, mr_variable_size(one) * sizeof(float), &room, status));
                sums[n] = room;
            }
            const mr_math_combine add = {mr_variable_size(one), 1, half ? 1 : 0, g, sums[n]};
            if (l->way == TAKEN_TWICE)
                sums[n] = (float *)(uintptr_t)g;
            else
                MR_TRY(mr_replica_math(r)->combine(mr_replica_stream(r), &add, status));
            n++;
        }
    }
    return l->way == SUMMED ? mr_optimizer_apply_summed_gradients(l->o, r, v, sums, n, status)
                            : mr_optimizer_apply_gradients(l->o, r, v, sums, n, status);
}

static loop open_loop(mr_strategy *s, const char *model, ways way)
{
    loop l = {.way = way};
    test_fill(x, ROWS * WIDTH, 1);
    test_fill(z, ROWS, 2);
    mr_ok(mr_model_parse(&l.m, model, &st), &st);
    mr_ok(mr_model_build(l.m, s, 1, (int64_t[]){WIDTH}, &(mr_model_opts){.seed = 2}, &st), &st);
    mr_ok(mr_optimizer_parse(&l.o, "sgd(0.05, momentum=0.9)", &st), &st);
    mr_ok(mr_loss_parse(&l.l, "mse", &st), &st);
    return l;
}

static void close_loop(loop *l)
{
    mr_optimizer_free(l->o);
    mr_loss_free(l->l);
    mr_model_free(l->m);
}

static const char model[] = "dense(4, activation=\"tanh\").dense(1)";

/* The first variable after three steps. */
static void train(mr_strategy *s, const char *text, ways way, float *w)
{
    loop l = open_loop(s, text, way);
    for (int i = 0; i < 3; i++)
        mr_ok(mr_strategy_run(s, step, &l, &st), &st);
    mr_ok(mr_variable_read(mr_model_variable(l.m, 0), w, &st), &st);
    close_loop(&l);
}

MR_TEST(accumulated_passes_are_one_large_one)
{
    float want[WIDTH * 4], have[WIDTH * 4];
    mr_strategy *one = open_strategy(1);
    train(one, model, WHOLE, want);
    for (size_t replicas = 1; replicas <= 4; replicas *= 2)
        for (ways way = WHOLE; way <= SUMMED; way++) {
            mr_strategy *s = open_strategy(replicas);
            mr_test_context("%zu replicas, way %d", replicas, (int)way);
            train(s, model, way, have);
            for (int i = 0; i < WIDTH * 4; i++)
                mr_eq_f64(have[i], want[i], 1e-5);
            mr_strategy_free(s);
        }
    mr_strategy_free(one);
}

MR_TEST(a_summed_gradient_is_not_summed_again)
{
    float before[WIDTH * 4], after[WIDTH * 4];
    for (size_t replicas = 1; replicas <= REPLICAS; replicas++)
        for (ways way = SUMMED_TWICE; way <= TAKEN_TWICE; way++) {
            mr_strategy *s = open_strategy(replicas);
            loop l = open_loop(s, model, way);
            mr_variable *v = mr_model_variable(l.m, 0);
            mr_test_context("%zu replicas, way %d", replicas, (int)way);
            mr_ok(mr_variable_read(v, before, &st), &st);
            mr_code_is(mr_strategy_run(s, step, &l, &st), MR_FAILED_PRECONDITION, &st);
            mr_has_str(st.message, "dense/kernel was summed");
            mr_has_str(st.message, "mr_optimizer_apply_summed_gradients");
            mr_ok(mr_variable_read(v, after, &st), &st);
            mr_eq_mem(after, before, sizeof before);
            l.way = LOCAL; /* and what follows is right */
            mr_ok(mr_strategy_run(s, step, &l, &st), &st);
            close_loop(&l);
            mr_strategy_free(s);
        }
}

MR_TEST(the_model_does_not_apply_a_local_pass)
{
    mr_strategy *s = open_strategy(REPLICAS);
    loop l = open_loop(s, model, APPLIED);
    mr_code_is(mr_strategy_run(s, step, &l, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "local");
    l.way = WHOLE;
    mr_ok(mr_strategy_run(s, step, &l, &st), &st);
    close_loop(&l);
    mr_strategy_free(s);
}

static mr_code wrong_gradient(mr_replica *r, void *ctx, mr_status *status)
{
    loop *l = ctx;
    const float *g;
    MR_TRY(pass_over(l, r, 0, 1, status));
    return l->way == LOCAL ? mr_model_gradient(l->m, r, 0, &g, status)
                           : mr_model_local_gradient(l->m, r, 0, &g, status);
}

MR_TEST(a_pass_has_either_gradient)
{
    mr_strategy *s = open_strategy(REPLICAS);
    for (ways way = WHOLE; way <= LOCAL; way++) {
        loop l = open_loop(s, model, way);
        mr_code_is(mr_strategy_run(s, wrong_gradient, &l, &st), MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, "local");
        close_loop(&l);
    }
    mr_strategy_free(s);
}

/* ---- calls in the wrong order ---- */

typedef enum wrongs {
    APPLY,
    GRADIENT,
    LOCAL_GRADIENT,
    BACKWARD,
    AFTER_A_FAILED_STEP,
    NO_SUCH
} wrongs;

typedef struct wrong {
    loop *l;
    wrongs what;
} wrong;

static mr_code call_wrongly(mr_replica *r, void *ctx, mr_status *status)
{
    const wrong *w = ctx;
    const float *g;
    if (w->what == NO_SUCH)
        MR_TRY(pass_over(w->l, r, 0, 1, status));
    switch (w->what) {
    case GRADIENT:
        return mr_model_gradient(w->l->m, r, 0, &g, status);
    case LOCAL_GRADIENT:
        return mr_model_local_gradient(w->l->m, r, 0, &g, status);
    case BACKWARD:
        return mr_model_backward(w->l->m, r, status);
    case NO_SUCH:
        return mr_model_gradient(w->l->m, r, 99, &g, status);
    default:
        return mr_model_apply_gradients(w->l->m, r, w->l->o, status);
    }
}

static mr_code fail_after_backward(mr_replica *r, void *ctx, mr_status *status)
{
    MR_TRY(pass_over(ctx, r, 0, 1, status));
    return mr_fail(status, MR_ABORTED, "by this test");
}

MR_TEST(gradients_come_from_a_backward_pass)
{
    for (size_t replicas = 1; replicas <= REPLICAS; replicas++)
        for (wrongs what = APPLY; what <= NO_SUCH; what++) {
            mr_strategy *s = open_strategy(replicas);
            loop l = open_loop(s, model, WHOLE);
            wrong w = {&l, what};
            mr_test_context("%zu replicas, call %d", replicas, (int)what);
            if (what == AFTER_A_FAILED_STEP)
                mr_code_is(mr_strategy_run(s, fail_after_backward, &l, &st), MR_ABORTED, &st);
            mr_code_is(mr_strategy_run(s, call_wrongly, &w, &st),
                       what == NO_SUCH ? MR_INVALID_ARGUMENT : MR_FAILED_PRECONDITION, &st);
            mr_has_str(st.message, what == NO_SUCH    ? "no number 99"
                                   : what == BACKWARD ? "needs a forward pass"
                                                      : "mr_model_backward comes before");
            mr_eq_i64(mr_optimizer_iterations(l.o), 0);
            mr_ok(mr_strategy_run(s, step, &l, &st), &st);
            close_loop(&l);
            mr_strategy_free(s);
        }
}

static mr_code use_a_stranger(mr_replica *r, void *ctx, mr_status *status)
{
    loop *l = ctx;
    mr_array y, in = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {1, WIDTH}, .data = x};
    MR_TRY(mr_replica_to_device(r, &in, &in, status));
    return mr_model_forward(l->m, r, &in, NULL, &y, status);
}

MR_TEST(a_replica_of_another_strategy_is_refused)
{
    mr_strategy *s = open_strategy(1), *other = open_strategy(REPLICAS);
    loop l = open_loop(s, model, WHOLE), k = {0};
    mr_code_is(mr_strategy_run(other, use_a_stranger, &l, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another strategy");
    mr_ok(mr_model_parse(&k.m, model, &st), &st);
    mr_code_is(mr_strategy_run(s, use_a_stranger, &k, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "not built");
    mr_code_is(mr_model_build(k.m, NULL, 1, (int64_t[]){WIDTH}, NULL, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_model_free(k.m);
    close_loop(&l);
    mr_strategy_free(other);
    mr_strategy_free(s);
}

static mr_variable *first_mean(const mr_model *m)
{
    size_t i = 0;
    while (mr_variable_role_of(mr_model_variable(m, i)) != MR_AVERAGE)
        i++;
    return mr_model_variable(m, i);
}

/* Two passes over halves of the rows, with means a and b of all replicas: m (m 0 + (1 - m) a) +
 * (1 - m) b. */
MR_TEST(local_passes_update_running_means)
{
    for (size_t replicas = 1; replicas <= REPLICAS; replicas++) {
        float have[WIDTH], other[WIDTH];
        size_t of = ROWS / replicas;
        mr_strategy *s = open_strategy(replicas);
        loop l = open_loop(s, "batch_norm(momentum=0.5).dense(1)", LOCAL);
        mr_variable *mean = first_mean(l.m);
        mr_test_context("%zu replicas", replicas);
        mr_ok(mr_strategy_run(s, step, &l, &st), &st);
        mr_ok(mr_variable_read(mean, have, &st), &st);
        for (size_t c = 0; c < WIDTH; c++) {
            double half[2] = {0, 0};
            for (size_t i = 0; i < ROWS; i++)
                half[i % of / (of / 2)] += (double)x[i * WIDTH + c] / (ROWS / 2);
            mr_eq_f64(have[c], 0.25 * half[0] + 0.5 * half[1], 1e-6);
        }
        for (size_t r = 1; r < replicas; r++) {
            test_read_copy(s, mean, r, other);
            mr_eq_mem(other, have, sizeof have);
        }
        close_loop(&l);
        mr_strategy_free(s);
    }
}
