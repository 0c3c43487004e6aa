/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_FRAME_H
#define MR_TRANSPORT_WIRE_FRAME_H
/* Frames: a connection transfers a sequence of them. docs/wire.md shows them byte by byte.
 *
 *   offset size  meaning (little-endian)
 *   0      4     "MRF1"
 *   4      1     kind: 1 a message (head: protobuf, no payload), 2 a block (head: see
 *                block_frame.h)
 *   5      3     zero
 *   8      4     H, bytes of the head
 *   12     8     P, bytes of the payload
 *   20     4     CRC-32C of bytes 0 to 19 followed by the head
 *   24     H     head
 *   24+H   P     payload, described and checksummed by its head
 *
 * thread   any */
#include <stddef.h>
#include <stdint.h>
#include "pipeline/status.h"

enum { MR__FRAME_MESSAGE = 1, MR__FRAME_BLOCK = 2 };
enum { MR__FRAME_BYTES = 24 };
/* Maximum bytes of a message before the peer has authenticated; of a message or a block's head; and
 * of a payload. */
#define MR__FRAME_MOST_UNKNOWN ((uint64_t)64 << 10)
#define MR__FRAME_MOST_HEAD    ((uint64_t)16 << 20)
#define MR__FRAME_MOST_PAYLOAD ((uint64_t)1 << 30)

typedef struct mr__frame {
    int kind;
    uint32_t head_bytes;
    uint64_t payload_bytes;
    uint32_t crc;
} mr__frame;

/* Writes the fixed part for a head in memory. */
void mr__frame_put(int kind, const void *head, size_t head_bytes, uint64_t payload_bytes,
                   uint8_t out[MR__FRAME_BYTES]);
/* Reads it. most_head: the largest head accepted from this peer now.
 * errors   MR_DATA_LOSS: not a frame; MR_RESOURCE_EXHAUSTED: too large; the message has both
 *          sizes */
mr_code mr__frame_get(const uint8_t in[MR__FRAME_BYTES], uint64_t most_head, mr__frame *out,
                      mr_status *st) MR_NODISCARD;
/* errors   MR_DATA_LOSS: the head is corrupt */
mr_code mr__frame_check_head(const mr__frame *f, const uint8_t in[MR__FRAME_BYTES],
                             const void *head, mr_status *st) MR_NODISCARD;
#endif
