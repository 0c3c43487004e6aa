/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_DATA_FILES_H
#define MR_PIPELINE_FORMATS_SHARDS_DATA_FILES_H
/* Expands file patterns into the record files they match.
 *
 * thread   any
 * since    0.1 */
#include <stddef.h>
#include "../../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As mr_glob, but without index files (F.idx) next to files that match, and without unfinished
 * files of a writer of this library (.NAME.partial). Free with mr_glob_free.
 *
 * errors   those of mr_glob; MR_NOT_FOUND also if all matches are unfinished
 *          MR_FAILED_PRECONDITION: a writer is renaming a set whose names match, or was killed
 *          while doing so; the message says what to do */
MR_API mr_code mr_data_files(const char *const *patterns, size_t n_patterns, char ***paths,
                             size_t *n_paths, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
