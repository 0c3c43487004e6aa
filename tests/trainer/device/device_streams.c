/* SPDX-License-Identifier: Apache-2.0 */
/* What every kind of device keeps of its interface: memory, the order of streams, events. They run
 * on the devices that MR_TEST_DEVICES names. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"
#include "trainer/device/drop.h"

static mr_status st;

static void rest(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

ON_DEVICES(memory_of_every_kind_is_aligned_and_holds_what_was_copied)
{
    static const size_t sizes[] = {0, 1, 100, 1 << 20, (3 << 20) + 7};
    mr_device_properties d;
    mr_device_describe(b->d, &d);
    mr_check(d.model[0] || strncmp(mr_device_name(b->d), "cpu", 3) == 0);
    for (mr_memory kind = MR_MEMORY_HOST; kind <= MR_MEMORY_DEVICE; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i];
            void *p = NULL, *pinned = NULL;
            unsigned char *from = malloc(n + 1), *to = calloc(1, n + 1);
            mr_test_context("kind %d, %zu bytes", (int)kind, n);
            for (size_t k = 0; k < n; k++)
                from[k] = (unsigned char)(k * 7 + k / 251);
            mr_ok(mr_device_alloc(b->d, kind, n, &p, &st), &st);
            mr_ok(mr_device_alloc(b->d, MR_MEMORY_PINNED, n, &pinned, &st), &st);
            mr_check((uintptr_t)p % 64 == 0 && (uintptr_t)pinned % 64 == 0);
            memcpy(pinned, from, n);
            mr_ok(mr_stream_copy(b->s, p, pinned, n, &st), &st);
            mr_ok(mr_stream_copy(b->s, to, p, n, &st), &st);
            mr_ok(mr_stream_synchronize(b->s, &st), &st);
            mr_eq_mem(to, from, n);
            mr_device_free(b->d, kind, p);
            mr_device_free(b->d, MR_MEMORY_PINNED, pinned);
            free(from);
            free(to);
        }
}

ON_DEVICES(more_memory_than_there_is_is_refused)
{
    void *p = NULL;
    mr_code_is(mr_device_alloc(b->d, MR_MEMORY_DEVICE, (size_t)1 << 50, &p, &st),
               MR_RESOURCE_EXHAUSTED, &st);
    mr_code_is(mr_stream_alloc(b->s, (size_t)1 << 50, &p, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_check(p == NULL);
    /* The stream continues. */
    mr_ok(mr_stream_alloc(b->s, 100, &p, &st), &st);
    mr_stream_release(b->s, p);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
}

typedef struct trace {
    atomic_int n;
    int order[64];
} trace;
typedef struct note {
    trace *t;
    int value;
    atomic_bool *held; /* it waits until it is not; NULL: for nothing */
} note;

static void rest_a_little(void *ctx)
{
    (void)ctx;
    rest(20);
}

static void wait_for_release(void *ctx)
{
    while (atomic_load((atomic_bool *)ctx))
        rest(1);
}

static void write_note(void *ctx)
{
    note *x = ctx;
    if (x->held)
        wait_for_release(x->held);
    x->t->order[atomic_fetch_add(&x->t->n, 1)] = x->value;
}

ON_DEVICES(calls_copies_and_operations_run_in_stream_order)
{
    trace t = {0};
    note notes[3];
    float *p = put_floats(b, NULL, 1000), got[3];
    mr_ok(mr_stream_host_call(b->s, rest_a_little, NULL, &st), &st);
    for (int i = 0; i < 3; i++) {
        notes[i] = (note){&t, i, NULL};
        mr_math_fill f = {.n = 1000, .value = (float)i + 1, .dst = p};
        mr_ok(mr_stream_host_call(b->s, write_note, &notes[i], &st), &st);
        mr_ok(b->m->fill(b->s, &f, &st), &st);
        mr_ok(mr_stream_copy(b->s, &got[i], p + 999, sizeof *p, &st), &st);
    }
    mr_ok(mr_stream_set(b->s, p, 0, 1000 * sizeof *p, &st), &st);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
    for (int i = 0; i < 3; i++) {
        mr_eq_i64(t.order[i], i);
        mr_eq_f64(got[i], i + 1, 0);
    }
    float *zeros = get(b, p, 1000 * sizeof *p);
    for (int i = 0; i < 1000; i++)
        mr_eq_f64(zeros[i], 0, 0);
    free(zeros);
}

