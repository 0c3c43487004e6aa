/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_ARROW_STREAM_H
#define MR_PIPELINE_STREAMS_SOURCES_ARROW_STREAM_H
/* Reads the rows of an Arrow stream.
 *
 * thread   one at a time */
#include "pipeline/memory/block.h"
#include "pipeline/memory/export.h"
#include "pipeline/params/spec.h"

typedef struct mr__arrow_stream mr__arrow_stream;

/* Takes *stream over, also on failure, and reads its schema. */
mr_code mr__arrow_stream_new(struct ArrowArrayStream *stream, mr__arrow_stream **out,
                             mr_status *st) MR_NODISCARD;
void mr__arrow_stream_free(mr__arrow_stream *s); /* NULL: nothing */
const mr_spec *mr__arrow_stream_spec(const mr__arrow_stream *s);
/* Starts the only pass. errors MR_FAILED_PRECONDITION: already started before */
mr_code mr__arrow_stream_start(mr__arrow_stream *s, mr_status *st) MR_NODISCARD;
/* The next 1..want rows, as views of the current array; MR_END. A row with a null is an error that
 * names its column and, as the record, its number in the stream; so is an array that cannot be
 * imported. The next call continues after either. */
mr_code mr__arrow_stream_next(mr__arrow_stream *s, size_t want, mr_block *out,
                              mr_status *st) MR_NODISCARD;
#endif
