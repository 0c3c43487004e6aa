/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_HARNESS_H
#define MR_TESTS_HARNESS_H
/* Tests: one process each, a timeout on each, assertions that print both values.
 *
 *     MR_TEST(error_mid_stream_delivers_rows_before)
 *     {
 *         mr_status st;
 *         mr_ok(mr_array_alloc(&a, MR_INT64, 0, NULL, 3, &st), &st);
 *         mr_eq_u64(a.rows, 3);
 *     }
 *
 * A file tests/<folder>/<name>.c needs no registration: all files of a folder become one program,
 * which finds its tests by itself. In the plain build the macros map to Criterion; in the sanitizer
 * builds, where Criterion aborts (ThreadSanitizer) or misses leaks (AddressSanitizer), to a small
 * runner that forks for each test. Both print TAP with --tap=FILE and take --filter=PATTERN.
 *
 * A test belongs to a tier: MR_TEST to quick, MR_TEST_SLOW to full (it takes a second or more in
 * the plain build), MR_TEST_LONG to long. A file whose tests start no thread says MR_ONE_THREAD
 * once, and is left out of the ThreadSanitizer build; the AddressSanitizer build fails a test that
 * starts a thread in such a file.
 *
 * A failed assertion ends the test at once; what the test owns is not freed then. Assertions may be
 * used from threads that the test started in the sanitizer builds only by luck: return results to
 * the test's own thread instead.
 *
 * Environment:
 *     MR_TEST_SEED       decimal; fixes mr_test_seed()
 *     MR_TEST_TIER       quick, full (default) or long: tests of higher tiers do not run, and loops
 *                        over many cases try a sample that suits the tier
 *     MR_TEST_AFTER      quick or full: tests of that tier and below do not run either
 *     MR_TEST_TIMEOUT    seconds that replace the limit of 600 for each test
 *     MR_TEST_FAIL_FAST  if set, the small runner stops at the first failure */
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

#include "pipeline/status.h"

/* Set by the build for every file: an identifier made from its path. */
#ifndef MR_SUITE
#define MR_SUITE unnamed
#endif

typedef enum mr_tier { MR_TIER_QUICK, MR_TIER_FULL, MR_TIER_LONG } mr_tier;

#define MR_TEST(name)      MR__TEST_1(MR_SUITE, name, MR_TIER_QUICK)
#define MR_TEST_SLOW(name) MR__TEST_1(MR_SUITE, name, MR_TIER_FULL)
#define MR_TEST_LONG(name) MR__TEST_1(MR_SUITE, name, MR_TIER_LONG)

/* At the top of a file, with a semicolon: none of its tests starts a thread. */
#define MR_ONE_THREAD static const bool mr__one_thread = true
static const bool mr__one_thread __attribute__((unused));

#define MR__TEST_1(suite, name, tier) MR__TEST_2(suite, name, tier)
#ifdef MR_WITH_CRITERION
#include <criterion/criterion.h>
#define MR__TEST_2(suite, name, tier)                                                              \
    Test(suite, name, .init = mr__test_begin, .fini = mr__test_end, .data = (void *)(intptr_t)tier)
