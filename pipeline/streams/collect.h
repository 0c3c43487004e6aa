/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_COLLECT_H
#define MR_PIPELINE_STREAMS_COLLECT_H
/* Collecting the elements of a batch whose shapes may differ: padded_batch and ragged_batch. */
#include "pipeline/columns/batch_builder.h"
#include "pipeline/streams/cursor.h"

/* Puts the next n elements of input 0 into b, or the last ones unless drop_remainder. An error of
 * the input drops those collected before it.
 * returns  MR_OK: b is to be finished; MR_END; an error */
mr_code mr__collect_batch(mr_iter *it, mr__cursor *input, mr__batch_builder *b, size_t n,
                          bool drop_remainder, mr_status *st) MR_NODISCARD;
#endif
