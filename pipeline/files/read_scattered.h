/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_SCATTERED_H
#define MR_PIPELINE_FILES_READ_SCATTERED_H
/* Many small reads at any places of many files, together. What lies in the page cache is read by
 * plain pread; the rest is in flight at once, through io_uring or a pool of threads.
 *
 * thread   one at a time per object */
#include "pipeline/files/read_ahead.h"

typedef struct mr__scattered mr__scattered;

typedef struct mr__scattered_read {
    size_t file; /* number in the list of paths */
    int64_t offset;
    size_t size;
    uint8_t *data; /* room for `size` bytes */
    size_t got;    /* out: less than size only at the end of the file, and on failure */
    int err;       /* out: errno of what failed; 0: nothing */
} mr__scattered_read;

/* paths: n of them, borrowed until close. Files are opened when they are read, and few are kept
 * open. opts NULL: all zero. */
mr_code mr__scattered_open(mr__scattered **out, char *const *paths, size_t n,
                           const mr__read_opts *opts, mr_status *st) MR_NODISCARD;
void mr__scattered_close(mr__scattered *s); /* NULL: nothing */

/* Does all n reads, whose data lie in `memory`. Failures of single reads are in them.
 * errors   MR_CANCELLED: some were not done; others: reads in flight could not be waited for, and a
 *          reference of `memory` may never be given back */
mr_code mr__scattered_run(mr__scattered *s, mr__scattered_read *v, size_t n, mr_buffer *memory,
                          mr_status *st) MR_NODISCARD;
#endif