ON_DEVICES(a_stream_waits_for_the_record_before_the_call_and_for_no_later_one)
{
    mr_stream *copies = NULL;
    mr_event *arrived = NULL;
    trace t = {0};
    atomic_bool held = true;
    note slow = {&t, 1, &held}, after = {&t, 2, NULL};
    mr_ok(mr_stream_new(&copies, b->d, MR_STREAM_COPY, &st), &st);
    mr_ok(mr_event_new(&arrived, b->d, &st), &st);
    /* Never recorded: waits return at once. */
    mr_check(mr_event_done(arrived));
    mr_ok(mr_event_synchronize(arrived, &st), &st);
    mr_ok(mr_stream_wait(b->s, arrived, &st), &st);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);

    mr_ok(mr_stream_host_call(copies, write_note, &slow, &st), &st);
    mr_ok(mr_stream_record(copies, arrived, &st), &st);
    mr_ok(mr_stream_wait(b->s, arrived, &st), &st);
    mr_ok(mr_stream_host_call(b->s, write_note, &after, &st), &st);
    mr_check(!mr_event_done(arrived));
    atomic_store(&held, false);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
    mr_check(mr_event_done(arrived));
    mr_eq_i64(t.order[0], 1);
    mr_eq_i64(t.order[1], 2);

    /* Recorded again, after the wait was submitted: the wait is for the first. */
    atomic_store(&held, true);
    mr_ok(mr_stream_record(copies, arrived, &st), &st);
    mr_ok(mr_stream_wait(b->s, arrived, &st), &st);
    mr_ok(mr_stream_host_call(copies, wait_for_release, &held, &st), &st);
    mr_ok(mr_stream_record(copies, arrived, &st), &st);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
    mr_check(!mr_event_done(arrived));
    atomic_store(&held, false);
    mr_ok(mr_event_synchronize(arrived, &st), &st);
    mr_stream_free(copies);
    mr_event_free(arrived);
}

ON_DEVICES(memory_taken_in_stream_order_is_used_again_without_a_wait)
{
    enum { ROUNDS = 200, N = 10000 };
    float *sum = put_floats(b, NULL, N), *got;
    mr_math_fill zero = {.n = N, .dst = sum};
    mr_ok(b->m->fill(b->s, &zero, &st), &st);
    for (int i = 0; i < ROUNDS; i++) {
        void *p = NULL;
        mr_ok(mr_stream_alloc(b->s, N * sizeof(float), &p, &st), &st);
        mr_math_fill f = {.n = N, .value = 1, .dst = p};
        mr_math_combine add = {.n = N, .a = 1, .b = 1, .x = p, .y = sum};
        mr_ok(b->m->fill(b->s, &f, &st), &st);
        mr_ok(b->m->combine(b->s, &add, &st), &st);
        mr_stream_release(b->s, p);
    }
    mr_ok(mr_stream_status(b->s, &st), &st);
    got = get(b, sum, N * sizeof(float));
    for (int i = 0; i < N; i++)
        mr_eq_f64(got[i], ROUNDS, 0);
    free(got);
}

/* Pinned slots that are filled again as soon as their copies have arrived, and device slots that
 * are written again as soon as they were read: every batch is seen whole, once. */
