/* SPDX-License-Identifier: Apache-2.0 */
/* What others may see of this process's iterators: queues in the statistics, and reports. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/fault_calls.h"
#include "tests/harness.h"

static mr_iterator *open_text(const char *text, int64_t threads, bool watch)
{
    const mr_iterator_opts opts = {.has_threads = true, .threads = threads, .watch = watch};
    mr_iterator *it = NULL;
    mr_status st;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

static void take(mr_iterator *it, size_t rows)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    while (rows) {
        mr_ok(mr_iterator_next(it, rows, &b, &st), &st);
        rows -= b.rows;
    }
    mr_block_reset(&b);
}

static mr_op_stats stats_of(mr_iterator *it, size_t i)
{
    mr_op_stats all[8];
    mr_check(mr_iterator_stats(it, all, 8) > i);
    return all[i];
}

MR_TEST(statistics_show_what_is_queued)
{
    mr_iterator *it = open_text("range(100).prefetch(6)", 1, false);
    mr_op_stats s;
    take(it, 1);
    while ((s = stats_of(it, 0)).queued_elements < 6) /* another thread fills it */
        usleep(1000);
    mr_eq_u64((uint64_t)s.queued_elements, 6);
    mr_eq_u64((uint64_t)s.room_elements, 6);
    mr_eq_u64((uint64_t)s.room_blocks, 0);
    mr_check(s.queued_blocks >= 1 && s.queued_blocks <= 6);
    mr_eq_u64((uint64_t)s.queued_bytes, 48);
    mr_eq_u64((uint64_t)s.elements, 1);
    mr_eq_u64((uint64_t)s.blocks, 1);
    take(it, 99);
    s = stats_of(it, 0);
    mr_eq_u64((uint64_t)s.queued_elements, 0);
    mr_eq_u64((uint64_t)s.queued_blocks, 0);
    mr_eq_u64((uint64_t)s.queued_bytes, 0);
    mr_check(s.blocks > 1 && s.elements == 100);
    mr_iterator_close(it);
}

MR_TEST(statistics_show_the_calls_that_may_be_under_way)
{
    mr_iterator *it = open_text("range(100).map(x => x + 1, num_parallel_calls=3)", 2, false);
    take(it, 1);
    mr_eq_u64((uint64_t)stats_of(it, 0).room_blocks, 3);
    mr_check(stats_of(it, 0).queued_blocks <= 3);
    mr_iterator_close(it);
}

/* ---- reports ---- */

/* Connected, or -1. */
static int connect_here(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "millrace-top-%d", (int)getpid());
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, size) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The report, in memory that the next call uses again; "": none came. */
static const char *report(void)
{
    static char text[65536];
    size_t n = 0;
    ssize_t got;
    int fd = connect_here();
    if (fd < 0)
        return "";
    while ((got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(fd);
    return text;
}

MR_TEST(only_what_is_watched_is_seen)
{
    mr_iterator *it = open_text("range(10).batch(5)", 0, false);
    mr_check(connect_here() < 0);
    mr_iterator_close(it);
}

MR_TEST(reports_have_all_watched_iterators_until_they_close)
{
    mr_iterator *one = open_text("range(10).batch(5)", 0, true);
    take(one, 1);
    const char *text = report();
    mr_has_str(text, "millrace-top\t1\nprocess\t");
    mr_has_str(text, "\npipeline\t1\t");
    mr_has_str(text, "\ngraph\trange(10).batch(5)\n");
    mr_has_str(text, "\nop\tbatch\tbatch\t1\t1\t40\t");
    mr_has_str(text, "\nop\tbatch/range\trange\t5\t1\t40\t");
    mr_check(strcmp(text + strlen(text) - 5, "\nend\n") == 0);
    mr_iterator *two = open_text("range(3)", 0, true);
    text = report();
    mr_has_str(text, "graph\trange(10).batch(5)\n");
    mr_has_str(text, "pipeline\t2\t");
    mr_has_str(text, "graph\trange(3)\n");
    mr_iterator_close(open_text("range(4)", 0, true));
    mr_iterator *last = open_text("range(5)", 0, true);
    text = report();
    mr_check(!strstr(text, "range(4)"));
    const char *before = strstr(text, "range(3)");
    mr_check(before && strstr(before, "range(5)"));
    mr_iterator_close(last);
    mr_iterator_close(one);
    text = report();
    mr_check(!strstr(text, "range(10)"));
    mr_has_str(text, "graph\trange(3)\n");
    mr_iterator_close(two);
    mr_check(connect_here() < 0);
    two = open_text("range(3)", 0, true);
    mr_has_str(report(), "pipeline\t5\t");
    mr_iterator_close(two);
}

static void *come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100; i++) {
        mr_iterator *it = open_text("range(3)", 0, true);
        take(it, 1);
        mr_iterator_close(it);
    }
    return NULL;
}

/* As the streams of a worker do. */
MR_TEST(watched_iterators_come_and_go_in_threads_of_their_own)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        mr_check(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    mr_check(connect_here() < 0);
}

/* A client that reads nothing keeps neither others from their reports nor the iterator from its
 * end. */
MR_TEST(clients_that_do_not_read_are_left)
{
    enum { LONG = 1 << 20 };
    char *text = mr_malloc(LONG + 64), c;
    int head = sprintf(text, "from_tensors(\"");
    memset(text + head, 'a', LONG);
    strcpy(text + head + LONG, "\")");
    mr_iterator *it = open_text(text, 0, true);
    int silent = connect_here();
    mr_check(silent >= 0 && recv(silent, &c, 1, 0) == 1); /* its report has begun */
    int other = connect_here();
    mr_check(other >= 0 && recv(other, &c, 1, 0) == 1);
    mr_iterator_close(it);
    close(silent);
    close(other);
    mr_free(text);
}

/* Another process has the name: the pipeline still runs. */
MR_TEST(pipelines_run_where_they_cannot_be_watched)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "millrace-top-%d", (int)getpid());
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int taken = socket(AF_UNIX, SOCK_STREAM, 0);
    mr_check(bind(taken, (struct sockaddr *)&at, size) == 0);
    mr_iterator *it = open_text("range(3)", 0, true);
    take(it, 3);
    close(taken);
    mr_iterator *two = open_text("range(3)", 0, true); /* now the name is free */
    mr_has_str(report(), "graph\trange(3)\n");
    mr_iterator_close(it);
    mr_iterator_close(two);
}

static int calls_until_failure;

static bool fails(const char *call)
{
    (void)call;
    errno = EMFILE;
    return calls_until_failure-- == 0;
}

/* Of what only watching calls: the first three keep it from being watched, the last makes a client
 * wait. */
MR_TEST(pipelines_run_when_calls_for_watching_fail)
{
    mr__system table = *mr__system_real();
    mr_fault_calls(&table, "socket bind listen accept4", fails);
    mr__system_set(&table);
    for (int n = 0; n < 4; n++) {
        calls_until_failure = n;
        mr_iterator *it = open_text("range(3)", 0, true);
        take(it, 3);
        const char *text = report();
        if (n < 3)
            mr_check(!*text);
        else
            mr_has_str(text, "graph\trange(3)\n");
        mr_iterator_close(it);
        mr_check(connect_here() < 0);
    }
    mr__system_set(NULL);
}
