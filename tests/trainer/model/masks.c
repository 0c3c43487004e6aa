/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout's masks: new ones in every pass in training, whether the pass is applied, frozen, local
 * or only forward; the same on any number of replicas; and after a step that failed the same as if
 * it had not run. */
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/model/model.h"

static mr_status st;

enum { WIDTH = 40, ROWS = 4, MOST_PASSES = 12 };

typedef enum kind { APPLIED, FROZEN, LOCAL, FORWARD, FAILS, FAILS_EARLY, FAILS_FIRST } kind;

typedef struct passes {
    mr_model *m;
    mr_optimizer *o;
    kind kind;
    int in_step; /* passes of one step */
    float out[MOST_PASSES][ROWS][WIDTH];
    int n;
} passes;

static float ones[ROWS * WIDTH]; /* read after the step was submitted */

static mr_code one_pass(passes *p, mr_replica *r, int at, mr_status *status)
{
    size_t n = mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)), rows = ROWS / n;
    size_t first = mr_replica_id(r) * rows, bytes = rows * WIDTH * sizeof(float);
    mr_array x = {
        .dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {(int64_t)rows, WIDTH}, .data = ones};
    mr_array y;
    if (p->kind == FAILS_FIRST && mr_replica_id(r) == 1)
        return mr_fail(status, MR_UNKNOWN, "as the test wants");
    MR_TRY(mr_replica_to_device(r, &x, &x, status));
    MR_TRY(mr_model_forward(p->m, r, &x,
                            &(mr_forward_opts){.training = true, .first_row = (int64_t)first}, &y,
                            status));
    MR_TRY(mr_stream_copy(mr_replica_stream(r), p->out[at][first], y.data, bytes, status));
    MR_TRY(
        mr_stream_set(mr_replica_stream(r), mr_model_output_gradient(p->m, r), 0, bytes, status));
    if (p->kind == FAILS_EARLY && mr_replica_id(r) == 0)
        return mr_fail(status, MR_ABORTED, "as the test wants");
    if (p->kind == FORWARD)
        return MR_OK;
    const mr_backward_opts how = {.frozen = p->kind == FROZEN, .local = p->kind == LOCAL};
    MR_TRY(mr_model_backward_with(p->m, r, &how, NULL, status));
    if (p->kind == FAILS)
        return mr_fail(status, MR_UNKNOWN, "as the test wants");
    return p->kind == APPLIED ? mr_model_apply_gradients(p->m, r, p->o, status) : MR_OK;
}

static mr_code step(mr_replica *r, void *ctx, mr_status *status)
{
    passes *p = ctx;
    for (int i = 0; i < p->in_step; i++)
        MR_TRY(one_pass(p, r, p->n + i, status));
    return MR_OK;
}

static passes open_passes(mr_strategy *s)
{
    passes p = {.in_step = 1};
    for (int i = 0; i < ROWS * WIDTH; i++)
        ones[i] = 1;
    mr_ok(mr_optimizer_parse(&p.o, "sgd(0.0)", &st), &st);
    mr_ok(mr_model_parse(
              &p.m, "dense(40, use_bias=false, kernel_initializer=constant(0.025)).dropout(0.5)",
              &st),
          &st);
    mr_ok(mr_model_build(p.m, s, 1, (int64_t[]){WIDTH}, &(mr_model_opts){.seed = 1}, &st), &st);
    return p;
}

static void close_passes(passes *p)
{
    mr_optimizer_free(p->o);
    mr_model_free(p->m);
}

static void run(mr_strategy *s, passes *p, kind k)
{
    p->kind = k;
    mr_code rc = mr_strategy_run(s, step, p, &st);
    mr_check((rc == MR_OK) == (k < FAILS));
    for (int i = p->n; i < p->n + p->in_step; i++) /* sums differ in their last bits */
        for (size_t v = 0; v < ROWS * WIDTH; v++)
            p->out[i][v / WIDTH][v % WIDTH] = p->out[i][v / WIDTH][v % WIDTH] > 0 ? 1 : 0;
    p->n += rc == MR_OK ? p->in_step : 0;
}

static void all_differ(const passes *p)
{
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < i; k++)
            mr_check(memcmp(p->out[i], p->out[k], sizeof p->out[i]) != 0);
}

MR_TEST(every_kind_of_pass_draws_a_mask_of_its_own)
{
    static const kind kinds[] = {APPLIED, FROZEN, LOCAL, FORWARD};
    for (size_t k = 0; k < 4; k++)
        for (int in_step = 1; in_step <= 3; in_step++) {
            mr_strategy *s = open_strategy(2);
            passes p = open_passes(s);
            mr_test_context("kind %zu, %d passes a step", k, in_step);
            p.in_step = in_step;
            while (p.n + in_step <= 8)
                run(s, &p, kinds[k]);
            all_differ(&p);
            close_passes(&p);
            mr_strategy_free(s);
        }
}

/* A generator's step passes through a frozen discriminator, whose own step follows. */
MR_TEST(kinds_in_turn_draw_masks_of_their_own_alike_on_any_number_of_replicas)
{
    static const kind turns[] = {FROZEN, APPLIED, FORWARD, LOCAL, FROZEN, FROZEN, APPLIED, FORWARD};
    float first[8][ROWS][WIDTH];
    for (size_t replicas = 1; replicas <= 4; replicas *= 2) {
        mr_strategy *s = open_strategy(replicas);
        passes p = open_passes(s);
        mr_test_context("%zu replicas", replicas);
        for (size_t i = 0; i < 8; i++)
            run(s, &p, turns[i]);
        all_differ(&p);
        if (replicas == 1)
            memcpy(first, p.out, sizeof first);
        mr_eq_mem(p.out, first, sizeof first);
        close_passes(&p);
        mr_strategy_free(s);
    }
}

/* The replicas stop at different points of a step that fails. */
MR_TEST(a_failed_step_leaves_no_trace_in_the_masks)
{
    static const kind turns[] = {FORWARD, FROZEN, APPLIED, FORWARD, LOCAL};
    float want[5][ROWS][WIDTH];
    for (int failing = 0; failing < 4; failing++) {
        mr_strategy *s = open_strategy(2);
        passes p = open_passes(s);
        mr_test_context("failing %d", failing);
        for (size_t i = 0; i < 5; i++) {
            if (failing > 0)
                run(s, &p, (kind)(FAILS + failing - 1));
            run(s, &p, turns[i]);
        }
        if (failing == 0)
            memcpy(want, p.out, sizeof want);
        mr_eq_mem(p.out, want, sizeof want);
        close_passes(&p);
        mr_strategy_free(s);
    }
}
