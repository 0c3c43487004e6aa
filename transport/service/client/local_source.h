/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_LOCAL_SOURCE_H
#define MR_TRANSPORT_SERVICE_CLIENT_LOCAL_SOURCE_H
/* service="local": the streams of a job as iterators in this process.
 *
 * thread   as stream_source.h */
#include "pipeline/engine/iterator.h"
#include "transport/service/client/stream_source.h"

/* *out = the streams `mine` (n of them) of a final job (taken over, also on failure), each at its
 * place in places (of any streams; NULL: all at the beginning). opts: iterator options; their seed
 * and directory are replaced by the job's.
 * errors   those of opening the graph; MR_INVALID_ARGUMENT: a place of another graph */
mr_code mr__local_source_open(mr__stream_source **out, Mr__Wire__Job *job, const uint32_t *mine,
                              size_t n, Mr__Wire__Place *const *places, size_t n_places,
                              const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;
/* Starts the next repetition of the job; state that the graph keeps between epochs is kept. */
mr_code mr__local_source_rewind(mr__stream_source *src, mr_status *st) MR_NODISCARD;
#endif
