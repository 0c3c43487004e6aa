/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_FILE_POSITION_H
#define MR_PIPELINE_FORMATS_FILE_POSITION_H
/* What all readers of record files have in common: how a file is opened, and where in it one is.
 * since 0.1 */
#include "codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: an uncompressed file, through the page cache. */
typedef struct mr_file_opts {
    mr_compression compression;
    bool direct; /* read past the page cache (O_DIRECT) where that is possible */
} mr_file_opts;

typedef struct mr_file_position {
    int64_t offset; /* in the uncompressed bytes, of the next record */
    int64_t record; /* number of the next record, from 0 */
    bool ended;     /* at the end, or given up after an error */
} mr_file_position;

#ifdef __cplusplus
}
#endif
#endif
