/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/block.h"

#include <string.h>

#include "tests/harness.h"
#include "tests/pipeline/memory/columns.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

static const char *const names[] = {"x", "text"};

/* Rows 0..rows: int32 [2] and a string; identity ordinal 1000 + row where asked for. */
static mr_code make_block(mr_block *b, size_t rows, bool with_ids, mr_status *st)
{
    const char *text[64];
    for (size_t i = 0; i < rows; i++)
        text[i] = i % 2 ? "odd" : "even!";
    MR_TRY(mr_block_prepare(b, 2, st));
    MR_TRY(make_numbers(&b->columns[0], rows, 2, st));
    MR_TRY(make_strings(&b->columns[1], text, rows, st));
    if (with_ids) {
        mr_identity *ids;
        MR_TRY(mr_identities_alloc(&b->ids, rows, &ids, st));
        for (size_t i = 0; i < rows; i++)
            ids[i] = (mr_identity){.source = 7, .ordinal = 1000 + i};
    }
    b->rows = rows;
    b->names = names;
    return MR_OK;
}

static size_t n_ids(const mr_identities *x, size_t row)
{
    return x->offsets ? (size_t)(x->offsets[row + 1] - x->offsets[row]) : 1;
}
static uint64_t ordinal(const mr_identities *x, size_t row, size_t i)
{
    return x->ids[(x->offsets ? x->offsets[row] : row) + i].ordinal;
}
static int32_t number(const mr_block *b, size_t row)
{
    return *(const int32_t *)mr_array_at(&b->columns[0], row);
}

MR_TEST(columns_are_found_by_name)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_check(mr_block_column(&b, "x") == NULL);
    mr_ok(make_block(&b, 3, false, &st), &st);
    mr_check(mr_block_column(&b, "text") == &b.columns[1]);
    mr_check(mr_block_column(&b, "y") == NULL);
    mr_eq_u64(mr_block_payload_bytes(&b), 3 * 8 + 5 + 3 + 5);
    mr_block_reset(&b);
    mr_check(b.columns == NULL);
}

MR_TEST(slices_are_views_that_outlive_their_source)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY, s = MR_BLOCK_EMPTY, t = MR_BLOCK_EMPTY;
    mr_ok(make_block(&b, 20, true, &st), &st);
    mr_ok(mr_block_slice(&s, &b, 5, 10, &st), &st);
    mr_check(s.columns[0].data == mr_array_at(&b.columns[0], 5));
    mr_ok(mr_block_slice(&t, &s, 2, 3, &st), &st);
    mr_block_reset(&b);
    mr_block_reset(&s);
    mr_eq_u64(t.rows, 3);
    mr_eq_i64(number(&t, 2), 900);
    check_string(&t.columns[1], 0, "odd");
    mr_eq_u64(ordinal(&t.ids, 1, 0), 1008);
    mr_check(mr_block_column(&t, "x") == &t.columns[0]);
    mr_check(mr_buffer_writable(t.columns[0].owner));
    mr_block_reset(&t);
}

MR_TEST(slicing_into_a_used_block_does_not_allocate)
{
    fail_nth_next(SIZE_MAX);
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY, s = MR_BLOCK_EMPTY;
    mr_ok(make_block(&b, 20, true, &st), &st);
    mr_ok(mr_block_slice(&s, &b, 0, 1, &st), &st);
    size_t calls = atomic_load(&fail_calls);
    for (size_t i = 0; i < 20; i++)
        mr_ok(mr_block_slice(&s, &b, i, 20 - i, &st), &st);
    mr_eq_u64(atomic_load(&fail_calls), calls);
    mr_block_reset(&s);
    mr_block_reset(&b);
    fail_nth_end();
}

