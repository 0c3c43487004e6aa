/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/device.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "tests/harness.h"
#include "trainer/device/cpu/device_cpu.h"
#include "trainer/device/cpu/stream_cpu.h"

static mr_status st;

static void rest(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

MR_TEST(opens_logical_cpus_by_name)
{
    mr_device *a = NULL, *b = NULL;
    mr_ok(mr_device_open(&a, "cpu:0", &st), &st);
    mr_ok(mr_device_open(&b, "cpu", &st), &st);
    mr_eq_str(mr_device_name(a), "cpu:0");
    mr_eq_str(mr_device_name(b), "cpu:0");
    mr_device_close(a);
    mr_device_close(b);
}

MR_TEST(missing_kinds_and_bad_names_are_told)
{
    mr_device *d = NULL;
    mr_code_is(mr_device_open(&d, "cuda:999", &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message,
               "device cuda:999 is not available; this machine has cpu:0, cpu:1, ...; cuda:");
    mr_code_is(mr_device_open(&d, "abacus", &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "device abacus is not available; this machine has cpu:0");
    const char *bad[] = {"", ":0", "cpu:", "cpu:x", "cpu:1x", "cpu:-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("'%s'", bad[i]);
        mr_code_is(mr_device_open(&d, bad[i], &st), MR_INVALID_ARGUMENT, &st);
    }
    mr_code_is(mr_device_open(&d, "cpu:999999", &st), MR_NOT_FOUND, &st);
    mr_check(d == NULL);
}

static void none_probe(size_t *count, char *why, size_t size)
{
    *count = 0;
    snprintf(why, size, "they are all out");
}

static void note_kind(void *ctx, const char *kind, size_t n, const char *why)
{
    if (strcmp(kind, "none") == 0 && strcmp(why, "they are all out") == 0)
        *(size_t *)ctx = n + 1;
}

static void note_library(void *ctx, const char *kind, const char *name, const char *version)
{
    if (strcmp(kind, "cpu") == 0 && strcmp(name, "onednn") == 0 && version[0])
        ++*(size_t *)ctx;
}

MR_TEST(back_ends_register_with_the_right_interface_version)
{
    static const mr_device_backend old = {.abi = MR_DEVICE_ABI + 1, .kind = "none"};
    static mr_device_backend none;
    none = mr__device_cpu;
    none.kind = "none";
    none.probe = none_probe;
    mr_device *d = NULL;
    size_t seen = 0;
    mr_code_is(mr_device_backend_register(&old, &st), MR_FAILED_PRECONDITION, &st);
    none.copy = NULL;
    mr_code_is(mr_device_backend_register(&none, &st), MR_INVALID_ARGUMENT, &st);
    none.copy = mr__device_cpu.copy;
    mr_ok(mr_device_backend_register(&none, &st), &st);
    mr_code_is(mr_device_backend_register(&none, &st), MR_ALREADY_EXISTS, &st);
    mr_code_is(mr_device_open(&d, "none:0", &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "none: they are all out");
    mr_device_each(note_kind, &seen);
    mr_eq_u64(seen, 1);
    mr_device_each_library(note_library, &seen);
    mr_eq_u64(seen, 2);
}

typedef struct trace {
    atomic_int n;
    int order[4096];
} trace;
typedef struct note {
    trace *t;
    int value;
    atomic_bool *opened; /* which it waits for; NULL: nothing */
} note;

static void await_opening(void *opened)
{
    while (!atomic_load((atomic_bool *)opened))
        rest(1);
}

static void write_note(void *ctx)
{
    note *x = ctx;
    if (x->opened)
        await_opening(x->opened);
    x->t->order[atomic_fetch_add(&x->t->n, 1)] = x->value;
}

MR_TEST(a_stream_runs_more_commands_than_it_holds_in_order)
{
    static trace t;
    static note notes[2000];
    mr_device *d = NULL;
    mr_stream *s = NULL;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    for (int i = 0; i < 2000; i++) {
        notes[i] = (note){&t, i, NULL};
        mr_ok(mr_stream_host_call(s, write_note, &notes[i], &st), &st);
    }
    mr_stream_free(s);
    mr_eq_i64(atomic_load(&t.n), 2000);
    for (int i = 0; i < 2000; i++)
        mr_eq_i64(t.order[i], i);
    mr_device_close(d);
}

MR_TEST(an_event_orders_two_streams_and_the_host_does_not_wait)
{
    static trace t;
    mr_device *d = NULL;
    mr_stream *a = NULL, *b = NULL;
    mr_event *e = NULL;
    static char from[1000], to[1000];
    memset(from, 7, sizeof from);
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&a, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&b, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    mr_check(mr_event_done(e)); /* never recorded */
    atomic_bool opened = false;
    note slow = {&t, 1, &opened}, late = {&t, 2, NULL};
    mr_ok(mr_stream_host_call(a, write_note, &slow, &st), &st);
    mr_ok(mr_stream_copy(a, to, from, sizeof from, &st), &st);
    mr_ok(mr_stream_record(a, e, &st), &st);
    mr_ok(mr_stream_wait(b, e, &st), &st);
    mr_ok(mr_stream_host_call(b, write_note, &late, &st), &st);
    mr_check(!mr_event_done(e)); /* all of this returned while the first call waits */
    atomic_store(&opened, true);
    mr_ok(mr_event_synchronize(e, &st), &st);
    mr_check(mr_event_done(e));
    mr_eq_mem(to, from, sizeof to);
    mr_stream_free(b);
    mr_stream_free(a);
    mr_eq_i64(t.order[0], 1);
    mr_eq_i64(t.order[1], 2);
    mr_event_free(e);
    mr_device_close(d);
}

MR_TEST(a_wait_is_for_the_record_before_it)
{
    static trace t;
    mr_device *d = NULL;
    mr_stream *a = NULL, *b = NULL;
    mr_event *e = NULL;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&a, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&b, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    atomic_bool opened = false;
    note first = {&t, 1, NULL}, free_to_go = {&t, 2, NULL}, slow = {&t, 3, &opened};
    mr_ok(mr_stream_host_call(a, write_note, &first, &st), &st);
    mr_ok(mr_stream_record(a, e, &st), &st);
    mr_ok(mr_stream_wait(b, e, &st), &st); /* for the first record, not the one that follows */
    mr_ok(mr_stream_host_call(a, write_note, &slow, &st), &st);
    mr_ok(mr_stream_record(a, e, &st), &st);
    mr_ok(mr_stream_host_call(b, write_note, &free_to_go, &st), &st);
    mr_ok(mr_stream_synchronize(b, &st), &st);
    atomic_store(&opened, true);
    mr_stream_free(b);
    mr_stream_free(a);
    mr_eq_i64(t.order[0], 1);
    mr_eq_i64(t.order[1], 2);
    mr_eq_i64(t.order[2], 3);
    mr_event_free(e);
    mr_device_close(d);
}

MR_TEST(memory_of_every_kind_is_aligned_and_writable)
{
    mr_device *d = NULL;
    mr_ok(mr_device_open(&d, "cpu:1", &st), &st);
    for (int k = MR_MEMORY_HOST; k <= MR_MEMORY_DEVICE; k++) {
        void *p = NULL;
        mr_ok(mr_device_alloc(d, (mr_memory)k, 100, &p, &st), &st);
        mr_eq_u64((uintptr_t)p % 64, 0);
        memset(p, 1, 100);
        mr_device_free(d, (mr_memory)k, p);
    }
    void *p = NULL;
    mr_code_is(mr_device_alloc(d, MR_MEMORY_DEVICE, SIZE_MAX, &p, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_device_close(d);
}

static void add_numbers(void *args)
{
    int *const *x = args;
    **x += 1;
}

static void fail_kernel(void *args)
{
    (void)args;
    mr__cpu_fail(MR_DATA_LOSS, "the %s failed", "second");
}

MR_TEST(kernels_of_the_host_run_on_a_copy_of_their_arguments)
{
    int number = 4, *args = &number;
    char large[MR_KERNEL_ARGS + 1] = {0};
    mr_device *d = NULL;
    mr_stream *s = NULL;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_launch(s, add_numbers, &args, sizeof args, &st), &st);
    args = NULL;
    mr_ok(mr_stream_synchronize(s, &st), &st);
    mr_eq_i64(number, 5);
    mr_code_is(mr_stream_launch(s, add_numbers, large, sizeof large, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_stream_free(s);
    mr_device_close(d);
}

MR_TEST(an_error_of_a_stream_stays)
{
    mr_device *d = NULL;
    mr_stream *s = NULL, *other = NULL;
    mr_event *e = NULL;
    char from[8] = "kept", to[8] = "";
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&other, d, MR_STREAM_COPY, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    mr_ok(mr_stream_synchronize(s, &st), &st);
    mr_ok(mr_stream_launch(s, fail_kernel, NULL, 0, &st), &st);
    mr_ok(mr_stream_record(s, e, &st), &st);
    for (int i = 0; i < 2; i++) {
        mr_code_is(mr_stream_synchronize(s, &st), MR_DATA_LOSS, &st);
        mr_eq_str(st.message, "the second failed");
        mr_code_is(mr_stream_status(s, &st), MR_DATA_LOSS, &st);
        mr_code_is(mr_event_synchronize(e, &st), MR_DATA_LOSS, &st);
    }
    mr_ok(mr_stream_copy(other, to, from, sizeof to, &st), &st);
    mr_ok(mr_stream_synchronize(other, &st), &st); /* another stream is not concerned */
    mr_eq_str(to, "kept");
    mr_event_free(e);
    mr_stream_free(s);
    mr_stream_free(other);
    mr_device_close(d);
}

/* The thread of a stream that sleeps is not woken by a command alone. */
MR_TEST(who_asks_how_a_stream_is_has_its_commands_run)
{
    mr_device *d = NULL;
    mr_stream *s = NULL;
    mr_code rc = MR_OK;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_synchronize(s, &st), &st);
    rest(50); /* it sleeps by now */
    mr_ok(mr_stream_launch(s, fail_kernel, NULL, 0, &st), &st);
    mr_await((rc = mr_stream_status(s, &st)) != MR_OK);
    mr_code_is(rc, MR_DATA_LOSS, &st);
    mr_stream_free(s);
    mr_device_close(d);
}

static void count_run(void *args)
{
    atomic_fetch_add(*(atomic_int **)args, 1);
}

static void await_runs(atomic_int *runs, int n)
{
    mr_await(atomic_load(runs) >= n);
    mr_eq_i64(atomic_load(runs), n);
}

/* At first a sleeping thread is woken; later the stream is known to have little work. */
MR_TEST(who_flushes_a_stream_has_its_commands_run_and_waits_for_nothing)
{
    mr_device *d = NULL;
    mr_stream *s = NULL, *other = NULL;
    mr_event *e = NULL;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&other, d, MR_STREAM_COPY, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    for (int i = 0; i < 3; i++) {
        atomic_int runs = 0, *args = &runs;
        atomic_bool opened = false;
        rest(20);
        mr_ok(mr_stream_launch(s, count_run, &args, sizeof args, &st), &st);
        mr_stream_flush(s);
        await_runs(&runs, 1);
        mr_ok(mr_stream_host_call(other, await_opening, &opened, &st), &st);
        mr_ok(mr_stream_record(other, e, &st), &st);
        mr_ok(mr_stream_launch(s, count_run, &args, sizeof args, &st), &st);
        mr_ok(mr_stream_wait(s, e, &st), &st);
        mr_ok(mr_stream_launch(s, count_run, &args, sizeof args, &st), &st);
        mr_stream_flush(s);
        await_runs(&runs, 2);
        atomic_store(&opened, true);
        await_runs(&runs, 3);
        mr_ok(mr_stream_synchronize(s, &st), &st);
        mr_ok(mr_stream_synchronize(other, &st), &st);
    }
    mr_event_free(e);
    mr_stream_free(s);
    mr_stream_free(other);
    mr_device_close(d);
}

/* A stream that computes is not woken by marks, but by who waits for one. */
MR_TEST(who_waits_for_a_mark_has_what_is_before_it_run)
{
    mr_device *d = NULL;
    mr_stream *s = NULL, *other = NULL, *third = NULL;
    mr_event *e = NULL;
    atomic_int runs = 0, *args = &runs;
    atomic_bool opened = false;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&other, d, MR_STREAM_COPY, &st), &st);
    mr_ok(mr_stream_new(&third, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    for (int way = 0; way < 4; way++) {
        mr_test_context("way %d", way);
        rest(20); /* all threads sleep */
        atomic_store(&runs, 0);
        mr_ok(mr_stream_launch(s, count_run, &args, sizeof args, &st), &st);
        mr_ok(mr_stream_record(s, e, &st), &st);
        if (way == 0)
            mr_ok(mr_event_synchronize(e, &st), &st);
        if (way == 1)
            mr_await(mr_event_done(e));
        if (way == 2) {
            mr_ok(mr_stream_wait(other, e, &st), &st);
            mr_ok(mr_stream_record(other, e, &st), &st);
        }
        if (way == 3) { /* the mark that is waited for is not the last */
            mr_ok(mr_stream_wait(third, e, &st), &st);
            mr_ok(mr_stream_host_call(other, await_opening, &opened, &st), &st);
            mr_ok(mr_stream_record(other, e, &st), &st);
            mr_ok(mr_stream_synchronize(third, &st), &st);
            atomic_store(&opened, true);
        }
        await_runs(&runs, 1);
        mr_ok(mr_stream_synchronize(other, &st), &st);
    }
    mr_event_free(e);
    mr_stream_free(s);
    mr_stream_free(other);
    mr_stream_free(third);
    mr_device_close(d);
}

typedef struct two_threads {
    mr_event *e;
    atomic_int waits;
    atomic_bool ends;
} two_threads;

static void *wait_again_and_again(void *ctx)
{
    two_threads *t = ctx;
    while (!atomic_load(&t->ends)) {
        mr_code rc = mr_event_synchronize(t->e, NULL);
        atomic_fetch_add(&t->waits, rc == MR_OK);
    }
    return NULL;
}

/* Which of the marks a wait finds, and how much of it is there, is a matter of chance. */
MR_TEST(who_waits_for_a_mark_while_it_is_made_is_not_forgotten)
{
    mr_device *d = NULL;
    mr_stream *s = NULL;
    two_threads t = {.e = NULL};
    pthread_t thread;
    bool forgotten = false;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_event_new(&t.e, d, &st), &st);
    mr_check(pthread_create(&thread, NULL, wait_again_and_again, &t) == 0);
    for (int i = 0; i < 3000 && !forgotten; i++) {
        for (int k = 0; k < 20; k++)
            mr_ok(mr_stream_record(s, t.e, &st), &st);
        int waits = atomic_load(&t.waits);
        for (int ms = 0; atomic_load(&t.waits) == waits && ms < 4000; ms++)
            rest(ms > 0);
        forgotten = atomic_load(&t.waits) == waits;
    }
    atomic_store(&t.ends, true);
    mr_ok(mr_stream_synchronize(s, &st), &st);
    mr_check(pthread_join(thread, NULL) == 0);
    mr_check(!forgotten);
    mr_event_free(t.e);
    mr_stream_free(s);
    mr_device_close(d);
}

/* As in CUDA: what was submitted with an event keeps it. */
MR_TEST(an_event_may_be_freed_before_the_streams_come_to_it)
{
    mr_device *d = NULL;
    mr_stream *s[2] = {NULL};
    mr_event *e = NULL;
    atomic_int runs = 0, *args = &runs;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    for (int i = 0; i < 2; i++)
        mr_ok(mr_stream_new(&s[i], d, MR_STREAM_COMPUTE, &st), &st);
    for (int first = 0; first < 2; first++) {
        mr_ok(mr_event_new(&e, d, &st), &st);
        mr_ok(mr_stream_launch(s[0], count_run, &args, sizeof args, &st), &st);
        mr_ok(mr_stream_record(s[0], e, &st), &st);
        mr_ok(mr_stream_wait(s[1], e, &st), &st);
        mr_ok(mr_stream_launch(s[1], count_run, &args, sizeof args, &st), &st);
        mr_event_free(e);
        mr_ok(mr_stream_synchronize(s[first], &st), &st);
        mr_ok(mr_stream_synchronize(s[1 - first], &st), &st);
        mr_eq_i64(atomic_load(&runs), 2 * (first + 1));
    }
    for (int i = 0; i < 2; i++)
        mr_stream_free(s[i]);
    mr_device_close(d);
}

static void do_nothing(void *ctx)
{
    (void)ctx;
}

static void note_thread(void *args)
{
    **(pthread_t **)args = pthread_self();
}

/* Sums run next to computations if there is a core for them; otherwise they need no thread. */
MR_TEST(without_a_core_for_them_sums_are_done_by_who_waits)
{
    cpu_set_t all, one;
    mr_device *d = NULL;
    mr_stream *s = NULL, *sums = NULL;
    mr_event *e = NULL;
    pthread_t by, *thread = &by;
    atomic_int runs = 0, *args = &runs;
    mr_check(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    mr_check(sched_setaffinity(0, sizeof one, &one) == 0);
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_new(&sums, d, MR_STREAM_COMM, &st), &st);
    mr_ok(mr_event_new(&e, d, &st), &st);
    for (int i = 0; i < 3; i++) {
        atomic_store(&runs, 0);
        rest(20);
        mr_ok(mr_stream_launch(sums, note_thread, &thread, sizeof(pthread_t *), &st), &st);
        mr_ok(mr_stream_record(sums, e, &st), &st);
        mr_ok(mr_stream_launch(sums, count_run, &args, sizeof args, &st), &st);
        mr_ok(mr_stream_wait(s, e, &st), &st);
        rest(20);
        by = (pthread_t){0};
        mr_ok(mr_stream_synchronize(s, &st), &st);
        mr_check(pthread_equal(by, pthread_self()));
        rest(20); /* what is after the mark may wait for what comes after this wait */
        mr_eq_i64(atomic_load(&runs), 0);
        if (i == 0)
            mr_ok(mr_stream_synchronize(sums, &st), &st);
        else
            mr_ok(mr_stream_host_call(sums, do_nothing, NULL, &st), &st);
        await_runs(&runs, 1);
    }
    mr_event_free(e);
    mr_stream_free(s);
    mr_stream_free(sums);
    mr_device_close(d);
    mr_check(sched_setaffinity(0, sizeof all, &all) == 0);
}

static void divide_by_a_lot(void *args)
{
    volatile float *x = *(float *volatile *)args;
    *x /= 1e10f;
}

MR_TEST(denormal_numbers_are_flushed_in_streams)
{
    float x = 1e-30f, *args = &x;
    mr_device *d = NULL;
    mr_stream *s = NULL;
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_launch(s, divide_by_a_lot, &args, sizeof args, &st), &st);
    mr_ok(mr_stream_synchronize(s, &st), &st);
    mr_eq_f64(x, 0, 0);
    mr_stream_free(s);
    mr_device_close(d);
}

MR_TEST(memory_comes_and_goes_in_stream_order)
{
    mr_device *d = NULL;
    mr_stream *s = NULL;
    char got[64];
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_ok(mr_stream_new(&s, d, MR_STREAM_COMPUTE, &st), &st);
    for (int i = 0; i < 300; i++) {
        void *p = NULL;
        mr_ok(mr_stream_alloc(s, sizeof got, &p, &st), &st);
        mr_ok(mr_stream_set(s, p, i & 127, sizeof got, &st), &st);
        mr_ok(mr_stream_copy(s, got, p, sizeof got, &st), &st);
        mr_stream_release(s, p);
    }
    mr_ok(mr_stream_synchronize(s, &st), &st);
    mr_check(got[0] == (299 & 127) && got[63] == got[0]);
    mr_stream_free(s);
    mr_device_close(d);
}
