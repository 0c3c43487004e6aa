/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LIBARCHIVE_H
#define MR_PIPELINE_FORMATS_LIBARCHIVE_H
/* The functions of libarchive that are used, in a table that is filled with the first archive: the
 * library brings a dozen others, which take longer to load than most graphs run. */
#include <archive.h>
#include <archive_entry.h>

#include "pipeline/status.h"

#define MR__LIBARCHIVE(X)                                                                          \
    X(archive_read_new)                                                                            \
    X(archive_read_support_format_tar)                                                             \
    X(archive_read_open)                                                                           \
    X(archive_read_next_header)                                                                    \
    X(archive_read_data_block)                                                                     \
    X(archive_read_data_skip)                                                                      \
    X(archive_filter_bytes)                                                                        \
    X(archive_read_free)                                                                           \
    X(archive_error_string)                                                                        \
    X(archive_entry_pathname)                                                                      \
    X(archive_entry_filetype)                                                                      \
    X(archive_entry_size)

typedef struct mr__libarchive {
#define MEMBER(name) __typeof__(name) *name;
    MR__LIBARCHIVE(MEMBER)
#undef MEMBER
} mr__libarchive;

/* The table, filled. errors MR_NOT_FOUND: the library is not installed. thread any */
mr_code mr__libarchive_need(const mr__libarchive **out, mr_status *st) MR_NODISCARD;
#endif
