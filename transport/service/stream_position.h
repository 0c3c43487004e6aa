/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STREAM_POSITION_H
#define MR_TRANSPORT_SERVICE_STREAM_POSITION_H
/* The position of a stream, as bytes that only workers and clients interpret:
 *
 *   0   4  number of new repetitions to begin after that; little-endian
 *   4   8  elements to read after the position, before the first of these repetitions
 *   12  n  the position of an iterator; n = 0: the beginning
 *
 * Workers write only positions of the iterator. If a client's job begins again (a repeat above
 * distribute, the next epoch of a loop), the client starts it from the position where the last
 * repetition ended, so that the graph's state between epochs is kept on any worker.
 *
 * thread   any */
#include "pipeline/engine/iterator.h"
#include "pipeline/memory/buffer.h"

enum { MR__STREAM_POSITION_BYTES = 12 };

/* Writes the fixed part of a worker's position. */
void mr__stream_position_put(uint8_t out[MR__STREAM_POSITION_BYTES]);
/* *out = the beginning of the next repetition, where the current one is `skip` elements past this
 * position (0 bytes: its beginning); owned, mr_free. */
mr_code mr__stream_position_again(const void *position, size_t bytes, uint64_t skip, void **out,
                                  size_t *size, mr_status *st) MR_NODISCARD;
/* Moves a newly opened iterator to the position.
 * errors   MR_INVALID_ARGUMENT: not a position of this graph; those of reading */
mr_code mr__stream_position_go(mr_iterator *it, const void *position, size_t bytes,
                               mr_status *st) MR_NODISCARD;
/* Reads n elements, including failed ones.
 * errors   MR_INVALID_ARGUMENT: there are fewer; MR_CANCELLED, MR_RESOURCE_EXHAUSTED */
mr_code mr__stream_skip(mr_iterator *it, uint64_t n, mr_status *st) MR_NODISCARD;
#endif
