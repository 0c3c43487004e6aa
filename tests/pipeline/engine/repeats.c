/* SPDX-License-Identifier: Apache-2.0 */
/* Without threads a run depends only on its graph, its files and the table of system calls:
 * with a clock and randomness that repeat, so do all calls, in their order, and all results. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/system/system.h"
#include "tests/events.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* Every call of the run, one a line, and what the clock and randomness give in it. */
static struct {
    char text[1 << 16];
    size_t used;
    time_t seconds;
    unsigned char random; /* the first byte; the next is one more */
    bool no_random;
    int n_random, n_clock;
} run;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t left = sizeof run.text - run.used;
    int n = vsnprintf(run.text + run.used, left, format, args);
    va_end(args);
    mr_check(n >= 0 && (size_t)n < left);
    run.used += (size_t)n;
}

static int fixed_clock(clockid_t clock, struct timespec *out)
{
    note("clock_gettime %d\n", (int)clock);
    run.n_clock++;
    *out = (struct timespec){.tv_sec = run.seconds};
    return 0;
}

static ssize_t fixed_random(void *buf, size_t n, unsigned flags)
{
    note("getrandom %zu %u\n", n, flags);
    run.n_random++;
    if (run.no_random)
        return -1;
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)buf)[i] = run.random++;
    return (ssize_t)n;
}

static int noted_open(const char *path, int flags, mode_t mode)
{
    note("open %s %d\n", path, flags);
    return mr__system_real()->open(path, flags, mode);
}

static int noted_close(int fd)
{
    note("close\n");
    return mr__system_real()->close(fd);
}

static ssize_t noted_pread(int fd, void *buf, size_t n, off_t offset)
{
    note("pread %zu %lld\n", n, (long long)offset);
    return mr__system_real()->pread(fd, buf, n, offset);
}

/* Waits where the page cache does not hold the bytes: what it holds is not the run's affair. */
static ssize_t noted_preadv2(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    note("preadv2 %zu %lld %d\n", v[0].iov_len, (long long)offset, flags);
    return mr__system_real()->preadv2(fd, v, n, offset, 0);
}

static int noted_fstat(int fd, struct stat *out)
{
    note("fstat\n");
    return mr__system_real()->fstat(fd, out);
}

static int noted_stat(const char *path, struct stat *out)
{
    note("stat %s\n", path);
    return mr__system_real()->stat(path, out);
}

static int noted_lstat(const char *path, struct stat *out)
{
    note("lstat %s\n", path);
    return mr__system_real()->lstat(path, out);
}

static DIR *noted_opendir(const char *path)
{
    note("opendir %s\n", path);
    return mr__system_real()->opendir(path);
}

static int noted_fadvise(int fd, off_t offset, off_t n, int advice)
{
    note("posix_fadvise %lld %lld %d\n", (long long)offset, (long long)n, advice);
    return mr__system_real()->posix_fadvise(fd, offset, n, advice);
}

static int noted_uring_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    note("uring_init %u\n", entries);
    return mr__system_real()->uring_init(entries, ring, flags);
}

/* All that a run without threads did and gave. Owned: free. */
static char *repeat(const char *graph, time_t seconds, unsigned char random, bool no_random)
{
    mr__system table = *mr__system_real();
    table.clock_gettime = fixed_clock;
    table.getrandom = fixed_random;
    table.open = noted_open;
    table.close = noted_close;
    table.pread = noted_pread;
    table.preadv2 = noted_preadv2;
    table.fstat = noted_fstat;
    table.stat = noted_stat;
    table.lstat = noted_lstat;
    table.opendir = noted_opendir;
    table.posix_fadvise = noted_fadvise;
    table.uring_init = noted_uring_init;
    memset(&run, 0, sizeof run);
    run.seconds = seconds;
    run.random = random;
    run.no_random = no_random;
    mr__system_set(&table);
    mr_iterator *it = NULL;
    mr_status st;
    mr_dataset *ds = mr_test_graph(graph);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    mr_dataset_unref(ds);
    mr_events e = {0};
    mr_events_run(&e, it, 3, 1000);
    mr_iterator_close(it);
    mr__system_set(NULL);
    char *events = mr_events_join(&e);
    note("%s\n", events);
    free(events);
    mr_events_reset(&e, 0);
    return strdup(run.text);
}

/* The results, which are the first text in quotes and what follows. */
static const char *order(const char *did)
{
    const char *results = strchr(did, '"');
    mr_check(results != NULL);
    return results;
}

static void write_lines(const char *name)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f != NULL);
    for (int i = 0; i < 40; i++)
        fprintf(f, "%s-%d\n", name, i);
    mr_check(fclose(f) == 0);
}

MR_TEST(a_run_repeats_where_its_clock_and_randomness_do)
{
    char graph[600];
    write_lines("a");
    write_lines("b");
    write_lines("c");
    snprintf(graph, sizeof graph,
             "list_files(\"%s/?\").interleave(f => text_line(f), cycle_length=2,"
             " num_parallel_calls=auto).map(x => (x, x), num_parallel_calls=auto).shuffle(20)"
             ".repeat(2).batch(4).prefetch(auto)",
             mr_test_dir());
    free(repeat(graph, 1000, 1, false)); /* a process reads its cgroup's limits once */
    char *first = repeat(graph, 1000, 1, false);
    mr_check(run.n_random >= 2 && run.n_clock >= 1 && strstr(run.text, "open ") != NULL);
    char *again = repeat(graph, 1000, 1, false);
    mr_eq_str(first, again);
    /* Both come from the table alone. */
    char *other = repeat(graph, 1000, 77, false);
    mr_check(strcmp(order(first), order(other)) != 0);
    /* The clock takes the place of randomness that fails. */
    char *by_clock = repeat(graph, 1000, 1, true);
    char *by_clock_again = repeat(graph, 1000, 1, true);
    char *later = repeat(graph, 1001, 1, true);
    mr_eq_str(by_clock, by_clock_again);
    mr_check(strcmp(order(by_clock), order(later)) != 0);
    free(first), free(again), free(other), free(by_clock), free(by_clock_again), free(later);
}
