/* SPDX-License-Identifier: Apache-2.0 */
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
