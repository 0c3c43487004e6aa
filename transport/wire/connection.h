/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_CONNECTION_H
#define MR_TRANSPORT_WIRE_CONNECTION_H
/* A socket that transfers frames: the handshake first, then checked messages and blocks.
 *
 *     mr__socket --bytes--> | 24 | head | payload |  --> message, or block
 *                             in one small buffer      payloads go straight into their own
 *
 * Without a token, the user of a peer shows whom to trust, and only a local socket shows that user.
 * So the connecting side changes to the acceptor's local socket if it can be reached. The acceptor
 * refuses TCP connections and other users, and a worker refuses such a dispatcher, whose graphs it
 * would run, unless mr__token.any_user.
 *
 * If the token has certificates that say so, the bytes of a TCP connection are encrypted:
 * tls_stream.h. A local socket needs no encryption; a service that uses TLS serves those peers on
 * it that have a TLS connection to it, which they prove by the session's key.
 *
 * Once a peer has authenticated, handshake.name is its name: that of its token, if that has one,
 * else the common name of its certificate, if the acceptor requires certificates.
 *
 * Embedded in its owner. Callbacks run in the loop's thread.
 *
 * thread   the loop's */
#include "pipeline/memory/buffer.h"
#include "transport/net/loop.h"
#include "transport/wire/block_frame.h"
#include "transport/wire/handshake.h"
#include "transport/wire/tls_stream.h"

typedef struct mr__connection mr__connection;
typedef struct mr__connection_class {
    /* The peer has authenticated: messages may be sent. */
    void (*ready)(mr__connection *c);
    /* m is borrowed. */
    void (*message)(mr__connection *c, const mr__message *m);
    /* A block was received; payload is taken over. NULL: blocks are refused. */
    void (*block)(mr__connection *c, const mr__incoming *head, mr_buffer *payload);
    /* The last call: the connection belongs to its owner again. why->code: MR_OK if closed here,
     * MR_END if the peer closed it, else the error that ended it. */
    void (*closed)(mr__connection *c, const mr_status *why);
    /* Something that was queued has been sent. May be NULL. */
    void (*sent)(mr__connection *c);
    /* Blocks may be sent without a copy: they are kept until the peer confirms receipt. */
    bool lends;
    bool no_memory; /* blocks are sent, even on a local socket */
    /* key = that of the TLS session with this id, if one of the owner's peers that completed the
     * handshake has it; c gets the name of that peer. May be NULL. */
    bool (*session_key)(mr__connection *c, const uint8_t *id, uint8_t key[MR__TLS_KEY_BYTES]);
} mr__connection_class;

enum { MR__CONNECTION_IN = 64 << 10 };

struct mr__connection {
    mr__socket socket;
    const mr__connection_class *class_; /* set by the owner */
    mr__handshake handshake;
    mr__timer deadline; /* of the handshake */
    bool paused;        /* until mr__connection_resume */
    bool closing, is_taking;
    /* The connecting side: the address; the local socket is being or was tried; it was reached. */
    mr__address at;
    bool changes, has_changed, is_open;
    uint8_t *in; /* MR__CONNECTION_IN bytes; from..to are unread */
    size_t from, to;
    mr__frame frame; /* with has_frame: the one being received */
    uint8_t fixed[MR__FRAME_BYTES];
    bool has_frame;
    uint8_t *head; /* of a frame whose head is larger than `in` */
    size_t head_got;
    mr__incoming incoming; /* with has_head: the block being received */
    bool has_head;
    mr_buffer *payload;
    size_t payload_got;
    bool after_large; /* the last frame was a large block */
    /* The number of blocks queued, and of those whose receipt the peer has confirmed; the list of
     * the others whose pages are lent; the bytes of all that are lent or queued to be lent. */
    uint64_t queued, confirmed;
    struct mr__queued *lent_first, *lent_last;
    size_t lent_bytes;
    uint64_t came, said; /* blocks received, and blocks whose receipt was confirmed to the peer */
    size_t unsaid_bytes;
    mr_status why;
    mr__tls_stream tls; /* with is_secure */
    bool is_secure, is_reading;
    uint8_t session_key[MR__TLS_KEY_BYTES]; /* the token of an accepted local connection */
};

/* Connects to `to`, or takes over an accepted descriptor; `ready` or `closed` follows. In
 * `message`, mr__socket_take_passed returns the descriptor received with a message.
 * local: the acceptor's local socket, which the handshake names; "" none. token is borrowed until
 * `closed`. */
mr_code mr__connection_open(mr__connection *c, mr__loop *l, const mr__address *to,
                            Mr__Wire__Role role, mr__token token, mr_status *st) MR_NODISCARD;
mr_code mr__connection_accept(mr__connection *c, mr__loop *l, int fd, Mr__Wire__Role role,
                              mr__token token, const char *local, mr_status *st) MR_NODISCARD;
/* Queues a message. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__connection_send(mr__connection *c, const mr__message *m, mr_status *st) MR_NODISCARD;
/* Queues a whole frame of n bytes from mr__message_pack (taken over, also on failure). */
mr_code mr__connection_send_frame(mr__connection *c, void *frame, size_t n,
                                  mr_status *st) MR_NODISCARD;
/* The same, with a descriptor (taken over, also on failure) on a local connection. */
mr_code mr__connection_pass(mr__connection *c, const mr__message *m, int fd,
                            mr_status *st) MR_NODISCARD;
/* Queues a block's frame (taken over, also on failure), and releases it when it is sent. */
mr_code mr__connection_send_block(mr__connection *c, mr__outgoing *frame,
                                  mr_status *st) MR_NODISCARD;
/* Bytes queued and not yet sent. */
size_t mr__connection_queued(const mr__connection *c);
/* Stops passing messages and blocks to the owner until mr__connection_resume, which passes those
 * already received. */
void mr__connection_pause(mr__connection *c);
void mr__connection_resume(mr__connection *c);
/* Closes at once, for the reason why (NULL: none); `closed` follows. */
void mr__connection_close(mr__connection *c, const mr_status *why);
/* Closes after everything queued has been sent. */
void mr__connection_finish(mr__connection *c);
#endif
