/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/collective_times.h"
#include <unistd.h>
#include "pipeline/engine/op_iterator.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/strategy/strategy.h"

static mr_status st;

enum { N = 50000, STEPS = 20 };

static void mark(mr__sum_times *t, mr__sum_mark what, size_t rank, mr_stream *stream)
{
    mr_ok(mr__sum_times_mark(t, what, rank, stream, &st), &st);
    mr_ok(mr_stream_synchronize(stream, &st), &st);
}

static void sleep_ms(unsigned ms)
{
    usleep(ms * 1000);
}

/* Two streams sum, with a break between their sums, and one of two ranks waits for a part of it. */
MR_TEST(time_is_counted_once_and_waiting_for_each_rank)
{
    mr_device *d = NULL;
    mr_stream *s = NULL;
    mr_collective_times x;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMM, &st), &st);
    mr__sum_times *t = mr__sum_times_new(2);
    mr_check(t);
    mark(t, MR__WAIT_BEGINS, 0, s); /* for a sum that has not begun */
    sleep_ms(20);
    mr__sum_times_read(t, &x);
    mr_eq_f64(x.seconds, 0, 0);
    mark(t, MR__WAIT_ENDS, 0, s);
    double began = mr_iter_now();
    mark(t, MR__SUM_BEGINS, 0, s);
    sleep_ms(10);
    mark(t, MR__SUM_BEGINS, 1, s);
    sleep_ms(10);
    mark(t, MR__SUM_ENDS, 0, s);
    mark(t, MR__WAIT_BEGINS, 1, s);
    sleep_ms(20);
    mark(t, MR__SUM_ENDS, 1, s);
    double ended = mr_iter_now();
    sleep_ms(50); /* no sum runs */
    mark(t, MR__WAIT_ENDS, 1, s);
    mr__sum_times_read(t, &x);
    mr_check(x.seconds >= 0.04 && x.seconds <= ended - began);
    mr_check(x.exposed_seconds >= 0.01); /* half of 20 ms */
    mr_check(x.exposed_seconds <= (x.seconds - 0.02) / 2);

    /* A sum that never ends, as after an error. */
    mark(t, MR__SUM_BEGINS, 0, s);
    mr__sum_times_stop(t);
    mr__sum_times_read(t, &x);
    double before = x.seconds;
    sleep_ms(20);
    began = mr_iter_now();
    mark(t, MR__SUM_BEGINS, 0, s);
    mark(t, MR__SUM_ENDS, 0, s);
    ended = mr_iter_now();
    mr__sum_times_read(t, &x);
    mr_check(x.seconds >= before && x.seconds <= before + (ended - began));
    mr_stream_free(s);
    mr_device_close(d);
    mr__sum_times_free(t);
}

typedef struct sums {
    float *data[2];
    bool fails;
} sums;

static mr_code sum_twice(mr_replica *r, void *ctx, mr_status *status)
{
    sums *x = ctx;
    size_t id = mr_replica_id(r);
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    uint64_t tickets[2];
    float *data;
    MR_TRY(test_to_device(r, x->data[id], 2 * N * sizeof *data, (void **)&data, status));
    for (size_t i = 0; i < 2; i++)
        MR_TRY(
            mr_collective_start(c, id, mr_replica_stream(r), data + i * N, N, &tickets[i], status));
    if (x->fails)
        return mr_fail(status, MR_CANCELLED, "given up");
    for (size_t i = 0; i < 2; i++)
        MR_TRY(mr_collective_wait(c, id, mr_replica_stream(r), tickets[i], status));
    return MR_OK;
}

static float values[2][2 * N];

MR_TEST(sums_of_steps_are_measured_when_asked)
{
    static const char *const engines[] = {NULL, "reduction_to_one_device"};
    for (size_t e = 0; e < 2; e++) {
        mr_strategy *s = NULL;
        mr_collective_times x, later;
        sums what = {{values[0], values[1]}, false};
        mr_ok(mr_strategy_mirrored(
                  &s, &(mr_strategy_opts){.num_replicas = 2, .cross_device_ops = engines[e]}, &st),
              &st);
        mr_collective *c = mr_strategy_collective(s);
        mr_ok(mr_strategy_run(s, sum_twice, &what, &st), &st);
        mr_collective_measured(c, &x);
        mr_eq_f64(x.seconds, 0, 0);
        mr_eq_f64(x.exposed_seconds, 0, 0);
        mr_ok(mr_collective_measure(c, &st), &st);
        mr_ok(mr_collective_measure(c, &st), &st);
        double began = mr_iter_now();
        for (int i = 0; i < STEPS; i++)
            mr_ok(mr_strategy_run(s, sum_twice, &what, &st), &st);
        mr_collective_measured(c, &x);
        mr_check(x.seconds > 0 && x.seconds <= mr_iter_now() - began);
        mr_check(x.exposed_seconds > 0 && x.exposed_seconds <= x.seconds);
        what.fails = true;
        mr_code_is(mr_strategy_run(s, sum_twice, &what, &st), MR_CANCELLED, &st);
        mr_collective_measured(c, &x);
        sleep_ms(20);
        began = mr_iter_now();
        what.fails = false;
        mr_ok(mr_strategy_run(s, sum_twice, &what, &st), &st);
        mr_collective_measured(c, &later);
        mr_check(later.seconds > x.seconds);
        mr_check(later.seconds - x.seconds <= mr_iter_now() - began);
        mr_strategy_free(s);
    }
}

MR_TEST(a_rank_alone_has_no_sums)
{
    mr_strategy *s = NULL;
    mr_collective_times x;
    sums what = {{values[0]}, false};
    mr_ok(mr_strategy_one_device(&s, "cpu:0", &st), &st);
    mr_ok(mr_collective_measure(mr_strategy_collective(s), &st), &st);
    mr_ok(mr_strategy_run(s, sum_twice, &what, &st), &st);
    mr_collective_measured(mr_strategy_collective(s), &x);
    mr_eq_f64(x.seconds, 0, 0);
    mr_strategy_free(s);
}