ON_DEVICES(a_ring_of_slots_feeds_a_stream_without_loss)
{
    enum { DEPTH = 3, BATCHES = 60, N = 1 << 16 };
    mr_stream *copies = NULL;
    mr_event *arrived[DEPTH], *released[DEPTH];
    float *pinned[DEPTH];
    void *device[DEPTH], *p;
    double *sums = put(b, NULL, BATCHES * sizeof *sums), *got;
    mr_ok(mr_stream_new(&copies, b->d, MR_STREAM_COPY, &st), &st);
    for (int i = 0; i < DEPTH; i++) {
        mr_ok(mr_event_new(&arrived[i], b->d, &st), &st);
        mr_ok(mr_event_new(&released[i], b->d, &st), &st);
        mr_ok(mr_device_alloc(b->d, MR_MEMORY_PINNED, N * sizeof(float), &p, &st), &st);
        pinned[i] = p;
        mr_ok(mr_device_alloc(b->d, MR_MEMORY_DEVICE, N * sizeof(float), &device[i], &st), &st);
    }
    for (int k = 0; k < BATCHES; k++) {
        int i = k % DEPTH;
        mr_ok(mr_event_synchronize(arrived[i], &st), &st);
        for (int j = 0; j < N; j++)
            pinned[i][j] = (float)(k + 1);
        mr_ok(mr_stream_wait(copies, released[i], &st), &st);
        mr_ok(mr_stream_copy(copies, device[i], pinned[i], N * sizeof(float), &st), &st);
        mr_ok(mr_stream_record(copies, arrived[i], &st), &st);
        mr_ok(mr_stream_wait(b->s, arrived[i], &st), &st);
        mr_math_sum s = {.n = N, .x = device[i], .out = sums + k};
        mr_ok(b->m->sum(b->s, &s, &st), &st);
        mr_ok(mr_stream_record(b->s, released[i], &st), &st);
    }
    got = get(b, sums, BATCHES * sizeof *got);
    for (int k = 0; k < BATCHES; k++)
        mr_eq_f64(got[k], (double)N * (k + 1), 0);
    free(got);
    mr_stream_free(copies);
    for (int i = 0; i < DEPTH; i++) {
        mr_event_free(arrived[i]);
        mr_event_free(released[i]);
        mr_device_free(b->d, MR_MEMORY_PINNED, pinned[i]);
        mr_device_free(b->d, MR_MEMORY_DEVICE, device[i]);
    }
}

/* The same operations twice give the same bits: replicas must not part. */
ON_DEVICES(sums_and_products_give_the_same_bits_each_time)
{
    enum { ROWS = 1003, IN = 257, OUT = 129 };
    float *host = draw(b, ROWS * IN), *first = NULL;
    float *x = put_floats(b, host, ROWS * IN), *dy = put_floats(b, host, ROWS * OUT);
    float *dw = put_floats(b, NULL, IN * OUT + OUT);
    mr_math_dense_backward_weights o = {
        .rows = ROWS, .in = IN, .out = OUT, .x = x, .dy = dy, .dw = dw, .dbias = dw + IN * OUT};
    for (int i = 0; i < 10; i++) {
        mr_ok(b->m->dense_backward_weights(b->s, &o, &st), &st);
        float *got = get(b, dw, (IN * OUT + OUT) * sizeof *got);
        if (first)
            mr_eq_mem(got, first, (IN * OUT + OUT) * sizeof *got);
        if (i == 0)
            first = got;
        else
            free(got);
    }
    free(first);
    free(host);
}

/* One section's work on p, which differs from time to time in ways that `way` says, and what p then
 * holds. */
enum { SECTION = 1000, WAYS = 9 };

static float work(bench *b, float *p, mr_event *e, int way, float value)
{
    void *more = NULL;
    const mr_math_fill fill = {.n = way == 1 ? SECTION / 2 : SECTION, .value = value, .dst = p};
    const mr_math_combine once_more = {.n = SECTION, .a = 1, .b = 1, .x = p + SECTION, .y = p};
    const mr_math_activate copy = {
        .f = MR_ACT_LINEAR, .rows = 1, .width = SECTION, .x = p, .y = p + SECTION};
    float expected = value;
    mr_ok(mr_stream_set(b->s, p, 0, 2 * SECTION * sizeof *p, &st), &st);
    if (way != 2)
        mr_ok(b->m->fill(b->s, &fill, &st), &st);
    else
        expected = 0;
    if (way == 3) /* divides it in two */
        mr_ok(mr_stream_record(b->s, e, &st), &st);
    mr_ok(b->m->activate(b->s, &copy, &st), &st);
    if (way == 4)
        mr_ok(mr_stream_alloc(b->s, 4000, &more, &st), &st);
    mr_ok(b->m->combine(b->s, &once_more, &st), &st);
    if (way == 5)
        return 2 * expected; /* stops short, as after an error */
    if (way == 6)
        mr_ok(b->m->combine(b->s, &once_more, &st), &st);
    if (way == 7)
        mr_check(mr_stream_native(b->s) != NULL || strcmp(mr_device_kind(b->d), "cuda") != 0);
    if (way == 8)
        mr_ok(mr_stream_synchronize(b->s, &st), &st);
    mr_ok(b->m->combine(b->s, &once_more, &st), &st);
    mr_stream_release(b->s, more);
    return (way == 6 ? 4 : 3) * expected;
}

