/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/graph/dataset.h"

static char context[256];
static char directory[128];

void mr_test_context(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static unsigned time_limit(void)
{
    const char *s = getenv("MR_TEST_TIMEOUT");
    return s ? (unsigned)strtoul(s, NULL, 10) : 600;
}

void mr__test_begin(void)
{
    context[0] = directory[0] = '\0';
    /* Criterion 2.4.1 accepts a time limit and then waits for ever. */
    alarm(time_limit());
}

void mr__test_end(void)
{
    if (directory[0])
        nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    directory[0] = '\0';
}

const char *mr_test_dir(void)
{
    if (!directory[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/millrace-test-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(directory)) {
            int err = errno;
            directory[0] = '\0';
            mr__test_fail(__FILE__, __LINE__, "no temporary directory: %s", strerror(err));
        }
    }
    return directory;
}

const char *mr_test_path(const char *name)
{
    static char paths[16][512];
    static unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", mr_test_dir(), name);
    return path;
}

const char *mr_test_file(const char *name, const char *text)
{
    const char *path = mr_test_path(name);
    FILE *f = fopen(path, "w");
    mr_check(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

mr_dataset *mr_test_graph(const char *text)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

uint64_t mr_test_seed(void)
{
    const char *s = getenv("MR_TEST_SEED");
    return s ? strtoull(s, NULL, 10) : 1;
}

static int tier_named(const char *variable, int unset)
{
    static const char *const names[] = {"quick", "full", "long"};
    const char *s = getenv(variable);
    if (!s || !*s)
        return unset;
    for (int tier = MR_TIER_QUICK; tier <= MR_TIER_LONG; tier++)
        if (strcmp(s, names[tier]) == 0)
            return tier;
    fprintf(stderr, "%s=%s: expected quick, full or long\n", variable, s);
    exit(2);
}

bool mr_test_long(void)
{
    return tier_named("MR_TEST_TIER", MR_TIER_FULL) == MR_TIER_LONG;
}

static bool is_selected(mr_tier tier)
{
    return (int)tier <= tier_named("MR_TEST_TIER", MR_TIER_FULL) &&
           (int)tier > tier_named("MR_TEST_AFTER", -1);
}

#if defined(__SANITIZE_THREAD__)
enum { WITH_ASAN = 0, WITH_TSAN = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { WITH_ASAN = 1, WITH_TSAN = 0 };
#else
enum { WITH_ASAN = 0, WITH_TSAN = 0 };
#endif

bool mr_test_takes(size_t i, unsigned n)
{
    return !(WITH_ASAN || WITH_TSAN) || mr_test_long() || (i + mr_test_seed()) % n == 0;
}

size_t mr_test_step(uint64_t *random, size_t n)
{
    return WITH_ASAN || mr_test_long() ? 1 : 1 + mr_test_random(random) % n;
}

bool mr_test_for_races(void)
{
    return WITH_TSAN && !mr_test_long();
}

/* Whether a thread other than the calling one is not asleep. */
static bool others_run(void)
{
    bool run = false;
    struct dirent *task;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && (task = readdir(tasks))) {
        char path[300], line[100];
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        FILE *f =
            atoi(task->d_name) == 0 || atoi(task->d_name) == gettid() ? NULL : fopen(path, "r");
        if (!f)
            continue;
        const char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        run |= end && end[2] != 'S';
        fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return run;
}

int mr_test_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));)
        n += e->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

static void *count_threads(void *n)
{
    *(int *)n = mr_test_threads();
    return NULL;
}

int mr_test_threads_at_first(void)
{
    int n = 0;
    pthread_t thread;
    mr_check(pthread_create(&thread, NULL, count_threads, &n) == 0);
    pthread_join(thread, NULL);
    mr_await(mr_test_threads() < n);
    return n - 1;
}

void mr__test_await(const char *file, int line, const char *condition, unsigned turn)
{
    static struct timespec began;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (turn == 0)
        began = now;
    if (now.tv_sec - began.tv_sec > time_limit() / 6)
        mr__test_fail(file, line, "was not true within %u s: %s", time_limit() / 6, condition);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

pid_t mr_test_fork(void)
{
    enum { CALM = 3, TRIES = 3000 };
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int calm = 0, i = 0; WITH_ASAN && calm < CALM && i < TRIES; i++) {
        calm = others_run() ? 0 : calm + 1;
        nanosleep(&pause, NULL);
    }
    return fork();
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t mr_test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void mr__eq_i64(const char *f, int l, const char *as, const char *bs, int64_t a, int64_t b)
{
    if (a != b)
        mr__test_fail(f, l, "%s == %s: %" PRId64 " against %" PRId64, as, bs, a, b);
}

void mr__eq_u64(const char *f, int l, const char *as, const char *bs, uint64_t a, uint64_t b)
{
    if (a != b)
        mr__test_fail(f, l, "%s == %s: %" PRIu64 " against %" PRIu64, as, bs, a, b);
}

void mr__eq_f64(const char *f, int l, const char *as, const char *bs, double a, double b, double e)
{
    /* Written so that a NaN on one side fails and on both sides passes. */
    if (!(fabs(a - b) <= e || (isnan(a) && isnan(b)) ||
          (isinf(a) && isinf(b) && (a > 0) == (b > 0))))
        mr__test_fail(f, l, "%s == %s: %.17g against %.17g, tolerance %g", as, bs, a, b, e);
}

void mr__eq_str(const char *f, int l, const char *as, const char *bs, const char *a, const char *b)
{
    if (!a || !b ? a != b : strcmp(a, b) != 0)
        mr__test_fail(f, l, "%s == %s: \"%s\" against \"%s\"", as, bs, a ? a : "(null)",
                      b ? b : "(null)");
}

void mr__eq_mem(const char *f, int l, const char *as, const char *bs, const void *a, const void *b,
                size_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i])
            mr__test_fail(f, l, "%s == %s: byte %zu of %zu is 0x%02x against 0x%02x", as, bs, i, n,
                          x[i], y[i]);
}

