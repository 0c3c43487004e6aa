/* SPDX-License-Identifier: Apache-2.0 */
/* Iterators and what they share, in children that are made by fork at quiet and at busy moments. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

static mr_iterator *open_it(mr_dataset *ds, const mr_iterator_opts *opts)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    return it;
}

/* Runs f in a child, where it returns what went wrong. A child that hangs is ended by its alarm. */
static void in_child(const char *(*f)(void *ctx), void *ctx)
{
    pid_t child = mr_test_fork();
    mr_check(child >= 0);
    if (child == 0) {
        alarm(60);
        const char *why = f(ctx);
        if (why)
            fprintf(stderr, "in the child: %s\n", why);
        _exit(why != NULL);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        mr_fail_test("the child ended with wait status %#x", (unsigned)status);
}

/* NULL: the sum of all int64 elements of a new iterator over ds is `sum`. */
static const char *adds_up(mr_dataset *ds, const mr_iterator_opts *opts, int64_t sum)
{
    static char why[900];
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc = mr_iterator_open(&it, ds, opts, &st);
    int64_t found = 0;
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1000, &b, &st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++)
            found += *(const int64_t *)mr_array_at(&b.columns[0], i);
    mr_block_reset(&b);
    mr_iterator_close(it);
    if (rc == MR_END && found == sum)
        return NULL;
    snprintf(why, sizeof why, "code %d, sum %lld: %s", rc, (long long)found,
             rc < 0 ? st.message : "");
    return why;
}

/* ---- an iterator of the parent ---- */

static bool refused(mr_code rc, const mr_status *st)
{
    return rc == MR_FAILED_PRECONDITION && mr_status_is_of_no_element(st) &&
           strstr(st->message, "the iterator belongs to the process that this one was forked from");
}

typedef struct used {
    mr_iterator *it;
    mr_dataset *ds;
    void *position;
    size_t size;
    int64_t sum;
} used;

static const char *every_use_is_refused(void *ctx)
{
    used *u = ctx;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    void *bytes;
    size_t n;
    double left_out;
    if (!refused(mr_iterator_check(u->it, &st), &st))
        return "check is not refused";
    if (!refused(mr_iterator_next(u->it, 1, &b, &st), &st) || b.rows != 0)
        return "next is not refused";
    if (!refused(mr_iterator_save(u->it, &bytes, &n, &st), &st) ||
        !refused(mr_iterator_save_at(u->it, &b, 0, &bytes, &n, &st), &st))
        return "save is not refused";
    if (!refused(mr_iterator_restore(u->it, u->position, u->size, &st), &st))
        return "restore is not refused";
    if (!refused(mr_iterator_rewind(u->it, &st), &st))
        return "rewind is not refused";
    if (mr_iterator_stats(u->it, NULL, 0) || mr_iterator_tuning(u->it, NULL, 0) ||
        mr_iterator_trace(u->it, NULL, 0, &left_out))
        return "statistics are not empty";
    mr_iterator_cancel(u->it);
    mr_iterator_close(u->it);
    return adds_up(u->ds, NULL, u->sum);
}

