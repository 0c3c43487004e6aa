/* SPDX-License-Identifier: Apache-2.0 */
/* All waiting threads are woken: no wait here has a time-out, so a lost wake-up makes the test run
 * into its time limit. */
#include "pipeline/wait/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/executor.h"
#include "pipeline/files/read_ahead.h"
#include "pipeline/functions/compiler/function.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"
#include "tests/harness.h"

static mr_status st;

static mr_cancel *new_cancel(mr_cancel *parent)
{
    mr_cancel *c = NULL;
    mr_ok(mr_cancel_new(parent, &c, &st), &st);
    return c;
}

static void *trigger_soon(void *c)
{
    usleep(20000);
    mr_cancel_trigger(c);
    return NULL;
}

static pthread_t start_trigger(mr_cancel *c)
{
    pthread_t t;
    mr_check(pthread_create(&t, NULL, trigger_soon, c) == 0);
    return t;
}

/* ---- the object ---- */

struct counter {
    mr_cancel_waiter waiter;
    int woken;
};

static void count_wake(mr_cancel_waiter *w)
{
    ((struct counter *)w)->woken++;
}

MR_TEST(all_that_are_registered_are_woken_once)
{
    mr_cancel *c = new_cancel(NULL);
    struct counter w[3] = {{{count_wake, NULL, NULL}, 0},
                           {{count_wake, NULL, NULL}, 0},
                           {{count_wake, NULL, NULL}, 0}};
    for (int i = 0; i < 3; i++)
        mr_cancel_register(c, &w[i].waiter);
    mr_cancel_unregister(c, &w[1].waiter);
    mr_check(!mr_cancel_is_cancelled(c) && !mr_cancel_is_cancelled(NULL));
    mr_cancel_trigger(c);
    mr_cancel_trigger(c);
    mr_check(mr_cancel_is_cancelled(c));
    mr_eq_i64(w[0].woken, 1);
    mr_eq_i64(w[1].woken, 0);
    mr_eq_i64(w[2].woken, 1);
    mr_cancel_register(c, &w[1].waiter); /* too late, so it is woken at once */
    mr_eq_i64(w[1].woken, 1);
    for (int i = 0; i < 3; i++)
        mr_cancel_unregister(c, &w[i].waiter);
    mr_cancel_unref(c);
}

