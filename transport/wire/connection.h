/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_CONNECTION_H
#define MR_TRANSPORT_WIRE_CONNECTION_H
/* A socket that speaks frames: the handshake first, then messages and blocks, checked.
 *
 *     mr__socket --bytes--> | 24 | head | payload |  --> message, or block
 *                             in one small buffer      payloads go straight into their own
 *
 * Embedded in what it serves. Callbacks run in the loop's thread.
 *
 * thread   the loop's */
#include "pipeline/memory/buffer.h"
#include "transport/net/loop.h"
#include "transport/wire/block_frame.h"
#include "transport/wire/handshake.h"

typedef struct mr__connection mr__connection;
typedef struct mr__connection_class {
    /* The peer has proved who it is: messages may be sent. */
    void (*ready)(mr__connection *c);
    /* m is borrowed. */
    void (*message)(mr__connection *c, const mr__message *m);
    /* A block came in; payload is taken over. NULL: blocks are refused. */
    void (*block)(mr__connection *c, const mr__incoming *head, mr_buffer *payload);
    /* The last call: the connection is its owner's again. why->code: MR_OK closed here, MR_END the
     * peer closed, else what ended it. */
    void (*closed)(mr__connection *c, const mr_status *why);
    /* Something that was queued has been sent. May be NULL. */
    void (*sent)(mr__connection *c);
    /* Blocks may be sent without a copy: they are kept until the peer says that it has them. */
    bool lends;
} mr__connection_class;

enum { MR__CONNECTION_IN = 64 << 10 };

struct mr__connection {
    mr__socket socket;
    const mr__connection_class *class_; /* set by the owner */
    mr__handshake handshake;
    mr__timer deadline; /* of the handshake */
    bool paused;        /* until mr__connection_resume */
    bool closing, is_taking;
    uint8_t *in; /* MR__CONNECTION_IN bytes; from..to are unread */
    size_t from, to;
    mr__frame frame; /* the one under way, with has_frame */
    uint8_t fixed[MR__FRAME_BYTES];
    bool has_frame;
    uint8_t *head; /* of a frame whose head is larger than `in` */
    size_t head_got;
    mr__incoming incoming; /* with has_head: the block under way */
    bool has_head;
    mr_buffer *payload;
    size_t payload_got;
    bool after_large; /* the last frame was a large block */
    /* Blocks that were queued, which of them the peer has whole for certain, and those of the
     * others whose pages are lent, with the bytes of all that are lent or queued for that. */
    uint64_t queued, confirmed;
    struct mr__queued *lent_first, *lent_last;
    size_t lent_bytes;
    uint64_t came, said; /* blocks that came in, and those of which the peer knows it */
    size_t unsaid_bytes;
    mr_status why;
};

/* Connects to `to`, or takes over an accepted descriptor; `ready` or `closed` follows. The
 * descriptor that came with a message is to be had by mr__socket_take_passed in `message`.
 * local: what an acceptor says of its local socket, "" none. token is borrowed until `closed`. */
mr_code mr__connection_open(mr__connection *c, mr__loop *l, const mr__address *to,
                            Mr__Wire__Role role, mr__token token, mr_status *st) MR_NODISCARD;
mr_code mr__connection_accept(mr__connection *c, mr__loop *l, int fd, Mr__Wire__Role role,
                              mr__token token, const char *local, mr_status *st) MR_NODISCARD;
/* Queues a message. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__connection_send(mr__connection *c, const mr__message *m, mr_status *st) MR_NODISCARD;
/* Queues a whole frame of n bytes that mr__message_pack made (taken over, also on failure). */
mr_code mr__connection_send_frame(mr__connection *c, void *frame, size_t n,
                                  mr_status *st) MR_NODISCARD;
/* The same, with a descriptor (taken over, also on failure) on a local connection. */
mr_code mr__connection_pass(mr__connection *c, const mr__message *m, int fd,
                            mr_status *st) MR_NODISCARD;
/* Queues a block's frame, which is taken over (also on failure) and released when it is sent. */
mr_code mr__connection_send_block(mr__connection *c, mr__outgoing *frame,
                                  mr_status *st) MR_NODISCARD;
/* Bytes queued and not yet sent. */
size_t mr__connection_queued(const mr__connection *c);
/* No further message or block is given to the owner until mr__connection_resume, which gives those
 * that are there already. */
void mr__connection_pause(mr__connection *c);
void mr__connection_resume(mr__connection *c);
/* Closes at once, for the reason why (NULL: none); `closed` follows. */
void mr__connection_close(mr__connection *c, const mr_status *why);
/* Closes when what is queued has been sent. */
void mr__connection_finish(mr__connection *c);
#endif
