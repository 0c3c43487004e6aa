/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/philox.h"

#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(known_streams)
{
    static const uint32_t zero[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t one_two[] = {0xe73404cf, 0x8cedc5d3, 0x3f071736, 0x0a0afddd};
    static const uint32_t user_42[] = {2985944072, 4132877644, 929418493,
                                       249609589,  146598941,  4149265688};
    mr__philox p;
    mr__philox_init(&p, 0, 0);
    for (int i = 0; i < 4; i++)
        mr_eq_u64(mr__philox_next(&p), zero[i]);
    mr__philox_init(&p, 1, 2);
    for (int i = 0; i < 4; i++)
        mr_eq_u64(mr__philox_next(&p), one_two[i]);
    mr__philox_init(&p, 87654321, 42);
    for (int i = 0; i < 6; i++)
        mr_eq_u64(mr__philox_next(&p), user_42[i]);
}

MR_TEST(skipping_is_drawing)
{
    for (uint64_t before = 0; before < 6; before++)
        for (uint64_t n = 0; n < 14; n++) {
            mr__philox a, b;
            mr__philox_init(&a, 3, UINT64_MAX);
            mr__philox_init(&b, 3, UINT64_MAX);
            for (uint64_t i = 0; i < before; i++) {
                mr__philox_next(&a);
                mr__philox_next(&b);
            }
            for (uint64_t i = 0; i < n; i++)
                mr__philox_next(&a);
            mr__philox_skip(&b, n);
            for (int i = 0; i < 5; i++)
                mr_eq_u64(mr__philox_next(&a), mr__philox_next(&b));
        }
}

MR_TEST(the_counter_carries_into_its_upper_half)
{
    mr__philox a, b;
    mr__philox_init(&a, 5, 7);
    mr__philox_init(&b, 5, 8);
    for (int i = 0; i < 16; i++)
        mr__philox_skip(&a, UINT64_C(1) << 62); /* 2^64 blocks in all */
    for (int i = 0; i < 9; i++)
        mr_eq_u64(mr__philox_next(&a), mr__philox_next(&b));
}

MR_TEST(seeds_are_taken_modulo_2_to_the_31_minus_1)
{
    uint64_t pair[2];
    mr__seed_pair(-1, pair);
    mr_eq_u64(pair[0], 87654321);
    mr_eq_u64(pair[1], 2147483646);
    mr__seed_pair(2147483647, pair);
    mr_eq_u64(pair[1], 0);
    mr__seed_pair(INT64_MIN, pair);
    mr_check(pair[1] < 2147483647);
}
