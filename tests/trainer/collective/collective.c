/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/collective.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/collective_check.h"
#include "tests/trainer/kit/device_doubles.h"
#include "trainer/strategy/strategy.h"

static mr_status st;

typedef struct sums {
    size_t n, rounds, replicas;
    float *data[20]; /* rounds * n floats a replica */
} sums;

/* Starts every sum before it waits for any, as the backward pass does. */
static mr_code sum_all(mr_replica *r, void *ctx, mr_status *status)
{
    sums *x = ctx;
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *stream = mr_replica_stream(r);
    size_t id = mr_replica_id(r), bytes = x->rounds * x->n * sizeof(float);
    uint64_t tickets[300];
    float *data;
    MR_TRY(test_to_device(r, x->data[id], bytes, (void **)&data, status));
    for (size_t i = 0; i < x->rounds; i++)
        MR_TRY(mr_collective_start(c, id, stream, data + i * x->n, x->n, &tickets[i], status));
    for (size_t i = 0; i < x->rounds; i++)
        MR_TRY(mr_collective_wait(c, id, stream, tickets[i], status));
    return mr_stream_copy(stream, x->data[id], data, bytes, status);
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
    for (size_t replicas = 8; replicas <= 17; replicas += 3) { /* more than one operation takes */
        check_sums(replicas, 1000, 3);
        check_sums(replicas, 40001, 2);
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

static mr_code late_second(mr_replica *r, void *ctx, mr_status *status)
{
    if (mr_replica_id(r) == 1)
        usleep(20000); /* the first runs as far ahead as it may */
    return sum_all(r, ctx, status);
}

MR_TEST(a_fast_replica_waits_where_it_would_overtake_the_slowest_by_too_much)
{
    enum { ROUNDS = 200 };
    sums x = {.n = 3, .rounds = ROUNDS, .replicas = 2};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    for (size_t r = 0; r < 2; r++) {
        x.data[r] = malloc(ROUNDS * 3 * sizeof(float));
        for (size_t i = 0; i < ROUNDS * 3; i++)
            x.data[r][i] = (float)(i * (r + 1));
    }
    mr_ok(mr_strategy_run(s, late_second, &x, &st), &st);
    for (size_t r = 0; r < 2; r++) {
        for (size_t i = 0; i < ROUNDS * 3; i++)
            mr_eq_f64(x.data[r][i], 3 * (double)i, 0);
        free(x.data[r]);
    }
    mr_strategy_free(s);
}

/* Replica 1 takes part in fewer sums than the others: in one of two, or in none. */
static mr_code some_sums(mr_replica *r, void *ctx, mr_status *status)
{
    sums x = *(sums *)ctx;
    if (mr_replica_id(r) == 1)
        x.rounds = x.replicas;
    return x.rounds ? sum_all(r, &x, status) : MR_OK;
}

static mr_code start_without_waiting(mr_replica *r, void *ctx, mr_status *status)
{
    sums *x = ctx;
    uint64_t ticket;
    size_t id = mr_replica_id(r);
    void *data;
    if (id == 1)
        return MR_OK;
    MR_TRY(test_to_device(r, x->data[id], 4 * sizeof(float), &data, status));
    return mr_collective_start(mr_strategy_collective(mr_replica_strategy(r)), id,
                               mr_replica_stream(r), data, 4, &ticket, status);
}

MR_TEST(a_replica_that_takes_part_in_fewer_sums_fails_the_step)
{
    float a[8] = {1}, b[8] = {2}, c[8] = {4};
    sums x = {.n = 4, .rounds = 2, .data = {a, b, c}};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 3}, &st), &st);
    for (x.replicas = 0; x.replicas < 2; x.replicas++) {
        mr_test_context("%zu of two sums", x.replicas);
        mr_code_is(mr_strategy_run(s, some_sums, &x, &st), MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, "replica 1 ended its step after");
        mr_has_str(st.message, x.replicas ? "after 1 sums" : "after 0 sums");
    }
    /* Also if the sum that one replica does not join is never waited for. */
    mr_code_is(mr_strategy_run(s, start_without_waiting, &x, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "replica 0 took part in 1 sums of the step and replica 1 in 0");
    mr_ok(mr_strategy_run(s, sum_all, &x, &st), &st); /* and it works again */
    mr_ok(mr_strategy_run(s, sum_all, &x, &st), &st);
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
    mr_stream *s = mr_replica_stream(r);
    void *data;
    MR_TRY(test_to_device(r, x->data[id], (id + 1) * sizeof(float), &data, status));
    MR_TRY(mr_collective_start(c, id, s, data, id + 1, &ticket, status));
    return mr_collective_wait(c, id, s, ticket, status);
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

/* Sizes that do not come round with the slots: none, one stream's, all streams'. */
static mr_code mixed_sums(mr_replica *r, void *ctx, mr_status *status)
{
    static const size_t sizes[] = {0, 3, 20000, 1, 0, 7, 17000};
    sums *x = ctx;
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *stream = mr_replica_stream(r);
    size_t id = mr_replica_id(r);
    uint64_t ticket;
    void *data;
    MR_TRY(test_to_device(r, x->data[id], x->n * sizeof(float), &data, status));
    for (size_t i = 0; i < x->rounds; i++) {
        if (id == i % 3 && i % 50 == 0)
            usleep(2000); /* the others run ahead */
        MR_TRY(mr_collective_start(c, id, stream, data, sizes[i % 7], &ticket, status));
        MR_TRY(mr_collective_wait(c, id, stream, ticket, status));
    }
    return mr_stream_copy(stream, x->data[id], data, x->n * sizeof(float), status);
}

MR_TEST(sums_of_any_sizes_follow_each_other)
{
    static const char *const ops[] = {"hierarchical_copy", "reduction_to_one_device"};
    for (size_t k = 0; k < 2; k++) {
        sums x = {.n = 20000, .rounds = 350};
        mr_strategy *s = NULL;
        mr_strategy_opts o = {.num_replicas = 3, .cross_device_ops = ops[k]};
        mr_ok(mr_strategy_mirrored(&s, &o, &st), &st);
        mr_eq_str(mr_strategy_communication(s), ops[k]);
        for (size_t r = 0; r < 3; r++)
            x.data[r] = calloc(x.n, sizeof(float));
        x.data[1][19999] = 1e-30f;
        mr_ok(mr_strategy_run(s, mixed_sums, &x, &st), &st);
        /* Three times as much with each of the 49 sums that reach it after the first. */
        mr_check(x.data[0][19999] > 2.392e-7f && x.data[0][19999] < 2.394e-7f);
        for (size_t r = 1; r < 3; r++)
            mr_eq_mem(x.data[r], x.data[0], x.n * sizeof(float));
        for (size_t r = 0; r < 3; r++)
            free(x.data[r]);
        mr_strategy_free(s);
    }
}

MR_TEST(every_operation_of_every_type_gives_what_it_should)
{
    static const char *const devices[] = {"strict:0", "strict:1", "strict:2"};
    static const char *const ops[] = {"hierarchical_copy", "reduction_to_one_device"};
    test_register_doubles();
    for (size_t n = 1; n <= 3; n++)
        for (size_t k = 0; k < 4; k++) {
            mr_strategy *s = NULL;
            mr_strategy_opts o = {.num_replicas = n, .cross_device_ops = ops[k % 2]};
            if (k >= 2) {
                o.devices = devices;
                o.n_devices = n;
            }
            mr_test_context("%zu replicas, %s, %s", n, ops[k % 2], k < 2 ? "cpu" : "strict");
            mr_ok(mr_strategy_mirrored(&s, &o, &st), &st);
            mr_ok(test_collective(s, &st), &st);
            mr_ok(test_collective(s, &st), &st);
            mr_strategy_free(s);
        }
}

MR_TEST(devices_that_cannot_reach_each_other_sum_by_way_of_the_host)
{
    static const char *const devices[] = {"apart:0", "apart:1", "apart:2"};
    mr_strategy_opts o = {.devices = devices, .n_devices = 3};
    mr_strategy *s = NULL;
    test_register_doubles();
    mr_ok(mr_strategy_mirrored(&s, &o, &st), &st);
    mr_eq_str(mr_strategy_communication(s), "reduction_to_one_device");
    mr_ok(test_collective(s, &st), &st);
    mr_strategy_free(s);
    o.cross_device_ops = "hierarchical_copy";
    mr_code_is(mr_strategy_mirrored(&s, &o, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(strstr(st.message, "apart:0 cannot reach the memory of apart:1") != NULL);
}

static mr_code begin_given(mr_replica *r, void *ctx, mr_status *status)
{
    const mr_collective_call *calls = ctx;
    uint64_t ticket;
    void *p;
    size_t id = mr_replica_id(r);
    mr_collective_call call = calls[id];
    MR_TRY(mr_replica_scratch(r, 64, &p, status));
    MR_TRY(mr_stream_set(mr_replica_stream(r), p, 0, 64, status));
    call.in = call.out = p;
    MR_TRY(mr_collective_begin(mr_strategy_collective(mr_replica_strategy(r)), id,
                               mr_replica_stream(r), &call, &ticket, status));
    return mr_collective_wait(mr_strategy_collective(mr_replica_strategy(r)), id,
                              mr_replica_stream(r), ticket, status);
}

MR_TEST(operations_that_cannot_be_are_refused)
{
    static const mr_collective_call sum = {.dtype = MR_FLOAT32, .count = 3};
    static const struct {
        mr_collective_call first, second;
        const char *word;
    } cases[] = {
        {{.dtype = MR_STRING, .count = 1},
         {.dtype = MR_STRING, .count = 1},
         "exchange values of string"},
        {{.reduction = MR_REDUCTION_MEAN, .dtype = MR_INT32, .count = 1},
         {.reduction = MR_REDUCTION_MEAN, .dtype = MR_INT32, .count = 1},
         "integers have no mean"},
        {{.op = MR_BROADCAST, .dtype = MR_INT32, .count = 1, .root = 2},
         {.op = MR_BROADCAST, .dtype = MR_INT32, .count = 1, .root = 2},
         "rank 2 is out of range"},
        {{.dtype = MR_FLOAT32, .count = 3, .reduction = MR_REDUCTION_MAX},
         {.dtype = MR_FLOAT32, .count = 3},
         "sums 3 values of float32"},
        {{.op = MR_BARRIER}, {.op = MR_ALL_GATHER, .dtype = MR_INT64, .count = 2}, "at a barrier"},
    };
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_collective_call calls[2] = {cases[i].first, cases[i].second};
        mr_test_context("%s", cases[i].word);
        mr_code_is(mr_strategy_run(s, begin_given, calls, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].word);
        calls[0] = calls[1] = sum;
        mr_ok(mr_strategy_run(s, begin_given, calls, &st), &st);
    }
    mr_strategy_free(s);
}
