/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OP_SOURCE_H
#define MR_PIPELINE_ENGINE_OP_SOURCE_H
/* For ops that read sources: the identities of rows (block.h), which record where each came from,
 * and the names of files.
 *
 * thread   one at a time per iterator
 * since    0.1 */
#include "op_iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- identities ---- */

MR_API bool mr_iter_identities(const mr_iter *it); /* identities are requested */
/* Sets the identities of b's rows to [first, first + b->rows) of `file` of this source, if
 * identities are requested. */
MR_API mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                                      mr_status *st) MR_NODISCARD;
/* The same for rows ordinals[0..b->rows) of a source without files. since 0.2 */
MR_API mr_code mr_iter_identify_rows(mr_iter *it, mr_block *b, const uint64_t *ordinals,
                                     mr_status *st) MR_NODISCARD;
/* The same for a reader of one file. If the function of flat_map or interleave consists of this
 * reader alone, as in list_files(p).flat_map(f => tfrecord(f)), and its input is a source outside
 * of functions that reads no files, the records are numbered as if one reader had been given the
 * whole list. So dividing the list among workers does not change identities. */
MR_API mr_code mr_iter_set_identities_of_file(mr_iter *it, mr_block *b, uint64_t first,
                                              mr_status *st) MR_NODISCARD;
/* Records in the ledger, if one is written, that `path` is the file of records with id's source and
 * file. id NULL: does nothing. */
MR_API mr_code mr_iter_name_file(mr_iter *it, const mr_identity *id, const char *path,
                                 mr_status *st) MR_NODISCARD;
/* How many times this source was opened before in this iterator, or in this call of the function
 * that contains it. 0 if identities are not requested. */
MR_API uint64_t mr_iter_epoch(const mr_iter *it);

/* ---- files ---- */

/* true: the graph contains the names of the files that this source reads. false: they are elements,
 * as f is in list_files(p).flat_map(f => tfrecord(f)). */
MR_API bool mr_iter_names_given(const mr_iter *it);
/* For a file or a pattern that this source was given and that cannot be used at all: if its name is
 * an element, the error in *st is that element's, else it belongs to none. Returns rc. */
MR_API mr_code mr_iter_fail_given(const mr_iter *it, mr_code rc, mr_status *st);
/* The same after a file could not be opened or read, which st->sys_errno tells: it is missing,
 * forbidden or no file (a directory), but not damaged (EIO). */
MR_API mr_code mr_iter_fail_open(const mr_iter *it, mr_code rc, mr_status *st);
/* *out = the path to open, resolved against mr_iterator_opts.directory; owned, mr_free. An op above
 * that keeps elements in a file records that the file was read.
 * errors   MR_INVALID_ARGUMENT: "-" in a graph that another process sent; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_iter_file_path(const mr_iter *it, const char *path, char **out,
                                 mr_status *st) MR_NODISCARD;
MR_API bool mr_iter_no_uring(const mr_iter *it);
/* How many datasets are read in turn, including the one that contains `it`; at least 1. If there
 * are many, each file should keep less of its content in memory, so that all fit in the processor's
 * cache. */
MR_API size_t mr_iter_in_turn(const mr_iter *it);
/* Counts seconds of the running next, or of the work between begin and end, as waiting. Waits for
 * files, pipes and tasks count without it. */
MR_API void mr_iter_add_wait(mr_iter *it, double seconds);

#ifdef __cplusplus
}
#endif
#endif
