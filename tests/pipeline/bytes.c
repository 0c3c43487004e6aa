/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/bytes.h"

#include "tests/harness.h"

MR_ONE_THREAD;

static const unsigned char bytes[] = {0, 0x11, 0x82, 0x13, 0x84, 0x15, 0x86, 0x17, 0x98, 0x19};

MR_TEST(the_low_bytes_come_first)
{
    mr_eq_u64(mr__load_le(bytes + 1, 1), 0x11);
    mr_eq_u64(mr__load_le(bytes + 1, 2), 0x8211);
    mr_eq_u64(mr__load_le(bytes + 1, 4), 0x84138211); /* not a sign */
    mr_eq_u64(mr__load_le(bytes + 1, 8), 0x9817861584138211);
}

MR_TEST(any_number_of_bytes_goes_there_and_back)
{
    for (volatile size_t n = 1; n <= 8; n++) {
        unsigned char out[10] = {0};
        uint64_t v = mr__load_le(bytes + 1, n), whole = mr__load_le(bytes + 1, 8);
        mr_eq_u64(v, n == 8 ? whole : whole & (((uint64_t)1 << 8 * n) - 1));
        mr__store_le(out + 1, whole, n);
        mr_eq_mem(out + 1, bytes + 1, n);
        mr_eq_u64(out[0] + out[1 + n], 0); /* and no other byte */
    }
}

MR_TEST(constant_sizes_are_those_of_variables)
{
    unsigned char a[8] = {0}, b[8] = {0};
    volatile size_t n = 4;
    mr__store_le(a, UINT64_C(0xfedcba9876543210), 4);
    mr__store_le(b, UINT64_C(0xfedcba9876543210), n);
    mr_eq_mem(a, b, sizeof a);
    mr_eq_u64(mr__load_le(a, 4), mr__load_le(b, n));
}
