/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/functions/compiler/function.h"
#include "pipeline/graph/op.h"
#include "pipeline/log.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/events.h"
#include "tests/harness.h"

static void are_alike(const char *mix, const char *sample)
{
    char *expected = mr_drive_show(sample);
    mr_drive(mix, expected);
    free(expected);
}

MR_TEST(the_draws_are_those_of_sample_from_datasets)
{
    are_alike(
        "mix({\"a\": range(9), \"b\": range(10, 19)}, weights={\"b\": 0.3, \"a\": 0.7}, seed=42)",
        "sample_from_datasets([range(9), range(10, 19)], weights=[0.7, 0.3], seed=42, "
        "stop_on_empty_dataset=true)");
    are_alike(
        "mix({\"b\": range(9), \"a\": range(10, 12), \"c\": range(20, 27)}, seed=5, stop=\"all\")",
        "sample_from_datasets([range(9), range(10, 12), range(20, 27)], seed=5)");
    mr_drive("mix({\"a\": range(3)}, weights={\"a\": 5})", "0 1 2");
    mr_drive("from_tensor_slices([[1, 2], [3, 4]])"
             ".flat_map(x => mix({\"a\": from_tensor_slices(x), \"b\": range(10, 12)}, seed=1, "
             "stop=\"all\"))",
             "10 1 2 11 10 3 4 11");
    mr_drive_alike("mix({\"a\": range(9), \"b\": range(10, 19)}).repeat(2)");
    mr_drive_alike(
        "mix({\"a\": range(9), \"b\": range(10, 19).shuffle(4)}, seed=1).shuffle(3, seed=2)"
        ".batch(2).prefetch(2)");
}

MR_TEST(it_ends_with_the_first_all_or_when_all_have_repeated)
{
#define SOURCES                                                                                    \
    "{\"web\": range(5), \"code\": range(10, 13)}, weights={\"code\": 0.3, \"web\": 1}, seed=4"
    mr_drive("mix(" SOURCES ")", "0 10 1 2 3 11 4");
    mr_drive("mix(" SOURCES ", stop=\"first\")", "0 10 1 2 3 11 4");
    mr_drive("mix(" SOURCES ", stop=\"all\")", "0 10 1 2 3 11 4 12");
    mr_drive("mix(" SOURCES ", stop=\"repeat\")", "0 10 1 2 3 11 4 0 1 12 2 3 4");
    mr_drive("mix({\"a\": range(1), \"b\": range(10, 14)}, seed=9, stop=\"repeat\")",
             "0 10 11 12 13 0 0");
    mr_drive("mix({\"a\": range(3), \"b\": range(0)}, seed=1, stop=\"repeat\")", "0 1 2");
    mr_drive("mix({\"a\": range(0), \"b\": range(0)}, seed=1, stop=\"repeat\")", "");
    mr_drive("mix({\"a\": range(0)}, stop=\"first\").repeat()", "");
    /* A shuffle draws another order in each epoch of its source. */
    mr_drive_alike("mix({\"a\": range(3).shuffle(3, seed=2), \"b\": range(10, 31)}, seed=9, "
                   "stop=\"repeat\").repeat(2)");
    mr_drive_alike(
        "mix({\"a\": range(3).shuffle(3, seed=2).cache(), \"b\": range(10, 21)}, seed=9, "
        "stop=\"repeat\").take(7).repeat(3)");
}

