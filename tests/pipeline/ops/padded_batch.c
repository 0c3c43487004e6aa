/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

#define RAGGED "from_tensor_slices([1, 3, 2, 0]).map(x => ones([x]))"

MR_TEST(pads_to_the_largest_of_the_batch)
{
    mr_drive(RAGGED ".padded_batch(2)", "[[1,0,0],[1,1,1]] [[1,1],[0,0]]");
    mr_drive(RAGGED ".padded_batch(3)", "[[1,0,0],[1,1,1],[1,1,0]] [[]]");
    mr_drive(RAGGED ".padded_batch(3, drop_remainder=true)", "[[1,0,0],[1,1,1],[1,1,0]]");
    mr_drive("range(3).padded_batch(2)", "[0,1] [2]");
    mr_drive("from_tensor_slices([1, 2]).map(x => ones([x, x])).padded_batch(2)",
             "[[[1,0],[0,0]],[[1,1],[1,1]]]");
}

MR_TEST(pads_to_given_sizes_with_given_values)
{
    mr_drive(RAGGED ".padded_batch(4, padded_shapes=[4], padding_values=-1.0)",
             "[[1,-1,-1,-1],[1,1,1,-1],[1,1,-1,-1],[-1,-1,-1,-1]]");
    mr_drive(RAGGED ".map(x => (x, \"s\")).padded_batch(2, padded_shapes=([none], []))",
             "([[1,0,0],[1,1,1]],[\"s\",\"s\"]) ([[1,1],[0,0]],[\"s\",\"s\"])");
    mr_drive("range(2).map(x => {\"a\": x, \"b\": ones([x])}).padded_batch(2, "
             "padding_values={\"a\": none, \"b\": 7.0})",
             "([0,1],[[7],[1]])");
    mr_drive("from_tensors([\"x\"]).concatenate(from_tensors([\"y\", \"z\"])).padded_batch(2, "
             "padding_values=\"-\")",
             "[[\"x\",\"-\"],[\"y\",\"z\"]]");
}

MR_TEST(pads_every_axis_of_rows_of_any_kind)
{
    mr_drive("range(3).map(x => [x, x]).padded_batch(2, padded_shapes=[3])",
             "[[0,0,0],[1,1,0]] [[2,2,0]]");
    mr_drive("range(1, 3).map(x => ones([2, x])).padded_batch(2, padding_values=-1.0)",
             "[[[1,-1],[1,-1]],[[1,1],[1,1]]]");
    mr_drive("range(2).map(x => ones([x + 1, x])).padded_batch(2, padding_values=-1.0)",
             "[[[-1],[-1]],[[1],[1]]]");
    mr_drive("range(1, 3).map(x => zeros([x, 2, x])).padded_batch(2, padding_values=3.0)",
             "[[[[0,3],[0,3]],[[3,3],[3,3]]],[[[0,0],[0,0]],[[0,0],[0,0]]]]");
    mr_drive("range(2).map(x => zeros([x, 0])).padded_batch(2)", "[[[]],[[]]]");
    mr_drive("from_tensor_slices([\"a b\", \"c\"]).map(x => split(x)).padded_batch(2)",
             "[[\"a\",\"b\"],[\"c\",\"\"]]");
}

MR_TEST(batches_lie_across_the_blocks_of_a_cache)
{
    mr_drive(RAGGED ".cache().repeat(3).padded_batch(3)",
             "[[1,0,0],[1,1,1],[1,1,0]] [[0,0,0],[1,0,0],[1,1,1]] [[1,1],[0,0],[1,0]] "
             "[[1,1,1],[1,1,0],[0,0,0]]");
}

MR_TEST(batches_of_many_short_rows_are_padded_to_the_end)
{
    mr_drive("range(1200).map(x => ones([x % 5 + 1])).padded_batch(600).map(b => sum(b, axis=0))",
             "[600,480,360,240,120] [600,480,360,240,120]");
}

