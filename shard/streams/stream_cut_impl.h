/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_STREAM_CUT_IMPL_H
#define MR_SHARD_STREAMS_STREAM_CUT_IMPL_H
/* What the two cuts into streams ask of ops. Private to shard/streams/. */
#include "pipeline/graph/op.h"

/* true if what a stream of the service has of the inputs of ds makes its part of ds. */
bool mr__stream_passes(const mr_dataset *ds);
/* *out = a function of the op reads the files that its input names. */
mr_code mr__stream_reads_files(const mr_dataset *ds, bool *out, mr_status *st) MR_NODISCARD;
#endif
