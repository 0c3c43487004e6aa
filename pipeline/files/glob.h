/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_GLOB_H
#define MR_PIPELINE_FILES_GLOB_H
/* File patterns, as list_files reads them: fnmatch(3) with FNM_PATHNAME in every part of the path.
 * `*` does not match "/" but does match a leading dot; directories match too.
 *
 * thread   any
 * since    0.1 */
#include <stdbool.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* true if text contains one of * ? [ and so stands for a pattern in a literal file name. */
MR_API bool mr_glob_is_pattern(const char *text);

/* All paths that match any of the patterns, sorted bytewise together; a path matched twice is there
 * twice, and reads as the pattern leads to it. Returns owned in *paths and *n_paths; free with
 * mr_glob_free.
 *
 * errors   MR_NOT_FOUND: no pattern has a match; names them
 *          MR_PERMISSION_DENIED and others: a directory that cannot be read; names it
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_glob(const char *const *patterns, size_t n_patterns, char ***paths,
                       size_t *n_paths, mr_status *st) MR_NODISCARD;
MR_API void mr_glob_free(char **paths, size_t n_paths);

#ifdef __cplusplus
}
#endif
#endif
