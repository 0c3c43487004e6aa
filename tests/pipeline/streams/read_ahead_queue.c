/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/read_ahead_queue.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/run.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/streams/queue_rig.h"

/* ---- delivering ---- */

MR_TEST(rows_and_errors_come_in_order_for_any_want)
{
    for (size_t want = 1; want < 9; want++) {
        rig r;
        rig_open(&r, "range(-2, 5).map(x => 6 // x)", 0, 0);
        mr_eq_str(rig_run(&r, 99, want), "-3 -6 ! 6 3 2 1");
        mr_eq_str(rig_run(&r, 1, 1), "");
        rig_close(&r);
    }
}

MR_TEST(a_pulled_block_is_delivered_in_pieces_and_forgotten_at_its_end)
{
    rig r;
    mr_status st;
    mr__entry *e;
    rig_open(&r, "range(10)", 0, 0);
    mr_ok(mr__queue_pull(&r.q, 4, NULL, &e, &st), &st);
    mr_ok(mr__queue_pull(&r.q, 3, NULL, NULL, &st), &st);
    mr_eq_u64(r.q.n, 2);
    mr_eq_u64(mr__entry_left(e), 4);
    mr_eq_str(rig_run(&r, 5, 3), "0 1 2 3 4");
    mr_eq_u64(r.q.n, 1);
    mr_eq_str(rig_run(&r, 99, 99), "5 6 7 8 9");
    rig_close(&r);
}

MR_TEST(dropping_goes_beyond_what_is_queued)
{
    rig r;
    mr_status st;
    rig_open(&r, "range(-2, 20).map(x => 6 // x)", 0, 3);
    mr_ok(mr__queue_pull(&r.q, 2, NULL, NULL, &st), &st);
    mr__queue_drop(&r.q, 1);
    mr_eq_u64(r.q.gap, 0);
    mr__queue_drop(&r.q, 4); /* -6, then the error, 6 and 3 of the input */
    mr_eq_u64(r.q.gap, 3);
    mr_eq_u64(r.q.n, 0);
    mr_eq_str(rig_run(&r, 3, 3), "2 1 1");
    rig_close(&r);
}

MR_TEST(rows_land_where_the_consumer_wants_them)
{
    /* batch copies; the queue hands the wish on and gives the placed block back whole. */
    rig r;
    mr_status st;
    int64_t slots[4] = {0};
    mr_segment segment = {slots, sizeof slots};
    mr_destination destination = {1, 1, &segment};
    mr_block b = {.destination = &destination};
    rig_open(&r, "range(8).shuffle(1).batch(4)", 0, 0);
    mr_ok(mr__queue_next(&r.q, 1, &b, &st), &st);
    mr_eq_i64(b.columns[0].storage, MR_PLACED);
    mr_eq_i64(slots[3], 3);
    mr_check(b.destination == &destination);
    b.destination = NULL;
    mr_block_reset(&b);
    rig_close(&r);
}

/* ---- positions ---- */

static const char *const lists[][2] = {
    {"range(-2, 5).map(x => 6 // x)", "-3 -6 ! 6 3 2 1"},
    {"range(7)", "0 1 2 3 4 5 6"},
    {"range(-3, 4).map(x => 6 // x).map(x => x, num_parallel_calls=3)", "-2 -3 -6 ! 6 3 2"},
};

/* Pulls `ahead` more than was delivered, saves, and continues from there in two rigs. */
static void check_restored(const char *const list[2], size_t delivered, size_t ahead, bool replays,
                           int64_t block_rows)
{
    rig a, b;
    mr_status st;
    mr_state_w w;
    mr_test_context("%s: %zu delivered, %zu ahead, blocks of %d%s", list[0], delivered, ahead,
                    (int)block_rows, replays ? "" : ", cannot be read again");
    rig_open(&a, list[0], 0, 3);
    if (!replays)
        mr_iter_set_no_replay(a.it->inputs[0]);
    for (size_t i = 0; i < ahead; i++)
        if (mr__queue_pull(&a.q, 3, NULL, NULL, &st) == MR_END)
            break;
    rig_run(&a, delivered, 2);
    rig_save(&a, 0, &w);
    mr_eq_str(rig_run(&a, 99, 99), rig_after(list[1], delivered)); /* saving changes nothing */
    rig_open(&b, list[0], 0, block_rows);
    if (!replays)
        mr_iter_set_no_replay(b.it->inputs[0]);
    rig_run(&b, 2, 1); /* it was used before */
    mr_ok(rig_restore(&b, &w, &st), &st);
    mr_state_w again; /* and saved before anything is delivered */
    rig_save(&b, 0, &again);
    mr_ok(rig_restore(&a, &again, &st), &st);
    mr_eq_str(rig_run(&b, 99, 99), rig_after(list[1], delivered));
    mr_eq_str(rig_run(&a, 99, 99), rig_after(list[1], delivered));
    mr__state_w_reset(&w);
    mr__state_w_reset(&again);
    rig_close(&a);
    rig_close(&b);
}

