/* SPDX-License-Identifier: Apache-2.0 */
/* mr_fn_rows: callbacks that say which rows failed, with begin and end, keys and cancellation. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

#include "pipeline/functions/compiler/program.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/wait/cancel.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

static atomic_int begun, ended, released, calls_without_run;

static mr_code begin(void *ctx, void **run, mr_status *st)
{
    (void)st;
    *run = ctx;
    begun++;
    return MR_OK;
}
static void end(void *ctx, void *run)
{
    mr_check(ctx == run);
    ended++;
}
static void release(void *ctx)
{
    (void)ctx;
    released++;
}

/* Doubles; each third element fails. */
static mr_code twice(void *ctx, const mr_rows_call *c, const mr_block *in, mr_block *out,
                     mr_row_errors *errors, mr_status *st)
{
    mr_status why;
    if (c->run != ctx)
        calls_without_run++;
    mr_check(mr_spec_n_leaves(c->in) == in->n_columns);
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    int64_t *to = out->columns[0].data;
    const int64_t *from = in->columns[0].data;
    for (size_t i = 0; i < in->rows; i++) {
        if (from[i] % 3 != 2) {
            to[out->rows++] = 2 * from[i];
            continue;
        }
        mr_fail(&why, MR_INVALID_ARGUMENT, "no_%d", (int)from[i]);
        MR_TRY(mr_row_errors_add(errors, i, &why, st));
    }
    out->columns[0].rows = out->rows;
    return MR_OK;
}

static char ctx;

static mr_fn *doubling(void)
{
    const mr_rows_fn f = {.ctx = &ctx,
                          .call = twice,
                          .begin = begin,
                          .end = end,
                          .release = release,
                          .label = "twice",
                          .may_block = true};
    return mr_fn_rows(&f);
}

MR_TEST(errors_are_in_the_places_of_their_rows)
{
    static const char expected[] = "0 2 !no_2 6 8 !no_5 12";
    mr_drive_dataset(mr_map(mr_range(0, 7, 1), doubling(), NULL), expected);
    mr_drive_dataset(mr_map(mr_range(0, 7, 1), doubling(), &(mr_map_opts){.num_parallel_calls = 3}),
                     expected);
    mr_drive_dataset(mr_map(mr_range(2, 3, 1), doubling(), NULL), "!no_2");
    mr_drive_dataset(mr_map(mr_range(0, 0, 1), doubling(), NULL), "");
    mr_drive_dataset(mr_repeat(mr_map(mr_range(0, 3, 1), doubling(), NULL), 2),
                     "0 2 !no_2 0 2 !no_2");
    mr_check(begun > 0);
    mr_eq_i64(begun, ended);
    mr_eq_i64(released, 5);
    mr_eq_i64(calls_without_run, 0);
}

MR_TEST(begins_once_for_an_iterator_and_ends_with_it)
{
    mr_dataset *ds = mr_repeat(mr_map(mr_range(0, 2, 1), doubling(), NULL), 3);
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    int before = begun;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    while (mr_iterator_next(it, 1, &b, &st) == MR_OK)
        ;
    mr_eq_i64(begun, before + 1);
    mr_eq_i64(ended, before);
    mr_ok(mr_iterator_rest(it, &st), &st);
    mr_eq_i64(ended, before + 1);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_eq_i64(begun, before + 2);
    mr_eq_i64(ended, before + 2);
    mr_dataset_unref(ds);
}

MR_TEST(text_shows_the_label_or_the_alias)
{
    mr_status st;
    char *text;
    mr_dataset *ds = mr_map(mr_range(0, 2, 1), doubling(), NULL);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "range(0, 2).map(callback(\"twice\"))");
    mr_free(text);
    void *bytes;
    size_t size;
    mr_eq_i64(mr_dataset_to_proto(ds, &bytes, &size, &st), MR_FAILED_PRECONDITION);
    mr_dataset_unref(ds);
    const mr_rows_fn named = {.call = twice, .name = "rows_twice"};
    mr_fn *fn = mr_fn_rows(&named);
    ds = mr_map(mr_range(0, 4, 1), mr_fn_ref(fn), NULL);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "range(0, 4).map(rows_twice)");
    mr_free(text);
    mr_drive_dataset(ds, "0 2 !no_2 6");
    mr_drive("range(4).map(x => rows_twice(x) + 1)", "1 3 !no_2 7");
    mr_fn_unref(fn);
    ds = mr_map(mr_range(0, 2, 1), mr_fn_rows(&named), NULL);
    mr_eq_i64(mr_dataset_check(ds, &st), MR_ALREADY_EXISTS);
    mr_dataset_unref(ds);
    const mr_rows_fn alias = {.call = twice, .alias = "rows_twice", .label = "twice"};
    ds = mr_map(mr_range(0, 2, 1), mr_fn_rows(&alias), NULL);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "range(0, 2).map(rows_twice)");
    mr_free(text);
    mr_dataset_unref(ds);
}

