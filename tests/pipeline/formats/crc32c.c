/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/crc32c.h"

#include <string.h>

#include "pipeline/crc32c_kernels.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(known_vectors_hold)
{
    uint8_t zeros[32] = {0}, ones[32], up[32];
    memset(ones, 0xff, 32);
    for (int i = 0; i < 32; i++)
        up[i] = (uint8_t)i;
    mr_eq_u64(mr_crc32c("123456789", 9), 0xE3069283);
    mr_eq_u64(mr_crc32c("", 0), 0);
    mr_eq_u64(mr_crc32c(zeros, 32), 0x8A9136AA); /* RFC 3720 B.4 */
    mr_eq_u64(mr_crc32c(ones, 32), 0x62A8AB43);
    mr_eq_u64(mr_crc32c(up, 32), 0x46DD794E);
    mr_eq_u64(mr_crc32c_mask(mr_crc32c("", 0)), 0xA282EAD8);
    mr_eq_u64(mr_crc32c_unmask(mr_crc32c_mask(0x12345678)), 0x12345678);
}

/* Bit by bit, as the polynomial says. */
static uint32_t by_bits(uint32_t c, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
    }
    return c;
}

MR_TEST(all_variants_agree_for_all_lengths_and_alignments)
{
    static uint8_t data[9000];
    uint64_t state = mr_test_seed();
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)mr_test_random(&state);
    for (size_t n = 0; n < 8000; n += n < 700 ? 1 : 97)
        for (size_t at = 0; at < (n < 300 ? 64 : 3); at++) {
            uint32_t want = by_bits(0x1234567u, data + at, n);
            for (mr__crc_isa isa = MR__CRC_TABLE; isa <= MR__CRC_ARM; isa++) {
                if (!mr__crc_has(isa))
                    continue;
                mr_test_context("variant %d, %zu bytes at %zu", (int)isa, n, at);
                mr_eq_u64(mr__crc_with(isa, 0x1234567u, data + at, n), want);
            }
        }
}

MR_TEST(extending_equals_one_pass)
{
    const char *text = "the quick brown fox jumps over the lazy dog";
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++)
        mr_eq_u64(mr_crc32c_extend(mr_crc32c(text, cut), text + cut, n - cut), mr_crc32c(text, n));
}
