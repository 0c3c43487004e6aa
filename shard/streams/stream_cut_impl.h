/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_STREAM_CUT_IMPL_H
#define MR_SHARD_STREAMS_STREAM_CUT_IMPL_H
/* Queries about ops for the two cuts into streams. Private to shard/streams/. */
#include "pipeline/graph/op.h"

/* True if any split of the inputs of ds yields that split of ds: a cache in a file has the same
 * elements in each run. */
bool mr__stream_splits(const mr_dataset *ds);
/* *out = true if a function of the op reads the files that its input names. */
mr_code mr__stream_reads_files(const mr_dataset *ds, bool *out, mr_status *st) MR_NODISCARD;
/* *out = true if the inputs of ds, which pairs their elements, read the same files in the same way,
 * and all ops between keep each element at its place: then the pairs of a part of the files are a
 * part of the pairs. */
mr_code mr__stream_keeps_step(const mr_dataset *ds, bool *out, mr_status *st) MR_NODISCARD;
#endif
