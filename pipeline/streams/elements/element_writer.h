/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_WRITER_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_WRITER_H
/* Writes the elements of a pipeline to shards, in any of their formats, as 'millrace write' does.
 *
 *     mr_shard_writer_open(&w, "train", 8, &(mr_shard_writer_opts){.format = format}, &st);
 *     if (mr_write_elements(ds, w, NULL, &st) == MR_OK)
 *         mr_shard_writer_close(w, &st);
 *     else
 *         mr_shard_writer_abort(w);
 *
 * thread   one at a time per writer
 * since    0.2 */
#include "../../engine/iterator.h"
#include "../../formats/shards/shard_writer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks that files of this format can hold the elements of ds, before any is made.
 * errors   MR_INVALID_ARGUMENT: they cannot; the error that ds carries */
MR_API mr_code mr_write_elements_check(const mr_dataset *ds, mr_shard_format format,
                                       mr_status *st) MR_NODISCARD;
/* Appends all elements of one pass over ds: as Examples, JSON objects, entries or rows, by the
 * format of w. opts NULL: defaults.
 * errors   those of running ds, with the number of the element; those of the format's encoder
 *          (element_example.h, element_npy.h, element_json.h) and of writing */
MR_API mr_code mr_write_elements(mr_dataset *ds, mr_shard_writer *w, const mr_iterator_opts *opts,
                                 mr_status *st) MR_NODISCARD;
/* The same for the elements that are left of an iterator, which stays the caller's. opts: for the
 * datasets that elements hold; those with which it was opened. */
MR_API mr_code mr_write_iterator(mr_iterator *it, mr_shard_writer *w, const mr_iterator_opts *opts,
                                 mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