/* ---- keys ---- */

static mr_code draw(void *unused, const mr_rows_call *c, const mr_block *in, mr_block *out,
                    mr_row_errors *errors, mr_status *st)
{
    (void)unused;
    (void)errors;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    for (size_t i = 0; i < in->rows; i++)
        ((int64_t *)out->columns[0].data)[i] = (int64_t)(mr_rows_key(c, i, 7) % 1000);
    out->rows = in->rows;
    return MR_OK;
}

static void keys_of(int64_t parallel, uint64_t seed, size_t want, int64_t keys[12])
{
    const mr_rows_fn f = {.call = draw, .draws = true, .label = "draw"};
    mr_dataset *ds = mr_repeat(
        mr_map(mr_range(0, 6, 1), mr_fn_rows(&f), &(mr_map_opts){.num_parallel_calls = parallel}),
        2);
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.seed = seed, .has_seed = true};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    for (size_t n = 0; n < 12; n += b.rows) {
        mr_ok(mr_iterator_next(it, want, &b, &st), &st);
        for (size_t i = 0; i < b.rows; i++)
            keys[n + i] = ((int64_t *)b.columns[0].data)[i];
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(keys_depend_on_seed_element_and_epoch_alone)
{
    int64_t a[12], b[12];
    int same = 0;
    keys_of(0, 1, 1, a);
    keys_of(3, 1, 4, b);
    for (int i = 0; i < 12; i++)
        mr_eq_i64(a[i], b[i]);
    for (int i = 0; i < 6; i++)
        same += a[i] == a[i + 6];
    mr_check(same < 3);
    keys_of(0, 2, 1, b);
    same = 0;
    for (int i = 0; i < 12; i++)
        same += a[i] == b[i];
    mr_check(same < 4);
}

/* ---- waits ---- */

/* Waits until it is cancelled. */
static mr_code hang(void *unused, const mr_rows_call *c, const mr_block *in, mr_block *out,
                    mr_row_errors *errors, mr_status *st)
{
    (void)unused;
    (void)in;
    (void)out;
    (void)errors;
    struct pollfd p = {.events = POLLIN};
    MR_TRY(mr_cancel_fd(c->cancel, &p.fd, st));
    while (poll(&p, 1, -1) < 1)
        ;
    return mr_fail(st, MR_CANCELLED, "given up");
}

static void cancel_soon(mr_cancel_waiter *w)
{
    (void)w;
}

MR_TEST(a_call_that_waits_can_be_cancelled)
{
    const mr_rows_fn f = {.call = hang, .may_block = true};
    mr_dataset *ds =
        mr_map(mr_range(0, 3, 1), mr_fn_rows(&f), &(mr_map_opts){.num_parallel_calls = 2});
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_cancel *c;
    mr_cancel_waiter w = {.wake = cancel_soon};
    mr_ok(mr_cancel_new(NULL, &c, &st), &st);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.cancel = c}, &st), &st);
    mr_cancel_register(c, &w);
    mr_cancel_trigger(c);
    mr_eq_i64(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED);
    mr_cancel_unregister(c, &w);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_cancel_unref(c);
    mr_dataset_unref(ds);
}

static mr_code lie(void *unused, const mr_rows_call *c, const mr_block *in, mr_block *out,
                   mr_row_errors *errors, mr_status *st)
{
    (void)unused;
    (void)c;
    (void)out;
    mr_status why;
    mr_fail(&why, MR_INVALID_ARGUMENT, "never");
    return mr_row_errors_add(errors, in->rows + 3, &why, st);
}

MR_TEST(wrong_answers_are_internal_errors)
{
    const mr_rows_fn f = {.call = lie, .label = "lie"};
    mr_dataset *ds = mr_map(mr_range(0, 3, 1), mr_fn_rows(&f), NULL);
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_eq_i64(mr_iterator_next(it, 2, &b, &st), MR_INTERNAL);
    mr_iterator_close(it);
    mr_block_reset(&b);
    mr_dataset_unref(ds);
}
