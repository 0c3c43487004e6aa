/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/varint.h"

#include <string.h>

#include "pipeline/splitmix.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(numbers_of_each_length_go_there_and_back)
{
    static const uint64_t around[] = {0, 1, 2, 0x7f};
    for (unsigned shift = 0; shift <= 64; shift += 7)
        for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
            uint8_t b[MR__VARINT_MOST + 2];
            uint64_t v = (shift < 64 ? (uint64_t)1 << shift : 0) - 1 + around[i], got = 0;
            memset(b, 0xff, sizeof b);
            uint8_t *end = mr__varint_put(b, v);
            mr_check(end - b >= 1 && end - b <= MR__VARINT_MOST && *end == 0xff);
            mr_check(mr__varint(b, end, &got) == end);
            mr_eq_u64(got, v);
            mr_check(mr__varint_slow(b, end, &got) == end);
            mr_eq_u64(got, v);
            for (const uint8_t *cut = b; cut < end; cut++)
                mr_check(!mr__varint(b, cut, &got));
        }
}

MR_TEST(a_varint_may_be_longer_than_it_need_be_and_at_most_ten_bytes)
{
    static const uint8_t zero[] = {0x80, 0x80, 0x00},
                         endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                      0x80, 0x80, 0x80, 0x80, 0x00};
    uint64_t v = 1;
    mr_check(mr__varint(zero, zero + 3, &v) == zero + 3);
    mr_eq_u64(v, 0);
    mr_check(!mr__varint(endless, endless + sizeof endless, &v));
}

MR_TEST(zigzag_begins_with_the_small_ones)
{
    static const int64_t numbers[] = {0, -1, 1, -2, 2, -3};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        mr_eq_u64(mr__zigzag(numbers[i]), i);
        mr_eq_i64(mr__unzigzag(i), numbers[i]);
    }
    mr_eq_u64(mr__zigzag(INT64_MIN), UINT64_MAX);
    mr_eq_i64(mr__unzigzag(UINT64_MAX), INT64_MIN);
    mr_eq_u64(mr__zigzag(INT64_MAX), UINT64_MAX - 1);
}

/* The first numbers of the authors' generator from the seed 1234567. */
MR_TEST(splitmix_is_the_published_one)
{
    static const uint64_t known[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                     UINT64_C(16408922859458223821)};
    for (size_t i = 0; i < 5; i++)
        mr_eq_u64(mr__splitmix(1234567 + (i + 1) * MR__GOLDEN), known[i]);
}
