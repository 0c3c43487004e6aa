/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/buffer.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "tests/pipeline/memory/fail_nth.h"

static mr_buffer *make(size_t bytes)
{
    mr_status st;
    mr_buffer *b = NULL;
    mr_ok(mr_buffer_alloc(&b, bytes, &st), &st);
    return b;
}

static void count_release(void *ctx, void *data)
{
    (void)data;
    ++*(int *)ctx;
}

/* A wrapped buffer that counts its end in *n. */
static mr_buffer *counted(int *n, size_t bytes)
{
    mr_status st;
    mr_buffer *b = NULL;
    mr_ok(mr_buffer_wrap(&b, n, bytes, false, count_release, n, &st), &st);
    return b;
}

MR_TEST(data_is_aligned_and_all_of_it_can_be_used)
{
    for (size_t bytes = 0; bytes < (20U << 20); bytes = bytes * 3 / 2 + 1) {
        mr_buffer *b = make(bytes);
        char *data = mr_buffer_data(b);
        mr_eq_u64((uintptr_t)data % 64, 0);
        mr_eq_u64(mr_buffer_size(b), bytes);
        memset(data, 0xee, bytes);
        volatile char sum = 0;
        for (size_t i = 0; i < MR_SLACK; i++)
            sum = (char)(sum + data[bytes + i]);
        mr_buffer_unref(b);
    }
}

MR_TEST(pool_classes_hold_every_size_up_to_them)
{
    /* Neighbours of class limits, twice, so that the second comes out of the pool. */
    for (int round = 0; round < 2; round++) {
        for (size_t p = 4096; p <= (8U << 20); p *= 2) {
            for (size_t half = 0; half < 2; half++) {
                size_t limit = p + half * p / 2;
                for (size_t bytes = limit - 1; bytes <= limit + 1; bytes++) {
                    mr_buffer *b = make(bytes);
                    memset(mr_buffer_data(b), round, bytes);
                    mr_buffer_unref(b);
                }
            }
        }
    }
}

MR_TEST(pool_counts_live_and_free_bytes_and_trims)
{
    mr_buffer_pool_trim();
    size_t live0, live, idle;
    mr_buffer_pool_usage(&live0, &idle);
    mr_eq_u64(idle, 0);
    mr_buffer *probe = make(5000);
    mr_buffer_pool_usage(&live, NULL);
    bool pooled = live != live0; /* the address sanitizer's build has no pool */
    if (pooled)
        mr_eq_u64(live - live0, 6144);
    mr_buffer_unref(probe);
    mr_buffer_pool_usage(&live, &idle);
    mr_eq_u64(live, live0);
    mr_eq_u64(idle, pooled ? 6144 : 0);
    mr_buffer *again = make(6000);
    mr_check(!pooled || again == probe);
    mr_buffer_pool_usage(NULL, &idle);
    mr_eq_u64(idle, 0);
    mr_buffer_unref(again);
    mr_buffer_pool_trim();
    mr_buffer_pool_usage(NULL, &idle);
    mr_eq_u64(idle, 0);
}

MR_TEST(pool_keeps_at_most_32_mib)
{
    mr_buffer *b[12];
    for (int i = 0; i < 12; i++)
        b[i] = make(7U << 20);
    for (int i = 0; i < 12; i++)
        mr_buffer_unref(b[i]);
    size_t idle;
    mr_buffer_pool_usage(NULL, &idle);
    mr_check(idle <= (32U << 20));
    mr_buffer_pool_trim();
}

static void run_on(size_t cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    mr_check(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* The first CPU from `cpu` on that this process may run on, or CPU_SETSIZE. */
static size_t cpu_from(const cpu_set_t *all, size_t cpu)
{
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, all))
        cpu++;
    return cpu;
}