MR_TEST(what_was_not_delivered_comes_again_after_a_restore)
{
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t delivered = 0; delivered <= 7; delivered++)
            for (size_t ahead = 0; ahead < 4; ahead++)
                for (int way = 0; way < 4; way++)
                    check_restored(lists[l], delivered, ahead, way % 2, way / 2 ? 1 : 1024);
    mr_test_context("%s", "");
}

/* A block that was pulled after a restore, and not looked at: what is still to be skipped of it
 * belongs to the next position. */
MR_TEST(what_a_restore_has_still_to_skip_is_saved_again)
{
    for (size_t want = 1; want < 9; want++) {
        rig a, b;
        mr_status st;
        mr_state_w w, again;
        rig_open(&a, "range(9)", 0, 0);
        rig_open(&b, "range(9)", 0, 0);
        mr_ok(mr__queue_pull(&a.q, 6, NULL, NULL, &st), &st);
        rig_run(&a, 4, 4);
        rig_save(&a, 0, &w);
        mr_ok(rig_restore(&b, &w, &st), &st);
        mr_ok(mr__queue_pull(&b.q, want, NULL, NULL, &st), &st);
        rig_save(&b, 0, &again);
        mr_ok(rig_restore(&a, &again, &st), &st);
        mr_eq_str(rig_run(&a, 99, 9), "4 5 6 7 8");
        mr_eq_str(rig_run(&b, 99, 9), "4 5 6 7 8");
        mr__state_w_reset(&w);
        mr__state_w_reset(&again);
        rig_close(&a);
        rig_close(&b);
    }
}

MR_TEST(rows_that_can_be_read_again_are_not_saved)
{
    rig r;
    mr_state_w small, large;
    mr_status st;
    rig_open(&r, "range(100000)", 0, 0);
    mr_ok(mr__queue_pull(&r.q, 20000, NULL, NULL, &st), &st);
    rig_run(&r, 7, 7);
    rig_save(&r, 0, &small);
    mr_check(small.size < 200);
    mr_iter_set_no_replay(r.it->inputs[0]);
    rig_save(&r, 0, &large);
    mr_check(large.size > 19000 * 8);
    mr__state_w_reset(&small);
    mr__state_w_reset(&large);
    rig_close(&r);
}

MR_TEST(no_replay_reaches_all_iterators_above)
{
    /* map is unordered, so that neither take nor the op above it may save a position to read again:
     * its rows must be saved. */
    rig r;
    rig_open(&r, "range(9).map(x => x, num_parallel_calls=2, deterministic=false).take(9)", 2, 0);
    mr_check(!mr_iter_replays(r.it->inputs[0]));
    mr_check(!mr_iter_replays(r.it));
    mr_check(mr_iter_replays(r.it->inputs[0]->inputs[0]->inputs[0]));
    rig_close(&r);
}

MR_TEST(rows_may_count_as_taken_for_a_save_only)
{
    for (int replays = 0; replays < 2; replays++)
        for (size_t taken = 0; taken <= 4; taken++) {
            rig a, b;
            mr_status st;
            mr_state_w w;
            char expected[32];
            rig_open(&a, "range(6)", 0, 0);
            if (!replays)
                mr_iter_set_no_replay(a.it->inputs[0]);
            mr_ok(mr__queue_pull(&a.q, 4, NULL, NULL, &st), &st);
            rig_save(&a, taken, &w);
            rig_open(&b, "range(6)", 0, 0);
            mr_ok(rig_restore(&b, &w, &st), &st);
            mr_eq_str(rig_run(&b, 9, 9), rig_after("0 1 2 3 4 5", taken));
            snprintf(expected, sizeof expected, "%s", rig_run(&a, 9, 9));
            mr_eq_str(expected, "0 1 2 3 4 5");
            mr__state_w_reset(&w);
            rig_close(&a);
            rig_close(&b);
        }
}

