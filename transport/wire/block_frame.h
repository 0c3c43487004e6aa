/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_BLOCK_FRAME_H
#define MR_TRANSPORT_WIRE_BLOCK_FRAME_H
/* Blocks on the wire, by column. Dense values and long strings are sent without a copy; received
 * data are used in place.
 *
 *     block --outgoing--> [frame][head][column][column]...   pieces of memory for one send
 *                                 payload buffer --incoming--> block of views
 *
 * With shared memory, strings that are already there are sent as their positions.
 *
 * thread   one at a time per object */
#include <sys/uio.h>
#include "pipeline/params/spec.h"
#include "pipeline/memory/block.h"
#include "transport/net/lent_memory.h"
#include "transport/wire/frame.h"

/* The contents of a block's head besides its columns. */
typedef struct mr__block_place {
    uint64_t job, stream, generation;
    uint64_t first; /* number of its first element */
    const void *position;
    size_t position_bytes;
    mr__lender *lender; /* out: payloads of at least MR__LEND_LEAST bytes are written there; NULL:
                         * they follow their head */
} mr__block_place;

enum { MR__LEND_LEAST = 8 << 10 };

/* A frame to be sent: pieces v[0..n) in order. Zeroed memory is an empty one. */
typedef struct mr__outgoing {
    struct iovec *v;
    size_t n, capacity;
    uint64_t bytes;     /* of all pieces */
    uint64_t raw;       /* of the uncompressed payload and of strings elsewhere */
    mr_block block;     /* keeps the memory that is sent without a copy */
    mr_buffer *small;   /* gathered data: lengths, short strings, columns as rows */
    mr_buffer *packed;  /* the compressed payload */
    uint8_t *front;     /* the frame's fixed part and the head */
    mr__lender *lender; /* the payload is there, from lent_at on; NULL: in the pieces */
    uint64_t lent_at;
    bool lends; /* large pieces are in memory whose pages can be lent: see buffer.h */
} mr__outgoing;

/* Makes the frame of b (taken; nothing of it may be PLACED, identities are not sent).
 * level: of zstd, 0: not compressed. Payloads in shared memory are not compressed; if it is full,
 * the payload follows the head.
 * errors   MR_RESOURCE_EXHAUSTED: memory, or a block above MR__FRAME_MOST_PAYLOAD; the error of a
 *          dataset that cannot be sent to other processes */
mr_code mr__outgoing_block(mr__outgoing *o, const mr__block_place *place, mr_block *b, int level,
                           mr_status *st) MR_NODISCARD;
/* Releases everything; o can be used again. */
void mr__outgoing_reset(mr__outgoing *o);
/* The same after it was sent: a payload in shared memory belongs to the peer until it returns
 * it. */
void mr__outgoing_sent(mr__outgoing *o);

/* The same for a frame that lends pages, if the peer may keep parts of it for an unknown time. */
void mr__outgoing_forsake(mr__outgoing *o);

/* A received head of a block. */
typedef struct mr__incoming {
    mr__block_place place; /* position points into message memory */
    uint64_t rows;
    uint64_t raw;               /* bytes of the decompressed payload and of strings elsewhere */
    uint64_t memory, memory_at; /* its size and position in shared memory; 0 bytes: it follows the
                                   head */
    const uint8_t *shared;      /* with memory, set by the caller: the whole shared memory */
    size_t shared_bytes;
    void *head;   /* the unpacked message */
    uint32_t crc; /* of the payload's first crc_bytes */
    uint64_t crc_bytes;
} mr__incoming;

/* Reads and checks a head against the frame's payload_bytes.
 * errors   MR_DATA_LOSS: invalid; MR_RESOURCE_EXHAUSTED */
mr_code mr__incoming_head(mr__incoming *in, const void *head, size_t head_bytes,
                          uint64_t payload_bytes, mr_status *st) MR_NODISCARD;
/* The next n bytes of the payload are at p. Call it as they arrive, while they are in the CPU's
 * cache, to compute their checksum; mr__incoming_block computes that of the others. */
void mr__incoming_came(mr__incoming *in, const void *p, size_t n);
/* b = the block in `payload` (taken, also on failure; with in->memory, that part of the shared
 * memory), which must match `spec`.
 * errors   MR_DATA_LOSS: wrong checksum, sizes or types; MR_RESOURCE_EXHAUSTED */
mr_code mr__incoming_block(const mr__incoming *in, mr_buffer *payload, const mr_spec *spec,
                           mr_block *b, mr_status *st) MR_NODISCARD;
void mr__incoming_reset(mr__incoming *in);
#endif
