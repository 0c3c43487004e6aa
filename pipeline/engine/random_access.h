/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_RANDOM_ACCESS_H
#define MR_PIPELINE_ENGINE_RANDOM_ACCESS_H
/* Elements of an indexed dataset (mr_dataset_indexed) by number.
 *
 *     mr_random_access *ra = NULL;
 *     mr_block b = MR_BLOCK_EMPTY;
 *     int64_t last = -1;
 *     if (mr_random_access_open(&ra, ds, NULL, &st) == MR_OK &&
 *         mr_random_access_at(ra, &last, 1, &b, &st) == MR_OK)
 *         use(mr_block_column(&b, "label"));
 *     mr_block_reset(&b);
 *     mr_random_access_close(ra);
 *
 * Element i is what the i-th element of a first pass would be if no element failed. An element that
 * fails is an error when it is looked up, and takes no other's place: take, skip, shard and batch
 * count it, although a pass does not count it. Functions are called for the elements that are
 * looked up; nothing is read ahead.
 *
 * thread   one at a time per handle
 * since    0.2 */
#include "iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_random_access mr_random_access;

/* Opens ds, of which it keeps a reference. Its files stay open until it is closed, a limited number
 * at a time. opts NULL: all defaults. Without has_threads and executor, functions run in the
 * calling thread. No position, ledger or trace is kept.
 * errors   the error that ds carries; those of mr_dataset_indexed and mr_iterator_open. After an
 *          error *out is unchanged */
MR_API mr_code mr_random_access_open(mr_random_access **out, mr_dataset *ds,
                                     const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;
/* *n = the number of elements, exact.
 * errors   of files: missing, without an index, an index that is stale */
MR_API mr_code mr_random_access_count(mr_random_access *ra, int64_t *n, mr_status *st) MR_NODISCARD;
/* Elements index[0], index[1], ... into *b, whose earlier content is released. A negative number
 * counts from the end: -1 is the last element. Numbers may repeat, in any order; reads for the
 * numbers of one call are made together.
 * returns  MR_OK with 1..n rows, of the first numbers: call again for the rest; or the error of
 *          element index[0]
 * errors   MR_OUT_OF_RANGE: there is no element index[0]; those of a pass */
MR_API mr_code mr_random_access_at(mr_random_access *ra, const int64_t *index, size_t n,
                                   mr_block *b, mr_status *st) MR_NODISCARD;
/* Ends a lookup in another thread, and all later ones, with MR_CANCELLED. */
MR_API void mr_random_access_cancel(mr_random_access *ra);
MR_API void mr_random_access_close(mr_random_access *ra); /* NULL: nothing */

/* One element: opens ds, looks it up and closes it. b->names is valid as long as ds. */
MR_API mr_code mr_dataset_at(mr_dataset *ds, int64_t index, mr_block *b,
                             mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