void mr__has_str(const char *f, int l, const char *as, const char *a, const char *part)
{
    if (!a || !strstr(a, part))
        mr__test_fail(f, l, "%s lacks \"%s\": \"%s\"", as, part, a ? a : "(null)");
}

void mr__code_is(const char *f, int l, const char *call, mr_code rc, mr_code want,
                 const mr_status *st)
{
    char text[1600] = "";
    if (rc == want)
        return;
    if (st && rc < 0)
        mr_status_format(st, text, sizeof text);
    mr__test_fail(f, l, "%s: %s (%d) instead of %s (%d)%s%s", call, mr_code_text(rc), (int)rc,
                  mr_code_text(want), (int)want, text[0] ? ": " : "", text);
}

static void print_failure(const char *file, int line, const char *fmt, va_list ap)
{
    char text[4096];
    vsnprintf(text, sizeof text, fmt, ap);
    fprintf(stderr, "%s:%d: %s%s%s%s\n", file, line, text, context[0] ? " [" : "", context,
            context[0] ? "]" : "");
    fflush(NULL);
}

#ifdef MR_WITH_CRITERION
/* Criterion reports what is disabled as skipped: run_one.sh removes these lines. */
ReportHook(PRE_ALL)(struct criterion_test_set *all)
{
    FOREACH_SET(struct criterion_suite_set * s, all->suites)
    {
        for (struct criterion_ordered_set_node *at = s->tests ? s->tests->first : NULL; at;
             at = at->next) {
            struct criterion_test *t = (struct criterion_test *)(at + 1);
            if (!is_selected((mr_tier)(intptr_t)t->data->data))
                t->data->disabled = true;
        }
    }
}

void mr__test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_failure(file, line, fmt, ap);
    va_end(ap);
    mr__test_end();
    cr_assert_fail("%s:%d", file, line);
    abort();
}

void mr__test_skip(const char *reason)
{
    mr__test_end();
    cr_skip_test("%s", reason);
    abort();
}

#else
enum { EXIT_SKIP = 77 };

static mr__test *first_test;
static int skip_pipe = -1;

void mr__test_register(mr__test *t)
{
    t->next = first_test;
    first_test = t;
}

void mr__test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_failure(file, line, fmt, ap);
    va_end(ap);
    mr__test_end();
    _exit(1);
}

void mr__test_skip(const char *reason)
{
    mr__test_end();
    if (write(skip_pipe, reason, strlen(reason)) < 0)
        fprintf(stderr, "skipped: %s\n", reason);
    _exit(EXIT_SKIP);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Waits for the child; kills its process group after the limit. False: it ran too long. SIGCHLD is
 * blocked, so that it ends the wait for it. */
static bool wait_for(pid_t child, double limit, int *status, struct rusage *used)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    for (double end = now() + limit, left = limit; left > 0; left = end - now()) {
        if (wait4(child, status, WNOHANG, used) == child)
            return true;
        struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        sigtimedwait(&ends, NULL, &t);
    }
    kill(-child, SIGKILL);
    wait4(child, status, 0, used);
    return false;
}

static void block_sigchld(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(how, &set, NULL);
}

/* The build with AddressSanitizer is linked with --wrap=pthread_create. */
static atomic_int threads_started;
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *ctx);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *ctx);
#ifdef MR_COUNT_THREADS
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *ctx)
{
    atomic_fetch_add(&threads_started, 1);
    return __real_pthread_create(t, a, run, ctx);
}
#endif

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