/* What is pulled must not depend on the sizes of blocks, since each epoch of a source draws. */
MR_TEST(sources_that_repeat_are_opened_no_more_often_than_needed)
{
#define AGAIN                                                                                      \
    "mix({\"a\": range(2).shuffle(2, seed=1), \"b\": range(10, 30)}, seed=9, stop=\"repeat\")"
    mr_drive_alike("zip(" AGAIN ", range(3)).repeat(4)");
    mr_drive_alike(AGAIN ".shuffle(8, seed=4).take(3).repeat(4)");
    mr_drive_alike("zip(" AGAIN ".filter(x => x != 11), range(3)).repeat(4)");
    mr_drive_alike("mix({\"a\": " AGAIN
                   ".filter(x => x != 11), \"b\": range(3)}, seed=3).repeat(4)");
    mr_drive_alike(AGAIN ".take_while(x => x != 12).repeat(4)");
    mr_drive_alike(AGAIN ".take(7).repeat(4)");
    mr_drive_alike(AGAIN ".batch(4).unbatch().take(5).repeat(4)");
}

MR_TEST(states_of_sources_that_are_closed)
{
    mr_drive_alike(
        "range(2).concatenate(mix({\"a\": range(5, 9).shuffle(4, seed=1), \"b\": range(10, "
        "14).shuffle(4, seed=2)}, seed=3)).repeat(3)");
}

MR_TEST(an_error_takes_the_place_of_an_element)
{
    mr_drive_alike("mix({\"a\": range(-1, 2).map(x => 6 // x), \"b\": range(10, 13)}, seed=42, "
                   "stop=\"all\")");
    mr_drive("mix({\"a\": range(-1, 2).map(x => 6 // x)}, stop=\"repeat\")", "-6 !zero 6");
    mr_drive_alike("mix({\"a\": range(2).map(x => 6 // 0), \"b\": range(10, 12)}, seed=3, "
                   "stop=\"repeat\").ignore_errors()");
}

MR_TEST(nested_mixtures_and_those_that_functions_make)
{
    mr_drive_alike(
        "mix({\"a\": mix({\"x\": range(4), \"y\": range(10, 13)}, seed=1, stop=\"repeat\"), "
        "\"b\": range(20, 26)}, seed=2, stop=\"all\").batch(2)");
    mr_drive_alike("range(3).interleave(n => mix({\"a\": range(n), \"b\": range(10, 12)}, seed=n, "
                   "stop=\"all\"), cycle_length=2)");
    mr_drive("from_tensors({\"a\": 1.0, \"b\": 2.0}).flat_map(w => mix({\"a\": range(2), \"b\": "
             "range(2)}, "
             "weights={\"a\": w[\"a\"], \"b\": w[\"b\"]}, seed=1, stop=\"all\")).take(0)",
             "");
    mr_drive("range(2).concatenate(mix({\"a\": range(5, 7).shuffle(2, seed=1)})).take(2).repeat(2)",
             "0 1 0 1");
}

MR_TEST(bad_arguments)
{
    mr_drive_bad("mix(range(3))", "a record of datasets");
    mr_drive_bad("mix({\"a\": 3})", "datasets");
    mr_drive_bad("range(3).mix({\"a\": range(2)})", "must come first");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"b\": 1})", "\"b\", which is not a source");
    mr_drive_bad("mix({\"a\": range(3), \"b\": range(3)}, weights={\"b\": 1})", "has no \"a\"");
    mr_drive_bad("mix({\"a\": range(3)}, weights=[1])", "must be a record");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"a\": \"1\"})", "a number for \"a\"");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"a\": 0})", "found 0 for \"a\"");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"a\": -1})", "positive");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"a\": 1e999})", "finite");
    mr_drive_bad("mix({\"a\": range(3)}, weights={\"a\": 1e-60})", "float32");
    mr_drive_bad("mix({\"a\": range(3)}, stop=\"never\")", "first");
    mr_drive_bad("mix({\"a\": range(3), \"b\": range(4).enumerate()})", "types");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("mix({\"a\": range(3), \"b\": range(4)})", MR_UNKNOWN_COUNT);
    mr_drive_count("mix({\"a\": range(3), \"b\": range(4)}, stop=\"all\")", 7);
    mr_drive_count("mix({\"a\": range(3), \"b\": range(4)}, stop=\"repeat\")", MR_UNKNOWN_COUNT);
    mr_drive_count("mix({\"a\": range(3), \"b\": counter()})", MR_UNKNOWN_COUNT);
    mr_drive_count("mix({\"a\": range(3), \"b\": counter()}, stop=\"all\")", MR_INFINITE);
    mr_drive_count("mix({\"a\": counter(), \"b\": counter()})", MR_INFINITE);
    mr_drive_count("mix({\"a\": range(3)})", 3);
}

