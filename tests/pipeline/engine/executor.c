/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/executor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/wait/wait.h"
#include "tests/harness.h"

struct work {
    mr__task task; /* first, so that run finds the rest */
    mr_executor *ex;
    struct work *needs;
    int64_t result;
    pthread_t ran_on;
};

static void add(mr__task *t)
{
    struct work *w = (struct work *)t;
    if (w->needs) {
        mr__task_wait(w->ex, &w->needs->task);
        w->result = w->needs->result + 1;
    } else
        w->result = 1;
    w->ran_on = pthread_self();
}

static mr_executor *executor(int threads)
{
    mr_executor *ex = NULL;
    mr_status st;
    mr_ok(mr_executor_new(threads, &ex, &st), &st);
    return ex;
}

/* Each task needs the one before, which may be queued, running or done when it is asked for. */
static void run_chain(int threads)
{
    enum { N = 200 };
    static struct work w[N];
    mr_executor *ex = executor(threads);
    for (int i = 0; i < N; i++)
        w[i] = (struct work){.ex = ex, .needs = i ? &w[i - 1] : NULL, .task.run = add};
    for (int i = 0; i < N; i++)
        mr__task_submit(ex, &w[i].task);
    mr__task_wait(ex, &w[N - 1].task);
    mr_eq_i64(w[N - 1].result, N);
    for (int i = 0; i < N; i++)
        mr__task_wait(ex, &w[i].task);
    mr_executor_free(ex);
}

MR_TEST(a_chain_of_needs_ends_without_threads)
{
    run_chain(0);
}

MR_TEST(a_chain_of_needs_ends_with_one_thread)
{
    run_chain(1);
}

MR_TEST(a_chain_of_needs_ends_with_four_threads)
{
    run_chain(4);
}

MR_TEST(without_threads_tasks_run_in_the_waiting_thread)
{
    mr_executor *ex = executor(0);
    struct work w = {.ex = ex, .task.run = add};
    mr_eq_i64(mr__executor_threads(ex), 0);
    mr__task_submit(ex, &w.task);
    mr_check(!mr__task_done(&w.task));
    mr__task_wait(ex, &w.task);
    mr_check(mr__task_done(&w.task));
    mr_check(pthread_equal(w.ran_on, pthread_self()));
    mr_executor_free(ex);
}

MR_TEST(a_withdrawn_task_does_not_run)
{
    mr_executor *ex = executor(0);
    struct work w = {.ex = ex, .task.run = add};
    mr__task_submit(ex, &w.task);
    mr_check(mr__task_withdraw(ex, &w.task));
    mr_check(!mr__task_withdraw(ex, &w.task));
    mr__task_wait(ex, &w.task);
    mr_eq_i64(w.result, 0);
    mr__task_submit(ex, &w.task);
    mr__task_wait(ex, &w.task);
    mr_eq_i64(w.result, 1);
    mr_executor_free(ex);
}

MR_TEST(blocking_tasks_have_threads_of_their_own)
{
    enum { N = 8 };
    mr_executor *ex = executor(1);
    struct work w[N];
    for (int i = 0; i < N; i++) {
        w[i] = (struct work){.ex = ex, .task.run = add};
        mr__task_submit_blocking(ex, &w[i].task);
    }
    for (int i = 0; i < N; i++) {
        mr__task_wait(ex, &w[i].task);
        mr_eq_i64(w[i].result, 1);
        mr_check(!pthread_equal(w[i].ran_on, pthread_self()));
    }
    mr_executor_free(ex);
}

MR_TEST(freeing_wakes_all_idle_threads)
{
    mr_executor *ex = executor(8);
    usleep(20000); /* all of them sleep */
    mr_executor_free(ex);
}

struct late {
    mr__task task; /* first */
    atomic_int ended;
};

static void end_late(mr__task *t)
{
    usleep(50000);
    atomic_store(&((struct late *)t)->ended, 1);
}

MR_TEST(freeing_waits_for_blocking_tasks)
{
    struct late w[3] = {0};
    mr_executor *ex = executor(1);
    for (int i = 0; i < 3; i++) {
        w[i].task.run = end_late;
        mr__task_submit_blocking(ex, &w[i].task);
    }
    mr_executor_free(ex);
    for (int i = 0; i < 3; i++)
        mr_eq_i64(atomic_load(&w[i].ended), 1);
}