MR_TEST(a_buffer_comes_back_to_the_processor_that_wrote_it)
{
    enum { BYTES = 2 << 20 }; /* one of them is a slab */
    cpu_set_t all;
    size_t live0, live;
    mr_check(sched_getaffinity(0, sizeof all, &all) == 0);
    size_t one = cpu_from(&all, 0), other = cpu_from(&all, one + 1);
    while (other < CPU_SETSIZE && (other - one) % 8 == 0) /* they share a stack */
        other = cpu_from(&all, other + 1);
    if (other >= CPU_SETSIZE)
        mr_skip_test("one processor");
    mr_buffer_pool_trim();
    mr_buffer_pool_usage(&live0, NULL);
    run_on(one);
    mr_buffer *of_one = make(BYTES), *of_one_too = make(BYTES);
    mr_buffer_pool_usage(&live, NULL);
    run_on(other);
    mr_buffer *of_other = make(BYTES);
    /* A single stack would return what was freed last, whichever CPU wrote it. */
    mr_buffer_unref(of_other);
    mr_buffer_unref(of_one);
    mr_buffer_unref(of_one_too);
    if (live > live0) { /* there is a pool */
        mr_buffer *b = make(BYTES);
        mr_check(b == of_other);
        /* What is left of others is better than fresh memory, and is this one's from then on. */
        mr_buffer *c = make(BYTES);
        mr_check(c == of_one_too);
        run_on(one);
        mr_buffer_unref(c);
        mr_buffer *d = make(BYTES);
        mr_check(d == of_one);
        mr_buffer_unref(b);
        mr_buffer_unref(d);
    }
    mr_check(sched_setaffinity(0, sizeof all, &all) == 0);
    mr_buffer_pool_trim(); /* of all processors */
    mr_buffer_pool_usage(NULL, &live);
    mr_eq_u64(live, 0);
}

MR_TEST(a_class_out_of_use_does_not_fill_the_pool_for_ever)
{
    mr_buffer_pool_trim();
    mr_buffer *b[8];
    for (int i = 0; i < 8; i++)
        b[i] = make(4U << 20);
    for (int i = 0; i < 8; i++)
        mr_buffer_unref(b[i]);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 8; i++)
            b[i] = make(1U << 20);
        for (int i = 0; i < 8; i++)
            mr_buffer_unref(b[i]);
    }
    size_t before, after;
    mr_buffer_pool_usage(NULL, &before);
    for (int i = 0; i < 4; i++)
        b[i] = make(1U << 20);
    mr_buffer_pool_usage(NULL, &after);
    for (int i = 0; i < 4; i++)
        mr_buffer_unref(b[i]);
    mr_check(before == 0 || before - after == (4U << 20));
    mr_buffer_pool_trim();
}

MR_TEST(writable_iff_sole_and_not_read_only)
{
    mr_status st;
    mr_buffer *b = make(10);
    mr_check(mr_buffer_writable(b));
    mr_check(mr_buffer_ref(b) == b);
    mr_check(!mr_buffer_writable(b));
    mr_buffer_unref(b);
    mr_check(mr_buffer_writable(b));
    mr_buffer_unref(b);
    char text[] = "abc";
    mr_ok(mr_buffer_wrap(&b, text, 3, true, NULL, NULL, &st), &st);
    mr_check(!mr_buffer_writable(b));
    mr_check(mr_buffer_data(b) == text);
    mr_eq_u64(mr_buffer_size(b), 3);
    mr_buffer_unref(b);
    mr_buffer_unref(NULL);
}

MR_TEST(release_runs_once_with_the_last_reference)
{
    int n = 0;
    mr_buffer *b = counted(&n, 1);
    mr_buffer_ref(b);
    mr_buffer_unref(b);
    mr_eq_i64(n, 0);
    mr_buffer_unref(b);
    mr_eq_i64(n, 1);
}

MR_TEST(on_release_runs_before_the_memory_goes)
{
    int n = 0;
    mr_buffer *b = make(4096);
    mr_buffer_on_release(b, count_release, &n);
    mr_buffer_unref(b);
    mr_eq_i64(n, 1);
    b = make(4096); /* out of the pool: the function is gone */
    mr_buffer_unref(b);
    mr_eq_i64(n, 1);
}

