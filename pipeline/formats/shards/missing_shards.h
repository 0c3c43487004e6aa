/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_MISSING_SHARDS_H
#define MR_PIPELINE_FORMATS_SHARDS_MISSING_SHARDS_H
/* Finds sets of files of which some are missing.
 *
 * thread   any */
#include <stddef.h>

/* Logs a warning for each set of files NAME-00000-of-0000N among the paths of which a file is
 * missing that the patterns would match. If the patterns leave the others out, that is intended. */
void mr__warn_of_missing_shards(const char *const *patterns, size_t n_patterns, char *const *paths,
                                size_t n_paths);
#endif
