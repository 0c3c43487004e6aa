/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TAR_H
#define MR_PIPELINE_FORMATS_TAR_H
/* Tar archives in the layout of WebDataset: consecutive members whose paths are equal up to the
 * first dot of the last path component make one record.
 *
 *     a/0001.jpg  a/0001.seg.png  a/0001.cls      key "a/0001", members "jpg", "seg.png", "cls"
 *     a/0002.jpg  ...
 *
 * Directories are skipped. Files whose name has no dot, or starts with one, belong to no record:
 * they are warned of at the end of the file, or an error if it has no others. libarchive reads the
 * archives (ustar, pax, GNU); it is loaded with the first archive, so other programs do not pay for
 * it. */
#include "pipeline/formats/reader.h"

/* Options of mr__format_tar. A record is a row of n strings: the members that wanted[i] names, or
 * the key where wanted[i] is MR__TAR_KEY. Names are separated by ";", and a "?" after them makes
 * the member optional: "jpg;jpeg", "txt?". Case is folded. The data of a member that the record
 * lacks are mr__tar_missing, mr__tar_twice where it has two, and mr__tar_linked where it is a link
 * or a special file; an optional one is empty. */
typedef struct mr__tar_opts {
    const char *const *wanted;
    size_t n;
} mr__tar_opts;
#define MR__TAR_KEY "__key__"
extern const char mr__tar_missing[1], mr__tar_twice[1], mr__tar_linked[1];

/* Archives that follow one another in a file are read one after another; a record does not
 * continue in the next one. Damage ends the file. An archive without its end, and bytes after it
 * that are not an archive, are warned of; errors if `strict`. */
extern const mr_format mr__format_tar;

/* The next of the names in `wanted`: *at moves to the one after it. NULL: no more. */
const char *mr__tar_name(const char **at, size_t *n);
/* Whether two names are the same, whatever the case of their letters (ASCII). */
bool mr__tar_same(const char *a, size_t n, const char *b, size_t m);

/* Returns the names of the members of the file's first record, in order, in small letters and
 * without duplicates.
 * Owned: free each name and the list with mr_free.
 * errors   those of reading; MR_INVALID_ARGUMENT: the file has no record */
mr_code mr__tar_members(const char *path, const mr_file_opts *opts, char ***names, size_t *n,
                        mr_status *st) MR_NODISCARD;
#endif