MR_TEST(held_buffers_live_as_long_as_their_holder)
{
    mr_status st;
    int gone[3] = {0};
    mr_buffer *a = make(8), *b = make(8), *held[3];
    for (int i = 0; i < 3; i++) {
        held[i] = counted(&gone[i], 100);
        for (int k = 0; k < 5; k++)
            mr_ok(mr_buffer_hold(a, held[i], &st), &st);
        mr_buffer_unref(held[i]);
    }
    mr_eq_u64(mr_buffer_held_bytes(a), 300); /* each once */
    mr_ok(mr_buffer_hold_all(b, a, &st), &st);
    mr_ok(mr_buffer_hold_all(b, a, &st), &st);
    mr_eq_u64(mr_buffer_held_bytes(b), 300);
    mr_buffer_unref(a);
    mr_eq_i64(gone[0] + gone[1] + gone[2], 0);
    mr_buffer_unref(b);
    mr_eq_i64(gone[0] + gone[1] + gone[2], 3);
}

static mr_buffer *other_cut; /* of the slab that is being given back */
static int given_back;

/* The other one is free just now, as if by another thread. */
static int madvise_late(void *p, size_t n, int advice)
{
    if (advice == MADV_DONTNEED) {
        mr_buffer *other = other_cut;
        other_cut = NULL;
        mr_buffer_unref(other);
        given_back++;
    }
    int rc = mr__system_real()->madvise(p, n, advice);
    mr_check(advice != MADV_DONTNEED || rc == 0);
    return rc;
}

MR_TEST(pages_are_given_back_only_while_their_slab_is_there)
{
    enum { BYTES = 1 << 20 };
    mr__system t = *mr__system_real();
    t.madvise = madvise_late;
    mr__system_set(&t);
    mallopt(M_MMAP_THRESHOLD, BYTES); /* a slab that is free is not mapped any more */
    mr_buffer *a = make(BYTES);
    other_cut = make(BYTES);
    const char *x = mr_buffer_data(a), *y = mr_buffer_data(other_cut);
    bool are_cut = x + BYTES == y || y + BYTES == x; /* not where nothing is pooled */
    mr__buffer_pool_limit(1, 0);                     /* what is free goes at once */
    mr_buffer_unref(a);
    mr_eq_i64(given_back > 0, are_cut);
    mr_buffer_unref(other_cut);
    mr__buffer_pool_limit(-1, 0);
    mr__system_set(NULL);
}

static size_t asked_huge;

static int madvise_counts(void *p, size_t n, int advice)
{
    asked_huge += advice == MADV_HUGEPAGE;
    return mr__system_real()->madvise(p, n, advice);
}

/* Each needs separate maps; a process with 65530 of them, the limit, cannot start a thread. */
MR_TEST(not_all_of_very_many_buffers_lie_in_huge_pages)
{
    enum { BYTES = 2 << 20, MOST = 4096, MORE = 10 }; /* 8 GiB, of which nothing is used */
    static mr_buffer *b[MOST + MORE];
    mr__system t = *mr__system_real();
    t.madvise = madvise_counts;
    mr__system_set(&t);
    b[0] = make(BYTES);
    for (int round = 0; round < 2 && asked_huge; round++) { /* not where nothing is pooled */
        size_t n = 1;
        while (n < MOST + MORE && mr_buffer_alloc(&b[n], BYTES, NULL) == MR_OK)
            n++;
        mr_eq_u64(asked_huge, n < MOST ? n : MOST);
        while (n > 1)
            mr_buffer_unref(b[--n]);
        mr_buffer_pool_trim();
        asked_huge = 1; /* b[0] still is */
    }
    mr_buffer_unref(b[0]);
    mr__system_set(NULL);
}

/* All of a slab in huge pages is resident, including buffers that are free. */
MR_TEST(under_a_limit_large_buffers_are_not_cut_from_huge_pages)
{
    mr__system t = *mr__system_real();
    t.madvise = madvise_counts;
    mr__system_set(&t);
    mr_buffer_pool_trim();
    asked_huge = 0;
    mr__buffer_pool_limit(1, 0);
    mr_buffer *a = make(1 << 20), *b = make(3 << 19);
    mr_eq_u64(asked_huge, 0);
    mr_buffer_unref(b);
    mr_buffer_unref(a);
    mr__buffer_pool_limit(-1, 0);
    mr__system_set(NULL);
}