MR_TEST(an_element_larger_than_its_size_is_data_loss_of_the_batch)
{
    mr_drive(RAGGED ".padded_batch(2, padded_shapes=[2])", "!pad [[1,1],[0,0]]");
    mr_status st; /* the first such element, whichever axis it is */
    mr_drive_error("range(3).map(x => ones([1 + x * 2, 6 - x * 2])).padded_batch(3, "
                   "padded_shapes=[4, 5])",
                   &st);
    mr_has_str(st.message, "axis 1 of component 0 is to have 5, element 0 has 6");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).padded_batch(0)", "batch");
    mr_drive_bad("from_tensors([1, 2, 3]).padded_batch(2, padded_shapes=[2])", "pad");
    mr_drive_bad("from_tensors([1, 2, 3]).padded_batch(2, padded_shapes=[2, 2])", "pad");
    /* The axis given in the text, next to one that each element determines. */
    mr_drive_bad("range(3).map(x => zeros([x, 2])).padded_batch(2, padded_shapes=[none, 1])",
                 "pad axis 1 of size 2");
    mr_drive_bad("range(3).map(x => reshape([x, x], [x - x + 1, 2])).padded_batch(2, "
                 "padded_shapes=[none, 1])",
                 "pad axis 1 of size 2");
    mr_drive("range(2).map(x => reshape(zeros([x, 2]), [2 * x, -1])).padded_batch(2)",
             "[[[0.0],[0.0]],[[0.0],[0.0]]]");
    mr_drive_bad("range(3).padded_batch(2, padding_values=\"x\")", "padding_values");
    mr_drive_bad("zip(range(3), range(3)).padded_batch(2, padded_shapes=([],[],[]))", "tuple");
}

MR_TEST(a_number_pads_components_of_every_type_that_has_it)
{
    static const struct {
        const char *type;
        int least, none; /* a number that it has, and one that it has not */
    } ints[] = {{"int8", -128, 128},      {"uint8", 255, -1},   {"int16", -32768, 32768},
                {"uint16", 65535, 65536}, {"int32", -70000, 0}, {"uint32", 70000, -1},
                {"int64", -70000, 0},     {"uint64", 70000, -1}};
    static const char *const floats[] = {"float16", "bfloat16", "float32", "float64"};
    char text[200], want[100];
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const char *graph = "range(1, 3).map(x => cast(ones([x]), \"%s\")).padded_batch(2, "
                            "padding_values=%d).map(x => cast(x, \"int64\"))";
        for (int zero = 0; zero < 2; zero++) {
            snprintf(text, sizeof text, graph, ints[i].type, zero ? 0 : ints[i].least);
            snprintf(want, sizeof want, "[[1,%d],[1,1]]", zero ? 0 : ints[i].least);
            mr_drive(text, want);
        }
        snprintf(text, sizeof text, graph, ints[i].type, ints[i].none);
        if (ints[i].none)
            mr_drive_bad(text, "is not a value of the component's type");
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        snprintf(text, sizeof text,
                 "range(1, 3).map(x => cast(ones([x]), \"%s\")).padded_batch(2, "
                 "padding_values=-2).map(x => cast(x, \"float32\"))",
                 floats[i]);
        mr_drive(text, "[[1.0,-2.0],[1.0,1.0]]");
    }
    mr_drive("range(1, 3).map(x => cast(ones([x]), \"float64\")).padded_batch(2, "
             "padding_values=0.1)",
             "[[1.0,0.1],[1.0,1.0]]");
    mr_drive_bad("range(1, 3).map(x => cast(ones([x]), \"uint8\")).padded_batch(2, "
                 "padding_values=0.5)",
                 "type uint8, found float32");
    mr_drive_bad("range(1, 3).map(x => cast(ones([x]), \"bool\")).padded_batch(2, "
                 "padding_values=0)",
                 "type bool, found int64");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults(RAGGED ".padded_batch(2, padding_values=-1.0)");
}
