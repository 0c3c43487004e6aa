/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_SCATTERED_H
#define MR_PIPELINE_FILES_READ_SCATTERED_H
/* Reads batches of small pieces at any offsets of many files. Cached data is read by plain preads;
 * the other reads are in flight at the same time, through io_uring or a pool of threads.
 *
 * thread   one at a time per object */
#include "pipeline/files/read_ahead.h"

typedef struct mr__scattered mr__scattered;

typedef struct mr__scattered_read {
    size_t file; /* index in the list of paths */
    int64_t offset;
    size_t size;
    uint8_t *data;  /* room for `size` bytes */
    size_t got;     /* out: less than size only at the end of the file or after a failure */
    int err;        /* out: errno of a failure, or 0 */
    mr_status *why; /* out: of a failure at a URL, owned (mr_free); else NULL */
} mr__scattered_read;

/* The n paths are borrowed until close. A file is opened when it is read; only a limited number
 * stays open. opts NULL: all zero. marks: those of the files, as mr_file_opts.mark, 0 where nothing
 * is known; borrowed; or NULL. Reads of an object with another mark fail. */
mr_code mr__scattered_open(mr__scattered **out, char *const *paths, size_t n, const uint64_t *marks,
                           const mr__read_opts *opts, mr_status *st) MR_NODISCARD;
void mr__scattered_close(mr__scattered *s); /* NULL: no-op */

/* Performs all n reads, whose data is in the buffer `memory`. The failure of a single read is
 * reported in its err.
 * errors   MR_CANCELLED: some reads were not done
 *          others: cannot wait for reads in flight; may leak a reference to `memory` */
mr_code mr__scattered_run(mr__scattered *s, mr__scattered_read *v, size_t n, mr_buffer *memory,
                          mr_status *st) MR_NODISCARD;
#endif
