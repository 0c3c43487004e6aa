/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/batch.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

MR_TEST(groups_elements)
{
    mr_drive("range(10).batch(4)", "[0,1,2,3] [4,5,6,7] [8,9]");
    mr_drive("range(10).batch(4, drop_remainder=true)", "[0,1,2,3] [4,5,6,7]");
    mr_drive("range(3).batch(4, drop_remainder=true)", "");
    mr_drive("range(0).batch(4)", "");
    mr_drive("range(4).batch(2).batch(2)", "[[0,1],[2,3]]");
    mr_drive("range(3).batch(9223372036854775807)", "[0,1,2]");
    mr_drive("from_tensor_slices([\"a\", \"bc\", \"\"]).batch(2)", "[\"a\",\"bc\"] [\"\"]");
}

MR_TEST(rows_that_do_not_line_up_are_collected)
{
    mr_drive("range(30).filter(x => x % 3 != 1).batch(7)",
             "[0,2,3,5,6,8,9] [11,12,14,15,17,18,20] [21,23,24,26,27,29]");
    mr_drive("zip(range(5), range(5).batch(1)).batch(3)",
             "([0,1,2],[[0],[1],[2]]) ([3,4],[[3],[4]])");
}

MR_TEST(an_error_in_mid_batch_loses_the_rows_before_it)
{
    mr_drive("from_tensor_slices([1, 0, 2, 4, 8]).map(x => 8 // x).batch(2)", "!zero [4,2] [1]");
    mr_drive("from_tensor_slices([1, 2, 0, 4, 8]).map(x => 8 // x).batch(2)", "[8,4] !zero [2,1]");
}

MR_TEST(unequal_shapes_are_an_error_of_the_batch)
{
    mr_drive("range(1, 5).map(x => zeros([x])).batch(2)",
             "!different_shapes_in_component_0,_first_element_had_shape_[1]_and_element_1_had_"
             "shape_[2] !shape");
    mr_drive("from_tensor_slices([1, 1, 1, 2, 2, 2]).map(x => zeros([x])).batch(2)",
             "[[0],[0]] !shape [[0,0],[0,0]]");
    mr_drive("range(1, 3).map(x => {\"id\": x, \"tags\": zeros([x])}).batch(2)",
             "!different_shapes_in_component_\"tags\",_first");
    mr_drive("range(1, 3).map(x => (x, zeros([x]))).batch(2)", "!different_shapes_in_component_1,");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).batch(0)", "batch");
    mr_drive_bad("range(3).batch(-1)", "batch");
    mr_drive_bad("range(3).batch(1.5)", "batch");
    mr_drive_bad("range(3).window(2).batch(2)", "dataset");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(10).batch(4)", 3);
    mr_drive_count("range(10).batch(4, drop_remainder=true)", 2);
    mr_drive_count("counter().batch(4)", MR_INFINITE);
}

