/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"

/* Counts to 5, an error in place of 2. */
struct pass {
    int64_t next;
};

static int released;
static atomic_bool stopped;

static mr_code open_pass(void *ctx, void **pass, mr_status *st)
{
    (void)ctx;
    *pass = mr_calloc(1, sizeof(struct pass));
    return *pass ? MR_OK : mr_fail_memory(st, sizeof(struct pass), "a pass");
}
static mr_code next_row(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx;
    struct pass *p = pass;
    if (p->next == 5)
        return MR_END;
    if (p->next == 2) {
        p->next++;
        return mr_fail(st, MR_DATA_LOSS, "no two");
    }
    size_t n = want > 1 && p->next == 0 ? 2 : 1;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    for (size_t i = 0; i < n; i++)
        ((int64_t *)out->columns[0].data)[i] = p->next++;
    out->rows = n;
    return MR_OK;
}
static void close_pass(void *ctx, void *pass)
{
    (void)ctx;
    mr_free(pass);
}
static mr_code save(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st)
{
    (void)ctx;
    *size = sizeof(struct pass);
    *bytes = mr_memdup(pass, *size);
    return *bytes ? MR_OK : mr_fail_memory(st, *size, "a position");
}
static mr_code restore(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st)
{
    (void)ctx;
    if (size != sizeof(struct pass))
        return mr_fail(st, MR_INVALID_ARGUMENT, "not mine");
    memcpy(pass, bytes, size);
    return MR_OK;
}
static void release(void *ctx)
{
    (void)ctx;
    released++;
}

static mr_dataset *five(bool may_block, bool positions)
{
    mr_generator g = {.open = open_pass,
                      .next = next_row,
                      .close = close_pass,
                      .save = positions ? save : NULL,
                      .restore = positions ? restore : NULL,
                      .release = release,
                      .may_block = may_block};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_from_generator(&g, spec);
    mr_spec_unref(spec);
    return ds;
}

MR_TEST(gives_what_the_callbacks_make)
{
    mr_drive_dataset(five(false, true), "0 1 !no_two 3 4");
    mr_drive_dataset(five(true, true), "0 1 !no_two 3 4");
    mr_drive_dataset(mr_repeat(mr_batch(five(false, true), 2, NULL), 2),
                     "[0,1] !no_two [3,4] [0,1] !no_two [3,4]");
    mr_eq_i64(released, 3);
}

/* A task pulls the input of the calls. */
MR_TEST(parallel_calls_over_a_producer_deliver_all)
{
    const mr_map_opts three = {.num_parallel_calls = 3}, any = {.num_parallel_calls = MR_AUTO};
    const mr_filter_opts two = {.num_parallel_calls = 2};
    mr_drive_dataset(mr_map(five(true, true), mr_fn_text("x => x + 1"), &three), "1 2 !no_two 4 5");
    mr_drive_dataset(mr_map(five(true, true), mr_fn_text("x => 6 // (x - 3)"), &any),
                     "-2 -3 !no_two !integer_division_by_zero 6");
    mr_drive_dataset(mr_filter(five(true, true), mr_fn_text("x => x != 1"), &two), "0 !no_two 3 4");
    mr_drive_dataset(mr_flat_map(five(true, true), mr_fn_text("x => range(x)")),
                     "0 !no_two 0 1 2 0 1 2 3");
}

/* Row i is made once the consumer has row i - 1. */
struct conversation {
    atomic_llong delivered;
    int64_t made;
};

