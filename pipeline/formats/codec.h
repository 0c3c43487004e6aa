/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_CODEC_H
#define MR_PIPELINE_FORMATS_CODEC_H
/* Compression of whole files: each is one compressed stream.
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
    MR_COMPRESSION_DETECT, /* for reading: detected from the first bytes */
    MR_COMPRESSION_PROVEN  /* the same for files that may be text, which is never mistaken */
} mr_compression;

/* Finds a compression by name: "" (or NULL), "GZIP", "ZLIB", "ZSTD", in capitals. false: no such
 * name. */
MR_API bool mr_compression_find(const char *name, mr_compression *out);
MR_API const char *mr_compression_name(mr_compression c); /* "" for NONE; static text */

#ifdef __cplusplus
}
#endif
#endif