ON_DEVICES(work_that_repeats_does_what_it_does_alone)
{
    static const int ways[] = {0, 0, 0, 0, 1, 0, 0, 2, 2, 2, 3, 0, 3, 3, 3, 4, 4, 5, 0, 0, 5, 5, 5,
                               6, 6, 0, 7, 7, 7, 8, 8, 8, 0, 0, 0, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0};
    float *p = put_floats(b, NULL, 2 * SECTION);
    mr_event *e = NULL;
    mr_ok(mr_event_new(&e, b->d, &st), &st);
    for (uint64_t key = 1; key <= 40; key += key < 3 ? 1 : 37) /* also of one that was pushed out */
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            /* One stops short where all of it was launched before. */
            int way = key == 2 && i == 4 ? 5 : ways[i];
            mr_test_context("section %d, time %zu, way %d", (int)key, i, way);
            mr_ok(mr_stream_repeat_begin(b->s, key, &st), &st);
            float expected = work(b, p, e, way, (float)(i % 7) + 1);
            if (i % 5 > 0) /* else the next begins, or what waits for it comes first */
                mr_ok(mr_stream_repeat_end(b->s, &st), &st);
            float *got = get(b, p, SECTION * sizeof *got);
            mr_eq_f64(got[0], expected, 1e-6);
            mr_eq_f64(got[SECTION - 1], way == 1 ? 0 : expected, 1e-6);
            free(got);
        }
    for (uint64_t key = 100; key < 150; key++)
        for (int i = 0; i < 3; i++) {
            mr_ok(mr_stream_repeat_begin(b->s, key, &st), &st);
            float expected = work(b, p, e, 0, (float)key);
            mr_ok(mr_stream_repeat_end(b->s, &st), &st);
            mr_ok(mr_stream_repeat_end(b->s, &st), &st);
            float *got = get(b, p, sizeof *got);
            mr_eq_f64(*got, expected, 1e-6);
            free(got);
        }
    mr_event_free(e);
}

static void cancel_sections(void *drop)
{
    mr__drop_cancel(drop);
}

static void section(bench *b, mr_drop *d, uint64_t number, float *p, bool cancel)
{
    mr_ok(mr__stream_section_begin(b->s, d, number, &st), &st);
    mr_ok(b->m->fill(b->s, &(mr_math_fill){1, (float)number, p}, &st), &st);
    mr_ok(mr__stream_section_keep(b->s, &st), &st);
    if (cancel)
        mr_ok(mr_stream_host_call(b->s, cancel_sections, d, &st), &st);
    mr_ok(b->m->fill(b->s, &(mr_math_fill){1, (float)number, p + 1}, &st), &st);
    mr_ok(mr__stream_section_end(b->s, &st), &st);
}

static void holds(bench *b, const float *p, float first, float second)
{
    float *got = get(b, p, 2 * sizeof *got);
    mr_eq_f64(got[0], first, 0);
    mr_eq_f64(got[1], second, 0);
    free(got);
}

ON_DEVICES(a_section_is_dropped_in_whole_unless_it_was_kept)
{
    mr_drop d;
    float *p = put_floats(b, NULL, 2);
    if (!mr__stream_can_drop(b->s))
        return;
    mr__drop_reset(&d);
    section(b, &d, 1, p, false);
    holds(b, p, 1, 1);
    section(b, &d, 2, p, true); /* it was kept by then */
    holds(b, p, 2, 2);
    section(b, &d, 3, p, false);
    holds(b, p, 2, 2);
    mr_check(!mr__drop_is_dropped(&d, 2) && mr__drop_is_dropped(&d, 3));
    mr_ok(mr__stream_section_keep(b->s, &st), &st);
    mr_ok(b->m->fill(b->s, &(mr_math_fill){2, 9, p}, &st), &st);
    holds(b, p, 9, 9);
    mr_check(mr__drop_is_dropped(&d, 3));
}

