/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STREAM_POSITION_H
#define MR_TRANSPORT_SERVICE_STREAM_POSITION_H
/* Where a stream stands, as places of the service carry it (nobody but workers and clients looks
 * inside):
 *
 *   0   4  repetitions to begin after all of this; little-endian
 *   4   8  elements to read after the position, before the first of them
 *   12  n  the position of an iterator; n = 0: the beginning
 *
 * Workers write positions of the iterator alone. A client whose job begins again (a repeat above
 * distribute, the next epoch of a loop) starts it from where the last repetition was left, so that
 * what the graph keeps between epochs goes on, whoever hosts the stream.
 *
 * thread   any */
#include "pipeline/engine/iterator.h"
#include "pipeline/memory/buffer.h"

enum { MR__STREAM_POSITION_BYTES = 12 };

/* Writes the first part of a worker's position. */
void mr__stream_position_put(uint8_t out[MR__STREAM_POSITION_BYTES]);
/* *out = the beginning of the repetition after the one that stands `skip` elements after this
 * position (0 bytes: its beginning); owned, mr_free. */
mr_code mr__stream_position_again(const void *position, size_t bytes, uint64_t skip, void **out,
                                  size_t *size, mr_status *st) MR_NODISCARD;
/* Brings an iterator that was just opened there.
 * errors   MR_INVALID_ARGUMENT: not a position of this graph; what reading meets */
mr_code mr__stream_position_go(mr_iterator *it, const void *position, size_t bytes,
                               mr_status *st) MR_NODISCARD;
/* Reads n elements, errors among them.
 * errors   MR_INVALID_ARGUMENT: there are not so many; MR_CANCELLED, MR_RESOURCE_EXHAUSTED */
mr_code mr__stream_skip(mr_iterator *it, uint64_t n, mr_status *st) MR_NODISCARD;
#endif
