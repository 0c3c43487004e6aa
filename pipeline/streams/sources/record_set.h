/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_RECORD_SET_H
#define MR_PIPELINE_STREAMS_SOURCES_RECORD_SET_H
/* The records of a list of files as one numbered sequence, based on the files' indexes.
 *
 * thread   any: immutable except for the reference count */
#include <stdatomic.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/formats/tfrecord/record_index.h"

typedef struct mr__record_set {
    atomic_size_t refs;
    size_t n_files;
    char **paths;              /* paths to open */
    mr_record_index **indexes; /* NULL: files that were counted */
    uint64_t *first; /* n_files + 1: number of each file's first record; last: number of records */
    uint64_t *marks; /* of the files, as in mr_file_opts; 0: not known */
} mr__record_set;

/* Opens the indexes of n files. *out is owned.
 * errors   those of mr_record_index_open, for the first file without a valid index */
mr_code mr__record_set_open(mr_iter *it, const char *const *paths, size_t n, mr__record_set **out,
                            mr_status *st) MR_NODISCARD;
/* The same for files that say how many records they have, without indexes: `count` counts those of
 * one, for an op's params. *mark: as mr_file_opts.mark. */
typedef mr_code mr__record_count_fn(const void *params, const char *path, int64_t *n,
                                    uint64_t *mark, mr_status *st);
mr_code mr__record_set_count(mr_iter *it, const char *const *paths, size_t n,
                             mr__record_count_fn *count, mr__record_set **out,
                             mr_status *st) MR_NODISCARD;
mr__record_set *mr__record_set_ref(mr__record_set *s); /* returns s */
void mr__record_set_unref(mr__record_set *s);          /* NULL: nothing */

/* The file that holds record `number` of the set. */
size_t mr__record_set_find(const mr__record_set *s, uint64_t number);
#endif
