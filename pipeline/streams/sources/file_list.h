/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_H
#define MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_H
/* Lists of files that patterns match, shared by all iterators of a dataset.
 *
 * A literal name with * ? [ in it is a pattern; neighbouring patterns are matched together, as in
 * list_files. Matching is done once for all iterators of a dataset. A position has the number of
 * files and a fingerprint of their names: after a restore the patterns must match the same files
 * again, or these and more that come after them in the list, which are then left out.
 *
 * thread   as an op's slots */
#include <stdatomic.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/streams/sources/record_set.h"

/* A list of paths that iterators share. */
typedef struct mr__file_list {
    atomic_size_t refs;
    size_t n;
    char **paths;
    uint64_t fingerprint; /* of the paths, in their order */
} mr__file_list;
mr__file_list *mr__file_list_ref(mr__file_list *l); /* returns l */
void mr__file_list_unref(mr__file_list *l);         /* NULL: nothing */

/* The matched list of a node, as its iterators share it. all: every name is a pattern. Returns
 * owned.
 * errors   those of mr_data_files
 *          MR_FAILED_PRECONDITION: not the files of the position that was restored */
mr_code mr__file_list_match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                            mr_status *st) MR_NODISCARD;
/* The list as it would be matched now, without an iterator: for what is known of a graph before it
 * runs. Returns owned. */
mr_code mr__file_list_look(const mr_strs *names, mr__file_list **out, mr_status *st) MR_NODISCARD;
/* The indexes of the files that an iterator reads, opened once for all iterators of its dataset.
 * paths: n of them, as the dataset has them. Returns a reference.
 * errors   those of mr__record_set_open */
mr_code mr__file_list_records(mr_iter *it, const char *const *paths, size_t n, mr__record_set **out,
                              mr_status *st) MR_NODISCARD;
/* The same for a restore, whose position gives a list only if one was matched before: *out = NULL
 * where the patterns match nothing, which the next pull reports. */
mr_code mr__file_list_rematch(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                              mr_status *st) MR_NODISCARD;
mr_code mr__file_list_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_list_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* The two words that shuffle an iterator of list_files; seed NULL: drawn at random. The generator
 * is the dataset's: each iterator draws the next two. */
mr_code mr__file_list_draw(mr_iter *it, const int64_t *seed, uint64_t words[2],
                           mr_status *st) MR_NODISCARD;

/* Name i is a pattern: a literal with * ? [ in it. */
bool mr__file_is_pattern(const mr_strs *names, size_t i);
/* Checks names: none is empty or has a NUL byte. */
mr_code mr__file_names_check(const mr_strs *names, mr_status *st) MR_NODISCARD;
/* Makes a node whose params begin with an mr_strs: the n files. paths: none of them is a
 * pattern. */
mr_dataset *mr__file_names_dataset(const mr_op *op, void *params, const char *const *files,
                                   size_t n, bool paths);
/* One row: the path, copied. */
mr_code mr__file_path_column(const char *path, mr_array *out, mr_status *st) MR_NODISCARD;
/* One scalar string. */
mr_code mr__file_infer(const mr_dataset *self, const void *params, mr_spec **out,
                       mr_status *st) MR_NODISCARD;
#endif
