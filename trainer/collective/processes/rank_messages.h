/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_RANK_MESSAGES_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_RANK_MESSAGES_H
/* The messages between the processes of a job, apart from the values that they sum. Each is a head
 * and a payload.
 *
 *     connects                      accepts
 *     ASK        --------------->             if there is a token: a nonce
 *                <---------------  CHALLENGE  a nonce
 *     PROOF      --------------->             HMAC over both nonces
 *                <---------------  WELCOME    HMAC over both nonces, by the acceptor
 *     HELLO      --------------->             identity and arguments
 *                <---------------  HELLO
 *                <---------------  TABLE      from rank 0: all addresses, if they were unknown
 *     DATA       --------------->             on a second connection, which began in the same way,
 *                                             to the next rank: for values
 *                <---------------  READY
 *     ALIVE, ABORT, BYE <------>              afterwards
 *     VALUES            <------>              a few numbers, see mr__world_exchange
 *     ANNOUNCEMENT      <------>              the next operation, see mr__world_announce
 *
 * A stranger gets ABORT in place of an answer. If the processes have certificates, all of this is
 * inside a TLS session, except the ABORT for a peer that speaks no TLS. On unix sockets, where the
 * kernel names the peer's user, there is neither TLS nor token.
 *
 * Everything received is checked: anyone who reaches the port can send.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/status.h"

enum {
    MR__RANK_PROTOCOL = 2,
    MR__RANK_HEAD_BYTES = 16,
    MR__RANK_NONCE = 16,
    MR__RANK_PROOF_BYTES = 32, /* of nonces and HMACs of the token */
    MR__MAX_HELLO = 16 << 20,  /* payload, in bytes */
    MR__MAX_FACTS = 32,
    MR__MAX_VALUES = 256,
    MR__MAX_ANNOUNCEMENT = 96 /* bytes of the text, including the NUL */
};

typedef enum mr__rank_message {
    MR__RANK_HELLO = 1,
    MR__RANK_TABLE,
    MR__RANK_DATA,
    MR__RANK_READY,
    MR__RANK_ALIVE,
    MR__RANK_ABORT,
    MR__RANK_BYE,
    MR__RANK_VALUES,
    MR__RANK_ANNOUNCEMENT,
    MR__RANK_ASK,
    MR__RANK_CHALLENGE,
    MR__RANK_PROOF,
    MR__RANK_WELCOME
} mr__rank_message;

/* A value on which all processes must agree: "model", "flatten().dense(10)". */
typedef struct mr__fact {
    const char *name, *value;
} mr__fact;

/* Texts are borrowed: from the caller, or from the payload that was read. */
typedef struct mr__hello {
    uint32_t rank, world, port, process;
    uint8_t nonce[MR__RANK_NONCE];
    const char *node;       /* the name of its machine */
    const char *machine_id; /* equal for processes that can share memory */
    const char *local;      /* abstract name of its unix socket; "": none */
    uint32_t n_facts;
    mr__fact facts[MR__MAX_FACTS];
} mr__hello;

/* Outgoing messages; {0} is empty. */
typedef struct mr__outbox {
    unsigned char *data; /* owned */
    size_t size, capacity, sent;
} mr__outbox;

/* Each appends a message to o. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__write_hello(mr__outbox *o, const mr__hello *h, mr_status *st) MR_NODISCARD;
mr_code mr__write_table(mr__outbox *o, const char *const *addresses, uint32_t n,
                        mr_status *st) MR_NODISCARD;
mr_code mr__write_data(mr__outbox *o, uint32_t rank, const uint8_t *nonce,
                       mr_status *st) MR_NODISCARD;
mr_code mr__write_values(mr__outbox *o, uint32_t channel, uint64_t number, const double *values,
                         uint32_t n, mr_status *st) MR_NODISCARD;
/* what: shorter than MR__MAX_ANNOUNCEMENT. */
mr_code mr__write_announcement(mr__outbox *o, uint64_t number, int64_t step, const char *what,
                               mr_status *st) MR_NODISCARD;
mr_code mr__write_abort(mr__outbox *o, const mr_status *why, mr_status *st) MR_NODISCARD;
mr_code mr__write_empty(mr__outbox *o, mr__rank_message kind,
                        mr_status *st) MR_NODISCARD; /* no payload */
/* kind: ASK to WELCOME. */
mr_code mr__write_proof(mr__outbox *o, mr__rank_message kind,
                        const uint8_t proof[MR__RANK_PROOF_BYTES], mr_status *st) MR_NODISCARD;
void mr__outbox_reset(mr__outbox *o);

/* Reads a head.
 * errors   MR_DATA_LOSS: not this protocol, or too long · MR_FAILED_PRECONDITION: another version,
 *          returned in *version */
mr_code mr__read_head(const unsigned char *head, uint32_t *version, mr__rank_message *kind,
                      size_t *bytes, mr_status *st) MR_NODISCARD;
/* Payloads; data must outlive the result. errors MR_DATA_LOSS */
mr_code mr__read_hello(const unsigned char *data, size_t bytes, mr__hello *h,
                       mr_status *st) MR_NODISCARD;
/* addresses[0..n) point into data. */
mr_code mr__read_table(const unsigned char *data, size_t bytes, const char **addresses, uint32_t n,
                       mr_status *st) MR_NODISCARD;
mr_code mr__read_data(const unsigned char *data, size_t bytes, uint32_t *rank, uint8_t *nonce,
                      mr_status *st) MR_NODISCARD;
/* values has room for MR__MAX_VALUES. */
mr_code mr__read_values(const unsigned char *data, size_t bytes, uint32_t *channel,
                        uint64_t *number, double *values, uint32_t *n, mr_status *st) MR_NODISCARD;
/* *what points into data. */
mr_code mr__read_announcement(const unsigned char *data, size_t bytes, uint64_t *number,
                              int64_t *step, const char **what, mr_status *st) MR_NODISCARD;
mr_code mr__read_proof(const unsigned char *data, size_t bytes, uint8_t proof[MR__RANK_PROOF_BYTES],
                       mr_status *st) MR_NODISCARD;
/* *why = the error that ended the peer. */
mr_code mr__read_abort(const unsigned char *data, size_t bytes, mr_status *why,
                       mr_status *st) MR_NODISCARD;

/* MR_OK, or an error for the first fact that differs, with both values; whose: "rank 1 (b:5000)".
 * errors MR_FAILED_PRECONDITION */
mr_code mr__compare_facts(const mr__hello *mine, const mr__hello *theirs, const char *whose,
                          mr_status *st) MR_NODISCARD;
#endif