MR_TEST(made_in_c)
{
    static const char *const names[] = {"a", "b"}, *const same[] = {"a", "a"};
    mr_dataset *ds =
        mr_mix(names, (mr_dataset *[]){mr_range(0, 3, 1), mr_range(10, 12, 1)}, 2,
               (const double[]){1, 2}, &(mr_mix_opts){.seed = 1, .has_seed = true, .stop = "all"});
    char *text = NULL, *expected;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text,
              "mix({\"a\": range(0, 3), \"b\": range(10, 12)}, weights={\"a\": 1.0, \"b\": 2.0}, "
              "seed=1, stop=\"all\")");
    expected = mr_drive_show(text);
    mr_drive_dataset(ds, expected);
    free(expected);
    mr_free(text);
    ds = mr_mix(same, (mr_dataset *[]){mr_range(0, 3, 1), mr_range(10, 12, 1)}, 2, NULL, NULL);
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_check(strstr(st.message, "two sources"));
    mr_dataset_unref(ds);
    ds = mr_mix(names, (mr_dataset *[]){mr_range(0, 3, 1)}, 1, NULL, NULL);
    mr_drive_dataset(ds, "0 1 2");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("mix({\"a\": range(5), \"b\": range(3).shuffle(2, seed=1)}, weights={\"b\": 1, "
                    "\"a\": 2}, seed=4, stop=\"repeat\").batch(2)");
}

/* ---- restored by name ---- */

enum { WAYS = 6 };

static mr_iterator *open_way(mr_dataset *ds, int way, mr_on_mismatch on_mismatch)
{
    mr_iterator_opts opts = {.block_rows = (int64_t[]){1, 3, 1024}[way % 3],
                             .threads = way < 3 ? 0 : 4,
                             .has_threads = true,
                             .positions = true,
                             .on_mismatch = on_mismatch};
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    return it;
}

/* The position of `text` after n elements, after a restore from `bytes` (NULL: none). */
static void *saved(const char *text, int way, size_t n, const void *bytes, size_t *size)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = open_way(ds, way, MR_RESTORE_BY_NAME);
    mr_events e = {0};
    mr_status st;
    void *out = NULL;
    if (bytes)
        mr_ok(mr_iterator_restore(it, bytes, *size, &st), &st);
    mr_events_run(&e, it, 1, n);
    mr_ok(mr_iterator_save(it, &out, size, &st), &st);
    mr_events_reset(&e, 0);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return out;
}

/* What `text` emits after that position, also when it is saved and restored again. */
static char *rest(const char *text, int way, const void *bytes, size_t size)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = open_way(ds, way, MR_RESTORE_BY_NAME);
    mr_events e = {0};
    mr_status st;
    void *again = NULL;
    size_t n;
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_events_run(&e, it, 1, 2);
    mr_ok(mr_iterator_save(it, &again, &n, &st), &st);
    mr_iterator_close(it);
    it = open_way(ds, (way + 4) % WAYS, MR_REFUSE_MISMATCH); /* it is its own position now */
    mr_ok(mr_iterator_restore(it, again, n, &st), &st);
    mr_free(again);
    mr_events_run(&e, it, 1024, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    char *all = mr_events_join(&e);
    mr_events_reset(&e, 0);
    return all;
}

/* The numbers of `text` in [from, from + 100), and how many. */
static int numbers_from(const char *text, int from, int *out, int most)
{
    int n = 0;
    for (const char *at = text; *at; at += strcspn(at, " [,]"), at += strspn(at, " [,]")) {
        int v = atoi(at);
        if (strchr("0123456789", *at) && v >= from && v < from + 100 && n < most)
            out[n++] = v;
    }
    return n;
}

