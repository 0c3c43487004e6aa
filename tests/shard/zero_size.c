/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/distribute/dist_impl.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_block zero_of(const mr_leaf *leaf)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_spec *spec = mr_spec_of_leaf(leaf);
    mr_ok(mr__zero_size_batch(spec, &b, &st), &st);
    mr_eq_u64(b.rows, 1);
    mr_spec_unref(spec);
    return b;
}

MR_TEST(unknown_dimensions_become_0)
{
    mr_block b = zero_of(&(mr_leaf){.dtype = MR_INT64, .rank = 2, .shape = {-1, 28}});
    mr_eq_i64(b.columns[0].shape[0], 0);
    mr_eq_i64(b.columns[0].shape[1], 28);
    mr_block_reset(&b);
    b = zero_of(&(mr_leaf){.dtype = MR_FLOAT32, .rank = 2, .shape = {3, -1}});
    mr_eq_i64(b.columns[0].shape[0], 3);
    mr_eq_i64(b.columns[0].shape[1], 0);
    mr_block_reset(&b);
}

MR_TEST(dimension_0_of_a_known_shape_becomes_0)
{
    mr_block b = zero_of(&(mr_leaf){.dtype = MR_STRING, .rank = 2, .shape = {4, 5}});
    mr_eq_i64(b.columns[0].shape[0], 0);
    mr_eq_i64(b.columns[0].shape[1], 5);
    mr_block_reset(&b);
}

MR_TEST(scalar_is_zero_or_the_empty_string)
{
    mr_block b = zero_of(&(mr_leaf){.dtype = MR_INT64, .rank = 0});
    mr_eq_i64(*(const int64_t *)b.columns[0].data, 0);
    mr_block_reset(&b);
    b = zero_of(&(mr_leaf){.dtype = MR_STRING, .rank = -1});
    mr_eq_i64(b.columns[0].rank, 0);
    mr_eq_u64(((const mr_bytes *)b.columns[0].data)->size, 0);
    mr_block_reset(&b);
}

MR_TEST(ragged_is_empty_with_valid_row_splits)
{
    mr_block b =
        zero_of(&(mr_leaf){.dtype = MR_INT64, .rank = 2, .ragged = true, .shape = {-1, -1}});
    const mr_row *row = b.columns[0].data;
    mr_check(b.columns[0].storage == MR_RAGGED);
    mr_eq_i64(row->shape[0], 0);
    mr_eq_i64(row->splits[0], 0);
    mr_block_reset(&b);
}

MR_TEST(datasets_have_no_zero_size_batch)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_spec *spec = mr_spec_dataset(mr_spec_scalar(MR_INT64));
    mr_code_is(mr__zero_size_batch(spec, &b, &st), MR_UNIMPLEMENTED, &st);
    mr_block_reset(&b);
    mr_spec_unref(spec);
}
