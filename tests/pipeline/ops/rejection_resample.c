/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdio.h>
#include <stdlib.h>

#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

/* Elements of class 0 and of class 1 that come out of `text`. */
static void count(const char *text, double *zeros, double *ones)
{
    char graph[400];
    snprintf(graph, sizeof graph, "%s.map((c, x) => c).batch(1000000).map(x => (size(x), sum(x)))",
             text);
    char *got = mr_drive_show(graph);
    long all, second;
    mr_eq_i64(sscanf(got, "(%ld,%ld)", &all, &second), 2);
    *ones = (double)second;
    *zeros = (double)(all - second);
    free(got);
}

MR_TEST(classes_come_as_often_as_wanted)
{
#define RARE "range(40000).rejection_resample(x => (1 if x % 4 == 0 else 0), "
    static const char *const graphs[] = {RARE "[0.5, 0.5], seed=3)",
                                         RARE "[0.5, 0.5], initial_dist=[0.75, 0.25], seed=3)",
                                         RARE "[1, 1], [3, 1], 4)"};
    for (size_t i = 0; i < 3; i++) {
        double zeros, ones;
        mr_test_context("%s", graphs[i]);
        count(graphs[i], &zeros, &ones);
        /* All 10,000 of the rare class stay, and about as many of the other: within five standard
         * deviations. */
        mr_check(ones > 9900 && ones <= 10000);
        mr_check(zeros > ones - 500 && zeros < ones + 500);
    }
}

MR_TEST(what_is_wanted_as_it_comes_stays_whole)
{
    mr_drive("range(4).rejection_resample(x => x % 2, [1, 1], [1, 1], seed=1)",
             "(0,0) (1,1) (0,2) (1,3)");
    mr_drive("range(4).rejection_resample(x => x % 2, [1, 0], [1, 1], seed=1)", "(0,0) (0,2)");
    /* A class of which none was expected stays, and limits no other. */
    mr_drive("range(4).rejection_resample(x => x % 2, [1, 1], [1, 0], seed=1)",
             "(0,0) (1,1) (0,2) (1,3)");
    mr_drive("range(4).rejection_resample(x => x % 2, [0, 1], [1, 0], seed=1)",
             "(0,0) (1,1) (0,2) (1,3)");
    mr_drive("range(4).map(x => (x, \"s\")).rejection_resample((x, s) => 0, [2.5])",
             "(0,0,\"s\") (0,1,\"s\") (0,2,\"s\") (0,3,\"s\")");
    mr_drive("range(0).rejection_resample(x => x, [1.0])", "");
}

MR_TEST(a_seed_fixes_the_choice)
{
    mr_drive_alike("range(60).rejection_resample(x => x % 3, [1, 2, 3], seed=7).repeat(2)");
    mr_drive_alike("range(60).rejection_resample(x => x % 3, [1, 2, 3]).repeat(2)");
    /* Each epoch draws on; without initial_dist every class begins with a count of ten. */
    mr_drive("range(8).rejection_resample(x => x % 2, [3, 1], [1, 1], seed=1).repeat(2)"
             ".map((c, x) => x)",
             "0 1 2 4 5 6 0 2 4 6 7");
    mr_drive("range(3000).rejection_resample(x => (1 if x % 5 == 0 else 0), [1, 1], seed=1)"
             ".map((c, x) => x).batch(3000).map(x => (size(x), sum(x)))",
             "(1260,1828954)");
}

MR_TEST(errors_stay_where_they_are)
{
    mr_drive("range(-2, 3).rejection_resample(x => 6 // x * 0, [1], [1], seed=1)",
             "(0,-2) (0,-1) !zero (0,1) (0,2)");
    mr_drive("range(4).rejection_resample(x => 6 // (x % 2) * 0, [1], [1], seed=1)",
             "!zero (0,1) !zero (0,3)");
    mr_drive("range(4).rejection_resample(x => x - 1, [1, 1], [1, 1], seed=1)",
             "!range (0,1) (1,2) !range");
}

MR_TEST(distributions_are_checked)
{
    mr_drive_bad("range(3).rejection_resample(x => 1.0, [1])", "class_fn");
    mr_drive_bad("range(3).rejection_resample(x => x, [])", "target_dist");
    mr_drive_bad("range(3).rejection_resample(x => x, [0, 0])", "target_dist");
    mr_drive_bad("range(3).rejection_resample(x => x, [1, -1])", "target_dist");
    mr_drive_bad("range(3).rejection_resample(x => x, [1, 1], [1])", "initial_dist");
    mr_drive_count("range(3).rejection_resample(x => x, [1, 1])", MR_UNKNOWN_COUNT);
}

MR_TEST(made_in_c)
{
    mr_drive_dataset(mr_rejection_resample(mr_range(0, 3, 1), mr_fn_text("x => 0"),
                                           (const double[]){1}, NULL, 1, NULL),
                     "(0,0) (0,1) (0,2)");
}

MR_TEST(a_lack_of_memory_loses_nothing)
{
    mr_drive_goes_on("range(9).rejection_resample(x => x % 2, [1, 2], seed=1)");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(-5, 9).rejection_resample(x => 6 // x % 2, [1, 3], seed=1)");
}