static mr_code answer(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    struct conversation *c = ctx;
    (void)pass;
    (void)want;
    if (c->made == 9)
        return MR_END;
    for (int ms = 0; atomic_load(&c->delivered) < c->made; ms++) {
        if (ms == 20000)
            return mr_fail(st, MR_DEADLINE_EXCEEDED, "row %" PRId64 " was never delivered",
                           c->made);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = c->made++;
    out->rows = 1;
    return MR_OK;
}

static void converse(mr_dataset *(*above)(mr_dataset *), int threads, bool positions)
{
    struct conversation c = {0};
    const mr_generator g = {.ctx = &c,
                            .next = answer,
                            .may_block = true,
                            .no_position = positions ? "it is a conversation" : NULL};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = above(mr_from_generator(&g, spec));
    const mr_iterator_opts opts = {.threads = threads, .has_threads = true, .positions = positions};
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    void *bytes = NULL;
    size_t size;
    mr_test_context("with %d threads%s", threads, positions ? " and positions" : "");
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    for (int64_t i = 0; i < 9; i++) {
        mr_ok(mr_iterator_next(it, 100, &b, &st), &st);
        mr_eq_i64((int64_t)b.rows, 1);
        mr_eq_i64(*(const int64_t *)b.columns[0].data, i);
        if (positions) {
            mr_code_is(mr_iterator_save(it, &bytes, &size, &st), MR_FAILED_PRECONDITION, &st);
            mr_has_str(st.message, "a conversation");
        }
        atomic_fetch_add(&c.delivered, 1);
    }
    mr_code_is(mr_iterator_next(it, 100, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
    mr_test_context("%s", "");
}

static mr_dataset *mapped(mr_dataset *in)
{
    return mr_map(in, mr_fn_text("x => x"), &(mr_map_opts){.num_parallel_calls = 4});
}
static mr_dataset *mapped_as_they_come(mr_dataset *in)
{
    const mr_map_opts o = {.num_parallel_calls = 4, .deterministic = MR_NO};
    return mr_map(in, mr_fn_text("x => x"), &o);
}
static mr_dataset *filtered(mr_dataset *in)
{
    return mr_filter(mapped(in), mr_fn_text("x => x >= 0"),
                     &(mr_filter_opts){.num_parallel_calls = MR_AUTO});
}
static mr_dataset *flat_mapped(mr_dataset *in)
{
    return mr_flat_map(mapped(in), mr_fn_text("x => from_tensors(x)"));
}
static mr_dataset *interleaved(mr_dataset *in)
{
    const mr_interleave_opts o = {.cycle_length = 3, .num_parallel_calls = 3};
    return mr_interleave(in, mr_fn_text("x => from_tensors(x)"), &o);
}

MR_TEST(no_op_waits_for_the_rows_after_those_it_has)
{
    mr_dataset *(*const above[])(mr_dataset *) = {mapped, mapped_as_they_come, filtered,
                                                  flat_mapped, interleaved};
    for (size_t i = 0; i < sizeof above / sizeof *above; i++)
        for (int threads = 0; threads < 4; threads += 1 + threads)
            for (int positions = 0; positions < 2; positions++)
                converse(above[i], threads, positions);
}

static atomic_bool broken;

static mr_code break_after_four(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    int64_t *made = ctx;
    (void)pass;
    (void)want;
    if (*made == 4) {
        atomic_store(&broken, true);
        mr_fail(st, MR_UNAVAILABLE, "the producer is lost");
        mr_status_of_no_element(st);
        return MR_UNAVAILABLE;
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = (*made)++;
    out->rows = 1;
    return MR_OK;
}

/* Ends some time after the producer has failed. */
static mr_code outlast_it(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    for (int ms = 0; ms < 20000 && !atomic_load(&broken); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(calls_in_progress_are_delivered_before_the_error_that_ends_the_input)
{
    int64_t made = 0;
    const mr_generator g = {.ctx = &made, .next = break_after_four, .may_block = true};
    const mr_map_opts o = {.num_parallel_calls = 6, .deterministic = MR_NO};
    const mr_iterator_opts opts = {.threads = 2, .has_threads = true};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_map(mr_from_generator(&g, spec), mr_fn_element(outlast_it, NULL, NULL), &o);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t rows = 0;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        rows += b.rows;
    mr_code_is(rc, MR_UNAVAILABLE, &st);
    mr_eq_u64(rows, 4);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

MR_TEST(without_a_position_rows_read_ahead_are_saved)
{
    mr_dataset *ds =
        mr_shuffle(five(false, false), 3, &(mr_shuffle_opts){.seed = 1, .has_seed = true});
    mr_iterator_opts opts = {.positions = true, .has_threads = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes;
    size_t size;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_DATA_LOSS, &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_iterator_close(it);
    /* The rows 0 and 1 come with the position; the generator starts over. */
    it = NULL;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    int64_t rows = 0;
    mr_code rc;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) != MR_END)
        rows += rc == MR_OK;
    mr_eq_i64(rows, 6);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_free(bytes);
    mr_dataset_unref(ds);
}

/* What comes after a position that version 0.1 saved. */
static void continues(bool positions, const char *saved, size_t size, const char *want)
{
    mr_dataset *ds = five(false, positions);
    const mr_iterator_opts opts = {.has_threads = true};
    char got[64] = "";
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_restore(it, saved, size, &st), &st);
    while ((rc = mr_iterator_next(it, 1, &b, &st)) != MR_END) {
        int64_t value = rc == MR_OK ? *(const int64_t *)b.columns[0].data : -1;
        snprintf(got + strlen(got), sizeof got - strlen(got), " %" PRId64, value);
    }
    mr_eq_str(got, want);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(continues_at_positions_of_version_0_1)
{
    static const char callbacks_do[] = /* the generator's own position, after one row */
        "MRP4\x13\xdc\x7b\x56\x0f.from_generator\0\x1d\x0e"
        "from_generator\0\0\1\1\1\x08\1\0\0\0\0\0\0";
    static const char callbacks_do_not[] = /* the second row of a block of two */
        "MRP4\xfa\xbc\xc0\x94\x0f.from_generator\0\x14\x0e"
        "from_generator\0\0\2\2\0\1\1\0\0\4\0\1\0\0\0\0\0\0";
    continues(true, callbacks_do, sizeof callbacks_do, " 1 -1 3 4");
    continues(false, callbacks_do_not, sizeof callbacks_do_not, " 1 0 1 -1 3 4");
}

/* Counts on over all passes: no row comes twice. */
static mr_code next_number(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)pass;
    int64_t *next = ctx;
    if (*next == 12)
        return MR_END;
    size_t n = want < 6 ? want : 6;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    for (size_t i = 0; i < n; i++)
        ((int64_t *)out->columns[0].data)[i] = (*next)++;
    out->rows = n;
    return MR_OK;
}

/* Pulls up to `want` rows, which must be numbered from `from` on. */
static void pull_numbers(mr_iterator *it, size_t want, int64_t from, size_t n, mr_block *b)
{
    mr_status st;
    mr_ok(mr_iterator_next(it, want, b, &st), &st);
    mr_eq_u64(b->rows, n);
    for (size_t i = 0; i < n; i++)
        mr_eq_i64(((const int64_t *)b->columns[0].data)[i], from + (int64_t)i);
}

/* Restores `it` after row `rows` of b, the block that it delivered last. */
static void go_to_row(mr_iterator *it, const mr_block *b, size_t rows)
{
    void *bytes;
    size_t size;
    mr_status st;
    mr_ok(mr_iterator_save_at(it, b, rows, &bytes, &size, &st), &st);
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_free(bytes);
}

MR_TEST(a_position_within_a_block_holds_the_rows_that_cannot_come_again)
{
    int64_t next = 0;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds =
        mr_skip(mr_from_generator(&(mr_generator){.ctx = &next, .next = next_number}, spec), 0);
    mr_iterator_opts opts = {.positions = true, .has_threads = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    pull_numbers(it, 1024, 0, 6, &b);
    go_to_row(it, &b, 1);
    pull_numbers(it, 3, 1, 3, &b); /* of the rows in the position */
    go_to_row(it, &b, 2);          /* those that are left of them too */
    pull_numbers(it, 1, 3, 1, &b);
    pull_numbers(it, 1024, 4, 2, &b);
    go_to_row(it, &b, 2);
    pull_numbers(it, 1024, 6, 6, &b);
    go_to_row(it, &b, 5);
    pull_numbers(it, 1024, 11, 1, &b);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

static mr_code wait_for_ever(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)want;
    (void)out;
    while (!atomic_load(&stopped))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return mr_fail(st, MR_CANCELLED, "stopped");
}
static void stop(void *ctx, void *pass)
{
    (void)ctx;
    (void)pass;
    atomic_store(&stopped, true);
}
static mr_code stop_at_once(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    mr_iterator_cancel(*(mr_iterator **)ctx);
    return wait_for_ever(ctx, pass, want, out, st);
}

MR_TEST(a_cancelled_iterator_does_not_wait_for_the_producer)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_generator g = {.ctx = &it, .next = stop_at_once, .cancel = stop, .may_block = true};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_from_generator(&g, spec);
    mr_iterator_opts opts = {.threads = 2, .has_threads = true};
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    mr_check(!atomic_load(&stopped));
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

static mr_code wrong_type(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)want;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_FLOAT32, 0, NULL, 1, st));
    out->rows = 1;
    return MR_OK;
}

MR_TEST(rows_of_another_type_are_refused)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_generator g = {.next = wrong_type};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_from_generator(&g, spec);
    mr_block b = MR_BLOCK_EMPTY;
    char *text;
    mr_code_is(mr_dataset_to_text(ds, &text, &st), MR_FAILED_PRECONDITION, &st);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_INTERNAL, &st);
    mr_has_str(st.message, "announced");
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
    mr_block_reset(&b);
    mr_drive_bad("from_generator(x => x)", "unknown op");
}

static atomic_bool waits;

/* Two numbers, and then nothing for as long as it is read. */
static mr_code two_numbers(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)pass;
    (void)want;
    int64_t *made = ctx;
    atomic_store(&waits, *made == 2);
    for (int ms = 0; *made == 2 && !atomic_load(&stopped); ms++) {
        if (ms == 20000)
            return mr_fail(st, MR_DEADLINE_EXCEEDED, "the sensor was not stopped");
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    if (*made == 2)
        return mr_fail(st, MR_CANCELLED, "stopped");
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = (*made)++;
    out->rows = 1;
    return MR_OK;
}

/* Saving waits for no rows, although the generator that was opened last is closed by then. */
MR_TEST(of_several_generators_each_counts_until_it_is_closed)
{
    int64_t made = 0;
    const mr_generator sensor = {.ctx = &made,
                                 .next = two_numbers,
                                 .cancel = stop,
                                 .may_block = true,
                                 .no_position = "it is a sensor"};
    const mr_generator list = {
        .open = open_pass, .next = next_row, .close = close_pass, .no_position = "it is a list"};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *in[2] = {
        mr_from_generator(&sensor, spec),
        mr_concatenate(mr_take(mr_from_generator(&list, spec), 1), mr_range(0, 9, 1))};
    mr_dataset *ds = mr_prefetch(mr_zip(in, 2), 4);
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes = NULL;
    size_t size;
    atomic_store(&stopped, false);
    atomic_store(&waits, false);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = true}, &st), &st);
    for (int64_t i = 0; i < 2; i++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(int64_t *)b.columns[0].data, i);
    }
    mr_await(atomic_load(&waits));
    mr_code_is(mr_iterator_save(it, &bytes, &size, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "it is a ");
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_check(atomic_load(&stopped));
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

MR_TEST(a_generator_may_have_no_positions_at_all)
{
    const mr_generator g = {.open = open_pass,
                            .next = next_row,
                            .close = close_pass,
                            .release = release,
                            .no_position = "it is a sensor",
                            .label = "a sensor"};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_prefetch(mr_from_generator(&g, spec), 2);
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    char *text;
    void *bytes = NULL;
    size_t size;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "from_generator(callback(\"a sensor\")).prefetch(2)");
    mr_free(text);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = true}, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(mr_iterator_save(it, &bytes, &size, &st), MR_FAILED_PRECONDITION);
    mr_has_str(st.message, "it is a sensor");
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(*(int64_t *)b.columns[0].data, 1);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