MR_TEST(children_are_cancelled_with_their_parent_and_not_the_reverse)
{
    mr_cancel *parent = new_cancel(NULL), *a = new_cancel(parent), *b = new_cancel(parent);
    mr_cancel_trigger(a);
    mr_check(mr_cancel_is_cancelled(a) && !mr_cancel_is_cancelled(parent));
    mr_check(!mr_cancel_is_cancelled(b));
    mr_cancel_unref(a);
    mr_cancel_trigger(parent);
    mr_check(mr_cancel_is_cancelled(b));
    mr_cancel *late = new_cancel(parent);
    mr_check(mr_cancel_is_cancelled(late));
    mr_cancel_unref(parent); /* its children hold it */
    mr_cancel_unref(b);
    mr_cancel_unref(late);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

MR_TEST(the_descriptor_becomes_readable)
{
    mr_cancel *early = new_cancel(NULL), *late = new_cancel(NULL);
    int fd, same;
    mr_ok(mr_cancel_fd(early, &fd, &st), &st);
    mr_ok(mr_cancel_fd(early, &same, &st), &st);
    mr_eq_i64(fd, same);
    mr_check(!readable(fd));
    mr_cancel_trigger(early);
    mr_check(readable(fd));
    mr_cancel_trigger(late);
    mr_ok(mr_cancel_fd(late, &fd, &st), &st);
    mr_check(readable(fd));
    mr_cancel_unref(early);
    mr_cancel_unref(late);
}

static mr_cancel *of_handler;

static void on_signal(int sig)
{
    (void)sig;
    mr_cancel_trigger(of_handler);
}

static void *signal_soon(void *thread)
{
    usleep(20000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

/* The handler runs in the very thread that sleeps, or that registers. */
MR_TEST(a_signal_handler_may_trigger)
{
    of_handler = new_cancel(NULL);
    signal(SIGUSR1, on_signal);
    pthread_t self = pthread_self(), t;
    mr_check(pthread_create(&t, NULL, signal_soon, &self) == 0);
    atomic_uint word = 0;
    while (!mr_cancel_is_cancelled(of_handler))
        mr__wait_while(&word, atomic_load(&word), of_handler);
    mr_eq_u64(atomic_load(&word) & 1, 0);
    pthread_join(t, NULL);
    mr_cancel_unref(of_handler);
}

/* ---- waits ---- */

static void *trigger_now(void *c)
{
    mr_cancel_trigger(c);
    return NULL;
}

MR_TEST(a_wait_for_a_word_never_misses_the_trigger)
{
    for (int i = 0; i < 300; i++) {
        mr_cancel *c = new_cancel(NULL);
        atomic_uint word = 0;
        pthread_t t;
        /* Sometimes while it spins, sometimes about when it falls asleep. */
        mr_check(pthread_create(&t, NULL, trigger_now, c) == 0);
        usleep((useconds_t)(i % 7) * 10);
        while (!mr_cancel_is_cancelled(c))
            mr__wait_while(&word, atomic_load(&word), c);
        pthread_join(t, NULL);
        mr_cancel_unref(c);
    }
}

MR_TEST(a_wait_for_a_descriptor_ends)
{
    int ends[2];
    mr_eq_i64(pipe(ends), 0);
    mr_cancel *c = new_cancel(NULL);
    pthread_t t = start_trigger(c);
    mr_eq_i64(mr__wait_readable(ends[0], c), -ECANCELED);
    mr_eq_i64(mr__wait_readable(ends[0], c), -ECANCELED);
    mr_eq_i64(write(ends[1], "x", 1), 1);
    mr_eq_i64(mr__wait_readable(ends[0], NULL), 0);
    pthread_join(t, NULL);
    mr_cancel_unref(c);
}

struct gate {
    mr__task task; /* first */
    atomic_uint open;
};

static void pass_gate(mr__task *t)
{
    atomic_uint *open = &((struct gate *)t)->open;
    while (!atomic_load(open))
        mr__wait_while(open, 0, NULL);
}

MR_TEST(a_wait_for_a_task_ends_and_the_task_goes_on)
{
    mr_executor *ex = NULL;
    mr_ok(mr_executor_new(1, &ex, &st), &st);
    mr_cancel *c = new_cancel(NULL);
    struct gate g = {.task.run = pass_gate};
    mr__task_submit_blocking(ex, &g.task);
    pthread_t t = start_trigger(c);
    mr_check(!mr__task_wait_or_cancel(ex, &g.task, c));
    mr_check(!mr__task_wait_or_cancel(ex, &g.task, c));
    atomic_store(&g.open, 1);
    mr__wait_wake(&g.open);
    mr__task_wait(ex, &g.task);
    mr_check(mr__task_wait_or_cancel(ex, &g.task, c)); /* done counts */
    pthread_join(t, NULL);
    mr_cancel_unref(c);
    mr_executor_free(ex);
}

/* ---- reads of files ---- */

static atomic_uint may_read;

static ssize_t stuck_pread(int fd, void *buf, size_t n, off_t offset)
{
    while (!atomic_load(&may_read))
        mr__wait_while(&may_read, 0, NULL);
    return pread(fd, buf, n, offset);
}

static int submit_later(struct io_uring *ring)
{
    return atomic_load(&may_read) ? mr__system_real()->uring_submit(ring) : 1;
}

/* Closing: what was not submitted goes now. */
static int wait_after_submit(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    int rc = mr__system_real()->uring_submit(ring);
    return rc < 0 ? rc : mr__system_real()->uring_wait(ring, cqe);
}

static ssize_t nothing_cached(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    (void)fd, (void)v, (void)n, (void)offset, (void)flags;
    errno = EAGAIN;
    return -1;
}

static void cancel_a_read(bool no_uring)
{
    const char *path = mr_test_path("large");
    mr_cancel *c = new_cancel(NULL);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    mr_check(fd >= 0 && ftruncate(fd, 8 << 20) == 0);
    close(fd);
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    table.pread = stuck_pread;
    table.uring_submit = submit_later;
    table.uring_wait = wait_after_submit;
    mr__system_set(&table);
    mr__read_ahead *r = NULL;
    mr_buffer *slot = NULL;
    static uint8_t dst[1000];
    uint8_t *data;
    size_t got;
    mr_ok(
        mr__read_ahead_open(&r, path, 0, &(mr__read_opts){.no_uring = no_uring, .cancel = c}, &st),
        &st);
    pthread_t t = start_trigger(c);
    mr_code_is(mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st), MR_CANCELLED, &st);
    mr_eq_str(st.file, path);
    pthread_join(t, NULL);
    atomic_store(&may_read, 1);
    mr__wait_wake(&may_read);
    mr__read_ahead_close(r);
    mr_cancel_unref(c);
}

MR_TEST(a_read_by_the_pool_ends)
{
    cancel_a_read(true);
}

MR_TEST(a_read_through_io_uring_ends)
{
    cancel_a_read(false);
}

/* ---- iterators ---- */

static mr_iterator *open_graph(const char *text, int64_t threads, mr_cancel *c)
{
    mr_iterator *it = NULL;
    mr_dataset *ds = mr_test_graph(text);
    mr_iterator_opts o = {.threads = threads, .has_threads = true, .positions = true, .cancel = c};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

static void expect_cancelled(mr_iterator *it)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code_is(mr_iterator_next(it, 10, &b, &st), MR_CANCELLED, &st);
    mr_code_is(mr_iterator_next(it, 10, &b, &st), MR_CANCELLED, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

static const char *const fifo_graphs[] = {
    "text_line(\"%s\")",
    "text_line(\"%s\").batch(3).prefetch(2)",
    "from_tensors(\"%s\").interleave(text_line, cycle_length=2, num_parallel_calls=2)",
    "text_line(\"%s\").map(x => x + x, num_parallel_calls=2).shuffle(4)",
    "from_tensors(\"%s\").map(read_file)",
    "from_tensors(\"%s\").repeat().map(x => length(read_file(x)), num_parallel_calls=2)",
    "from_tensors(\"%s\").scan(\"\", (s, x) => (s, read_file(x)))",
    "range(9).map(x => lookup(\"a\", \"%s\"), num_parallel_calls=2)",
    "from_tensors(\"a\").filter(x => text_vectorization(x, \"%s\", 3)[0] > 0)",
};
enum { N_FIFO_GRAPHS = sizeof fifo_graphs / sizeof *fifo_graphs };

static void read_fifo(bool writer)
{
    const char *path = mr_test_path("fifo");
    mr_check(mkfifo(path, 0600) == 0);
    int fd = writer ? open(path, O_RDWR) : -1;
    for (int i = 0; i < N_FIFO_GRAPHS; i++)
        for (int64_t threads = 0; threads < 3; threads += 2) {
            char text[300];
            mr_cancel *c = new_cancel(NULL);
            snprintf(text, sizeof text, fifo_graphs[i], path);
            mr_test_context("%s, %d threads", text, (int)threads);
            mr_iterator *it = open_graph(text, threads, c);
            pthread_t t = start_trigger(c);
            expect_cancelled(it);
            pthread_join(t, NULL);
            mr_cancel_unref(c);
        }
    if (writer)
        close(fd);
}

MR_TEST(a_fifo_without_a_writer_is_given_up)
{
    read_fifo(false);
}

MR_TEST(a_fifo_whose_writer_says_nothing_is_given_up)
{
    read_fifo(true);
}

static void *write_and_close(void *path)
{
    usleep(20000);
    int fd = open(path, O_WRONLY);
    ssize_t n = write(fd, "a\nb\n", 4);
    usleep(20000);
    close(fd);
    return (void *)(intptr_t)n;
}

MR_TEST(a_fifo_is_read_to_its_writers_end)
{
    char *path = mr_strdup(mr_test_path("fifo"));
    char text[300];
    mr_check(mkfifo(path, 0600) == 0);
    snprintf(text, sizeof text, "text_line(\"%s\")", path);
    pthread_t t;
    mr_iterator *it = open_graph(text, 0, NULL);
    mr_check(pthread_create(&t, NULL, write_and_close, path) == 0);
    mr_block b = MR_BLOCK_EMPTY;
    size_t rows = 0;
    mr_code rc;
    while ((rc = mr_iterator_next(it, 10, &b, &st)) == MR_OK)
        rows += b.rows;
    mr_code_is(rc, MR_END, &st);
    mr_eq_u64(rows, 2);
    pthread_join(t, NULL);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_free(path);
}

static struct {
    atomic_uint open;
    pthread_t consumer;
} callback;

static mr_code block_elsewhere(void *ctx, const mr_block *in, mr_block *out, mr_status *status)
{
    (void)ctx;
    while (!pthread_equal(pthread_self(), callback.consumer) && !atomic_load(&callback.open))
        mr__wait_while(&callback.open, 0, NULL);
    return mr_block_slice(out, in, 0, in->rows, status);
}

/* The callback does not end: only closing waits for it. */
MR_TEST(prefetch_gives_up_while_a_callback_blocks)
{
    mr_iterator *it = NULL;
    mr_cancel *c = new_cancel(NULL);
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *source = mr_test_graph("counter()");
    mr_dataset *ds =
        mr_prefetch(mr_map(source, mr_fn_element(block_elsewhere, NULL, NULL), NULL), 8);
    mr_iterator_opts o = {.threads = 2, .has_threads = true, .cancel = c};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    callback.consumer = pthread_self();
    pthread_t t = start_trigger(c);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        ;
    mr_code_is(rc, MR_CANCELLED, &st);
    pthread_join(t, NULL);
    atomic_store(&callback.open, 1);
    mr__wait_wake(&callback.open);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_cancel_unref(c);
}

MR_TEST(a_position_is_not_moved_by_a_read_that_was_given_up)
{
    char text[300];
    const char *path = mr_test_path("fifo");
    mr_check(mkfifo(path, 0600) == 0);
    snprintf(text, sizeof text, "from_tensors(\"a\").concatenate(text_line(\"%s\"))", path);
    mr_iterator *it = open_graph(text, 0, NULL);
    mr_block b = MR_BLOCK_EMPTY;
    void *before = NULL, *after = NULL;
    size_t n = 0, m = 0;
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &before, &n, &st), &st);
    mr_iterator_cancel(it);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    mr_ok(mr_iterator_save(it, &after, &m, &st), &st);
    mr_eq_u64(m, n);
    mr_eq_mem(after, before, n);
    mr_free(before);
    mr_free(after);
    mr_block_reset(&b);
    mr_iterator_close(it);
}