MR_TEST(clear_keeps_the_array_of_columns_and_the_wish)
{
    mr_status st;
    const mr_destination destination = {0};
    mr_block b = MR_BLOCK_EMPTY;
    b.destination = &destination;
    mr_ok(make_block(&b, 3, true, &st), &st);
    mr_ok(mr_buffer_alloc(&b.position, 5, &st), &st);
    mr_array *columns = b.columns;
    mr_block_clear(&b);
    mr_check(b.columns == columns && b.destination == &destination && b.rows == 0 &&
             b.n_columns == 0);
    mr_check(b.ids.ids == NULL && b.position == NULL && b.names == NULL);
    mr_block_reset(&b);
}

MR_TEST(move_takes_everything_but_the_wish)
{
    mr_status st;
    const mr_destination destination = {0};
    mr_block a = MR_BLOCK_EMPTY, b = MR_BLOCK_EMPTY;
    mr_ok(make_block(&a, 3, true, &st), &st);
    mr_ok(make_block(&b, 5, false, &st), &st);
    mr_ok(mr_buffer_alloc(&a.position, 5, &st), &st);
    b.destination = &destination;
    mr_block_move(&b, &a);
    mr_eq_u64(b.rows, 3);
    mr_check(b.destination == &destination && b.position && b.ids.ids && b.names == names);
    mr_check(a.rows == 0 && a.n_columns == 0 && !a.position && !a.ids.ids);
    mr_check(a.columns_capacity >= 2); /* reused next time */
    mr_block_reset(&a);
    mr_block_reset(&b);
}

MR_TEST(blocks_fit_column_by_column)
{
    mr_status st;
    mr_block a = MR_BLOCK_EMPTY, b = MR_BLOCK_EMPTY;
    mr_ok(make_block(&a, 3, true, &st), &st);
    mr_ok(make_block(&b, 4, false, &st), &st);
    mr_check(mr_block_fits(&a, &b));
    b.columns[0].shape[0] = 3;
    mr_check(!mr_block_fits(&a, &b));
    b.columns[0].shape[0] = 2;
    b.n_columns = 1;
    mr_check(!mr_block_fits(&a, &b));
    b.n_columns = 2;
    mr_block_reset(&a);
    mr_block_reset(&b);
}

MR_TEST(appending_copies_rows_with_their_identities)
{
    mr_status st;
    mr_block a = MR_BLOCK_EMPTY, dst = MR_BLOCK_EMPTY;
    mr_ok(make_block(&a, 20, true, &st), &st);
    mr_ok(mr_block_start(&dst, &a, 6, &st), &st);
    mr_eq_u64(dst.rows, 0);
    mr_ok(mr_block_append(&dst, &a, 3, 2, &st), &st);
    mr_ok(mr_block_append_rows(&dst, &a, (uint32_t[]){19, 0, 4, 4}, 4, &st), &st);
    mr_block_reset(&a);
    const int rows[] = {3, 4, 19, 0, 4, 4};
    mr_eq_u64(dst.rows, 6);
    for (size_t i = 0; i < 6; i++) {
        mr_eq_i64(number(&dst, i), rows[i] * 100);
        check_string(&dst.columns[1], i, rows[i] % 2 ? "odd" : "even!");
        mr_eq_u64(n_ids(&dst.ids, i), 1);
        mr_eq_u64(ordinal(&dst.ids, i, 0), 1000 + (uint64_t)rows[i]);
    }
    mr_block_reset(&dst);
}