/* ---- which tasks may run ---- */

/* Runs until `end`. */
struct held {
    mr__task task; /* first */
    mr_executor *ex;
    bool enters;
    atomic_bool awake;
    atomic_uint started, end;
};

static void hold(mr__task *t)
{
    struct held *h = (struct held *)t;
    mr__sleep_watch before = {0};
    if (h->enters)
        before = mr__executor_enter(h->ex);
    atomic_store(&h->started, 1);
    while (!atomic_load(&h->end))
        if (atomic_load(&h->awake))
            usleep(100);
        else
            mr__wait_while(&h->end, 0, NULL);
    if (h->enters)
        mr__executor_leave(h->ex, before);
}

static void submit_held(mr_executor *ex, struct held *h, bool light)
{
    h->ex = ex;
    h->task.run = hold;
    h->task.light = light;
    mr__task_submit(ex, &h->task);
}

static void await_start(struct held *h)
{
    while (!atomic_load(&h->started))
        usleep(100);
}

static void end_held(struct held *h)
{
    atomic_store(&h->end, 1);
    mr__wait_wake(&h->end);
    mr__task_wait(h->ex, &h->task);
}

MR_TEST(others_run_in_the_place_of_tasks_that_sleep)
{
    enum { N = 6 };
    struct held h[N] = {0};
    mr_executor *ex = executor(2);
    for (int i = 0; i < N; i++) {
        submit_held(ex, &h[i], false);
        await_start(&h[i]); /* no thread waits for it to end */
    }
    for (int i = 0; i < N; i++)
        end_held(&h[i]);
    mr_executor_free(ex);
}

MR_TEST(no_more_tasks_are_awake_than_there_are_threads)
{
    struct held awake[2] = {{.awake = true}, {.awake = true}}, third = {0};
    mr_executor *ex = executor(2);
    for (int i = 0; i < 2; i++) {
        submit_held(ex, &awake[i], false);
        await_start(&awake[i]);
    }
    submit_held(ex, &third, false);
    usleep(20000);
    mr_check(mr__task_withdraw(ex, &third.task));
    submit_held(ex, &third, false);
    atomic_store(&awake[0].awake, false);
    await_start(&third);
    end_held(&third);
    end_held(&awake[0]);
    end_held(&awake[1]);
    mr_executor_free(ex);
}

MR_TEST(more_tasks_sleep_than_threads_may_be_started)
{
    enum { N = 100 };
    static struct held h[N];
    memset(h, 0, sizeof h);
    mr_executor *ex = executor(1);
    for (int i = 0; i < N; i++)
        submit_held(ex, &h[i], false);
    await_start(&h[N / 2]);
    usleep(20000);
    mr_check(!atomic_load(&h[N - 1].started));
    for (int i = 0; i < N; i++)
        end_held(&h[i]);
    mr_executor_free(ex);
}

MR_TEST(no_more_threads_are_started_than_there_is_room_for)
{
    enum { N = 50 };
    static struct held h[N];
    memset(h, 0, sizeof h);
    mr_executor *ex = executor(1);
    struct held asleep = {0};
    submit_held(ex, &asleep, false);
    await_start(&asleep);
    usleep(20000);
    int before = mr_test_threads();
    for (int i = 0; i < N; i++) {
        atomic_store(&h[i].awake, true);
        submit_held(ex, &h[i], false);
    }
    await_start(&h[0]);
    usleep(20000);
    mr_eq_i64(mr_test_threads(), before + 1);
    for (int i = 0; i < N; i++)
        end_held(&h[i]);
    end_held(&asleep);
    mr_executor_free(ex);
}

MR_TEST(tasks_queued_at_once_all_find_a_thread)
{
    for (int round = 0; round < 20; round++) {
        struct held first[2] = {{.awake = true}, {.awake = true}}, asleep = {0};
        struct held awake[2] = {{.awake = true}, {.awake = true}};
        mr_executor *ex = executor(2);
        for (int i = 0; i < 2; i++) { /* so that none of the threads is new */
            submit_held(ex, &first[i], false);
            await_start(&first[i]);
        }
        for (int i = 0; i < 2; i++)
            end_held(&first[i]);
        submit_held(ex, &asleep, false);
        await_start(&asleep);
        usleep(2000); /* it sleeps, and the other thread waits for a task */
        for (int i = 0; i < 2; i++)
            submit_held(ex, &awake[i], false);
        for (int i = 0; i < 2; i++)
            await_start(&awake[i]); /* no thread waits for them to end */
        for (int i = 0; i < 2; i++)
            end_held(&awake[i]);
        end_held(&asleep);
        mr_executor_free(ex);
    }
}

