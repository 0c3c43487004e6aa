/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TAR_H
#define MR_PIPELINE_FORMATS_TAR_H
/* Tar archives in the layout of WebDataset: consecutive members whose paths are equal up to the
 * first dot of the last path component make one record.
 *
 *     a/0001.jpg  a/0001.seg.png  a/0001.cls      key "a/0001", members "jpg", "seg.png", "cls"
 *     a/0002.jpg  ...
 *
 * Directories, links and files whose name has no dot, or starts with one, are skipped. libarchive
 * reads the archives (ustar, pax, GNU); it is loaded with the first archive, so other programs do
 * not pay for it. */
#include "pipeline/formats/reader.h"

/* Options of mr__format_tar. A record is a row of n strings: the members named names[i], or the key
 * where names[i] is MR__TAR_KEY. A member that the record lacks has mr__tar_missing as its data. */
typedef struct mr__tar_opts {
    const char *const *names;
    size_t n;
} mr__tar_opts;
#define MR__TAR_KEY "__key__"
extern const char mr__tar_missing[1];

/* An error of the archive is final. A member that occurs twice in a record is an error. */
extern const mr_format mr__format_tar;

/* Returns the names of the members of the file's first record, in order and without duplicates.
 * Owned: free each name and the list with mr_free.
 * errors   those of reading; MR_INVALID_ARGUMENT: the file has no record */
mr_code mr__tar_members(const char *path, const mr_file_opts *opts, char ***names, size_t *n,
                        mr_status *st) MR_NODISCARD;
#endif
