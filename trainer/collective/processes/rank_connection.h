/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_RANK_CONNECTION_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_RANK_CONNECTION_H
/* A connection of the rendezvous: messages of rank_messages.h over a nonblocking socket, inside a
 * TLS session if the processes have certificates. It answers the messages about the token itself;
 * the peer is `known` once both sides have shown what the job requires.
 *
 * thread   one at a time per object */
#include "trainer/collective/processes/rank_messages.h"
#include "transport/wire/handshake.h"
#include "transport/wire/tls_session.h"

typedef enum mr__rank_role {
    MR__ROLE_INCOMING, /* it has not identified itself yet */
    MR__ROLE_CONTROL,  /* short messages with `rank` */
    MR__ROLE_VALUES,   /* values to the next rank, or from the previous one */
    MR__ROLE_SELF      /* a connection to this process's own address, to detect another process
                          there */
} mr__rank_role;

typedef struct mr__rank_connection mr__rank_connection;
struct mr__rank_connection {
    mr__rank_connection *next;
    int fd; /* -1: ended */
    mr__rank_role role;
    uint32_t rank;
    bool connecting, incoming, local;
    bool greeted; /* the owner's first message was written */
    int64_t since_ns;
    unsigned char head[MR__RANK_HEAD_BYTES], *payload;
    bool has_head;
    size_t got, bytes;
    uint32_t version;
    mr__rank_message kind;
    int passed; /* a descriptor received with the bytes; -1: none */
    mr__outbox out;
    const mr__token *token; /* NULL: neither token nor TLS is needed */
    mr__tls_session *tls;   /* owned; NULL: in the clear */
    bool known, asked;      /* asked: the first message about the token has come */
    bool doubted;           /* this side refuses the peer */
    bool refused;           /* what is left to send is sent, and what comes is dropped */
    bool clear;             /* refused: in the clear, though there is a session */
    bool is_shut;
    uint8_t own[MR__NONCE_BYTES], peer[MR__NONCE_BYTES];
};

/* Begins: token (NULL: none) has what the job requires; host: whom this side connects to.
 * errors   MR_RESOURCE_EXHAUSTED, MR_INVALID_ARGUMENT: no name of a certificate */
mr_code mr__rank_connection_begin(mr__rank_connection *t, const mr__token *token, const char *host,
                                  mr_status *st) MR_NODISCARD;
/* Whether it waits to send, when the socket is ready to. */
bool mr__rank_connection_wants(const mr__rank_connection *t);
/* Whether not everything was sent yet. */
bool mr__rank_connection_owes(const mr__rank_connection *t);
/* Sends as much as the socket accepts. false: the connection is gone, with the reason in why. */
bool mr__rank_connection_send(mr__rank_connection *t, mr_status *why) MR_NODISCARD;
/* Continues reading. *whole: head and payload hold a message of a peer that is known, until
 * mr__rank_connection_next; or an ABORT. false: as above; or the peer is not one of the job, which
 * may already be refused. */
bool mr__rank_connection_receive(mr__rank_connection *t, bool *whole, mr_status *why) MR_NODISCARD;
void mr__rank_connection_next(mr__rank_connection *t);
/* Refuses the peer, with the reason, which mr__rank_connection_linger sends. */
void mr__rank_connection_refuse(mr__rank_connection *t, const char *why);
/* Serves a refused connection, and ends it when the peer has closed it: what it has sent must be
 * read, or the kernel drops the refusal. */
void mr__rank_connection_linger(mr__rank_connection *t);
void mr__rank_connection_end(mr__rank_connection *t);  /* closes it */
void mr__rank_connection_free(mr__rank_connection *t); /* ends it too */
#endif
