/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that sleep in reads, in a run with a memory limit. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"

enum { PIPES = 60, LINE = 1 << 18 };

static struct {
    int fd[PIPES];
    atomic_bool end;
    atomic_int n_reads, most_reads; /* under way at once */
} pipes;

static ssize_t read_counted(int fd, void *buf, size_t n)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISFIFO(s.st_mode))
        return mr__system_real()->read(fd, buf, n);
    int now = atomic_fetch_add(&pipes.n_reads, 1) + 1, most = atomic_load(&pipes.most_reads);
    while (now > most && !atomic_compare_exchange_weak(&pipes.most_reads, &most, now))
        continue;
    ssize_t got = mr__system_real()->read(fd, buf, n);
    atomic_fetch_sub(&pipes.n_reads, 1);
    return got;
}

/* Long lines into all of them, as fast as they are read. */
static void *write_lines(void *arg)
{
    static char line[LINE];
    size_t at[PIPES] = {0};
    (void)arg;
    memset(line, 'x', LINE - 1);
    line[LINE - 1] = '\n';
    while (!atomic_load(&pipes.end)) {
        usleep(100);
        for (int i = 0; i < PIPES; i++) {
            ssize_t n = write(pipes.fd[i], line + at[i], LINE - at[i]);
            at[i] = n > 0 ? (at[i] + (size_t)n) % LINE : at[i];
        }
    }
    return NULL;
}

/* All sleeping tasks continue at once, while the size of an element is still unknown: no more are
 * in flight than there are threads and callers, also in a pool that was used before. */
MR_TEST_SLOW(tasks_that_sleep_keep_their_places)
{
    char text[PIPES * 100] = "from_tensor_slices([", *end = text + strlen(text), name[16];
    for (int i = 0; i < PIPES; i++) {
        snprintf(name, sizeof name, "pipe%d", i);
        const char *path = mr_test_path(name);
        mr_eq_i64(mkfifo(path, 0600), 0);
        pipes.fd[i] = open(path, O_RDWR | O_NONBLOCK);
        mr_check(pipes.fd[i] >= 0);
        end += sprintf(end, "%s\"%s\"", i ? ", " : "", path);
    }
    sprintf(end, "]).interleave(f => text_line(f), cycle_length=%d, num_parallel_calls=%d)", PIPES,
            PIPES);
    pthread_t writer;
    mr_eq_i64(pthread_create(&writer, NULL, write_lines, NULL), 0);
    static mr__system table;
    table = *mr__system_real();
    table.read = read_counted;
    mr__system_set(&table);
    mr_dataset *ds = mr_test_graph(text);
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const char *unknown = NULL;
    mr_iterator_opts o = {.threads = 1, .has_threads = true};
    for (int shared = 0; shared < 2; shared++) {
        if (shared)
            mr_ok(mr_executor_new(1, &o.executor, &st), &st);
        mr_ok(mr_memory_needed(ds, &o, &o.memory_limit, &unknown, &st), &st);
        o.memory_limit += 256 << 20;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        for (int i = 0; i < 5 * PIPES; i++) {
            mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
            mr_eq_u64(b.rows, 1);
        }
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_check(atomic_load(&pipes.most_reads) > 0 && atomic_load(&pipes.most_reads) <= 2);
    }
    mr_executor_free(o.executor);
    mr_dataset_unref(ds);
    atomic_store(&pipes.end, true);
    pthread_join(writer, NULL);
    for (int i = 0; i < PIPES; i++)
        close(pipes.fd[i]);
}