MR_TEST(a_child_cannot_use_the_iterator_of_its_parent)
{
    MR_TEST_THREADS_AFTER_FORK;
    const char *file = mr_test_file("numbers.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    char text[600];
    snprintf(text, sizeof text,
             "text_line(\"%s\").map(s => to_number(s, int64), num_parallel_calls=2).prefetch(2)",
             file);
    mr_status st;
    for (int threads = 0; threads < 4; threads += 3) {
        const mr_iterator_opts opts = {.positions = true, .has_threads = true, .threads = threads};
        used u = {.ds = mr_test_graph(text), .sum = 45};
        mr_block b = MR_BLOCK_EMPTY;
        u.it = open_it(u.ds, &opts);
        mr_ok(mr_iterator_next(u.it, 1, &b, &st), &st);
        int64_t sum = *(const int64_t *)mr_array_at(&b.columns[0], 0);
        mr_ok(mr_iterator_save(u.it, &u.position, &u.size, &st), &st);
        in_child(every_use_is_refused, &u);
        mr_code rc;
        while ((rc = mr_iterator_next(u.it, 1, &b, &st)) == MR_OK)
            sum += *(const int64_t *)mr_array_at(&b.columns[0], 0);
        mr_code_is(rc, MR_END, &st);
        mr_eq_i64(sum, 45);
        mr_check(mr_iterator_stats(u.it, NULL, 0) > 0);
        mr_ok(mr_iterator_restore(u.it, u.position, u.size, &st), &st);
        mr_ok(mr_iterator_check(u.it, &st), &st);
        mr_block_reset(&b);
        mr_free(u.position);
        mr_iterator_close(u.it);
        mr_dataset_unref(u.ds);
    }
}

static const char *grandchild(void *ctx)
{
    in_child(every_use_is_refused, ctx);
    return NULL;
}

MR_TEST(nor_can_a_grandchild)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    used u = {.ds = mr_test_graph("range(10)"), .sum = 45};
    u.it = open_it(u.ds, &(mr_iterator_opts){.positions = true});
    mr_ok(mr_iterator_next(u.it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(u.it, &u.position, &u.size, &st), &st);
    in_child(grandchild, &u);
    mr_ok(mr_iterator_next(u.it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_free(u.position);
    mr_iterator_close(u.it);
    mr_dataset_unref(u.ds);
}

/* ---- what else has threads, or is shared ---- */

static const char *executor_is_refused(void *ctx)
{
    mr_executor *ex = ctx, *own = NULL;
    mr_iterator *it = NULL;
    mr_status st;
    mr_dataset *ds = mr_range(0, 10, 1);
    mr_code rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.executor = ex}, &st);
    if (rc != MR_FAILED_PRECONDITION || !strstr(st.message, "the executor belongs to the process"))
        return "the parent's executor is not refused";
    mr_executor_free(ex);
    if (mr_executor_new(2, &own, &st) != MR_OK)
        return "no executor can be made";
    const char *why = adds_up(ds, &(mr_iterator_opts){.executor = own}, 45);
    mr_executor_free(own);
    mr_dataset_unref(ds);
    return why;
}

MR_TEST(a_child_cannot_use_the_executor_of_its_parent)
{
    MR_TEST_THREADS_AFTER_FORK;
    mr_executor *ex;
    mr_status st;
    mr_ok(mr_executor_new(2, &ex, &st), &st);
    in_child(executor_is_refused, ex);
    mr_dataset *ds = mr_range(0, 10, 1);
    const char *why = adds_up(ds, &(mr_iterator_opts){.executor = ex}, 45);
    if (why)
        mr_fail_test("%s", why);
    mr_dataset_unref(ds);
    mr_executor_free(ex);
}

typedef struct waiting {
    mr_cancel *cancel, *below;
    mr_cancel_waiter waiter;
    mr_dataset *ds;
    int fd;
} waiting;

static atomic_int n_woken;

static void wake(mr_cancel_waiter *w)
{
    (void)w;
    atomic_fetch_add(&n_woken, 1);
}

static const char *triggers(void *ctx)
{
    waiting *w = ctx;
    static mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    int fd;
    const mr_iterator_opts opts = {.cancel = w->cancel};
    if (mr_iterator_open(&it, w->ds, &opts, &st) != MR_OK)
        return st.message;
    mr_cancel_trigger(w->cancel);
    if (mr_iterator_next(it, 1, &b, &st) != MR_CANCELLED)
        return "an iterator of the child is not cancelled";
    if (atomic_load(&n_woken))
        return "a waiter of the parent is woken";
    mr_iterator_close(it);
    if (mr_cancel_fd(w->cancel, &fd, &st) != MR_OK)
        return st.message;
    mr_cancel_unregister(w->cancel, &w->waiter);
    mr_cancel_unref(w->below);
    mr_cancel_unref(w->cancel);
    return NULL;
}

MR_TEST(a_cancellation_in_a_child_is_not_one_in_its_parent)
{
    mr_status st;
    waiting w = {.waiter.wake = wake,
                 .ds = mr_test_graph("range(100000).map(x => x + 1).prefetch(1)")};
    mr_ok(mr_cancel_new(NULL, &w.cancel, &st), &st);
    mr_ok(mr_cancel_new(w.cancel, &w.below, &st), &st);
    mr_cancel_register(w.cancel, &w.waiter);
    mr_ok(mr_cancel_fd(w.cancel, &w.fd, &st), &st);
    in_child(triggers, &w);
    uint64_t count;
    mr_check(!mr_cancel_is_cancelled(w.cancel));
    mr_check(read(w.fd, &count, sizeof count) < 0); /* nothing was written to it */
    mr_cancel_trigger(w.cancel);
    mr_check(mr_cancel_is_cancelled(w.below));
    mr_check(atomic_load(&n_woken) == 1);
    mr_cancel_unregister(w.cancel, &w.waiter);
    mr_cancel_unref(w.below);
    mr_cancel_unref(w.cancel);
    mr_dataset_unref(w.ds);
}

static const char *is_watched(void *ctx)
{
    mr_iterator_close(ctx);
    mr_dataset *ds = mr_range(0, 10, 1);
    const char *why = adds_up(ds, &(mr_iterator_opts){.watch = true}, 45);
    mr_dataset_unref(ds);
    return why;
}

MR_TEST(a_child_of_a_watched_process_can_be_watched)
{
    MR_TEST_THREADS_AFTER_FORK;
    mr_dataset *ds = mr_range(0, 10, 1);
    mr_iterator *it = open_it(ds, &(mr_iterator_opts){.watch = true});
    in_child(is_watched, it);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

static const char *limited(void *ctx)
{
    mr_iterator_close(ctx);
    mr_dataset *ds = mr_test_graph("range(10)");
    const char *why = adds_up(ds, &(mr_iterator_opts){.memory_limit = (int64_t)1 << 40}, 45);
    mr_dataset_unref(ds);
    return why;
}

MR_TEST(a_child_counts_its_own_memory)
{
    mr_dataset *ds = mr_test_graph("range(10)");
    mr_iterator *it = open_it(ds, &(mr_iterator_opts){.memory_limit = (int64_t)1 << 40});
    in_child(limited, it);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* ---- busy moments ---- */

typedef struct busy {
    mr_dataset *ds;
    mr_iterator *it;
    mr_iterator_opts opts;
    int64_t sum;
    atomic_bool stop;
    atomic_int passes;
    const char *why;
} busy;

/* Reads pass after pass, with a new iterator each. */
static void *work(void *arg)
{
    busy *w = arg;
    static _Thread_local char why[900];
    do {
        const char *wrong = adds_up(w->ds, &w->opts, w->sum);
        if (wrong) {
            snprintf(why, sizeof why, "%s", wrong);
            w->why = why;
        }
        mr_log(MR_LOG_INFO, "a pass has ended");
        atomic_fetch_add(&w->passes, 1);
    } while (!atomic_load(&w->stop) && !w->why);
    return NULL;
}

static const char *works_in_child(void *ctx)
{
    busy *w = ctx;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    if (mr_iterator_next(w->it, 1, &b, &st) != MR_FAILED_PRECONDITION)
        return "the parent's iterator is not refused";
    mr_iterator_close(w->it);
    mr_log(MR_LOG_INFO, "in a child");
    const char *why = adds_up(w->ds, &w->opts, w->sum);
    mr_dataset_unref(w->ds);
    mr_buffer_pool_trim();
    return why;
}

static void ignore_log(void *ctx, mr_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

/* Forks while two threads run the graph over and over, and an iterator of this thread reads ahead.
 */
static void fork_while_busy(const char *text, int64_t sum, bool no_uring, int forks)
{
    busy w = {.ds = mr_test_graph(text),
              .opts = {.has_threads = true, .threads = 3, .no_uring = no_uring},
              .sum = sum};
    pthread_t threads[2];
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_log_set(ignore_log, NULL, MR_LOG_DEBUG);
    w.it = open_it(w.ds, &w.opts);
    mr_ok(mr_iterator_next(w.it, 1, &b, &st), &st);
    for (int i = 0; i < 2; i++)
        mr_check(pthread_create(&threads[i], NULL, work, &w) == 0);
    for (int i = 0; i < forks; i++)
        in_child(works_in_child, &w);
    atomic_store(&w.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    if (w.why)
        mr_fail_test("%s", w.why);
    mr_check(atomic_load(&w.passes) > 0);
    mr_ok(mr_iterator_next(w.it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(w.it);
    mr_dataset_unref(w.ds);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
}

#ifdef __SANITIZE_ADDRESS__ /* its allocator may be locked there */
#define FORKS_WHILE_BUSY mr_skip_test("AddressSanitizer is not whole after fork")
#else
#define FORKS_WHILE_BUSY MR_TEST_THREADS_AFTER_FORK
#endif

MR_TEST(fork_while_threads_work)
{
    FORKS_WHILE_BUSY;
    fork_while_busy("range(500).flat_map(i => range(i, i + 3)).map(x => x * 2, "
                    "num_parallel_calls=3).shuffle(50).batch(7).unbatch().prefetch(4)",
                    2 * (3 * 124750 + 3 * 500), false, 12);
}

static const char *many_lines(void)
{
    static char text[40000];
    char *to = text;
    for (int i = 1; i <= 2000; i++)
        to += sprintf(to, "%d\n", i);
    return mr_test_file("many.txt", text);
}

MR_TEST(fork_while_files_are_read)
{
    FORKS_WHILE_BUSY;
    char text[700];
    snprintf(text, sizeof text,
             "list_files(\"%s\").repeat(3).interleave(f => text_line(f), cycle_length=3, "
             "num_parallel_calls=2).map(s => to_number(s, int64), num_parallel_calls=2).cache()",
             many_lines());
    fork_while_busy(text, 3 * 2001000, true, 8);
    fork_while_busy(text, 3 * 2001000, false, 8);
}

/* ---- a task that runs ---- */

static atomic_bool entered, may_return;

static mr_code wait_long(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx, (void)pass, (void)want, (void)out, (void)st;
    atomic_store(&entered, true);
    while (!atomic_load(&may_return))
        usleep(1000);
    return MR_END;
}

static void *pull(void *it)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    (void)!mr_iterator_next(it, 1, &b, &st);
    mr_block_reset(&b);
    return NULL;
}

typedef struct running {
    mr_iterator *it;
    mr_executor *ex;
} running;

static const char *closes_both(void *ctx)
{
    running *r = ctx;
    mr_iterator_close(r->it);
    mr_executor_free(r->ex);
    return NULL;
}

MR_TEST(closing_in_a_child_waits_for_no_task)
{
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_from_generator(&(mr_generator){.next = wait_long, .may_block = true}, spec);
    running r = {0};
    pthread_t thread;
    mr_status st;
    mr_ok(mr_executor_new(1, &r.ex, &st), &st);
    r.it = open_it(ds, &(mr_iterator_opts){.executor = r.ex});
    mr_check(pthread_create(&thread, NULL, pull, r.it) == 0);
    while (!atomic_load(&entered))
        usleep(1000);
    in_child(closes_both, &r);
    atomic_store(&may_return, true);
    pthread_join(thread, NULL);
    mr_iterator_close(r.it);
    mr_executor_free(r.ex);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}
