/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_FILE_LISTS_INTERNAL_H
#define MR_SHARD_STREAMS_FILE_LISTS_INTERNAL_H
/* Replaces file patterns in a graph by the files that they matched once, so that all streams of a
 * job read the same ones:
 *
 *     tfrecord("a-*")               ->  tfrecord("a-0", "a-1")
 *     list_files("a-*")             ->  the names as elements
 *
 * Private to shard/ and transport/service/.
 *
 * thread   any */
#include "pipeline/graph/op.h"

/* The files of each pattern. */
typedef struct mr__file_lists {
    /* *files (borrowed) = the n files that `pattern` matches, in any order; may be empty. */
    mr_code (*find)(void *ctx, const char *pattern, char *const **files, size_t *n, mr_status *st);
    void *ctx;
} mr__file_lists;

/* The parameter of an op that holds file names; NULL: it has none. *all: each is a pattern, and the
 * op's elements are names. */
const mr_param *mr__file_names_of(const mr_dataset *ds, bool *all);
/* *out (owned) = ds (taken over) with the lists: those of sources of names if data, else those of
 * readers. A shard of names goes after their source, so cut the graph between the two.
 * errors   those of find */
mr_code mr__put_file_lists(const mr__file_lists *l, bool data, mr_dataset *ds, mr_dataset **out,
                           mr_status *st) MR_NODISCARD;
/* mr_stream_cut_opts.count_names; ctx: an mr__file_lists. */
int64_t mr__count_file_names(void *ctx, const mr_dataset *source);

/* *files = the n files that the pattern matches, as it is written: without the directory (NULL: the
 * working directory). May be empty. Owned: mr__free_files.
 * errors   those of the system; MR_RESOURCE_EXHAUSTED */
mr_code mr__match_files(const char *directory, const char *pattern, char ***files, size_t *n,
                        mr_status *st) MR_NODISCARD;
void mr__free_files(char **files, size_t n);
#endif
