/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdio.h>

#include "tests/events.h"
#include "tests/harness.h"

MR_TEST(cuts_equal_slices_late_ones_short_or_empty)
{
    mr_drive("range(8).batch(4).replica_slices(3)", "[0,1] [2,3] [] [4,5] [6,7] []");
    mr_drive("range(6).batch(6).replica_slices(4)", "[0,1] [2,3] [4,5] []");
    mr_drive("range(2).batch(2).replica_slices(4)", "[0] [1] [] []");
    mr_drive("range(6).batch(4).replica_slices(2)", "[0,1] [2,3] [4] [5]");
    mr_drive("range(3).batch(3).replica_slices(1)", "[0,1,2]");
}

MR_TEST(every_component_is_cut_by_its_own_size)
{
    mr_drive("from_tensors([1, 2, 3], [[4, 5]]).replica_slices(2)", "([1,2],[[4,5]]) ([3],[])");
}

MR_TEST(elements_of_differing_shapes_are_cut_too)
{
    mr_drive("range(1, 4).map(x => ones([x])).replica_slices(2)", "[1] [] [1] [1] [1,1] [1]");
}

/* The ordinals of each slice's records: "0,1 - 2". */
static void check_records(const char *text, const char *expected)
{
    char got[200] = "";
    size_t n = 0;
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = NULL;
    mr_status st;
    mr_events e = {0};
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.identities = true}, &st), &st);
    mr_events_run(&e, it, 100, SIZE_MAX);
    for (size_t i = 0; i < e.n; i++) {
        n += (size_t)snprintf(got + n, sizeof got - n, "%s", i ? " " : "");
        for (size_t k = 0; k < e.v[i].n_ids; k++)
            n += (size_t)snprintf(got + n, sizeof got - n, "%s%d", k ? "," : "",
                                  (int)e.v[i].ids[k].ordinal);
        if (e.v[i].n_ids == 0)
            n += (size_t)snprintf(got + n, sizeof got - n, "-");
    }
    mr_eq_str(got, expected);
    mr_events_reset(&e, 0);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(slices_have_the_records_of_their_rows_and_empty_ones_have_none)
{
    check_records("range(5).batch(4).replica_slices(3)", "0,1 2,3 - 4 - -");
    check_records("range(2).batch(2).replica_slices(4)", "0 1 - -");
    check_records("range(3).batch(3).replica_slices(1)", "0,1,2");
    /* A component with a row for each record says which these are, in any place. */
    check_records("range(4).batch(4).map(x => (x[:1], x)).replica_slices(3)", "0,1 2,3 -");
    check_records("range(4).batch(4).map(x => (x, x[:1])).replica_slices(3)", "0,1 2,3 -");
    /* Where no component has a row for each record, a slice has all of them. */
    check_records("range(4).batch(4).map(x => x[:2]).replica_slices(3)", "0,1,2,3 0,1,2,3 -");
    check_records("range(2).map(x => ones([x])).replica_slices(2)", "- - 1 -");
}

MR_TEST(a_scalar_is_refused)
{
    mr_drive_bad("range(3).replica_slices(2)", "batch the dataset first");
    mr_drive_bad("range(3).batch(2).replica_slices(0)", "replica_slices");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(8).batch(4).replica_slices(3)", 6);
}

MR_TEST(n_slots_are_one_batch_to_the_op_below)
{
    mr_dataset *ds = mr_drive_build("range(16).shuffle(4, seed=1).batch(4).replica_slices(2)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    int64_t slots[2][2];
    mr_segment segments[2] = {{slots[0], 16}, {slots[1], 16}};
    mr_destination destination = {.n_columns = 1, .n_segments = 2, .segments = segments};
    mr_block b = {.destination = &destination};
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        mr_ok(mr_iterator_next(it, 2, &b, &st), &st);
        mr_eq_u64(b.rows, 2);
        mr_eq_i64(b.columns[0].storage, MR_PLACED);
        mr_eq_i64(b.columns[0].shape[0], 2);
        sum += slots[0][0] + slots[0][1] + slots[1][0] + slots[1][1];
    }
    mr_eq_i64(sum, 120);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).batch(6).replica_slices(4)");
    mr_drive_faults("range(1, 4).map(x => ones([x])).replica_slices(2)");
}
