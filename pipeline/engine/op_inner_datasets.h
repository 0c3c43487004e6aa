/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OP_INNER_DATASETS_H
#define MR_PIPELINE_ENGINE_OP_INNER_DATASETS_H
/* For ops that run datasets that are values, such as those that functions and windows make
 * (flat_map, interleave). Each is a complete dataset object.
 *
 * thread   one at a time per iterator
 * since    0.1 */
#include "op_iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens an iterator of ds. outer: the identities of the element from which ds was made (row 0;
 * NULL: no identities). */
MR_API mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                                    mr_iter **out, mr_status *st) MR_NODISCARD;
/* For a source that reads through a dataset that it made itself: `it` emits the elements of *out
 * with the identities of `it`. */
MR_API mr_code mr_iter_open_replacement(mr_iter *it, mr_dataset *ds, mr_iter **out,
                                        mr_status *st) MR_NODISCARD;
/* Call in open if the datasets that `it` opens stand for a source, each for a part of it: the names
 * of their files are given as those of the source are (op_source.h). */
MR_API void mr_iter_set_stands_for_source(mr_iter *it);
MR_API mr_code mr_iter_next(mr_iter *it, size_t want, mr_block *b, mr_status *st) MR_NODISCARD;
MR_API void mr_iter_close(mr_iter *it); /* NULL: nothing */

/* Saves and restores its state; it must be open when restored. */
MR_API mr_code mr_iter_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* Call before opening them: the op will take elements from up to n datasets in turn
 * (mr_iter_in_turn). */
MR_API void mr_iter_set_takes(mr_iter *it, size_t n);

#ifdef __cplusplus
}
#endif
#endif