MR_TEST(errors_among_rows_are_saved_in_their_places)
{
    for (size_t taken = 0; taken <= 5; taken++) {
        rig a, b;
        mr_status st, why;
        mr_state_w w;
        mr__entry *e;
        (void)mr_fail(&why, MR_DATA_LOSS, "bad");
        rig_open(&a, "range(3)", 0, 0);
        mr_iter_set_no_replay(a.it->inputs[0]);
        mr_ok(mr__queue_pull(&a.q, 3, NULL, &e, &st), &st);
        mr_ok(mr_row_errors_add(&e->errors, 1, &why, &st), &st);
        mr_ok(mr_row_errors_add(&e->errors, 4, &why, &st), &st);
        rig_run(&a, taken, 2);
        rig_save(&a, 0, &w);
        rig_open(&b, "range(3)", 0, 0);
        mr_ok(rig_restore(&b, &w, &st), &st);
        mr_eq_str(rig_run(&b, 9, 9), rig_after("0 ! 1 2 !", taken));
        mr__state_w_reset(&w);
        rig_close(&a);
        rig_close(&b);
    }
}

MR_TEST(ragged_rows_of_length_0_are_saved)
{
    rig a, b;
    mr_status st;
    mr_state_w w;
    const char *text = "range(4).map(x => ones([x % 3]))";
    rig_open(&a, text, 0, 0);
    mr_iter_set_no_replay(a.it->inputs[0]);
    mr__entry *e;
    for (size_t pulled = 0; pulled < 4; pulled += e->rows.rows)
        mr_ok(mr__queue_pull(&a.q, 4, NULL, &e, &st), &st);
    rig_save(&a, 0, &w);
    rig_open(&b, text, 0, 0);
    mr_ok(rig_restore(&b, &w, &st), &st);
    size_t row = 0;
    for (e = b.q.head; e; e = e->next)
        for (size_t i = 0; i < e->rows.rows; i++, row++) {
            const mr_array *column = &e->rows.columns[0];
            mr_eq_i64(mr_array_row_shape(column, i)[0], (int64_t)(row % 3));
            mr_array values;
            mr_ok(mr_array_ungroup(&values, column, i, &st), &st);
            for (size_t k = 0; k < values.rows; k++)
                mr_eq_f64(((const float *)values.data)[k], 1, 0);
            mr_array_reset(&values);
        }
    mr_eq_u64(row, 4);
    mr__state_w_reset(&w);
    rig_close(&a);
    rig_close(&b);
}

MR_TEST(a_gap_is_saved_and_counts_errors)
{
    for (int pulled = 0; pulled < 4; pulled++) {
        rig a, b;
        mr_status st;
        mr_state_w w;
        rig_open(&a, "range(-3, 8).map(x => 6 // x)", 0, 2);
        for (int i = 0; i < pulled; i++)
            mr_ok(mr__queue_pull(&a.q, 2, NULL, NULL, &st), &st);
        mr__queue_drop(&a.q, 6);
        rig_save(&a, 0, &w);
        rig_open(&b, "range(-3, 8).map(x => 6 // x)", 0, 3);
        mr_ok(rig_restore(&b, &w, &st), &st);
        mr_eq_str(rig_run(&b, 99, 9), "2 1 1 1 0");
        mr_eq_str(rig_run(&a, 99, 9), "2 1 1 1 0");
        mr__state_w_reset(&w);
        rig_close(&a);
        rig_close(&b);
    }
}

MR_TEST(a_gap_before_what_is_queued_is_saved)
{
    rig a, b;
    mr_status st;
    mr_state_w w;
    rig_open(&a, "range(9)", 0, 0);
    rig_open(&b, "range(9)", 0, 0);
    mr__queue_drop(&a.q, 2);
    mr_ok(mr__queue_pull(&a.q, 5, NULL, NULL, &st), &st); /* as a fill does meanwhile */
    rig_save(&a, 0, &w);
    mr_ok(rig_restore(&b, &w, &st), &st);
    mr_eq_str(rig_run(&b, 99, 9), "2 3 4 5 6 7 8");
    mr_eq_str(rig_run(&a, 99, 9), "2 3 4 5 6 7 8");
    mr__state_w_reset(&w);
    rig_close(&a);
    rig_close(&b);
}