MR_TEST(appended_identities_become_lists_where_rows_have_several)
{
    mr_status st;
    mr_block a = MR_BLOCK_EMPTY, none = MR_BLOCK_EMPTY, pairs = MR_BLOCK_EMPTY,
             dst = MR_BLOCK_EMPTY;
    mr_ok(make_block(&a, 20, true, &st), &st);
    mr_ok(make_block(&none, 2, false, &st), &st);
    mr_ok(make_block(&pairs, 20, false, &st), &st);
    mr_ok(mr_identities_join(&pairs.ids, &a.ids, &a.ids, 20, &st), &st);
    mr_ok(mr_block_start(&dst, &a, 64, &st), &st);
    mr_ok(mr_block_append(&dst, &a, 0, 3, &st), &st);
    mr_ok(mr_block_append(&dst, &none, 0, 2, &st), &st);
    for (size_t i = 0; i < 20; i++)
        mr_ok(mr_block_append_rows(&dst, &pairs, (uint32_t[]){(uint32_t)i, 2}, 2, &st), &st);
    mr_ok(mr_block_append(&dst, &a, 5, 1, &st), &st);
    mr_block_reset(&a);
    mr_block_reset(&none);
    mr_block_reset(&pairs);
    mr_eq_u64(dst.rows, 46);
    for (size_t i = 0; i < 3; i++) {
        mr_eq_u64(n_ids(&dst.ids, i), 1);
        mr_eq_u64(ordinal(&dst.ids, i, 0), 1000 + i);
    }
    mr_eq_u64(n_ids(&dst.ids, 3) + n_ids(&dst.ids, 4), 0);
    for (size_t i = 0; i < 40; i++) {
        mr_eq_u64(n_ids(&dst.ids, 5 + i), 2);
        mr_eq_u64(ordinal(&dst.ids, 5 + i, 1), i % 2 ? 1002 : 1000 + i / 2);
    }
    mr_eq_u64(n_ids(&dst.ids, 45), 1);
    mr_eq_u64(ordinal(&dst.ids, 45, 0), 1005);
    mr_block_reset(&dst);
}

MR_TEST(identities_group_into_lists_and_ungroup_to_copies)
{
    mr_status st;
    mr_identities a, g, gg, tail, u;
    mr_identity *ids;
    mr_ok(mr_identities_alloc(&a, 13, &ids, &st), &st);
    for (size_t i = 0; i < 13; i++)
        ids[i] = (mr_identity){.ordinal = i};
    mr_ok(mr_identities_group(&g, &a, 12, 3, &st), &st);
    mr_check(g.ids == a.ids); /* no copy */
    mr_identities_reset(&a);
    mr_eq_u64(n_ids(&g, 3), 3);
    mr_eq_u64(ordinal(&g, 3, 2), 11);
    mr_identities_take(&tail, &g, 2, 2);
    mr_ok(mr_identities_group(&gg, &tail, 2, 2, &st), &st);
    mr_identities_reset(&g);
    mr_identities_reset(&tail);
    mr_eq_u64(n_ids(&gg, 0), 6);
    mr_eq_u64(ordinal(&gg, 0, 0), 6);
    mr_ok(mr_identities_ungroup(&u, &gg, 0, 4, &st), &st);
    mr_identities_reset(&gg);
    for (size_t r = 0; r < 4; r++) {
        mr_eq_u64(n_ids(&u, r), 6);
        mr_eq_u64(ordinal(&u, r, 5), 11);
    }
    mr_identities_reset(&u);
}

MR_TEST(one_identity_ungroups_flat)
{
    mr_status st;
    mr_identities a, u;
    mr_identity *ids;
    mr_ok(mr_identities_alloc(&a, 2, &ids, &st), &st);
    ids[0].ordinal = 4;
    ids[1].ordinal = 5;
    mr_ok(mr_identities_ungroup(&u, &a, 1, 3, &st), &st);
    mr_check(u.offsets == NULL);
    for (size_t r = 0; r < 3; r++)
        mr_eq_u64(u.ids[r].ordinal, 5);
    mr_identities_reset(&u);
    mr_identities_reset(&a);
}

