/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/timeline.h"
#include <stdio.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/device_doubles.h"
#include "trainer/loop/fit.h"

static mr_status st;

enum { ROWS = 64, WIDTH = 4, BATCH = 4, STEPS = ROWS / BATCH, ROOM = 20000 };
static float features[ROWS * WIDTH];
static int64_t labels[ROWS];
static mr_timeline_span spans[ROOM];

/* Trains an epoch and returns how many spans it left in `spans`, at most `room`. */
static size_t train_on(const char *kind, size_t replicas, const mr_callback *c, size_t room,
                       size_t *left_out, float *loss)
{
    test_fill(features, ROWS * WIDTH, 7);
    batches b = {
        .rows = ROWS,
        .batch = BATCH,
        .n_columns = 2,
        .columns = {
            {.dtype = MR_FLOAT32, .rows = 1, .rank = 2, .shape = {ROWS, WIDTH}, .data = features},
            {.dtype = MR_INT64, .rows = 1, .rank = 1, .shape = {ROWS}, .data = labels}}};
    char names[4][32];
    const char *devices[4];
    for (size_t i = 0; i < replicas; i++) {
        snprintf(names[i], sizeof names[i], "%s:%zu", kind, i);
        devices[i] = names[i];
    }
    mr_strategy *s;
    mr_model *m;
    mr_loss *l;
    mr_optimizer *o;
    mr_timeline *t;
    mr_fit_result result;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = devices, .n_devices = replicas},
                               &st),
          &st);
    mr_ok(mr_model_parse(&m, "dense(8, activation=\"relu\").dense(3)", &st), &st);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy(from_logits=true)", &st), &st);
    mr_ok(mr_optimizer_parse(&o, "adam", &st), &st);
    mr_ok(mr_timeline_new(&t, room, &st), &st);
    mr_dataset *ds = test_batches(&b);
    mr_fit_opts opts = {
        .seed = 3, .callbacks = c, .n_callbacks = c ? 1 : 0, .timeline = room > 0 ? t : NULL};
    mr_test_context("%s, %zu replicas", kind, replicas);
    mr_ok(mr_fit(s, m, ds, l, o, &opts, &result, &st), &st);
    mr_eq_i64(result.steps, STEPS);
    *loss = result.loss;
    mr_dataset_unref(ds);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    mr_strategy_free(s);
    size_t n = mr_timeline_read(t, spans, ROOM, left_out);
    mr_timeline_free(t);
    return n;
}

/* The first span of that name, or NULL. */
static const mr_timeline_span *find(size_t n, mr_timeline_row row, size_t replica, const char *what,
                                    int64_t step)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].row == row && spans[i].replica == replica && spans[i].step == step &&
            strcmp(spans[i].what, what) == 0)
            return &spans[i];
    return NULL;
}

static const mr_timeline_span *must_find(size_t n, mr_timeline_row row, size_t replica,
                                         const char *what, int64_t step)
{
    const mr_timeline_span *s = find(n, row, replica, what, step);
    if (!s)
        mr_fail_test("replica %zu has no span '%s' of step %d", replica, what, (int)step);
    return s;
}

static double end_of(const mr_timeline_span *s)
{
    return s->begin_seconds + s->seconds;
}

static void check_step(size_t n, size_t replicas, int64_t step)
{
    for (size_t r = 0; r < replicas; r++) {
        const mr_timeline_span *queued = must_find(n, MR_ROW_HOST, r, "enqueue", step);
        const mr_timeline_span *ran = must_find(n, MR_ROW_STREAM, r, "step", step);
        const mr_timeline_span *results = must_find(n, MR_ROW_STREAM, r, "results", step);
        const mr_timeline_span *got = must_find(n, MR_ROW_LOOP, 0, "results", step);
        mr_check(ran->begin_seconds >= queued->begin_seconds);
        mr_check(results->begin_seconds >= end_of(ran));
        mr_check(end_of(got) >= end_of(results));
        if (step > 1) { /* one after the other */
            const mr_timeline_span *before = must_find(n, MR_ROW_STREAM, r, "step", step - 1);
            mr_check(ran->begin_seconds >= end_of(before));
        }
        if (replicas == 1)
            continue;
        /* A small one is made on the stream of one replica, of another in each operation. */
        const mr_timeline_span *sum = find(n, MR_ROW_SUMS, 0, "all-reduce", step);
        for (size_t other = 1; !sum; other++)
            sum = other + 1 < replicas ? find(n, MR_ROW_SUMS, other, "all-reduce", step)
                                       : must_find(n, MR_ROW_SUMS, other, "all-reduce", step);
        const mr_timeline_span *wait = must_find(n, MR_ROW_STREAM, r, "sum", step);
        mr_eq_i64(wait->kind, MR_SPAN_WAIT);
        mr_check(sum->bytes > 0 && end_of(sum) <= end_of(ran));
        mr_check(wait->begin_seconds >= ran->begin_seconds && end_of(wait) <= end_of(ran));
    }
    must_find(n, MR_ROW_LOOP, 0, "input", step);
}