MR_TEST(an_error_of_the_moment_is_not_one_of_the_skipped_events)
{
    rig a, b;
    int none = 0, once = 0;
    mr_status st;
    mr_state_w w;
    mr_ok(rig_open_dataset(&a,
                           mr_map(mr_test_graph("range(8)"),
                                  mr_fn_element(rig_short_of_memory, &none, NULL), NULL),
                           0, 0, &st),
          &st);
    mr_ok(mr__queue_pull(&a.q, 6, NULL, NULL, &st), &st);
    rig_run(&a, 5, 5);
    rig_save(&a, 0, &w);
    mr_ok(rig_open_dataset(&b,
                           mr_map(mr_test_graph("range(8)"),
                                  mr_fn_element(rig_short_of_memory, &once, NULL), NULL),
                           0, 2, &st),
          &st);
    mr_ok(rig_restore(&b, &w, &st), &st);
    once = 1;
    mr_block block = MR_BLOCK_EMPTY;
    /* The C function's error used up row 2 of the map; the queue does not count it. */
    mr_code_is(mr__queue_next(&b.q, 9, &block, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_eq_u64(b.q.skip, 3);
    mr_eq_u64(b.q.n, 0);
    mr_block_reset(&block);
    mr__state_w_reset(&w);
    rig_close(&a);
    rig_close(&b);
}

/* ---- hostile states and want of memory ---- */

MR_TEST(states_that_no_save_writes_are_refused)
{
    static const struct {
        const char *what, *bytes;
        size_t n;
    } cases[] = {
        {"nothing", "", 0},
        {"another place", "\2", 1},
        {"no position", "\1", 1},
        {"an empty position", "\1\0\0\0\0", 5},
        {"a position that ends", "\1\177abc", 5},
    };
    rig r;
    mr_status st;
    mr_state_w good;
    rig_open(&r, "range(6)", 0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_state_r in = {.at = (const unsigned char *)cases[i].bytes,
                         .end = (const unsigned char *)cases[i].bytes + cases[i].n};
        mr_test_context("%s", cases[i].what);
        mr_code_is(mr__queue_restore(&r.q, r.it->inputs[0]->spec, &in, &st), MR_INVALID_ARGUMENT,
                   &st);
    }
    mr__queue_clear(&r.q);
    mr_iter_set_no_replay(r.it->inputs[0]);
    mr_ok(mr__queue_pull(&r.q, 2, NULL, NULL, &st), &st);
    rig_save(&r, 0, &good);
    for (size_t n = 0; n < good.size; n++) { /* cut short at every byte */
        mr_state_r in = {.at = good.data, .end = good.data + n};
        mr_test_context("cut at %zu", n);
        mr_code_is(mr__queue_restore(&r.q, r.it->inputs[0]->spec, &in, &st), MR_INVALID_ARGUMENT,
                   &st);
    }
    mr_test_context("%s", "");
    mr__state_w_reset(&good);
    rig_close(&r);
}

/* A state with the input at its start and what `put` adds. */
static void check_hostile(const char *what, uint64_t skip, uint64_t gap, uint64_t n,
                          void (*put)(mr_state_w *w, mr_iter *it))
{
    rig r;
    mr_status st;
    mr_state_w w = {0};
    mr_test_context("%s", what);
    rig_open(&r, "range(6)", 0, 0);
    mr_ok(mr_state_put_u64(&w, 0, &st), &st);
    mr_ok(mr_iter_save(r.it->inputs[0], &w, &st), &st);
    mr_ok(mr_state_put_u64(&w, skip, &st), &st);
    mr_ok(mr_state_put_u64(&w, gap, &st), &st);
    mr_ok(mr_state_put_u64(&w, n, &st), &st);
    if (put)
        put(&w, r.it);
    mr_code_is(rig_restore(&r, &w, &st), MR_INVALID_ARGUMENT, &st);
    mr__state_w_reset(&w);
    rig_close(&r);
}

static void put_nothing(mr_state_w *w, mr_iter *it)
{
    mr_block none = MR_BLOCK_EMPTY;
    mr_status st;
    (void)it;
    mr_ok(mr_state_put_i64(w, MR_OK, &st), &st);
    mr_ok(mr_state_put_block(w, &none, &st), &st);
    mr_ok(mr_state_put_u64(w, 0, &st), &st);
}

static void put_errors(mr_state_w *w, uint64_t first, uint64_t second)
{
    mr_block none = MR_BLOCK_EMPTY;
    mr_status st, why;
    (void)mr_fail(&why, MR_DATA_LOSS, "bad");
    mr_ok(mr_state_put_i64(w, MR_OK, &st), &st);
    mr_ok(mr_state_put_block(w, &none, &st), &st);
    mr_ok(mr_state_put_u64(w, 2, &st), &st);
    mr_ok(mr_state_put_u64(w, first, &st), &st);
    mr_ok(mr_state_put_status(w, &why, &st), &st);
    mr_ok(mr_state_put_u64(w, second, &st), &st);
    mr_ok(mr_state_put_status(w, &why, &st), &st);
}

static void put_far_error(mr_state_w *w, mr_iter *it)
{
    (void)it;
    put_errors(w, 0, 2);
}

static void put_errors_apart(mr_state_w *w, mr_iter *it)
{
    (void)it;
    put_errors(w, 0, 1);
}

static void put_two_errors_in_one_place(mr_state_w *w, mr_iter *it)
{
    (void)it;
    put_errors(w, 0, 0);
}

static void put_code_without_error(mr_state_w *w, mr_iter *it)
{
    mr_status st;
    (void)it;
    mr_ok(mr_state_put_i64(w, MR_END, &st), &st);
    mr_ok(mr_state_put_i64(w, MR_END, &st), &st);
}

MR_TEST(entries_that_no_pull_gives_are_refused)
{
    check_hostile("an entry without rows and errors", 0, 0, 1, put_nothing);
    check_hostile("an error outside of its block", 0, 0, 1, put_far_error);
    check_hostile("two errors in one place", 0, 0, 1, put_two_errors_in_one_place);
    check_hostile("a code that is no error", 0, 0, 1, put_code_without_error);
    check_hostile("more entries than bytes", 0, 0, 5, put_nothing);
    check_hostile("far too many entries", 0, 0, UINT64_MAX, NULL);
    check_hostile("more rows taken than a block has", (uint64_t)1 << 40, 0, 0, NULL);
    check_hostile("a gap before entries", 0, 1, 1, put_errors_apart);
    mr_test_context("%s", "");
}

MR_TEST(without_memory_saving_and_restoring_say_so)
{
    for (int replays = 0; replays < 2; replays++) {
        rig good;
        mr_status st;
        mr_state_w state;
        rig_open(&good, "range(-2, 5).map(x => 6 // x)", 0, 0);
        if (!replays)
            mr_iter_set_no_replay(good.it->inputs[0]);
        for (int i = 0; i < 4; i++)
            mr_ok(mr__queue_pull(&good.q, 2, NULL, NULL, &st), &st);
        rig_run(&good, 1, 1);
        rig_save(&good, 0, &state);
        mr_fault_each_allocation(n)
        {
            rig r;
            mr_state_w w = {0};
            mr_dataset *ds = NULL;
            const char *text = "range(-2, 5).map(x => 6 // x)";
            mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
            if (mr_fault_expect(rc, &st) != MR_OK ||
                mr_fault_expect(rig_open_dataset(&r, ds, 0, 0, &st), &st) != MR_OK)
                continue;
            if (!replays)
                mr_iter_set_no_replay(r.it->inputs[0]);
            if (mr_fault_expect(rig_restore(&r, &state, &st), &st) == MR_OK) {
                (void)mr_fault_expect(mr__queue_pull(&r.q, 2, NULL, NULL, &st), &st);
                if (mr_fault_expect(mr__queue_save(&r.q, 0, &w, &st), &st) == MR_OK)
                    (void)mr_fault_expect(rig_restore(&r, &w, &st), &st);
            }
            mr__state_w_reset(&w);
            rig_close(&r);
        }
        mr__state_w_reset(&state);
        rig_close(&good);
    }
}
