/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_LONE_STREAMS_INTERNAL_H
#define MR_SHARD_DISTRIBUTE_LONE_STREAMS_INTERNAL_H
/* The streams of an elastic job that makes no common steps (parameter servers): the whole graph is
 * cut, with its batches, so that each stream is a dataset by itself, and each step a batch of one
 * stream. Together they yield every element once. What cannot be cut runs in every stream. For the
 * trainer.
 *
 * thread   one at a time per object */
#include "shard/distribute/distribute.h"

typedef struct mr__lone_streams mr__lone_streams;

/* directory: where patterns of files are matched; NULL: the process's. It is borrowed.
 * errors   MR_INVALID_ARGUMENT: streams out of range; MR_FAILED_PRECONDITION: an op that may not
 *          yield the same elements again */
mr_code mr__lone_streams_open(mr__lone_streams **out, mr_dataset *ds, int64_t streams,
                              uint64_t seed, const char *directory, mr_status *st) MR_NODISCARD;
void mr__lone_streams_close(mr__lone_streams *x); /* NULL: nothing */

/* The files that pattern number i matched when a stream was made; returns the pattern, or NULL
 * after the last. Borrowed until the next call. */
const char *mr__lone_streams_files(const mr__lone_streams *x, size_t i, char *const **files,
                                   size_t *n);
/* A pattern that is not to be matched here: all processes of a job must read the same files. */
mr_code mr__lone_streams_set_files(mr__lone_streams *x, const char *pattern,
                                   const char *const *files, size_t n, mr_status *st) MR_NODISCARD;

/* *out (owned) = the graph of one stream, to be run with *run_seed. */
mr_code mr__lone_streams_make(mr__lone_streams *x, int64_t stream, mr_dataset **out,
                              uint64_t *run_seed, mr_status *st) MR_NODISCARD;
#endif
