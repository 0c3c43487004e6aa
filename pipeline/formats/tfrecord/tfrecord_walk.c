/* SPDX-License-Identifier: Apache-2.0 */
/* Both checksums of a record are verified here, in the loop that finds the records: its bytes are
 * then read from memory only once. */
#include "pipeline/formats/tfrecord/tfrecord_walk.h"

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/crc32c_kernels.h"

static inline uint32_t masked(uint32_t reg)
{
    uint32_t c = ~reg;
    return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

/* The loop, once for each instruction set. */
#define WALK(name, isa, crc_length, crc_data)                                                      \
    isa static mr__walk_end name(mr__walk *w)                                                      \
    {                                                                                              \
        const uint8_t *at = w->at, *end = w->end;                                                  \
        mr_bytes *views = w->views;                                                                \
        size_t rows = w->rows, max_rows = w->max_rows, left = w->max_bytes;                        \
        mr__walk_end why = MR__WALK_FULL;                                                          \
        while (rows < max_rows) {                                                                  \
            if (end - at < 12) {                                                                   \
                w->need = 12;                                                                      \
                why = MR__WALK_MORE;                                                               \
                break;                                                                             \
            }                                                                                      \
            uint64_t size = mr__load_le(at, 8);                                                    \
            if (__builtin_expect(masked(crc_length(~0u, at, 8)) != mr__load_le(at + 8, 4), 0)) {   \
                why = MR__WALK_BAD_LENGTH;                                                         \
                break;                                                                             \
            }                                                                                      \
            if (size > left && rows > 0)                                                           \
                break;                                                                             \
            if ((uint64_t)(end - at) < 16 || size > (uint64_t)(end - at) - 16) {                   \
                w->need = size > UINT64_MAX - 16 ? UINT64_MAX : size + 16;                         \
                why = MR__WALK_MORE;                                                               \
                break;                                                                             \
            }                                                                                      \
            const uint8_t *data = at + 12;                                                         \
            if (__builtin_expect(masked(crc_data(~0u, data, size)) != mr__load_le(data + size, 4), \
                                 0)) {                                                             \
                why = MR__WALK_BAD_DATA;                                                           \
                break;                                                                             \
            }                                                                                      \
            views[rows].data = (const char *)data;                                                 \
            views[rows].size = size;                                                               \
            rows++;                                                                                \
            left -= size < left ? size : left;                                                     \
            at = data + size + 4;                                                                  \
        }                                                                                          \
        w->at = at;                                                                                \
        w->rows = rows;                                                                            \
        return why;                                                                                \
    }

WALK(walk_table, , mr__crc_table, mr__crc_table)
#if defined(__x86_64__)
WALK(walk_sse42, __attribute__((target(MR__SSE42))), mr__crc_one, mr__crc_sse42)
WALK(walk_avx512, __attribute__((target(MR__AVX512))), mr__crc_one, mr__crc_avx512)
#elif defined(__aarch64__)
WALK(walk_arm, __attribute__((target(MR__ARM))), mr__crc_arm, mr__crc_arm)
#endif

mr__walk_end mr__tfrecord_walk(mr__walk *w)
{
    switch (mr__crc_best()) {
#if defined(__x86_64__)
    case MR__CRC_SSE42:
        return walk_sse42(w);
    case MR__CRC_AVX512:
        return walk_avx512(w);
#elif defined(__aarch64__)
    case MR__CRC_ARM:
        return walk_arm(w);
#endif
    default:
        return walk_table(w);
    }
}