#define WEB   "\"web\": range(20)"
#define CODE  "\"code\": range(100, 112)"
#define BOOKS "\"books\": range(200, 208)"

enum { ONE_ORDER = 1, SOURCES_CONTINUE = 2 };

/* From `a` to `b` at each element, in every way. ONE_ORDER: all ways emit the same; not with
 * prefetch, which holds more or fewer elements of the old mixture. SOURCES_CONTINUE: those at 0,
 * 100 and 200 continue where they were, or at their beginning. */
static void by_name(const char *a, const char *b, int what)
{
    char *whole = mr_drive_show(a);
    int before[64], after[64];
    for (size_t k = 0; k < 12; k++) {
        char *first = NULL;
        for (int way = 0; way < WAYS; way++) {
            size_t size = 0;
            void *bytes = saved(a, way, k, NULL, &size);
            char *got = rest(b, (way + 1) % WAYS, bytes, size);
            mr_test_context("from %s to %s after %zu, way %d", a, b, k, way);
            mr_free(bytes);
            if (!first)
                first = strdup(got);
            if (what & ONE_ORDER)
                mr_eq_str(got, first);
            free(got);
        }
        mr_dataset *ds = mr_drive_build(a);
        mr_iterator *it = open_way(ds, 0, MR_REFUSE_MISMATCH);
        mr_events e = {0};
        mr_events_run(&e, it, 1, k);
        char *part = mr_events_join(&e);
        mr_events_reset(&e, 0);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        for (int from = 0; from < 300 && (what & SOURCES_CONTINUE); from += 100) {
            int done = numbers_from(part, from, before, 64);
            int left = numbers_from(first, from, after, 64);
            for (int i = 0; i < left; i++)
                mr_eq_i64(after[i], from + done + i);
        }
        free(part);
        free(first);
    }
    free(whole);
}

MR_TEST(a_restore_by_name_takes_other_weights_and_sources)
{
    static const char *const tails[] = {"", ".batch(3)", ".batch(2).prefetch(2)"};
    static const char *const a = "mix({" WEB ", " CODE "}, weights={\"web\": 0.7, \"code\": 0.3}, "
                                 "seed=42, stop=\"all\")";
    static const char *const b[] = {
        "mix({" WEB ", " CODE "}, weights={\"web\": 0.1, \"code\": 0.9}, seed=42, stop=\"all\")",
        "mix({" CODE ", " WEB "}, weights={\"web\": 0.7, \"code\": 0.3}, seed=42, stop=\"all\")",
        "mix({" BOOKS ", " WEB ", " CODE "}, seed=42, stop=\"all\")",
        "mix({" CODE "}, seed=42, stop=\"all\")",
        "mix({" BOOKS ", " CODE "}, weights={\"code\": 2, \"books\": 1}, seed=42, stop=\"all\")"};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < 5; i++) {
            char x[400], y[400];
            snprintf(x, sizeof x, "%s%s", a, tails[t]);
            snprintf(y, sizeof y, "%s%s", b[i], tails[t]);
            by_name(x, y, t < 2 ? ONE_ORDER | SOURCES_CONTINUE : SOURCES_CONTINUE);
        }
}

