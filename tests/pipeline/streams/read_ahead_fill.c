/* SPDX-License-Identifier: Apache-2.0 */
/* The read-ahead queue with tasks: the fill, and those of entries. */
#include <stdatomic.h>
#include <time.h>

#include "pipeline/engine/run.h"
#include "pipeline/engine/op_buffering.h"
#include "tests/harness.h"
#include "tests/pipeline/streams/queue_rig.h"

/* ---- the fill ---- */

static void wait_until_filled(rig *r)
{
    mr_await(!mr__queue_filling(&r->q));
}

MR_TEST(a_lack_of_memory_is_not_an_element_of_the_gap)
{
    rig r;
    int once = 1;
    mr_status st;
    mr__ahead ahead = {.entries = 9, .rows = 99, .bytes = SIZE_MAX};
    mr_dataset *ds =
        mr_map(mr_test_graph("range(8)"), mr_fn_element(rig_short_of_memory, &once, NULL), NULL);
    mr_ok(rig_open_dataset(&r, ds, 1, 2, &st), &st);
    mr_ok(mr__queue_open_ahead(&r.q, r.it, r.it->inputs[0], mr_iter_executor(r.it), &ahead, &st),
          &st);
    mr__queue_drop(&r.q, 4);
    mr__queue_start(&r.q);
    wait_until_filled(&r);
    mr_eq_str(rig_run(&r, 99, 9), "! 4 5 6 7"); /* 2 was tried again, and nothing else lost */
    rig_close(&r);
}

/* Row 0 is not given before the consumer sleeps, nor row 1 before it has row 0. */
struct slow_source {
    mr__queue *queue;
    atomic_bool begun, delivered;
};

