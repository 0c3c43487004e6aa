/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/parquet/parquet_codec.h"
#include "pipeline/formats/parquet/parquet_file.h"
#include "pipeline/formats/parquet/parquet_values.h"
#include "pipeline/formats/parquet/thrift_compact.h"
#include "tests/harness.h"

MR_ONE_THREAD;

#define LENGTH(v) (sizeof(v) / sizeof *(v))

/* ---- numbers ---- */

/* The example of Encodings.md: 0 to 7 in three bits each. */
MR_TEST(groups_of_bits_begin_at_the_lowest_and_the_old_ones_at_the_highest)
{
    static const uint8_t packed[] = {0x03, 0x88, 0xc6, 0xfa}, old[] = {0x05, 0x39, 0x77, 0xff};
    mr__hybrid h;
    uint32_t out[9];
    mr_check(mr__hybrid_start(&h, packed, packed + sizeof packed, 3));
    mr_eq_u64(mr__hybrid_get(&h, out, 9), 8);
    for (uint32_t i = 0; i < 8; i++)
        mr_eq_u64(out[i], i);
    const uint8_t *after;
    mr_check(mr__hybrid_start_old(&h, old, old + sizeof old, 3, 8, &after));
    mr_check(after == old + 3);
    mr_eq_u64(mr__hybrid_get(&h, out, 9), 8);
    for (uint32_t i = 0; i < 8; i++)
        mr_eq_u64(out[i], i);
    mr_check(!mr__hybrid_start_old(&h, old, old + sizeof old, 3, 11, &after));
}

MR_TEST(runs_end_with_their_bytes)
{
    static const uint8_t runs[] = {10 << 1, 7, 0 << 1, 0, 5, 0xff, 0xff};
    mr__hybrid h;
    uint32_t out[100], sum = 0;
    mr_check(mr__hybrid_start(&h, runs, runs + sizeof runs, 5));
    size_t n = mr__hybrid_get(&h, out, 100);
    mr_eq_u64(n, 10 + 3); /* of 16 in two groups three are there */
    for (size_t i = 0; i < n; i++)
        sum += out[i];
    mr_eq_u64(sum, 10 * 7 + 3 * 31);
    mr_check(mr__hybrid_start(&h, runs, runs + 1, 0)); /* no bits: zeros */
    mr_eq_u64(mr__hybrid_get(&h, out, 100), 10);
    mr_check(!mr__hybrid_start(&h, runs, runs + 1, 33));
}

/* The examples of Encodings.md. */
MR_TEST(differences_are_added_up)
{
    static const uint8_t even[] = {0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0};
    static const uint8_t other[] = {0x80, 1,    4, 8, 14, 3, 2, 0, 0, 0,
                                    0xc0, 0x3f, 0, 0, 0,  0, 0, 0, 99};
    static const int64_t want[] = {7, 5, 3, 1, 2, 3, 4, 5};
    mr__delta d;
    int64_t out[20];
    mr_check(mr__delta_start(&d, even, even + sizeof even));
    mr_check(mr__delta_end(&d) == even + sizeof even);
    mr_eq_u64(mr__delta_get(&d, out, 20), 5);
    for (int64_t i = 0; i < 5; i++)
        mr_eq_i64(out[i], i + 1);
    mr_check(mr__delta_start(&d, other, other + sizeof other));
    mr_check(mr__delta_end(&d) == other + sizeof other - 1);
    for (size_t i = 0; i < LENGTH(want); i++) {
        mr_eq_u64(mr__delta_get(&d, out, 1), 1);
        mr_eq_i64(out[0], want[i]);
    }
    mr_eq_u64(mr__delta_get(&d, out, 1), 0);
    /* Cut short within a part, and heads that cannot be. */
    mr_check(mr__delta_start(&d, other, other + 11));
    mr_check(mr__delta_end(&d) == NULL);
    mr_eq_u64(mr__delta_get(&d, out, 20), 5);
    static const uint8_t heads[][5] = {{0, 4, 8, 14}, {8, 0, 8, 14}, {8, 3, 8, 14}, {8, 16, 8, 14}};
    for (size_t i = 0; i < LENGTH(heads); i++)
        mr_check(!mr__delta_start(&d, heads[i], heads[i] + 5));
}