/* ---- wrong codes of callbacks ---- */

static mr_code next_code, open_code, save_code, restore_code;

static mr_code coded_open(void *ctx, void **pass, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)st;
    return open_code;
}
static mr_code coded_next(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)want;
    if (next_code != MR_OK)
        return next_code;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = 7;
    out->rows = 1;
    return MR_OK;
}
static mr_code coded_save(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)bytes;
    (void)st;
    *size = 5; /* of no bytes */
    return save_code;
}
static mr_code coded_restore(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st)
{
    (void)ctx;
    (void)pass;
    (void)bytes;
    (void)size;
    (void)st;
    return restore_code;
}
static mr_code coded_fn(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)in;
    (void)out;
    (void)st;
    return next_code;
}

/* The code of the first block, and with `saves` of the position after it. */
static mr_code first_of(mr_dataset *ds, bool saves, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes = NULL;
    size_t size;
    mr_code rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = saves}, st);
    mr_check(rc == MR_OK || !it);
    if (rc == MR_OK)
        rc = mr_iterator_next(it, 1, &b, st);
    if (rc == MR_OK && saves)
        rc = mr_iterator_save(it, &bytes, &size, st);
    mr_free(bytes);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

/* A code that is neither MR_OK nor an error must not pass for the end of the data. */
MR_TEST(codes_that_a_callback_may_not_return_are_errors)
{
    static const mr_code wrong[] = {MR_END, (mr_code)2, (mr_code)77, MR_DATA_LOSS};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_status st;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *why = wrong[i] < 0 ? "without a message" : "expected MR_OK or an error";
        mr_code expected = wrong[i] < 0 ? wrong[i] : MR_INTERNAL;
        for (int block = 0; block < 2; block++) {
            mr_generator g = {.open = coded_open, .next = coded_next, .may_block = block};
            mr_test_context("code %d, may_block %d", wrong[i], block);
            open_code = wrong[i];
            mr_code_is(first_of(mr_from_generator(&g, spec), false, &st), expected, &st);
            mr_has_str(st.message, why);
            open_code = MR_OK;
            if (wrong[i] != MR_END) {
                next_code = wrong[i];
                mr_code_is(first_of(mr_from_generator(&g, spec), false, &st), expected, &st);
                mr_has_str(st.message, why);
                mr_fn *fn = (block ? mr_fn_block : mr_fn_element)(coded_fn, NULL, NULL);
                mr_code_is(first_of(mr_map(mr_range(0, 3, 1), fn, NULL), false, &st), expected,
                           &st);
                mr_has_str(st.message, why);
                next_code = MR_OK;
            }
            g.save = coded_save;
            g.restore = coded_restore;
            save_code = wrong[i];
            mr_code_is(first_of(mr_from_generator(&g, spec), true, &st), expected, &st);
            mr_has_str(st.message, why);
            save_code = MR_OK;
        }
    }
    const mr_generator g = {.next = coded_next, .save = coded_save, .restore = coded_restore};
    mr_code_is(first_of(mr_from_generator(&g, spec), true, &st), MR_INTERNAL, &st);
    mr_has_str(st.message, "no bytes, but a size of 5");
    mr_test_context("%s", "");
    mr_spec_unref(spec);
}

static void carries(mr_dataset *ds, const char *why)
{
    mr_status st;
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, why);
    mr_dataset_unref(ds);
}

MR_TEST(what_is_null_is_named)
{
    mr_iterator *it;
    mr_status st;
    const char *const names[] = {"a", NULL};
    carries(NULL, "the dataset is NULL");
    carries(mr_from_generator(NULL, NULL), "needed");
    carries(mr_from_arrow(NULL), "the stream is NULL");
    carries(mr_tfrecord(names, 2, NULL), "file name 1 is NULL");
    carries(mr_map(mr_range(0, 3, 1), mr_fn_text(NULL), NULL), "text of a function is NULL");
    carries(mr_map(mr_range(0, 3, 1), mr_fn_block(NULL, NULL, NULL), NULL), "callback");
    mr_code_is(mr_iterator_open(&it, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(!mr_dataset_ref(NULL) && !mr_dataset_spec(NULL));
    mr_eq_i64(mr_dataset_cardinality(NULL), MR_UNKNOWN_COUNT);
}