MR_TEST(each_step_is_seen_on_all_rows_of_each_replica)
{
    size_t left_out;
    float plain, loss;
    test_register_doubles();
    for (size_t replicas = 1; replicas <= 3; replicas++)
        for (int strict = 0; strict < 2; strict++) {
            const char *kind = strict ? "strict" : "cpu";
            train_on(kind, replicas, NULL, 0, &left_out, &plain);
            size_t n = train_on(kind, replicas, NULL, ROOM, &left_out, &loss);
            mr_eq_u64(left_out, 0);
            mr_eq_f64((double)loss, (double)plain, 0);
            for (int64_t step = 1; step <= STEPS; step++)
                check_step(n, replicas, step);
        }
}

/* Whether, from when it began to submit the step until it began to submit the next, the host waited
 * for the devices to finish the step, or called a function that synchronises with them. */
static bool waits_after(size_t n, int64_t step)
{
    double from = must_find(n, MR_ROW_HOST, 0, "enqueue", step)->begin_seconds;
    double to = must_find(n, MR_ROW_HOST, 0, "enqueue", step + 1)->begin_seconds;
    for (size_t i = 0; i < n; i++) {
        const mr_timeline_span *s = &spans[i];
        bool between = s->begin_seconds >= from && s->begin_seconds < to;
        if (between && (s->kind == MR_SPAN_SYNC || (s->kind == MR_SPAN_WAIT && s->step == step &&
                                                    strcmp(s->what, "results") == 0)))
            return true;
    }
    return false;
}

static mr_code look_at_weights(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_variable_read(mr_model_variable(e->model, 0), ctx, status);
}

/* Uses only what the loop passes to every callback. */
static mr_code look_on(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)ctx;
    return e->step > 0 ? MR_OK : mr_fail(status, MR_INTERNAL, "no step");
}

MR_TEST(the_host_waits_between_steps_only_where_a_callback_asks)
{
    enum { WARM = 5 }; /* steps until nothing is made any more */
    size_t left_out;
    float weights[WIDTH * 8], loss;
    mr_callback none = {.name = "none", .batch_end = look_on},
                looks = {.ctx = weights, .name = "looks", .batch_end = look_at_weights},
                asks = {.name = "asks", .batch_end = look_on, .wants_loss = true};
    for (size_t replicas = 1; replicas <= 3; replicas++) {
        size_t n = train_on("cpu", replicas, &none, ROOM, &left_out, &loss);
        for (int64_t step = WARM; step < STEPS; step++)
            mr_check(!waits_after(n, step));
        mr_eq_str(must_find(n, MR_ROW_LOOP, 0, "batch_end", 2)->callback, "none");
        n = train_on("cpu", replicas, &looks, ROOM, &left_out, &loss);
        for (int64_t step = WARM; step < STEPS; step++) {
            const mr_timeline_span *call = must_find(n, MR_ROW_LOOP, 0, "batch_end", step);
            const mr_timeline_span *wait = must_find(n, MR_ROW_LOOP, 0, "stream_synchronize", step);
            mr_check(waits_after(n, step));
            mr_check(wait->begin_seconds >= call->begin_seconds && end_of(wait) <= end_of(call));
        }
        /* The loss that is asked for is there before the next step is submitted. */
        n = train_on("cpu", replicas, &asks, ROOM, &left_out, &loss);
        for (int64_t step = 1; step < STEPS; step++)
            mr_check(end_of(must_find(n, MR_ROW_LOOP, 0, "results", step)) <=
                     must_find(n, MR_ROW_HOST, 0, "enqueue", step + 1)->begin_seconds);
    }
}

MR_TEST(spans_beyond_the_room_are_counted)
{
    enum { FEW = 10 };
    size_t left_out, all_left_out;
    float plain, loss;
    size_t all = train_on("cpu", 2, NULL, ROOM, &all_left_out, &plain);
    size_t n = train_on("cpu", 2, NULL, FEW, &left_out, &loss);
    mr_eq_u64(n, FEW);
    mr_check(left_out > 0 && all > n);
    mr_eq_f64((double)loss, (double)plain, 0);
}

MR_TEST(a_timeline_needs_memory)
{
    mr_timeline *t = NULL;
    mr_code_is(mr_timeline_new(&t, SIZE_MAX, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_fault_each_allocation(n)
    {
        mr_code rc = mr_timeline_new(&t, 8, &st);
        mr_fault_expect(rc, &st);
        if (rc == MR_OK)
            mr_timeline_free(t);
    }
}