MR_TEST(tasks_that_sleep_keep_their_places_where_that_is_asked_for)
{
    struct held asleep = {0}, second = {0};
    mr_executor *ex = executor(1);
    mr__executor_keep_places(ex);
    submit_held(ex, &asleep, false);
    await_start(&asleep);
    submit_held(ex, &second, false);
    usleep(20000);
    mr_check(mr__task_withdraw(ex, &second.task));
    end_held(&asleep);
    submit_held(ex, &second, false);
    await_start(&second);
    end_held(&second);
    mr_executor_free(ex);
}

MR_TEST(light_tasks_leave_a_processor_to_those_who_pull)
{
    struct held first = {.awake = true}, second = {.awake = true}, heavy = {0};
    mr_executor *ex = executor(2);
    mr__sleep_watch before = mr__executor_enter(ex);
    submit_held(ex, &first, true);
    await_start(&first); /* one runs next to them */
    submit_held(ex, &second, true);
    usleep(20000);
    mr_check(mr__task_withdraw(ex, &second.task));
    submit_held(ex, &heavy, false);
    await_start(&heavy);
    end_held(&heavy);
    mr__executor_leave(ex, before);
    submit_held(ex, &second, true);
    await_start(&second);
    end_held(&second);
    end_held(&first);
    mr_executor_free(ex);
}

static void *pull_asleep(void *arg)
{
    struct held *h = arg;
    mr__sleep_watch before = mr__executor_enter(h->ex);
    atomic_store(&h->started, 1);
    mr__wait_while(&h->end, 0, NULL);
    mr__executor_leave(h->ex, before);
    return NULL;
}

MR_TEST(who_pulls_and_sleeps_does_not_count)
{
    struct held first = {.awake = true}, second = {.awake = true};
    mr_executor *ex = executor(2);
    struct held caller = {.ex = ex};
    pthread_t t;
    mr_eq_i64(pthread_create(&t, NULL, pull_asleep, &caller), 0);
    await_start(&caller);
    submit_held(ex, &first, true);
    await_start(&first);
    while (!atomic_load(&second.started)) { /* once it has spun */
        submit_held(ex, &second, true);
        usleep(1000);
        if (mr__task_withdraw(ex, &second.task))
            continue;
        await_start(&second);
    }
    end_held(&second);
    end_held(&first);
    atomic_store(&caller.end, 1);
    mr__wait_wake(&caller.end);
    pthread_join(t, NULL);
    mr_executor_free(ex);
}

MR_TEST(threads_of_the_pool_do_not_count_as_those_who_pull)
{
    struct held first = {.awake = true, .enters = true}, second = {.awake = true};
    mr_executor *ex = executor(2);
    submit_held(ex, &first, true);
    await_start(&first);
    submit_held(ex, &second, true);
    await_start(&second);
    end_held(&first);
    end_held(&second);
    mr__sleep_watch outer = mr__executor_enter(ex), inner = mr__executor_enter(ex);
    mr__executor_leave(ex, inner);
    mr__executor_leave(ex, outer);
    mr_executor_free(ex);
}

/* ---- sleeping ---- */

struct sleeper {
    atomic_uint word;
    atomic_int woke;
};

static void *sleep_until_changed(void *arg)
{
    struct sleeper *s = arg;
    while (atomic_load(&s->word) == 0)
        mr__wait_while(&s->word, 0, NULL);
    atomic_store(&s->woke, 1);
    return NULL;
}

MR_TEST(a_sleeper_is_woken_by_a_change)
{
    struct sleeper s = {0};
    pthread_t t;
    mr_eq_i64(pthread_create(&t, NULL, sleep_until_changed, &s), 0);
    atomic_store(&s.word, 1);
    mr__wait_wake(&s.word);
    pthread_join(t, NULL);
    mr_eq_i64(atomic_load(&s.woke), 1);
}

MR_TEST(impossible_numbers_of_threads_are_refused)
{
    mr_executor *ex = NULL;
    mr_status st;
    mr_code_is(mr_executor_new(-1, &ex, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_executor_new(1 << 20, &ex, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(ex == NULL);
}
