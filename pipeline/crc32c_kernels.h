/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_CRC32C_KERNELS_H
#define MR_PIPELINE_CRC32C_KERNELS_H
/* CRC-32C by instruction set, for crc32c.c and for the record walker, which inlines them: a call
 * costs more than the checksum of a record length. All take and return the bare register (no final
 * xor).
 *
 * source   V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction"
 *          (2011); V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"
 *          (2009) */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MR__INLINE(isa) static inline __attribute__((always_inline, target(isa)))

typedef enum mr__crc_isa { MR__CRC_TABLE, MR__CRC_SSE42, MR__CRC_AVX512, MR__CRC_ARM } mr__crc_isa;

/* The best instruction set of this CPU; prepares the table if that is needed. Any thread. */
mr__crc_isa mr__crc_best(void);
/* false: this CPU lacks it. */
int mr__crc_has(mr__crc_isa isa);
uint32_t mr__crc_table(uint32_t c, const uint8_t *p, size_t n);
/* Uses the given instruction set, which the CPU must have. */
uint32_t mr__crc_with(mr__crc_isa isa, uint32_t c, const uint8_t *p, size_t n);

static inline uint64_t mr__load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t mr__load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define MR__SSE42  "sse4.2,pclmul"
#define MR__AVX512 "sse4.2,pclmul,avx512f,avx512vl,avx512dq,vpclmulqdq"

/* One stream, 8 bytes per instruction. Best for short data. */
MR__INLINE(MR__SSE42) uint32_t mr__crc_one(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t x = c;
    for (; n >= 8; p += 8, n -= 8)
        x = _mm_crc32_u64(x, mr__load64(p));
    c = (uint32_t)x;
    if (n & 4) {
        c = _mm_crc32_u32(c, mr__load32(p));
        p += 4;
    }
    if (n & 2) {
        uint16_t v;
        memcpy(&v, p, 2);
        c = _mm_crc32_u16(c, v);
        p += 2;
    }
    return n & 1 ? _mm_crc32_u8(c, *p) : c;
}

/* The crc32 instruction has a latency of three cycles, so this runs three streams of `part` bytes
 * in parallel and joins them by multiplying the first two with x^(16*part-33) and x^(8*part-33). */
MR__INLINE(MR__SSE42)
uint32_t mr__crc_three(uint32_t c, const uint8_t *p, size_t part, int64_t k_first, int64_t k_second)
{
    uint64_t a = c, b = 0, d = 0;
    for (const uint8_t *stop = p + part; p < stop; p += 8) {
        a = _mm_crc32_u64(a, mr__load64(p));
        b = _mm_crc32_u64(b, mr__load64(p + part));
        d = _mm_crc32_u64(d, mr__load64(p + 2 * part));
    }
    __m128i first =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)a), _mm_cvtsi64_si128(k_first), 0);
    __m128i second =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)b), _mm_cvtsi64_si128(k_second), 0);
    uint64_t joined = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(first, second));
    return (uint32_t)(_mm_crc32_u64(0, joined) ^ d);
}

MR__INLINE(MR__SSE42) uint32_t mr__crc_sse42(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 3 * 1024; p += 3 * 1024, n -= 3 * 1024)
        c = mr__crc_three(c, p, 1024, 0xa51b6135, 0x170076fa);
    for (; n >= 3 * 192; p += 3 * 192, n -= 3 * 192)
        c = mr__crc_three(c, p, 192, 0xd270f1a2, 0xab7aff2a);
    return mr__crc_one(c, p, n);
}

/* Folds x by the distance of k and adds more. */
MR__INLINE(MR__AVX512) __m512i mr__fold(__m512i x, __m512i k, __m512i more)
{
    __m512i low = _mm512_clmulepi64_epi128(x, k, 0x00), high = _mm512_clmulepi64_epi128(x, k, 0x11);
    return _mm512_ternarylogic_epi64(low, high, more, 0x96);
}

MR__INLINE(MR__AVX512) __m128i mr__fold_lane(__m128i x, __m128i k, __m128i more)
{
    __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_ternarylogic_epi64(low, high, more, 0x96);
}

/* Folds 256 bytes per round over a distance of 2048 bits, then the four registers and their lanes
 * into one, whose 16 bytes the crc32 instruction reduces. The constants are x^(d+32) and x^(d-32),
 * both reflected and shifted by one. n is at least 256. */
MR__INLINE(MR__AVX512) uint32_t mr__crc_fold(uint32_t c, const uint8_t *p, size_t n)
{
    const __m128i k128 = _mm_set_epi64x(0x14cd00bd6, 0xf20c0dfe);
    const __m512i k512 = _mm512_broadcast_i64x2(_mm_set_epi64x(0x9e4addf8, 0x740eef02));
    const __m512i k2048 = _mm512_broadcast_i64x2(_mm_set_epi64x(0xb9e02b86, 0xdcb17aa4));
    __m512i a =
        _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
    __m512i b = _mm512_loadu_si512(p + 64), d = _mm512_loadu_si512(p + 128),
            e = _mm512_loadu_si512(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = mr__fold(a, k2048, _mm512_loadu_si512(p));
        b = mr__fold(b, k2048, _mm512_loadu_si512(p + 64));
        d = mr__fold(d, k2048, _mm512_loadu_si512(p + 128));
        e = mr__fold(e, k2048, _mm512_loadu_si512(p + 192));
    }
    a = mr__fold(mr__fold(mr__fold(a, k512, b), k512, d), k512, e);
    for (; n >= 64; p += 64, n -= 64)
        a = mr__fold(a, k512, _mm512_loadu_si512(p));
    __m128i r = mr__fold_lane(_mm512_castsi512_si128(a), k128, _mm512_extracti64x2_epi64(a, 1));
    r = mr__fold_lane(r, k128, _mm512_extracti64x2_epi64(a, 2));
    r = mr__fold_lane(r, k128, _mm512_extracti64x2_epi64(a, 3));
    uint64_t x = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(r));
    x = _mm_crc32_u64(x, (uint64_t)_mm_extract_epi64(r, 1));
    return mr__crc_one((uint32_t)x, p, n);
}

MR__INLINE(MR__AVX512) uint32_t mr__crc_avx512(uint32_t c, const uint8_t *p, size_t n)
{
    return n < 256 ? mr__crc_one(c, p, n) : mr__crc_fold(c, p, n);
}
#elif defined(__aarch64__)
#include <arm_acle.h>

#define MR__ARM "+crc"

MR__INLINE(MR__ARM) uint32_t mr__crc_arm(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8)
        c = __crc32cd(c, mr__load64(p));
    for (; n; n--)
        c = __crc32cb(c, *p++);
    return c;
}
#endif
#endif
