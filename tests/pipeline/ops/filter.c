/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

#include <stdio.h>

MR_TEST(keeps_what_the_function_says)
{
    mr_drive("range(10).filter(x => x % 2 == 1)", "1 3 5 7 9");
    mr_drive("range(10).filter(x => x > 3 and x < 7)", "4 5 6");
    mr_drive("range(5).filter(x => x >= 0)", "0 1 2 3 4");
    mr_drive("range(5).filter(x => x < 0)", "");
    mr_drive("range(6).map(x => (x, x * x)).filter((a, b) => b % 3 == 1)",
             "(1,1) (2,4) (4,16) (5,25)");
}

MR_TEST(keeps_any_of_many)
{
    mr_drive("range(1000).filter(x => x % 7 == 3).batch(1000).map(x => (length(x), sum(x)))",
             "(143,71500)");
    mr_drive("range(1000).map(x => (x, cast(x, \"float32\"))).filter((x, y) => x % 7 == 3)"
             ".batch(1000).map((x, y) => (length(x), sum(x), sum(y)))",
             "(143,71500,71500)");
    mr_drive("range(100).map(x => (x, format(\"{}\", x))).filter((x, y) => x % 33 == 5)",
             "(5,\"5\") (38,\"38\") (71,\"71\")");
    mr_drive("range(1000).filter(x => x >= 16 and x < 32 or x >= 991).batch(1000).map(x => sum(x))",
             "9331");
    mr_drive("range(-40, 50).filter(x => 99 // x > 5).ignore_errors().batch(99)"
             ".map(x => (length(x), sum(x)))",
             "(16,136)");
}

/* Four values are packed at once: by each set of them, and some after the last four. */
MR_TEST(keeps_each_set_of_four)
{
    for (int set = 1; set < 16; set++)
        for (int wide = 0; wide < 2; wide++) {
            char text[256], expected[256] = "";
            int n = snprintf(text, sizeof text, "range(43)%s.filter(x => x < 0",
                             wide ? "" : ".map(x => cast(x, \"int32\"))");
            for (int lane = 0; lane < 4; lane++)
                if (set >> lane & 1)
                    n += snprintf(text + n, sizeof text - (size_t)n, " or x %% 4 == %d", lane);
            snprintf(text + n, sizeof text - (size_t)n, ").map(x => cast(x, \"int64\"))");
            for (int x = 0, at = 0; x < 43; x++)
                if (set >> x % 4 & 1)
                    at += snprintf(expected + at, sizeof expected - (size_t)at, "%s%d",
                                   at ? " " : "", x);
            mr_drive(text, expected);
        }
}

MR_TEST(an_error_stands_between_the_elements_kept_around_it)
{
    mr_drive("range(-2, 4).filter(x => 6 // x > 2)", "! 1 2");
    mr_drive("range(-3, 4).map(x => 6 // x).filter(x => 12 // (x + 3) < 3)", "! -6 ! 6 3 2");
}

MR_TEST(few_are_kept_of_many)
{
    mr_drive("range(300).filter(x => x > 150 and x < 155 or x == 298)", "151 152 153 154 298");
    mr_drive("range(-70, 80).filter(x => 6 // x > 0)", "! 1 2 3 4 5 6");
    mr_drive("range(-70, 80).map(x => 12 // x).filter(x => x > 3)", "! 12 6 4");
    mr_drive("range(200).shuffle(7, seed=1).filter(x => x % 50 == 49).enumerate()",
             "(0,49) (1,99) (2,149) (3,199)");
    mr_drive("range(300).filter(x => x % 97 == 96).filter(x => x > 200)", "290");
}

static int calls, rows;

/* The same numbers. */
static mr_code count(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    calls++;
    rows += (int)in->rows;
    return mr_block_slice(out, in, 0, in->rows, st);
}

static void pull_one(const char *predicate, int64_t wanted)
{
    mr_status st;
    mr_dataset *numbers = mr_map(mr_range(0, 100000, 1), mr_fn_block(count, NULL, NULL), NULL);
    mr_dataset *ds = mr_filter(numbers, mr_fn_text(predicate), NULL);
    mr_iterator *it;
    mr_block b = MR_BLOCK_EMPTY;
    calls = rows = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(*(int64_t *)b.columns[0].data, wanted);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_pull_of_one_element_costs_few_pulls_and_reads_little_beyond_it)
{
    pull_one("x => x == 6400", 6400);
    mr_check(calls < 120);
    mr_check(rows <= 6400 + 64);
    pull_one("x => x == 10", 10);
    mr_check(rows <= 2 * 11);
    pull_one("x => x >= 0", 0);
    mr_eq_i64(rows, 1);
}

MR_TEST(parallel_calls_keep_the_order_and_the_errors)
{
    mr_drive("range(-20, 20).filter(x => 6 // x != -1, num_parallel_calls=3)",
             "-5 -4 -3 -2 -1 ! 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19");
    mr_drive("range(40).filter(x => x % 10 == 9, num_parallel_calls=auto).prefetch(1)",
             "9 19 29 39");
    mr_drive_any("range(-9, 20).filter(x => 6 // x > 0, num_parallel_calls=4, "
                 "deterministic=false)",
                 "! 1 2 3 4 5 6");
}

MR_TEST(the_function_must_return_one_bool)
{
    mr_drive_bad("range(3).filter(x => x)", "bool");
    mr_drive_bad("range(3).filter(x => (x > 1, x > 2))", "bool");
    mr_drive_bad("range(6).batch(2, drop_remainder=true).filter(x => x > 1)", "bool");
}

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    mr_drive_faults("range(-3, 9).filter(x => 6 // x > 0, num_parallel_calls=2)");
}