MR_TEST(what_is_forsaken_is_not_written_to)
{
    mr_buffer *b = make(100000);
    mr_check(mr_buffer_writable(b));
    mr__buffer_forsake(b);
    mr_check(!mr_buffer_writable(b));
    mr_buffer_unref(b);
    b = make(100000); /* the same, mostly */
    mr_check(mr_buffer_writable(b));
    mr_buffer_unref(b);
}

MR_TEST(holding_many_in_turn_stays_bounded)
{
    mr_status st;
    enum { N = 100 };
    int gone[N] = {0};
    mr_buffer *holder = make(8), *b[N];
    for (int i = 0; i < N; i++)
        b[i] = counted(&gone[i], 1);
    for (int k = 0; k < 20000; k++)
        mr_ok(mr_buffer_hold(holder, b[k * 37 % N], &st), &st);
    mr_check(mr_buffer_held_bytes(holder) >= N);
    mr_check(mr_buffer_held_bytes(holder) <= (size_t)4 * N);
    for (int i = 0; i < N; i++) {
        mr_check(!mr_buffer_writable(b[i]));
        mr_buffer_unref(b[i]);
        mr_eq_i64(gone[i], 0);
    }
    mr_buffer_unref(holder);
    for (int i = 0; i < N; i++)
        mr_eq_i64(gone[i], 1);
}

MR_TEST(held_bytes_follow_what_the_held_hold)
{
    mr_status st;
    int n = 0;
    mr_buffer *chunk = counted(&n, 1000), *views = make(16), *rows = make(8);
    mr_ok(mr_buffer_hold(views, chunk, &st), &st);
    mr_ok(mr_buffer_hold(rows, views, &st), &st);
    mr_eq_u64(mr_buffer_held_bytes(rows), 1016);
    mr_buffer_unref(chunk);
    mr_buffer_unref(views);
    mr_buffer_unref(rows);
    mr_eq_i64(n, 1);
}

MR_TEST(sizes_beyond_memory_are_refused)
{
    mr_status st;
    mr_buffer *b = NULL;
    mr_eq_i64(mr_buffer_alloc(&b, SIZE_MAX, &st), MR_RESOURCE_EXHAUSTED);
    mr_eq_i64(mr_buffer_alloc(&b, SIZE_MAX - 200, NULL), MR_RESOURCE_EXHAUSTED);
    mr_check(b == NULL);
}

MR_TEST(every_failed_allocation_leaves_nothing_behind)
{
    for (size_t nth = 0; fail_nth_next(nth); nth++) {
        mr_buffer *a = NULL, *b = NULL;
        int gone = 0;
        mr_code rc = mr_buffer_alloc(&a, 9000, NULL);
        if (rc == MR_OK)
            rc = mr_buffer_wrap(&b, &gone, 4, false, count_release, &gone, NULL);
        if (rc == MR_OK)
            rc = mr_buffer_hold(a, b, NULL);
        mr_eq_i64(rc, fail_nth_hit() ? MR_RESOURCE_EXHAUSTED : MR_OK);
        bool wrapped = b;
        mr_buffer_unref(b);
        mr_buffer_unref(a);
        mr_eq_i64(gone, wrapped);
        fail_nth_end();
    }
}

typedef struct shared {
    mr_buffer *b;
    size_t rounds;
} shared;

static void *churn(void *arg)
{
    shared *s = arg;
    for (size_t i = 0; i < s->rounds; i++) {
        mr_buffer *own = make(4096 + i % 9 * 1000);
        memset(mr_buffer_data(own), (int)i, 100);
        mr_buffer_unref(mr_buffer_ref(s->b));
        mr_buffer_unref(own);
    }
    mr_buffer_unref(s->b);
    return NULL;
}

MR_TEST(threads_share_buffers_and_the_pool)
{
    int gone = 0;
    shared s = {counted(&gone, 1), 5000};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        mr_buffer_ref(s.b);
        mr_eq_i64(pthread_create(&threads[i], NULL, churn, &s), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    mr_eq_i64(gone, 0);
    mr_check(mr_buffer_writable(s.b));
    mr_buffer_unref(s.b);
    mr_eq_i64(gone, 1);
}
