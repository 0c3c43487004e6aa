/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of positions: round trips, and every cut of them refused. */
#include <string.h>

#include "pipeline/engine/run.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_state_r reader(const mr_state_w *w, size_t n)
{
    return (mr_state_r){.at = w->data, .end = w->data + n};
}

MR_TEST(numbers_round_trip)
{
    static const int64_t values[] = {0, 1, -1, 63, 64, -64, -65, 300, INT64_MAX, INT64_MIN};
    mr_state_w w = {0};
    mr_status st;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        mr_ok(mr_state_put_i64(&w, values[i], &st), &st);
        mr_ok(mr_state_put_u64(&w, (uint64_t)values[i], &st), &st);
    }
    mr_state_r r = reader(&w, w.size);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        int64_t v;
        uint64_t u;
        mr_ok(mr_state_get_i64(&r, &v, &st), &st);
        mr_ok(mr_state_get_u64(&r, &u, &st), &st);
        mr_eq_i64(v, values[i]);
        mr_eq_u64(u, (uint64_t)values[i]);
    }
    mr_check(r.at == r.end);
    mr__state_w_reset(&w);
}

MR_TEST(numbers_longer_than_64_bits_are_refused)
{
    static const unsigned char eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                           0x80, 0x80, 0x80, 0x80, 0x01};
    static const unsigned char large[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    mr_status st;
    uint64_t v;
    mr_state_r r = {.at = eleven, .end = eleven + sizeof eleven};
    mr_code_is(mr_state_get_u64(&r, &v, &st), MR_INVALID_ARGUMENT, &st);
    r = (mr_state_r){.at = large, .end = large + sizeof large};
    mr_code_is(mr_state_get_u64(&r, &v, &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(statuses_round_trip)
{
    mr_state_w w = {0};
    mr_status e, got, st;
    mr_fail(&e, MR_DATA_LOSS, "corrupted record");
    mr_status_at(&e, "a.tfrecord", 120, 3);
    mr_ok(mr_state_put_status(&w, &e, &st), &st);
    mr_state_r r = reader(&w, w.size);
    mr_ok(mr_state_get_status(&r, &got, &st), &st);
    mr_eq_i64(got.code, MR_DATA_LOSS);
    mr_eq_str(got.message, "corrupted record");
    mr_eq_str(got.file, "a.tfrecord");
    mr_eq_i64(got.offset, 120);
    mr_eq_i64(got.record, 3);
    for (size_t n = 0; n < w.size; n++) {
        r = reader(&w, n);
        mr_code_is(mr_state_get_status(&r, &got, &st), MR_INVALID_ARGUMENT, &st);
    }
    mr__state_w_reset(&w);
}

/* A block with a dense, a string and a ragged column of two rows. */
static void fill(mr_block *b, mr_spec **spec)
{
    static const int64_t shape[] = {2}, one[] = {1}, three[] = {3};
    static const float values[] = {1, 2, 3, 4};
    mr_status st;
    mr_ok(mr_block_prepare(b, 3, &st), &st);
    mr_ok(mr_array_alloc(&b->columns[0], MR_FLOAT32, 1, shape, 2, &st), &st);
    memcpy(b->columns[0].data, values, sizeof values);
    mr_ok(mr_array_alloc(&b->columns[1], MR_STRING, 0, NULL, 2, &st), &st);
    ((mr_bytes *)b->columns[1].data)[0] = (mr_bytes){"hello", 5};
    ((mr_bytes *)b->columns[1].data)[1] = (mr_bytes){NULL, 0};
    mr_ok(mr_array_alloc_ragged(&b->columns[2], MR_FLOAT32, 1, 2, &st), &st);
    ((mr_row *)b->columns[2].data)[0] = (mr_row){.data = values, .shape = one};
    ((mr_row *)b->columns[2].data)[1] = (mr_row){.data = values, .shape = three};
    b->rows = 2;
    const int64_t any = -1;
    mr_spec *leaves[] = {mr_spec_tensor(MR_FLOAT32, 1, shape), mr_spec_scalar(MR_STRING),
                         mr_spec_tensor(MR_FLOAT32, 1, &any)};
    *spec = mr_spec_tuple(leaves, 3);
    mr_check(*spec != NULL);
}

MR_TEST(blocks_round_trip_and_no_cut_of_one_is_taken)
{
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
    mr_spec *spec;
    mr_state_w w = {0};
    mr_status st;
    fill(&b, &spec);
    mr_ok(mr_state_put_block(&w, &b, &st), &st);
    mr_state_r r = reader(&w, w.size);
    mr_ok(mr_state_get_block(&r, spec, &got, &st), &st);
    mr_check(r.at == r.end);
    mr_eq_u64(got.rows, 2);
    mr_eq_mem(got.columns[0].data, b.columns[0].data, 4 * sizeof(float));
    const mr_bytes *s = got.columns[1].data;
    mr_eq_u64(s[0].size, 5);
    mr_eq_mem(s[0].data, "hello", 5);
    mr_eq_u64(s[1].size, 0);
    const mr_row *rows = got.columns[2].data;
    mr_eq_i64(rows[0].shape[0], 1);
    mr_eq_i64(rows[1].shape[0], 3);
    mr_eq_f64((double)((const float *)rows[1].data)[2], 3, 0);
    for (size_t n = 0; n < w.size; n++) {
        r = reader(&w, n);
        mr_code_is(mr_state_get_block(&r, spec, &got, &st), MR_INVALID_ARGUMENT, &st);
    }
    mr_block_reset(&b);
    mr_block_reset(&got);
    mr_spec_unref(spec);
    mr__state_w_reset(&w);
}

MR_TEST(a_block_of_another_type_is_refused)
{
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
    mr_spec *spec, *other = mr_spec_scalar(MR_INT64);
    mr_state_w w = {0};
    mr_status st;
    fill(&b, &spec);
    mr_ok(mr_state_put_block(&w, &b, &st), &st);
    mr_state_r r = reader(&w, w.size);
    mr_code_is(mr_state_get_block(&r, other, &got, &st), MR_INVALID_ARGUMENT, &st);
    mr_block_reset(&b);
    mr_block_reset(&got);
    mr_spec_unref(spec);
    mr_spec_unref(other);
    mr__state_w_reset(&w);
}

static void put_numbers(mr_state_w *w, const int64_t *numbers, size_t n)
{
    mr_status st;
    for (size_t i = 0; i < n; i++)
        mr_ok(mr_state_put_u64(w, (uint64_t)numbers[i], &st), &st);
}

/* Reads a block of the one leaf, which must be refused before memory is asked for. */
static void expect_damaged(mr_state_w *w, const mr_leaf *leaf, const char *message)
{
    mr_block got = MR_BLOCK_EMPTY;
    mr_status st;
    mr_spec *spec = mr_spec_of_leaf(leaf);
    mr_check(spec != NULL);
    mr_state_r r = reader(w, w->size);
    mr_code_is(mr_state_get_block(&r, spec, &got, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, message);
    mr_eq_u64(got.rows, 0);
    mr_block_reset(&got);
    mr_spec_unref(spec);
    mr__state_w_reset(w);
}

MR_TEST(a_tensor_larger_than_its_bytes_is_refused)
{
    static const mr_leaf any = {.dtype = MR_INT64, .rank = 1, .shape = {-1}};
    mr_state_w w = {0};
    mr_status st;
    static const int64_t head[] = {1, 1, 0, MR_DENSE, MR_INT64, 1};
    put_numbers(&w, head, sizeof head / sizeof *head);
    mr_ok(mr_state_put_i64(&w, (int64_t)1 << 50, &st), &st);
    put_numbers(&w, head, sizeof head / sizeof *head);
    expect_damaged(&w, &any, "larger than what is left");
}

MR_TEST(splits_that_do_not_ascend_are_refused)
{
    static const mr_leaf ragged = {.dtype = MR_BOOL, .rank = 2, .shape = {-1, -1}, .ragged = true};
    static const int64_t head[] = {1, 1, 0, MR_RAGGED, MR_BOOL, 2};
    static const int64_t splits[][4] = {{0, 2, 1, 3}, {1, 1, 2, 3}};
    mr_status st;
    for (size_t k = 0; k < 2; k++) {
        mr_state_w w = {0};
        put_numbers(&w, head, sizeof head / sizeof *head);
        mr_ok(mr_state_put_i64(&w, 3, &st), &st); /* the shape: 3 rows of different lengths */
        mr_ok(mr_state_put_i64(&w, -1, &st), &st);
        mr_ok(mr_state_put_u64(&w, 1, &st), &st);
        for (size_t i = 0; i < 4; i++)
            mr_ok(mr_state_put_i64(&w, splits[k][i], &st), &st);
        put_numbers(&w, (const int64_t[]){1, 0, 1}, 3); /* the values, a byte each */
        expect_damaged(&w, &ragged, "do not ascend");
    }
}