/* A count that no memory would hold is found to be none by the bytes that are there. */
MR_TEST(huge_counts_are_not_believed)
{
    static const uint8_t delta[] = {0x80, 1, 4, 0xff, 0xff, 0xff, 0xff, 0x0f, 2};
    mr__parquet_values v = {.text = true};
    mr_status st;
    mr_code_is(mr__parquet_values_start(&v, MR__PARQUET_DELTA_LENGTH_BYTE_ARRAY,
                                        MR__PARQUET_BYTE_ARRAY, 0, delta, delta + sizeof delta,
                                        1 << 30, &st),
               MR_DATA_LOSS, &st);
    mr__parquet_values_reset(&v);
}

/* ---- pages ---- */

MR_TEST(pages_of_every_codec_have_the_size_that_they_say)
{
    static const int32_t codecs[] = {MR__PARQUET_SNAPPY, MR__PARQUET_GZIP, MR__PARQUET_BROTLI,
                                     MR__PARQUET_ZSTD, MR__PARQUET_LZ4_RAW};
    static const uint8_t snappy[] = {5, 16, 'h', 'e', 'l', 'l', 'o'};
    static const uint8_t lz4[] = {0x50, 'h', 'e', 'l', 'l', 'o'};
    mr_status st;
    for (size_t i = 0; i < LENGTH(codecs); i++) {
        mr_buffer *b = NULL;
        mr_code rc =
            mr__parquet_decompress(codecs[i], (const uint8_t *)"junk", 4, 1 << 20, &b, &st);
        mr_check(rc == MR_DATA_LOSS || rc == MR_NOT_FOUND);
        mr_check(b == NULL && st.message[0]);
    }
    const struct {
        int32_t codec;
        const uint8_t *v;
        size_t n;
    } good[] = {{MR__PARQUET_SNAPPY, snappy, sizeof snappy},
                {MR__PARQUET_LZ4_RAW, lz4, sizeof lz4}};
    for (size_t i = 0; i < LENGTH(good); i++) {
        mr_buffer *b = NULL;
        mr_code rc = mr__parquet_decompress(good[i].codec, good[i].v, good[i].n, 5, &b, &st);
        if (rc == MR_NOT_FOUND)
            continue;
        mr_ok(rc, &st);
        mr_eq_mem(mr_buffer_data(b), "hello", 5);
        mr_buffer_unref(b);
        b = NULL;
        mr_code_is(mr__parquet_decompress(good[i].codec, good[i].v, good[i].n, 4, &b, &st),
                   MR_DATA_LOSS, &st);
        mr_code_is(mr__parquet_decompress(good[i].codec, good[i].v, good[i].n, 1 << 30, &b, &st),
                   MR_DATA_LOSS, &st);
    }
    mr_buffer *b = NULL;
    mr_code_is(mr__parquet_decompress(MR__PARQUET_LZO, lz4, 1, 5, &b, &st), MR_UNIMPLEMENTED, &st);
    mr_has_str(st.message, "LZO");
    mr_code_is(mr__parquet_decompress(99, lz4, 1, 5, &b, &st), MR_UNIMPLEMENTED, &st);
}

/* ---- heads ---- */

MR_TEST(structs_within_structs_end)
{
    uint8_t deep[200];
    memset(deep, 1 << 4 | MR__THRIFT_STRUCT, sizeof deep);
    mr__thrift t = {.at = deep, .end = deep + sizeof deep};
    mr__thrift_field f = {0};
    mr_check(mr__thrift_next(&t, &f));
    mr__thrift_skip(&t, &f);
    mr_check(t.bad);
    static const uint8_t lists[] = {
        1 << 4 | MR__THRIFT_LIST, 0xf0 | MR__THRIFT_I8, 0xff, 0xff, 0xff, 0x7f, 0};
    t = (mr__thrift){.at = lists, .end = lists + sizeof lists};
    f = (mr__thrift_field){0};
    mr_check(mr__thrift_next(&t, &f));
    mr_eq_u64(mr__thrift_list(&t, &f, MR__THRIFT_I8), 0);
    mr_check(t.bad);
}
