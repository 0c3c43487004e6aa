/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective.h"
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "trainer/strategy.h"

static mr_status st;

typedef struct sums {
    size_t n, rounds, replicas;
    float *data[4]; /* rounds * n floats a replica */
} sums;

/* Starts every sum before it waits for any, as the backward pass does. */
static mr_code sum_all(mr_replica *r, void *ctx, mr_status *status)
{
    sums *x = ctx;
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    uint64_t tickets[300];
    for (size_t i = 0; i < x->rounds; i++)
        MR_TRY(mr_collective_start(c, mr_replica_id(r), x->data[mr_replica_id(r)] + i * x->n, x->n,
                                   &tickets[i], status));
    for (size_t i = 0; i < x->rounds; i++)
        MR_TRY(mr_collective_wait(c, mr_replica_id(r), tickets[i], status));
    return MR_OK;
}

static void check_sums(size_t replicas, size_t n, size_t rounds)
{
    mr_strategy *s = NULL;
    sums x = {.n = n, .rounds = rounds, .replicas = replicas};
    float *want = malloc(n * rounds * sizeof *want);
    uint64_t seed = 5;
    mr_test_context("%zu replicas, %zu floats, %zu rounds", replicas, n, rounds);
    for (size_t r = 0; r < replicas; r++) {
        x.data[r] = malloc(n * rounds * sizeof(float));
        for (size_t i = 0; i < n * rounds; i++) {
            x.data[r][i] = (float)(mr_test_random(&seed) % 1000) * 0.37f;
            want[i] = r == 0 ? x.data[r][i] : want[i] + x.data[r][i]; /* in replica order */
        }
    }
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = replicas}, &st), &st);
    mr_ok(mr_strategy_run(s, sum_all, &x, &st), &st);
    for (size_t r = 0; r < replicas; r++) {
        mr_eq_mem(x.data[r], want, n * rounds * sizeof *want);
        free(x.data[r]);
    }
    free(want);
    mr_strategy_free(s);
}

MR_TEST(every_rank_gets_the_same_bits)
{
    for (size_t replicas = 1; replicas <= 4; replicas++) {
        check_sums(replicas, 1, 3);
        check_sums(replicas, 1000, 5);
        check_sums(replicas, 40001, 2); /* shared out over the streams */
    }
}

MR_TEST(more_sums_than_fit_are_taken_in_turn)
{
    sums x = {.n = 3, .rounds = 64, .replicas = 2};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    for (size_t r = 0; r < 2; r++)
        x.data[r] = malloc(64 * 3 * sizeof(float));
    for (int turn = 0; turn < 5; turn++) {
        for (size_t r = 0; r < 2; r++)
            for (size_t i = 0; i < 64 * 3; i++)
                x.data[r][i] = (float)i;
        mr_ok(mr_strategy_run(s, sum_all, &x, &st), &st);
        for (size_t i = 0; i < 64 * 3; i++)
            mr_eq_f64(x.data[1][i], 2 * (double)i, 0);
    }
    free(x.data[0]);
    free(x.data[1]);
    mr_strategy_free(s);
}

static mr_code second_fails(mr_replica *r, void *ctx, mr_status *status)
{
    if (mr_replica_id(r) == 1)
        return mr_fail(status, MR_DATA_LOSS, "replica one gave up");
    return sum_all(r, ctx, status);
}

MR_TEST(a_failed_replica_does_not_leave_the_others_waiting)
{
    float a[4] = {1, 1, 1, 1}, b[4] = {2, 2, 2, 2}, c[4] = {4, 4, 4, 4};
    sums x = {.n = 4, .rounds = 1, .replicas = 3, .data = {a, b, c}};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 3}, &st), &st);
    mr_code_is(mr_strategy_run(s, second_fails, &x, &st), MR_DATA_LOSS, &st);
    mr_eq_str(st.message, "replica one gave up");
    mr_ok(mr_strategy_run(s, sum_all, &x, &st), &st); /* and it works again */
    mr_eq_f64(a[0], 7, 0);
    mr_eq_f64(b[3], 7, 0);
    mr_strategy_free(s);
}

static mr_code unequal(mr_replica *r, void *ctx, mr_status *status)
{
    sums *x = ctx;
    uint64_t ticket;
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    size_t id = mr_replica_id(r);
    MR_TRY(mr_collective_start(c, id, x->data[id], id + 1, &ticket, status));
    return mr_collective_wait(c, id, ticket, status);
}

MR_TEST(sums_of_different_lengths_are_refused)
{
    float a[4] = {0}, b[4] = {0};
    sums x = {.data = {a, b}};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_code_is(mr_strategy_run(s, unequal, &x, &st), MR_INVALID_ARGUMENT, &st);
    mr_strategy_free(s);
}