MR_TEST(a_full_batch_lands_in_the_callers_segments)
{
    const char *graphs[] = {"range(12).batch(4)", "range(24).filter(x => x % 2 == 0).batch(4)",
                            "range(12).shuffle(3, seed=1).batch(4)"};
    for (size_t g = 0; g < 3; g++) {
        mr_dataset *ds = mr_drive_build(graphs[g]);
        mr_iterator *it = NULL;
        mr_status st;
        mr_iterator_opts opts = {.has_threads = true};
        mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
        int64_t low[3], high[1];
        mr_segment segments[2] = {{low, sizeof low}, {high, sizeof high}};
        mr_destination destination = {.n_columns = 1, .n_segments = 2, .segments = segments};
        mr_block b = {.destination = &destination};
        int64_t sum = 0;
        for (int i = 0; i < 3; i++) {
            mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
            mr_eq_i64(b.columns[0].storage, MR_PLACED);
            mr_eq_i64(b.columns[0].shape[0], 4);
            sum += low[0] + low[1] + low[2] + high[0];
        }
        mr_eq_i64(sum, g == 1 ? 132 : 66);
        mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

MR_TEST(a_short_batch_is_not_placed)
{
    mr_dataset *ds = mr_drive_build("range(4).filter(x => x > 0).batch(4)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    int64_t room[4];
    mr_segment segment = {room, sizeof room};
    mr_destination destination = {.n_columns = 1, .n_segments = 1, .segments = &segment};
    mr_block b = {.destination = &destination};
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(b.columns[0].storage, MR_DENSE);
    mr_eq_i64(b.columns[0].shape[0], 3);
    mr_eq_i64(((int64_t *)b.columns[0].data)[2], 3);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

typedef struct rows {
    mr_iterator *it; /* cancelled once, instead of row `cancel` */
    int64_t next, cancel;
} rows;

static mr_code next_row(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    rows *x = ctx;
    (void)pass;
    (void)want;
    if (x->next == x->cancel) {
        x->cancel = -1;
        mr_iterator_cancel(x->it);
        return mr_fail(st, MR_CANCELLED, "cancelled");
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = x->next++;
    out->rows = 1;
    return MR_OK;
}

/* The consumer's memory is borrowed during the call. */
MR_TEST(a_batch_that_was_cancelled_continues_in_other_memory)
{
    rows x = {.cancel = 2};
    const mr_generator g = {.ctx = &x, .next = next_row};
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_batch(mr_from_generator(&g, spec), 4, NULL);
    mr_status st;
    int64_t first[4], second[4];
    mr_segment segment = {first, sizeof first};
    mr_destination destination = {.n_columns = 1, .n_segments = 1, .segments = &segment};
    mr_block b = {.destination = &destination};
    mr_ok(mr_iterator_open(&x.it, ds, NULL, &st), &st);
    mr_code_is(mr_iterator_next(x.it, 1, &b, &st), MR_CANCELLED, &st);
    for (int i = 0; i < 4; i++)
        first[i] = -1;
    segment.data = NULL; /* what was borrowed is gone */
    mr_segment other = {second, sizeof second};
    mr_destination then = {.n_columns = 1, .n_segments = 1, .segments = &other};
    b.destination = &then;
    mr_ok(mr_iterator_resume(x.it, &st), &st);
    mr_ok(mr_iterator_next(x.it, 1, &b, &st), &st);
    mr_eq_i64(b.columns[0].storage, MR_PLACED);
    for (int i = 0; i < 4; i++) {
        mr_eq_i64(second[i], i);
        mr_eq_i64(first[i], -1);
    }
    mr_block_reset(&b);
    mr_iterator_close(x.it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}

/* The first element of text, an array of which fewer than `bytes` are kept. */
static void keeps(const char *text, size_t bytes)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build(text);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_check(mr_buffer_size(b.columns[0].owner) < bytes);
    mr_check(mr_iterator_next(it, 1, &b, &st) == MR_END);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_batch_that_ends_early_keeps_what_it_needs)
{
    static const char *const sizes[] = {"100000", "100000000", "1000000000000"};
    char text[100];
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "range(2).filter(x => true).batch(%s)", sizes[i]);
        keeps(text, 8192);
        snprintf(text, sizeof text,
                 "range(3).filter(x => true).map(x => zeros([x])).ragged_batch(%s)", sizes[i]);
        keeps(text, 8192);
    }
}

MR_TEST(a_batch_of_no_bounds_grows_with_its_rows)
{
    char *got = mr_drive_show("range(300000).filter(x => x >= 0).batch(1000000000000)"
                              ".map(x => (x[0], x[-1], length(x), sum(x)))");
    mr_eq_str(got, "(0,299999,300000,44999850000)");
    free(got);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).batch(3)");
    mr_drive_faults("range(20).filter(x => x % 3 != 1).batch(4)");
    mr_drive_faults("range(1, 5).map(x => zeros([x])).batch(2)");
}
