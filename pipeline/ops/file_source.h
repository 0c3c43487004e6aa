/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_FILE_SOURCE_H
#define MR_PIPELINE_OPS_FILE_SOURCE_H
/* What all ops that read files have in common: the list of files, one reader after the other, the
 * position, and the form that a shard by file is put into.
 *
 * A literal name with * ? [ in it is a pattern; neighbouring patterns are matched together, as in
 * list_files. Matching is done once for all iterators of a dataset, and the list goes with the
 * position. A file that cannot be opened or is damaged is an error in its place; the next pull goes
 * on with the next file.
 *
 * thread   as an op's slots */
#include <pthread.h>
#include <stdatomic.h>

#include "pipeline/engine/iter.h"
#include "pipeline/formats/file_position.h"

/* A list of paths that iterators share. */
typedef struct mr__file_list {
    atomic_size_t refs;
    size_t n;
    char **paths;
} mr__file_list;
void mr__file_list_unref(mr__file_list *l);

/* How one kind of file is read; the functions are the reader's of formats/. */
typedef struct mr__reader_class {
    mr_code (*open)(const void *params, const char *path, void **reader, mr_status *st);
    void (*close)(void *reader);
    mr_code (*read)(void *reader, size_t want, size_t max_bytes, mr_array *out, mr_status *st);
    void (*position)(const void *reader, mr_file_position *out);
    mr_code (*seek)(void *reader, const mr_file_position *to, mr_status *st);
} mr__reader_class;

typedef struct mr__file_source {
    mr_iter *it;
    const mr__reader_class *reader_class;
    const mr_strs *names;
    mr__file_list *list; /* NULL: names as they are, or not matched yet */
    bool patterns, failed;
    size_t file; /* the one being read, or the next */
    void *reader;
    mr_file_position resume; /* with has_resume: where to go on in the file when it is opened */
    bool has_resume;
} mr__file_source;

void mr__file_source_open(mr__file_source *s, mr_iter *it, const mr__reader_class *reader_class,
                          const mr_strs *names);
void mr__file_source_close(mr__file_source *s);
mr_code mr__file_source_next(mr__file_source *s, size_t want, mr_block *out,
                             mr_status *st) MR_NODISCARD;
mr_code mr__file_source_save(mr__file_source *s, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_source_restore(mr__file_source *s, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* The matched list of a node, as its iterators share it. all: every name is a pattern. Returns
 * owned. */
mr_code mr__file_list_match(mr_iter *it, const mr_strs *names, bool all, mr__file_list **out,
                            mr_status *st) MR_NODISCARD;
mr_code mr__file_list_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_list_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* The two words that shuffle an iterator of list_files; seed NULL: drawn at random. The generator
 * is the dataset's: each iterator draws the next two. */
mr_code mr__file_list_draw(mr_iter *it, const int64_t *seed, uint64_t words[2],
                           mr_status *st) MR_NODISCARD;

/* Checks names: none is empty or has a NUL byte. */
mr_code mr__file_names_check(const mr_strs *names, mr_status *st) MR_NODISCARD;
/* The names as a dataset: list_files where they are patterns, from_tensor_slices where not. */
mr_dataset *mr__file_names_dataset(const mr_strs *names);
mr_dataset *mr__file_paths_dataset(const mr_strs *names); /* none of which is a pattern */
mr_dataset *mr__file_list_dataset(char *const *paths, size_t n);
/* A constructor's array of file names as a parameter. Its `v` is the caller's to mr_free; NULL
 * where there was no memory. */
mr_strs mr__file_names_of(const char *const *files, size_t n, bool paths);
/* One scalar string. */
mr_code mr__file_infer(const mr_dataset *self, const void *params, mr_spec **out,
                       mr_status *st) MR_NODISCARD;
/* What compression may be called, NULL-ended. */
extern const char *const mr__compression_names[];
#endif