MR_TEST(ops_above_keep_the_rows_that_they_hold)
{
    by_name("mix({" WEB ", " CODE "}, seed=1, stop=\"all\").shuffle(5, seed=2)",
            "mix({" CODE ", " BOOKS "}, seed=1, stop=\"all\").shuffle(5, seed=2)", ONE_ORDER);
    by_name("mix({" WEB ", " CODE
            "}, seed=1, stop=\"repeat\").take(25).repeat(2).shuffle(4, seed=2)",
            "mix({" WEB ", " BOOKS "}, seed=1, stop=\"repeat\").take(25).repeat(2)"
            ".shuffle(4, seed=2)",
            ONE_ORDER);
    by_name("mix({\"a\": mix({" WEB ", " CODE "}, seed=1), \"b\": range(300, 310)}, seed=2)",
            "mix({\"a\": mix({" WEB ", " BOOKS "}, seed=1), \"b\": range(300, 310)}, seed=2)",
            ONE_ORDER);
    by_name("range(300, 304).concatenate(mix({" WEB ".shuffle(3, seed=1), " CODE "}, seed=2))"
            ".take(8).repeat(3)",
            "range(300, 304).concatenate(mix({" BOOKS ", " WEB ".shuffle(3, seed=1)}, seed=2))"
            ".take(8).repeat(3)",
            ONE_ORDER);
}

MR_TEST(a_removed_source_comes_back_where_it_was)
{
#define TWO   "mix({" WEB ", " CODE "}, seed=3, stop=\"all\")"
#define ONE   "mix({" CODE "}, seed=3, stop=\"all\")"
#define OTHER "mix({" BOOKS "}, seed=3, stop=\"all\")"
    for (size_t k = 0; k < 10; k++) {
        size_t size = 0;
        int before[64], after[64];
        void *first = saved(TWO, 2, k, NULL, &size);
        size_t n = size;
        void *second = saved(ONE, 1, 2, first, &n);
        void *third = saved(OTHER, 4, 3, second, &n);
        char *got = rest(TWO, 0, third, n), *whole = mr_drive_show(TWO);
        char *cut = whole;
        for (size_t i = 0; i < k; i++)
            cut = strchr(cut, ' ') + 1;
        int left = numbers_from(cut, 0, before, 64);
        mr_eq_i64(numbers_from(got, 0, after, 64), left);
        mr_eq_i64(left ? after[0] : -1, left ? before[0] : -1);
        left = numbers_from(cut, 100, before, 64);
        left = left > 2 ? left - 2 : 0; /* two went with ONE */
        mr_eq_i64(numbers_from(got, 100, after, 64), left);
        mr_eq_i64(numbers_from(got, 200, after, 64), 0);
        free(whole);
        free(got);
        mr_free(first);
        mr_free(second);
        mr_free(third);
    }
}