MR_TEST(joined_identities_have_a_then_b_also_behind_slices)
{
    mr_status st;
    mr_identities a, b, lists, from, j;
    mr_identity *ids;
    mr_ok(mr_identities_alloc(&a, 6, &ids, &st), &st);
    for (size_t i = 0; i < 6; i++)
        ids[i].ordinal = i;
    mr_ok(mr_identities_group(&lists, &a, 6, 2, &st), &st);
    mr_identities_take(&from, &lists, 1, 2);
    mr_identities_take(&b, &a, 4, 2);
    mr_ok(mr_identities_join(&j, &from, &b, 2, &st), &st);
    mr_identities_reset(&a);
    mr_identities_reset(&b);
    mr_identities_reset(&from);
    mr_identities_reset(&lists);
    mr_eq_u64(n_ids(&j, 0), 3);
    mr_eq_u64(n_ids(&j, 1), 3);
    const uint64_t expected[2][3] = {{2, 3, 4}, {4, 5, 5}};
    for (size_t r = 0; r < 2; r++) {
        for (size_t i = 0; i < 3; i++)
            mr_eq_u64(ordinal(&j, r, i), expected[r][i]);
    }
    mr_identities_reset(&j);
}

MR_TEST(no_identities_in_none_out)
{
    mr_status st;
    const mr_identities none = {0};
    mr_identities a, out;
    mr_identity *ids;
    mr_identities_take(&out, &none, 3, 4);
    mr_check(out.ids == NULL && out.owner == NULL);
    mr_ok(mr_identities_group(&out, &none, 4, 2, &st), &st);
    mr_check(out.ids == NULL);
    mr_ok(mr_identities_ungroup(&out, &none, 1, 2, &st), &st);
    mr_check(out.ids == NULL);
    mr_ok(mr_identities_join(&out, &none, &none, 2, &st), &st);
    mr_check(out.ids == NULL);
    mr_ok(mr_identities_alloc(&a, 2, &ids, &st), &st);
    ids[0].ordinal = 1;
    ids[1].ordinal = 2;
    mr_ok(mr_identities_join(&out, &none, &a, 2, &st), &st);
    mr_eq_u64(ordinal(&out, 1, 0), 2);
    mr_identities_reset(&out);
    mr_identities_reset(&a);
}

static mr_code use_everything(void)
{
    mr_block a = MR_BLOCK_EMPTY, s = MR_BLOCK_EMPTY, dst = MR_BLOCK_EMPTY;
    mr_identities joined = {0}, grouped = {0}, ungrouped = {0};
    mr_code rc = make_block(&a, 20, true, NULL);
    if (rc == MR_OK)
        rc = mr_block_slice(&s, &a, 2, 18, NULL);
    if (rc == MR_OK)
        rc = mr_block_start(&dst, &s, 20, NULL);
    if (rc == MR_OK)
        rc = mr_identities_join(&joined, &s.ids, &s.ids, 18, NULL);
    if (rc == MR_OK)
        rc = mr_identities_group(&grouped, &joined, 18, 3, NULL);
    if (rc == MR_OK)
        rc = mr_identities_ungroup(&ungrouped, &grouped, 1, 3, NULL);
    if (rc == MR_OK)
        rc = mr_block_append(&dst, &s, 0, 1, NULL);
    if (rc == MR_OK) {
        mr_identities_reset(&s.ids);
        mr_identities_take(&s.ids, &joined, 0, 18);
        rc = mr_block_append(&dst, &s, 0, 18, NULL);
        size_t rows = rc == MR_OK ? 19 : 1;
        mr_eq_u64(dst.rows, rows);
        mr_eq_u64(dst.columns[0].rows, rows);
        mr_eq_u64(dst.columns[1].rows, rows);
    }
    mr_identities_reset(&joined);
    mr_identities_reset(&grouped);
    mr_identities_reset(&ungrouped);
    mr_block_reset(&a);
    mr_block_reset(&s);
    mr_block_reset(&dst);
    return rc;
}

MR_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    size_t nth = 0;
    for (; fail_nth_next(nth); nth++) {
        mr_code rc = use_everything();
        mr_eq_i64(rc, fail_nth_hit() ? MR_RESOURCE_EXHAUSTED : MR_OK);
        fail_nth_end();
    }
    mr_check(nth > 10);
}