ON_DEVICES(an_error_of_a_kernel_sticks_to_the_stream)
{
    mr_device_properties d;
    mr_device_describe(b->d, &d);
    if (d.unified)
        return; /* the host's own fault: there is no stream to report it to */
    mr_math_fill f = {.n = 1000, .value = 1, .dst = (float *)64};
    mr_ok(b->m->fill(b->s, &f, &st), &st);
    mr_code_is(mr_stream_synchronize(b->s, &st), MR_INTERNAL, &st);
    mr_check(strlen(st.message) > 20);
    mr_code_is(mr_stream_status(b->s, &st), MR_INTERNAL, &st);
    mr_code_is(mr_stream_synchronize(b->s, &st), MR_INTERNAL, &st);
}

static _Atomic int handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void set_flag(void *flag)
{
    atomic_store((_Atomic bool *)flag, true);
}

/* Products and convolutions are those of a quiet process, in the thread that waits for them or in
 * the stream's. */
static void compute_with_signals(bench *b, bool in_stream)
{
    enum { ROWS = 256, IN = 384, TIMES = 60 };
    const mr_math_conv2d_shape image = {.n = 16,
                                        .height = 16,
                                        .width = 16,
                                        .channels = 32,
                                        .kernel_h = 3,
                                        .kernel_w = 3,
                                        .filters = 32,
                                        .stride_h = 1,
                                        .stride_w = 1,
                                        .dilation_h = 1,
                                        .dilation_w = 1,
                                        .groups = 1,
                                        .out_h = 14,
                                        .out_w = 14};
    float *host = draw(b, IN * IN), *first[3] = {NULL};
    float *x = put_floats(b, host, IN * IN), *w = put_floats(b, host, IN * IN),
          *results[3] = {put_floats(b, NULL, ROWS * IN), put_floats(b, NULL, IN * IN),
                         put_floats(b, NULL, 16 * 14 * 14 * 32)};
    const size_t sizes[3] = {ROWS * IN * sizeof(float), IN * IN * sizeof(float),
                             16 * 14 * 14 * 32 * sizeof(float)};
    const mr_math_dense dense = {
        .rows = ROWS, .in = IN, .out = IN, .x = x, .w = w, .y = results[0]};
    const mr_math_dense_backward_weights back = {
        .rows = ROWS, .in = IN, .out = IN, .x = x, .dy = w, .dw = results[1]};
    const mr_math_conv2d conv = {.s = image, .x = x, .kernel = w, .y = results[2]};
    for (int i = 0; i < TIMES; i++) {
        _Atomic bool done = false;
        mr_ok(b->m->dense(b->s, &dense, &st), &st);
        mr_ok(b->m->dense_backward_weights(b->s, &back, &st), &st);
        mr_ok(b->m->conv2d(b->s, &conv, &st), &st);
        if (in_stream)
            mr_ok(mr_stream_host_call(b->s, set_flag, &done, &st), &st);
        while (in_stream && !done)
            rest(1);
        for (int k = 0; k < 3; k++) {
            float *got = get(b, results[k], sizes[k]);
            if (i > 0)
                mr_eq_mem(got, first[k], sizes[k]);
            if (i == 0)
                first[k] = got;
            else
                free(got);
        }
    }
    for (int k = 0; k < 3; k++)
        free(first[k]);
    free(host);
}

ON_DEVICES(handlers_of_signals_do_not_disturb_what_is_computed)
{
    const struct itimerspec often = {{.tv_nsec = 200000}, {.tv_nsec = 200000}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t ours, before;
    timer_t timer;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    mr_check(sigaction(SIGUSR1, &action, NULL) == 0);
    mr_check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    mr_check(timer_settime(timer, 0, &often, NULL) == 0);
    compute_with_signals(b, false);
    mr_check(handled > 0);
    pthread_sigmask(SIG_BLOCK, &ours, &before); /* no thread but the stream's could take them */
    compute_with_signals(b, true);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    mr_check(timer_delete(timer) == 0);
}
