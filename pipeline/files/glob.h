/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_GLOB_H
#define MR_PIPELINE_FILES_GLOB_H
/* Patterns of files, and of objects (s3://bucket/train-*), as in list_files: each part of the path
 * is matched by fnmatch(3) with FNM_PATHNAME. `*` does not match "/" but does match a leading dot;
 * directories match too. A part that exists as it is written is that name, not a pattern; a part
 * with * or ? that matches other names as well is warned about, and so is one of several patterns
 * that matches nothing.
 *
 * thread   any
 * since    0.1 */
#include <stdbool.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if text contains * ? or [, which make a literal file name a pattern. */
MR_API bool mr_glob_is_pattern(const char *text);

/* Returns a pattern that matches text only, in which * ? [ and backslashes are quoted. Owned; free
 * with mr_free. NULL: out of memory. */
MR_API char *mr_glob_quote(const char *text);

/* Returns all paths that match any of the patterns, sorted bytewise, also links that lead nowhere:
 * opening them fails. A path that matches twice is listed twice. Each path is spelled as in its
 * pattern. Returns owned in *paths and *n_paths; free with mr_glob_free.
 *
 * errors   MR_NOT_FOUND: no pattern has a match; names them. A link to nothing matches a part that
 *          must be a directory; names it
 *          MR_PERMISSION_DENIED and others: a directory or a bucket that cannot be listed
 *          MR_INVALID_ARGUMENT: a pattern in the name of a bucket
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_glob(const char *const *patterns, size_t n_patterns, char ***paths,
                       size_t *n_paths, mr_status *st) MR_NODISCARD;
MR_API void mr_glob_free(char **paths, size_t n_paths);

/* The size of an object that mr_glob listed in this process, from its URL; -1: another name.
 * since 0.2 */
MR_API int64_t mr_glob_listed_bytes(const char *url);

#ifdef __cplusplus
}
#endif
#endif