static outcome run_one(const mr__test *t, double limit, char *why, size_t why_size,
                       struct rusage *used)
{
    int pipes[2];
    why[0] = '\0';
    fflush(NULL);
    if (pipe(pipes) < 0) {
        snprintf(why, why_size, "no pipe: %s", strerror(errno));
        return FAILED;
    }
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        close(pipes[0]);
        skip_pipe = pipes[1];
        block_sigchld(SIG_UNBLOCK);
        mr__test_begin();
        t->run();
        if (t->one_thread && atomic_load(&threads_started) > 0)
            mr__test_fail(__FILE__, __LINE__, "starts a thread in a file that says MR_ONE_THREAD");
        mr__test_end();
        /* exit, not _exit: the leak check runs at exit and decides the status. */
        exit(0);
    }
    close(pipes[1]);
    int status = 0;
    outcome result = FAILED;
    if (child < 0)
        snprintf(why, why_size, "fork: %s", strerror(errno));
    else if (!wait_for(child, limit, &status, used))
        snprintf(why, why_size, "ran longer than %.0f s", limit);
    else if (WIFSIGNALED(status))
        snprintf(why, why_size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == EXIT_SKIP) {
        ssize_t n = read(pipes[0], why, why_size - 1);
        why[n > 0 ? n : 0] = '\0';
        result = SKIPPED;
    } else if (WEXITSTATUS(status) != 0)
        snprintf(why, why_size, "exit status %d", WEXITSTATUS(status));
    else
        result = PASSED;
    close(pipes[0]);
    return result;
}

static int compare_tests(const void *a, const void *b)
{
    const mr__test *const *x = a, *const *y = b;
    int c = strcmp((*x)->suite, (*y)->suite);
    return c ? c : strcmp((*x)->name, (*y)->name);
}

static const char *value_of(const char *arg, const char *key)
{
    size_t n = strlen(key);
    return strncmp(arg, key, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

int main(int argc, char **argv)
{
    const char *filter = NULL, *tap_path = NULL;
    bool list = false;
    for (int i = 1; i < argc; i++) {
        if (value_of(argv[i], "--filter"))
            filter = value_of(argv[i], "--filter");
        else if (value_of(argv[i], "--tap"))
            tap_path = value_of(argv[i], "--tap");
        else if (strcmp(argv[i], "--list") == 0)
            list = true;
        else {
            fprintf(stderr, "usage: %s [--list] [--filter=PART_OF_NAME] [--tap=FILE]\n", argv[0]);
            return 2;
        }
    }
    size_t n = 0, counts[3] = {0};
    for (mr__test *t = first_test; t; t = t->next)
        n++;
    mr__test **all = calloc(n + 1, sizeof *all);
    FILE *tap = tap_path ? fopen(tap_path, "w") : NULL;
    if (!all || (tap_path && !tap)) {
        fprintf(stderr, "%s: %s\n", tap_path ? tap_path : argv[0], strerror(errno));
        return 2;
    }
    size_t i = 0;
    for (mr__test *t = first_test; t; t = t->next)
        all[i++] = t;
    qsort(all, n, sizeof *all, compare_tests);
    block_sigchld(SIG_BLOCK);
    for (i = 0; i < n; i++) {
        char name[512], why[512];
        snprintf(name, sizeof name, "%s::%s", all[i]->suite, all[i]->name);
        if (!is_selected(all[i]->tier) || (filter && !strstr(name, filter)))
            continue;
        if (list) {
            puts(name);
            continue;
        }
        double start = now();
        struct rusage used = {0};
        outcome r = run_one(all[i], time_limit() + 1.0, why, sizeof why, &used);
        double seconds = now() - start;
        counts[r]++;
        printf("%s %s (%.2f s, %.2f s of processor time)%s%s\n",
               r == PASSED   ? "ok  "
               : r == FAILED ? "FAIL"
                             : "skip",
               name, seconds, seconds_of(used.ru_utime) + seconds_of(used.ru_stime),
               why[0] ? ": " : "", why);
        if (r == FAILED && getenv("MR_TEST_FAIL_FAST"))
            n = i + 1;
        if (tap && r == SKIPPED)
            fprintf(tap, "ok - %s # SKIP %s\n", name, why);
        else if (tap)
            fprintf(tap, "%sok - %s%s%s # time=%.2fs\n", r == FAILED ? "not " : "", name,
                    why[0] ? ": " : "", why, seconds);
    }
    if (tap)
        fprintf(tap, "1..%zu\n", counts[PASSED] + counts[FAILED] + counts[SKIPPED]);
    if (tap)
        fclose(tap);
    free(all);
    if (filter && !list && counts[PASSED] + counts[FAILED] + counts[SKIPPED] == 0) {
        fprintf(stderr, "no test has '%s' in its name; --list prints them\n", filter);
        return 2;
    }
    if (!list)
        printf("%zu passed, %zu failed, %zu skipped\n", counts[PASSED], counts[FAILED],
               counts[SKIPPED]);
    return counts[FAILED] ? 1 : counts[SKIPPED] && !counts[PASSED] ? EXIT_SKIP : 0;
}
#endif
