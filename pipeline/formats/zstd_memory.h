/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ZSTD_MEMORY_H
#define MR_PIPELINE_FORMATS_ZSTD_MEMORY_H
/* Where zstd's contexts take their memory from: the table of alloc.h. Include it after
 * ZSTD_STATIC_LINKING_ONLY is defined. Within the formats room. */
#include <zstd.h>

ZSTD_customMem mr__zstd_memory(void);
#endif