static void is_refused(const char *a, const char *b, mr_on_mismatch on_mismatch, const char *part)
{
    size_t size = 0;
    mr_status st;
    void *bytes = saved(a, 0, 3, NULL, &size);
    mr_dataset *ds = mr_drive_build(b);
    mr_iterator *it = open_way(ds, 0, on_mismatch);
    mr_code_is(mr_iterator_restore(it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
    mr_test_context("%s", st.message);
    mr_check(strstr(st.message, part));
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_free(bytes);
}

MR_TEST(everything_else_must_be_the_same)
{
    static const char *const a = "mix({" WEB ", " CODE "}, seed=1).batch(2)";
    is_refused(a, "mix({" WEB "}, seed=1).batch(2)", MR_REFUSE_MISMATCH,
               "by name (--restore-by-name, on_mismatch) if only");
    is_refused(a, "mix({" WEB ", " CODE "}, seed=1).batch(3)", MR_RESTORE_BY_NAME, "'3)'");
    is_refused(a, "mix({" WEB ", " CODE "}, seed=2).batch(2)", MR_RESTORE_BY_NAME, "seed=2");
    is_refused(a, "mix({" WEB ", " CODE "}, seed=1, stop=\"all\").batch(2)", MR_RESTORE_BY_NAME,
               "stop=");
    is_refused(a, "mix({\"web\": range(21), " CODE "}, seed=1).batch(2)", MR_RESTORE_BY_NAME,
               "source \"web\" of mix is another graph");
    is_refused("range(9).batch(2)", a, MR_RESTORE_BY_NAME, "range(9)");
    is_refused(a, "range(9).batch(2)", MR_RESTORE_BY_NAME, "another graph");
}

struct log {
    char text[2000];
};

static void write_log(void *ctx, mr_log_level level, const char *message)
{
    struct log *log = ctx;
    size_t n = strlen(log->text);
    mr_check(level == MR_LOG_WARNING);
    snprintf(log->text + n, sizeof log->text - n, "%s\n", message);
}

MR_TEST(each_difference_is_logged)
{
    static struct log log;
    size_t size = 0;
    void *bytes = saved("mix({" WEB ", " CODE "}, seed=1)", 0, 3, NULL, &size);
    mr_log_set(write_log, &log, MR_LOG_WARNING);
    free(rest("mix({" WEB ", " CODE "}, seed=1)", 0, bytes, size));
    mr_eq_str(log.text, "");
    free(rest("mix({" WEB ", " BOOKS "}, weights={\"web\": 0.5, \"books\": 1}, seed=1)", 0, bytes,
              size));
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_eq_str(
        log.text,
        "mix: source \"web\" has the weight 0.5, in the position 1\n"
        "mix: source \"code\" is removed; positions keep its place, so that it can come back\n"
        "mix: source \"books\" is new and begins at its beginning\n");
    mr_free(bytes);
}

/* Also in an iterator that has run, a new source begins with its first epoch. */
MR_TEST(a_new_source_begins_in_a_used_iterator_as_in_a_new_one)
{
    static const char *const b =
        "mix({" WEB ", \"books\": range(200, 208).shuffle(8, seed=7)}, seed=1, stop=\"all\")";
    size_t size = 0;
    mr_status st;
    void *bytes = saved("mix({" WEB "}, seed=1, stop=\"all\")", 0, 3, NULL, &size);
    char *fresh = rest(b, 0, bytes, size);
    mr_dataset *ds = mr_drive_build(b);
    mr_iterator *it = open_way(ds, 0, MR_RESTORE_BY_NAME);
    mr_events e = {0};
    for (int pass = 0; pass < 2; pass++) {
        mr_events_run(&e, it, 3, SIZE_MAX);
        mr_events_reset(&e, 0);
        mr_ok(mr_iterator_rewind(it, &st), &st);
    }
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_events_run(&e, it, 3, SIZE_MAX);
    char *used = mr_events_join(&e);
    mr_eq_str(used, fresh);
    mr_events_reset(&e, 0);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_free(bytes);
    free(fresh);
    free(used);
}

/* Its position is taken when it is asked for, or before it rests. */
MR_TEST(a_resting_or_cancelled_iterator_keeps_its_position)
{
    static const char *const graph =
        "mix({" WEB ", " CODE ".shuffle(4, seed=1)}, seed=1, stop=\"all\").batch(2).prefetch(2)";
    char *whole = mr_drive_show(graph);
    mr_dataset *ds = mr_drive_build(graph);
    for (int way = 0; way < WAYS; way++)
        for (size_t k = 0; k < 6; k++) {
            mr_iterator *it = open_way(ds, way, MR_REFUSE_MISMATCH);
            mr_block b = MR_BLOCK_EMPTY;
            mr_events e = {0};
            mr_status st;
            void *bytes = NULL;
            size_t size;
            mr_events_run(&e, it, 1, k);
            if (k % 2) {
                mr_iterator_cancel(it);
                mr_code rc = mr_iterator_next(it, 1, &b, &st); /* ready rows may still come */
                if (rc == MR_OK)
                    mr_events_block(&e, &b);
            }
            mr_ok(mr_iterator_rest(it, &st), &st);
            mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
            mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
            mr_events_run(&e, it, 1024, SIZE_MAX);
            char *all = mr_events_join(&e);
            mr_test_context("way %d, after %zu", way, k);
            mr_eq_str(all, whole);
            free(all);
            mr_free(bytes);
            mr_block_reset(&b);
            mr_events_reset(&e, 0);
            mr_iterator_close(it);
        }
    mr_dataset_unref(ds);
    free(whole);
}

/* ---- cancelled in the middle of an element ---- */

static mr_iterator *cancelled;
static int64_t cancelled_at; /* the row */

static mr_code cancel_at(void *ctx, const mr_rows_call *c, const mr_block *in, mr_block *out,
                         mr_row_errors *errors, mr_status *st)
{
    (void)ctx;
    (void)c;
    (void)errors;
    for (size_t r = 0; r < in->rows; r++)
        if (cancelled_at == *(const int64_t *)mr_array_at(&in->columns[0], r))
            mr_iterator_cancel(cancelled);
    return mr_block_slice(out, in, 0, in->rows, st);
}

/* Its events until row `at` cancels it, and after it was restored where it was then. */
static char *run_in_two(mr_dataset *ds, int64_t at)
{
    mr_events e = {0};
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    void *bytes = NULL;
    size_t size;
    mr_code rc;
    const mr_iterator_opts in_this_thread = {.has_threads = true, .positions = true};
    mr_ok(mr_iterator_open(&cancelled, ds, &in_this_thread, &st), &st);
    cancelled_at = at;
    while ((rc = mr_iterator_next(cancelled, 1, &b, &st)) == MR_OK)
        mr_events_block(&e, &b);
    mr_check(rc == MR_CANCELLED || rc == MR_END);
    cancelled_at = -1;
    mr_ok(mr_iterator_rest(cancelled, &st), &st);
    mr_ok(mr_iterator_save(cancelled, &bytes, &size, &st), &st);
    mr_ok(mr_iterator_restore(cancelled, bytes, size, &st), &st);
    mr_events_run(&e, cancelled, 1, SIZE_MAX);
    char *all = mr_events_join(&e);
    mr_events_reset(&e, 0);
    mr_free(bytes);
    mr_block_reset(&b);
    mr_iterator_close(cancelled);
    return all;
}

/* The rows that an op has taken from its input are in its position. */
MR_TEST(a_position_has_the_rows_of_an_element_that_was_cancelled)
{
    static const char *const ops[] = {
        "batch(3)",
        "batch(5, drop_remainder=true)",
        "padded_batch(3)",
        "map(x => ones([x % 3])).padded_batch(3)",
        "map(x => ones([x % 3])).ragged_batch(3)",
        "batch(2).rebatch(3)",
        "batch(2).rebatch([1, 5])",
        "map(x => [x, -x]).rebatch(3)",
        "batch(2).unbatch()",
        "window(3).flat_map(w => w.batch(3))",
        "shuffle(5, seed=3)",
        "batch(2).map(x => x + 1).unbatch().batch(3).batch(2)",
        "group_by_window(x => x % 2, (k, d) => d.batch(3), window_size=3)",
        "bucket_by_sequence_length(x => x % 5, boundaries=[2], batch_sizes=[2, 3])",
        "enumerate().filter((i, x) => i % 3 > 0).batch(4)",
        "batch(3).prefetch(2)",
        "batch(3).cache()",
    };
    enum { ROWS = 12 };
    const mr_rows_fn f = {.call = cancel_at};
    mr_status st;
    mr_fn *fn = mr_fn_rows(&f);
    mr_ok(mr_fn_register("cancelling", fn, &st), &st);
    mr_fn_unref(fn);
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        char text[400];
        snprintf(text, sizeof text,
                 "mix({\"a\": range(%d).map(cancelling), \"b\": range(20, 30)}, seed=1, "
                 "stop=\"all\").%s",
                 (int)ROWS, ops[k]);
        cancelled_at = -1;
        char *whole = mr_drive_show(text);
        mr_dataset *ds = mr_drive_build(text);
        for (int64_t at = 0; at < ROWS; at++) {
            char *all = run_in_two(ds, at);
            mr_test_context("%s, at %d", ops[k], (int)at);
            mr_eq_str(all, whole);
            free(all);
        }
        mr_dataset_unref(ds);
        free(whole);
    }
}
