/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_DATA_FILES_H
#define MR_PIPELINE_FORMATS_SHARDS_DATA_FILES_H
/* The files of records that patterns stand for.
 *
 * thread   any
 * since    0.1 */
#include <stddef.h>
#include "../../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As mr_glob, but without the indexes (F.idx) beside files that match, and without the files that a
 * writer of this library has not finished (.NAME.partial). Free with mr_glob_free.
 *
 * errors   those of mr_glob, MR_NOT_FOUND also where all that matches is not finished
 *          MR_FAILED_PRECONDITION: a writer is giving a set that matches its names, or was killed
 *          while it did; says what to do */
MR_API mr_code mr_data_files(const char *const *patterns, size_t n_patterns, char ***paths,
                             size_t *n_paths, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
