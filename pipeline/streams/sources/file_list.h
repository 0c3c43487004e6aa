/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_H
#define MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_H
/* Lists of files that match patterns, shared by all iterators of a dataset.
 *
 * A literal name that contains * ? [ is a pattern; consecutive patterns are matched together, as in
 * list_files. Matching is done once for all iterators of a dataset. A position contains the number
 * of files and a fingerprint of their names: after a restore the patterns must match the same files
 * again. Files that follow them in the list are ignored.
 *
 * thread   as an op's slots */
#include <stdatomic.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/streams/sources/file_list_internal.h"
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

/* The matched list of a node, shared by its iterators. all: every name is a pattern. *out is owned.
 * errors   those of mr_data_files
 *          MR_FAILED_PRECONDITION: the files differ from those of the restored position */
mr_code mr__file_list_match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                            mr_status *st) MR_NODISCARD;
/* The list as it would be matched now, without an iterator: to analyse a graph before it runs. *out
 * is owned; its paths are those to open in this thread's scope (file_name.h).
 * errors   those of mr_data_files and mr__file_name */
mr_code mr__file_list_look(const mr_strs *names, mr__file_list **out, mr_status *st) MR_NODISCARD;
/* The indexes of the files that an iterator reads, opened once for all iterators of its dataset.
 * paths: the dataset's n paths. *out is a new reference.
 * errors   those of mr__record_set_open */
mr_code mr__file_list_records(mr_iter *it, const char *const *paths, size_t n, mr__record_set **out,
                              mr_status *st) MR_NODISCARD;
/* mr__file_list_match for a restore, whose position contains a list only if one was matched before:
 * *out = NULL if the patterns match nothing, which the next pull reports. */
mr_code mr__file_list_rematch(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                              mr_status *st) MR_NODISCARD;
mr_code mr__file_list_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_list_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* The two words that seed the shuffle of an iterator of list_files; seed NULL: random. The
 * generator belongs to the dataset: each iterator draws the next two words. */
mr_code mr__file_list_draw(mr_iter *it, const int64_t *seed, uint64_t words[2],
                           mr_status *st) MR_NODISCARD;

/* Checks that no name is empty or contains a NUL byte. */
mr_code mr__file_names_check(const mr_strs *names, mr_status *st) MR_NODISCARD;
/* Makes a node whose params begin with an mr_strs, the n files. paths: all are literal paths. */
mr_dataset *mr__file_names_dataset(const mr_op *op, void *params, const char *const *files,
                                   size_t n, bool paths);
/* One row: the path, copied. */
mr_code mr__file_path_column(const char *path, mr_array *out, mr_status *st) MR_NODISCARD;
/* One scalar string. */
mr_code mr__file_infer(const mr_dataset *self, const void *params, mr_spec **out,
                       mr_status *st) MR_NODISCARD;
#endif
