/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/crc32c.h"

#include <pthread.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "pipeline/bytes.h"
#include "pipeline/crc32c_kernels.h"

/* table[k][b]: the register after byte b and k zero bytes (slicing by 8). */
static uint32_t table[8][256];
static mr__crc_isa best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int mr__crc_has(mr__crc_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int sse42 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    if (isa == MR__CRC_SSE42)
        return sse42;
    if (isa == MR__CRC_AVX512)
        return sse42 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq");
#elif defined(__aarch64__)
    if (isa == MR__CRC_ARM)
        return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
    return isa == MR__CRC_TABLE;
}

static void prepare(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int i = 0; i < 8; i++)
            c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
        table[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
    best = mr__crc_has(MR__CRC_AVX512)  ? MR__CRC_AVX512
           : mr__crc_has(MR__CRC_SSE42) ? MR__CRC_SSE42
           : mr__crc_has(MR__CRC_ARM)   ? MR__CRC_ARM
                                        : MR__CRC_TABLE;
}

mr__crc_isa mr__crc_best(void)
{
    pthread_once(&once, prepare);
    return best;
}

uint32_t mr__crc_table(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t a = c ^ (uint32_t)mr__load_le(p, 4);
        c = table[7][a & 0xff] ^ table[6][a >> 8 & 0xff] ^ table[5][a >> 16 & 0xff] ^
            table[4][a >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; n; n--)
        c = (c >> 8) ^ table[0][(c ^ *p++) & 0xff];
    return c;
}

#if defined(__x86_64__)
__attribute__((target(MR__SSE42))) static uint32_t with_sse42(uint32_t c, const uint8_t *p,
                                                              size_t n)
{
    return mr__crc_sse42(c, p, n);
}

__attribute__((target(MR__AVX512))) static uint32_t with_avx512(uint32_t c, const uint8_t *p,
                                                                size_t n)
{
    return mr__crc_avx512(c, p, n);
}
#elif defined(__aarch64__)
__attribute__((target(MR__ARM))) static uint32_t with_arm(uint32_t c, const uint8_t *p, size_t n)
{
    return mr__crc_arm(c, p, n);
}
#endif

uint32_t mr__crc_with(mr__crc_isa isa, uint32_t c, const uint8_t *p, size_t n)
{
    pthread_once(&once, prepare);
    switch (isa) {
#if defined(__x86_64__)
    case MR__CRC_SSE42:
        return with_sse42(c, p, n);
    case MR__CRC_AVX512:
        return with_avx512(c, p, n);
#elif defined(__aarch64__)
    case MR__CRC_ARM:
        return with_arm(c, p, n);
#endif
    default:
        return mr__crc_table(c, p, n);
    }
}

uint32_t mr_crc32c_extend(uint32_t crc, const void *data, size_t n)
{
    return ~mr__crc_with(mr__crc_best(), ~crc, data, n);
}

uint32_t mr_crc32c(const void *data, size_t n)
{
    return mr_crc32c_extend(0, data, n);
}

uint32_t mr_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

uint32_t mr_crc32c_unmask(uint32_t masked)
{
    uint32_t c = masked - 0xA282EAD8u;
    return (c >> 17) | (c << 15);
}
