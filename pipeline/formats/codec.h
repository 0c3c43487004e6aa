/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_CODEC_H
#define MR_PIPELINE_FORMATS_CODEC_H
/* Compressed streams: a whole file is one of them.
 *
 * since    0.1 */
#include <stdbool.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_compression {
    MR_COMPRESSION_NONE,
    MR_COMPRESSION_GZIP,
    MR_COMPRESSION_ZLIB,
    MR_COMPRESSION_ZSTD,
    MR_COMPRESSION_DETECT /* for reading: whichever of the others the first bytes say */
} mr_compression;

/* "" (or NULL), "GZIP", "ZLIB", "ZSTD", in capitals; false: no such name. */
MR_API bool mr_compression_find(const char *name, mr_compression *out);
MR_API const char *mr_compression_name(mr_compression c); /* "" for none; static text */

#ifdef __cplusplus
}
#endif
#endif