#else
typedef struct mr__test {
    const char *suite, *name;
    void (*run)(void);
    mr_tier tier;
    bool one_thread;
    struct mr__test *next;
} mr__test;
void mr__test_register(mr__test *t);
#define MR__TEST_2(suite_, name_, tier_)                                                           \
    static void suite_##_##name_(void);                                                            \
    __attribute__((constructor)) static void register_##suite_##_##name_(void)                     \
    {                                                                                              \
        static mr__test t = {#suite_, #name_, suite_##_##name_, tier_, false, NULL};               \
        t.one_thread = mr__one_thread;                                                             \
        mr__test_register(&t);                                                                     \
    }                                                                                              \
    static void suite_##_##name_(void)
#endif
void mr__test_begin(void);
void mr__test_end(void);

/* Ends the test as failed / as skipped for that reason. */
_Noreturn void mr__test_fail(const char *file, int line, const char *fmt, ...) MR_PRINTF(3, 4);
_Noreturn void mr__test_skip(const char *reason);
#define mr_skip_test(reason) mr__test_skip(reason)

/* Sleeps for a millisecond; fails if the turns from number 0 on have taken too long. */
void mr__test_await(const char *file, int line, const char *condition, unsigned turn);

/* What the test is doing: printed with every failure until changed ("" forgets it). For loops over
 * cases, so that a message names the case. */
void mr_test_context(const char *fmt, ...) MR_PRINTF(1, 2);

/* Equal on every call in one run of the tests; printed by tests/run.sh. */
uint64_t mr_test_seed(void);
/* True in the long tier: try every case, however long it takes. */
bool mr_test_long(void);
/* Is case `i` of a long loop to be tried? Always in the plain build and in the long tier; under a
 * sanitizer, which makes each case several times slower, one in `n`, which ones by the seed. */
bool mr_test_takes(size_t i, unsigned n);
/* Distance between the bytes of an input that are damaged in turn: 1 in the long tier and under
 * AddressSanitizer, which sees what a damaged byte leads to; else up to `n`, drawn from *random. */
size_t mr_test_step(uint64_t *random, size_t n);
/* True in a build with ThreadSanitizer below the long tier: a loop that also has cases with one
 * thread leaves those to the other builds. */
bool mr_test_for_races(void);
/* The next value of a small generator; start *state at mr_test_seed() or any constant. */
uint64_t mr_test_random(uint64_t *state);
/* A fresh empty directory, removed with all in it at the end of the test; static text. */
const char *mr_test_dir(void);
/* "<mr_test_dir()>/<name>"; valid until the sixteenth next call. */
const char *mr_test_path(const char *name);
/* Writes a file of that directory; its path, as mr_test_path. */
const char *mr_test_file(const char *name, const char *text);
/* Threads of this process. One that was joined counts for a moment longer: await the number. */
int mr_test_threads(void);
/* Their number in a test that has started none: includes the sanitizer's, which starts with the
 * first. */
int mr_test_threads_at_first(void);
/* The dataset that text says, owned; the test fails if it says none. */
struct mr_dataset *mr_test_graph(const char *text);

void mr__eq_i64(const char *f, int l, const char *as, const char *bs, int64_t a, int64_t b);
void mr__eq_u64(const char *f, int l, const char *as, const char *bs, uint64_t a, uint64_t b);
void mr__eq_f64(const char *f, int l, const char *as, const char *bs, double a, double b, double e);
void mr__eq_str(const char *f, int l, const char *as, const char *bs, const char *a, const char *b);
void mr__eq_mem(const char *f, int l, const char *as, const char *bs, const void *a, const void *b,
                size_t n);
void mr__has_str(const char *f, int l, const char *as, const char *a, const char *part);
void mr__code_is(const char *f, int l, const char *call, mr_code rc, mr_code want,
                 const mr_status *st);

#define mr_check(condition)                                                                        \
    do {                                                                                           \
        if (!(condition))                                                                          \
            mr__test_fail(__FILE__, __LINE__, "expected to hold: %s", #condition);                 \
    } while (0)
/* In the test's own thread: waits until the condition holds, at most a sixth of the test's time
 * limit. Use this instead of a sleep, which a busy machine outlasts. */
#define mr_await(condition)                                                                        \
    do {                                                                                           \
        for (unsigned mr__turn = 0; !(condition); mr__turn++)                                      \
            mr__test_await(__FILE__, __LINE__, #condition, mr__turn);                              \
    } while (0)
#define mr_fail_test(...) mr__test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define mr_eq_i64(a, b)   mr__eq_i64(__FILE__, __LINE__, #a, #b, (int64_t)(a), (int64_t)(b))
#define mr_eq_u64(a, b)   mr__eq_u64(__FILE__, __LINE__, #a, #b, (uint64_t)(a), (uint64_t)(b))
#define mr_eq_f64(a, b, tolerance)                                                                 \
    mr__eq_f64(__FILE__, __LINE__, #a, #b, (double)(a), (double)(b), (double)(tolerance))
#define mr_eq_str(a, b)     mr__eq_str(__FILE__, __LINE__, #a, #b, a, b)
#define mr_eq_mem(a, b, n)  mr__eq_mem(__FILE__, __LINE__, #a, #b, a, b, n)
#define mr_has_str(a, part) mr__has_str(__FILE__, __LINE__, #a, a, part)
/* rc is MR_OK; else prints st, which belongs to that call (NULL allowed). */
#define mr_ok(rc, st)            mr__code_is(__FILE__, __LINE__, #rc, rc, MR_OK, st)
#define mr_code_is(rc, want, st) mr__code_is(__FILE__, __LINE__, #rc, rc, want, st)

/* As fork, for a child that may allocate. Under AddressSanitizer it first waits until no other
 * thread runs: one that allocates at the fork leaves the allocator locked in the child. */
pid_t mr_test_fork(void);

/* The first line of a test whose forked children start threads. */
#ifdef __SANITIZE_THREAD__
#define MR_TEST_THREADS_AFTER_FORK mr_skip_test("ThreadSanitizer has no threads after fork")
#else
#define MR_TEST_THREADS_AFTER_FORK (void)0
#endif
#endif
