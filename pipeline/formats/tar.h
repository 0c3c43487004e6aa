/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TAR_H
#define MR_PIPELINE_FORMATS_TAR_H
/* Tar archives as WebDataset lays them out: members that follow each other and whose paths are the
 * same up to the first point of the last part make one record.
 *
 *     a/0001.jpg  a/0001.seg.png  a/0001.cls      key "a/0001", members "jpg", "seg.png", "cls"
 *     a/0002.jpg  ...
 *
 * Directories, links and files without a point in their names, or one that begins it, are passed
 * over. libarchive reads the archives (ustar, pax, GNU); it is opened with the first one, so that
 * programs that read none do not wait for it. */
#include "pipeline/formats/reader.h"

/* Options of mr__format_tar. A record is a row of n strings: the members called names[i], or the
 * key where that is MR__TAR_KEY; a member that the record lacks has this place as its data. */
typedef struct mr__tar_opts {
    const char *const *names;
    size_t n;
} mr__tar_opts;
#define MR__TAR_KEY "__key__"
extern const char mr__tar_missing[1];

/* An error of the archive is final. A member that stands twice in a record is one. */
extern const mr_format mr__format_tar;

/* The names of the members of the file's first record, in the order they stand, none twice. Owned:
 * each name and the list, mr_free.
 * errors   as those of reading; MR_INVALID_ARGUMENT: there is no record */
mr_code mr__tar_members(const char *path, const mr_file_opts *opts, char ***names, size_t *n,
                        mr_status *st) MR_NODISCARD;
#endif