static mr_code give_when_wanted(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    struct slow_source *s = ctx;
    bool sleeps = false;
    atomic_store(&s->begun, true);
    while (((const int64_t *)in->columns[0].data)[0] == 0 && !sleeps) {
        pthread_mutex_lock(&s->queue->lock);
        sleeps = s->queue->waiting;
        pthread_mutex_unlock(&s->queue->lock);
        rig_pause(20);
    }
    while (((const int64_t *)in->columns[0].data)[0] == 1 && !atomic_load(&s->delivered))
        rig_pause(1);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(a_consumer_that_sleeps_is_woken_by_the_first_row)
{
    rig r;
    mr_status st;
    struct slow_source s = {.queue = &r.q};
    mr__ahead ahead = {.entries = 9, .rows = 99, .bytes = SIZE_MAX};
    mr_dataset *ds =
        mr_map(mr_test_graph("range(3)"), mr_fn_element(give_when_wanted, &s, NULL), NULL);
    mr_ok(rig_open_dataset(&r, ds, 1, 1, &st), &st);
    mr_ok(mr__queue_open_ahead(&r.q, r.it, r.it->inputs[0], mr_iter_executor(r.it), &ahead, &st),
          &st);
    mr__queue_start(&r.q);
    while (!atomic_load(&s.begun)) /* or the consumer takes the fill back */
        rig_pause(1);
    mr_eq_str(rig_run(&r, 1, 1), "0");
    atomic_store(&s.delivered, true);
    mr_eq_str(rig_run(&r, 9, 1), "1 2");
    rig_close(&r);
}

MR_TEST(the_fill_keeps_within_its_limits)
{
    static const struct {
        mr__ahead ahead;
        size_t least_rows, most_rows, most_entries;
    } cases[] = {
        {{.entries = SIZE_MAX, .rows = 5, .bytes = SIZE_MAX}, 5, 5, 5},
        {{.entries = 1, .rows = SIZE_MAX, .bytes = SIZE_MAX}, 1, SIZE_MAX, 1},
        {{.least = 2, .entries = 8, .rows = SIZE_MAX, .bytes = 1}, 2, SIZE_MAX, 2},
        {{.entries = 3, .rows = SIZE_MAX, .bytes = SIZE_MAX}, 3, SIZE_MAX, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open_ahead(&r, "range(100000)", 1, cases[i].ahead);
        mr_test_context("case %zu", i);
        mr__queue_start(&r.q);
        wait_until_filled(&r);
        mr_check(r.q.rows >= cases[i].least_rows && r.q.rows <= cases[i].most_rows);
        mr_check(r.q.n <= cases[i].most_entries);
        mr_eq_str(rig_run(&r, 4, 3), "0 1 2 3");
        rig_close(&r);
    }
}

MR_TEST(errors_fill_the_queue_as_rows_do)
{
    rig r;
    rig_open_ahead(&r, "range(1000).map(x => 1 // (x * 0))", 1,
                   (mr__ahead){.entries = SIZE_MAX, .rows = 4, .bytes = SIZE_MAX});
    mr__queue_start(&r.q);
    wait_until_filled(&r);
    mr_eq_u64(r.q.n, 4);
    mr_eq_str(rig_run(&r, 6, 1), "! ! ! ! ! !");
    rig_close(&r);
}

struct blocker {
    mr__task task;
    atomic_bool begun, go;
};

static void block_thread(mr__task *task)
{
    struct blocker *b = (struct blocker *)task;
    atomic_store(&b->begun, true);
    while (!atomic_load(&b->go))
        rig_pause(1);
}

/* The pool's only thread does not come back: what waits for it hangs until the test's time-out. */
static void occupy(rig *r, struct blocker *b)
{
    b->task.run = block_thread;
    mr__task_submit(mr_iter_executor(r->it), &b->task);
    while (!atomic_load(&b->begun))
        rig_pause(1);
}

MR_TEST(the_consumer_withdraws_a_fill_that_no_thread_has_begun)
{
    rig r;
    struct blocker b = {0};
    rig_open_ahead(&r, "range(9)", 1,
                   (mr__ahead){.entries = 4, .rows = SIZE_MAX, .bytes = SIZE_MAX});
    occupy(&r, &b);
    mr__queue_start(&r.q);
    mr_check(mr__queue_filling(&r.q));
    mr_eq_str(rig_run(&r, 3, 1), "0 1 2");
    mr_state_w w;
    mr_status st;
    mr__queue_start(&r.q);
    rig_save(&r, 0, &w);
    mr__queue_start(&r.q);
    mr_ok(rig_restore(&r, &w, &st), &st);
    mr__queue_start(&r.q);
    mr_eq_str(rig_run(&r, 99, 5), "3 4 5 6 7 8");
    mr__queue_clear(&r.q);
    mr_check(!mr__queue_filling(&r.q));
    atomic_store(&b.go, true);
    mr__task_wait(mr_iter_executor(r.it), &b.task);
    mr__state_w_reset(&w);
    rig_close(&r);
}

static mr_code slow(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    nanosleep(&(struct timespec){0, 300 * 1000}, NULL);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(saving_and_restoring_while_the_fill_runs)
{
    for (size_t delivered = 0; delivered < 12; delivered++) {
        for (int replays = 0; replays < 2; replays++) {
            rig a, b;
            mr_status st;
            mr_state_w w;
            const mr__ahead ahead = {.entries = SIZE_MAX, .rows = 5, .bytes = SIZE_MAX};
            mr_dataset *ds =
                mr_map(mr_test_graph("range(12)"), mr_fn_element(slow, NULL, NULL), NULL);
            mr_ok(rig_open_dataset(&a, ds, 2, 0, &st), &st);
            mr_ok(mr__queue_open_ahead(&a.q, a.it, a.it->inputs[0], mr_iter_executor(a.it), &ahead,
                                       &st),
                  &st);
            if (!replays)
                mr_iter_set_no_replay(a.it->inputs[0]);
            rig_run(&a, delivered, 2);
            rig_save(&a, 0, &w);
            ds = mr_map(mr_test_graph("range(12)"), mr_fn_element(slow, NULL, NULL), NULL);
            mr_ok(rig_open_dataset(&b, ds, 2, 0, &st), &st);
            mr_ok(mr__queue_open_ahead(&b.q, b.it, b.it->inputs[0], mr_iter_executor(b.it), &ahead,
                                       &st),
                  &st);
            mr__queue_start(&b.q); /* restored while it fills */
            mr_ok(rig_restore(&b, &w, &st), &st);
            const char *rest = rig_after("0 1 2 3 4 5 6 7 8 9 10 11", delivered);
            mr_eq_str(rig_run(&b, 99, 4), rest);
            mr_eq_str(rig_run(&a, 99, 4), rest);
            mr__state_w_reset(&w);
            rig_close(&a);
            rig_close(&b);
        }
    }
}

/* ---- tasks of entries ---- */

static void finish_entry(mr__task *task)
{
    mr__entry *e = (mr__entry *)((char *)task - offsetof(mr__entry, task));
    mr_block_move(&e->rows, &e->in);
}

MR_TEST(an_entry_is_looked_at_when_its_task_is_done)
{
    rig r;
    mr_status st;
    mr__entry *e;
    struct blocker b = {0};
    rig_open(&r, "range(6)", 1, 0);
    occupy(&r, &b);
    for (int i = 0; i < 2; i++) {
        mr_ok(mr__queue_pull(&r.q, 2, NULL, &e, &st), &st);
        mr_block_move(&e->in, &e->rows);
        e->task.run = finish_entry;
        mr__task_submit(mr_iter_executor(r.it), &e->task);
    }
    mr_check(!mr__task_done(&r.q.head->task));
    mr_eq_str(rig_run(&r, 2, 2), "0 1"); /* run here: the thread is elsewhere */
    mr__queue_clear(&r.q);               /* the second is withdrawn */
    mr_check(!r.q.head);
    mr_eq_str(rig_run(&r, 9, 9), "4 5");
    atomic_store(&b.go, true);
    mr__task_wait(mr_iter_executor(r.it), &b.task);
    rig_close(&r);
}
