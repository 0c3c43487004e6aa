/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

MR_TEST(emits_what_the_function_makes_and_keeps_the_state)
{
    mr_drive("range(5).scan(0, (s, x) => (s + x, s))", "0 0 1 3 6");
    mr_drive("range(5).scan(10, (s, x) => (x, (s, x)))", "(10,0) (0,1) (1,2) (2,3) (3,4)");
    mr_drive("range(0).scan(0, (s, x) => (s, x))", "");
    mr_drive("range(3).scan(0, (s, x) => (s + x, s)).repeat(2)", "0 0 1 0 0 1");
    mr_drive("range(3).map(x => (x, x * 2)).scan(1, (s, x) => (s * 2, s + x[1]))", "1 4 8");
    mr_drive("range(3).scan((0, \"a\"), (s, x) => ((s[0] + x, s[1] + \"b\"), s))",
             "(0,\"a\") (0,\"ab\") (1,\"abb\")");
    mr_drive("range(3).scan({\"n\": 0}, (s, x) => ({\"n\": s[\"n\"] + 1}, {\"out\": s[\"n\"]}))",
             "0 1 2");
    mr_drive("range(3).scan(0, p => (p[0] + p[1], p[0]))", "0 0 1");
}

MR_TEST(the_shape_of_the_state_may_change_its_type_not)
{
    mr_drive("range(3).scan([7], (s, x) => (concat(s, [x]), s))", "[7] [7,0] [7,0,1]");
    mr_drive("range(3).scan([7], (s, x) => (concat(s, [x]), s)).padded_batch(3)",
             "[[7,0,0],[7,0,0],[7,0,1]]");
    mr_drive("range(3).scan(zeros([2]), (s, x) => (s + cast(x, \"float32\"), s))",
             "[0,0] [0,0] [1,1]");
    mr_drive_bad("range(3).scan(0, (s, x) => (\"a\", s))", "state");
    mr_drive_bad("range(3).scan(0, (s, x) => ((s, s), s))", "state");
    mr_drive_bad("range(3).scan(0, (s, x) => (0.5, s))", "state");
    mr_drive_bad("range(3).scan(0, (s, x) => s)", "pair");
    mr_drive_bad("range(3).scan(0, (s, x) => (s, x, x))", "pair");
    mr_drive_bad("range(3).scan(0)", "fn");
    mr_drive_bad("range(3).scan(none, (s, x) => (s, x))", "scan");
}

MR_TEST(an_error_leaves_the_state_as_it_was)
{
    mr_drive("range(-2, 3).scan(0, (s, x) => (s + 1, 6 // x))", "-3 -6 ! 6 3");
    mr_drive("range(-2, 3).scan(0, (s, x) => (s + 6 // x, s))", "0 -3 ! -9 -3");
    mr_drive("range(-2, 3).map(x => 6 // x).scan(0, (s, x) => (s + x, s))", "0 -3 ! -9 -3");
    mr_drive("range(3).scan(0, (s, x) => (s, 1 // 0))", "! ! !");
}

MR_TEST(within_a_function)
{
    mr_drive("range(3).flat_map(n => range(3).scan(n, (s, x) => (s + x, s)))", "0 0 1 1 1 2 2 2 3");
    mr_drive("range(2).flat_map(n => range(3).scan(0, (s, x) => (s + n, s)))", "0 0 0 0 1 2");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("range(7).scan(0, (s, x) => (s, x))", 7);
    mr_drive_count("counter().scan(0, (s, x) => (s, x))", MR_INFINITE);
}

MR_TEST(made_in_c)
{
    const mr_value one = {.kind = MR_V_INT, .i = 1};
    mr_drive_dataset(mr_scan(mr_range(0, 3, 1), &one, mr_fn_text("(s, x) => (s * 2, s + x)")),
                     "1 3 6");
}

MR_TEST(a_lack_of_memory_loses_nothing)
{
    mr_drive_goes_on("range(-3, 4).scan(0, (s, x) => (s + 6 // x, s))");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(-3, 5).scan((0, [1]), (s, x) => ((s[0] + 6 // x, concat(s[1], [x])), "
                    "s))");
}
