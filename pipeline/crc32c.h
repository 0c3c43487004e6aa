/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_CRC32C_H
#define MR_PIPELINE_CRC32C_H
/* CRC-32C (Castagnoli; reflected polynomial 0x82F63B78, start and final xor 0xFFFFFFFF), computed
 * by the fastest instructions of this CPU. The checksum of "123456789" is 0xE3069283.
 *
 * thread   any
 * source   RFC 3720 B.4; TFRecord's masking: ((crc >> 15) | (crc << 17)) + 0xA282EAD8
 * since    0.1 */
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checksum of n bytes. */
MR_API uint32_t mr_crc32c(const void *data, size_t n);
/* Checksum of `a` followed by data, where crc is the checksum of `a`. */
MR_API uint32_t mr_crc32c_extend(uint32_t crc, const void *data, size_t n);
MR_API uint32_t mr_crc32c_mask(uint32_t crc);
MR_API uint32_t mr_crc32c_unmask(uint32_t masked);

#ifdef __cplusplus
}
#endif
#endif
