/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_BLOCK_FRAME_H
#define MR_TRANSPORT_WIRE_BLOCK_FRAME_H
/* Blocks on the wire, by column. Dense values and long strings are sent from where they lie; what
 * comes in is used where it was received.
 *
 *     block --outgoing--> [frame][head][column][column]...   pieces of memory for one send
 *                                 payload buffer --incoming--> block of views
 *
 * In shared memory, strings that lie there already are named by where they are.
 *
 * thread   one at a time per object */
#include <sys/uio.h>
#include "pipeline/params/spec.h"
#include "pipeline/memory/block.h"
#include "transport/net/lent_memory.h"
#include "transport/wire/frame.h"

/* What a block's head says beside its columns. */
typedef struct mr__block_place {
    uint64_t job, stream, generation;
    uint64_t first; /* number of its first element */
    const void *position;
    size_t position_bytes;
    mr__lender *lender; /* out: where payloads of MR__LEND_LEAST bytes and more are laid; NULL: they
                         * follow their head */
} mr__block_place;

enum { MR__LEND_LEAST = 8 << 10 };

/* A frame on its way out: pieces v[0..n) in order. Zeroed memory is an empty one. */
typedef struct mr__outgoing {
    struct iovec *v;
    size_t n, capacity;
    uint64_t bytes;     /* of all pieces */
    uint64_t raw;       /* of the payload, before it was compressed, and of strings elsewhere */
    mr_block block;     /* keeps what is sent from where it lies */
    mr_buffer *small;   /* what was gathered: lengths, short strings, columns as rows */
    mr_buffer *packed;  /* the compressed payload */
    uint8_t *front;     /* the frame's fixed part and the head */
    mr__lender *lender; /* the payload lies there, from lent_at on; NULL: in the pieces */
    uint64_t lent_at;
    bool lends; /* large pieces lie in memory whose pages can be lent: see buffer.h */
} mr__outgoing;

/* Makes the frame of b (taken; nothing of it may be PLACED, identities are not sent).
 * level: of zstd, 0: not compressed. What is laid in shared memory is not compressed; where that
 * has no room, the payload follows the head.
 * errors   MR_RESOURCE_EXHAUSTED: memory, or a block above MR__FRAME_MOST_PAYLOAD; what a dataset
 *          that cannot travel says */
mr_code mr__outgoing_block(mr__outgoing *o, const mr__block_place *place, mr_block *b, int level,
                           mr_status *st) MR_NODISCARD;
/* Lets everything go; it can be used again. */
void mr__outgoing_reset(mr__outgoing *o);
/* The same when it was sent: what is laid in shared memory is the peer's until it gives it back. */
void mr__outgoing_sent(mr__outgoing *o);

/* Of a frame that lends, parts of which may be with the peer, nobody knows for how long. */
void mr__outgoing_forsake(mr__outgoing *o);

/* A block's head as it came in. */
typedef struct mr__incoming {
    mr__block_place place; /* position points into message memory */
    uint64_t rows;
    uint64_t raw;               /* bytes of the payload, when it is decompressed, and of strings
                                   elsewhere */
    uint64_t memory, memory_at; /* where it lies in shared memory; 0 bytes: it follows the head */
    const uint8_t *shared;      /* with memory, to be set by the caller: all that is shared */
    size_t shared_bytes;
    void *head;   /* the unpacked message */
    uint32_t crc; /* of the payload's first crc_bytes */
    uint64_t crc_bytes;
} mr__incoming;

/* Reads and checks a head against the frame's payload_bytes.
 * errors   MR_DATA_LOSS: what no sender writes; MR_RESOURCE_EXHAUSTED */
mr_code mr__incoming_head(mr__incoming *in, const void *head, size_t head_bytes,
                          uint64_t payload_bytes, mr_status *st) MR_NODISCARD;
/* The next n bytes of the payload are at p. To be called as they come in, while the processor has
 * them at hand: their checksum is taken here, and of the others by mr__incoming_block. */
void mr__incoming_came(mr__incoming *in, const void *p, size_t n);
/* b = the block in `payload` (taken, also on failure; with in->memory, that part of the shared
 * memory), which must be of `spec`.
 * errors   MR_DATA_LOSS: a checksum, sizes or types that do not fit; MR_RESOURCE_EXHAUSTED */
mr_code mr__incoming_block(const mr__incoming *in, mr_buffer *payload, const mr_spec *spec,
                           mr_block *b, mr_status *st) MR_NODISCARD;
void mr__incoming_reset(mr__incoming *in);
#endif
