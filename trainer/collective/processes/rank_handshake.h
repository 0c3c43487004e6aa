/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CLUSTER_HELLO_H
#define MR_TRAINER_CLUSTER_HELLO_H
/* What the processes of a job say to each other, beside the values that they sum: frames of a head
 * and a payload.
 *
 *     connects                      accepts
 *     HELLO      --------------->             who I am, and what I was asked to do
 *                <---------------  HELLO
 *                <---------------  TABLE      from rank 0: where all listen, where nobody knew
 *     DATA       --------------->             on a second connection, to the next rank: the values
 *                <---------------  READY      will go here
 *     ALIVE, ABORT, BYE <------>              from then on
 *     VALUES            <------>              a few numbers, see mr__world_exchange
 *     CLAIM             <------>              what is summed next, see mr__world_claim
 *
 * Everything that comes in is checked: whoever reaches the port can send.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/status.h"

enum {
    MR__MEET_VERSION = 1,
    MR__HEAD_BYTES = 16,
    MR__NONCE = 16,
    MR__MAX_HELLO = 16 << 20, /* bytes of a payload */
    MR__MAX_FACTS = 32,
    MR__MAX_VALUES = 256,
    MR__MAX_CLAIM = 96 /* bytes of a text, with its end */
};

typedef enum mr__word {
    MR__SAY_HELLO = 1,
    MR__SAY_TABLE,
    MR__SAY_DATA,
    MR__SAY_READY,
    MR__SAY_ALIVE,
    MR__SAY_ABORT,
    MR__SAY_BYE,
    MR__SAY_VALUES,
    MR__SAY_CLAIM
} mr__word;

/* Something on which all processes must agree: "model", "flatten().dense(10)". */
typedef struct mr__fact {
    const char *name, *value;
} mr__fact;

/* Texts are borrowed: from the caller, or from the payload that was read. */
typedef struct mr__hello {
    uint32_t rank, world, port, process;
    uint8_t nonce[MR__NONCE];
    const char *node;    /* the name of its host */
    const char *host_id; /* equal for processes that can share memory */
    const char *local;   /* abstract name of its unix socket; "": none */
    uint32_t n_facts;
    mr__fact facts[MR__MAX_FACTS];
} mr__hello;

/* A frame to send; {0} is empty. */
typedef struct mr__saying {
    unsigned char *data; /* owned */
    size_t size, capacity, sent;
} mr__saying;

/* Each adds a frame to o. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__say_hello(mr__saying *o, const mr__hello *h, mr_status *st) MR_NODISCARD;
mr_code mr__say_table(mr__saying *o, const char *const *addresses, uint32_t n,
                      mr_status *st) MR_NODISCARD;
mr_code mr__say_data(mr__saying *o, uint32_t rank, const uint8_t *nonce,
                     mr_status *st) MR_NODISCARD;
mr_code mr__say_values(mr__saying *o, uint32_t channel, uint64_t number, const double *values,
                       uint32_t n, mr_status *st) MR_NODISCARD;
/* what: shorter than MR__MAX_CLAIM. */
mr_code mr__say_claim(mr__saying *o, uint64_t number, int64_t step, const char *what,
                      mr_status *st) MR_NODISCARD;
mr_code mr__say_abort(mr__saying *o, const mr_status *why, mr_status *st) MR_NODISCARD;
mr_code mr__say(mr__saying *o, mr__word word, mr_status *st) MR_NODISCARD; /* without payload */
void mr__saying_reset(mr__saying *o);

/* Reads a head. errors MR_DATA_LOSS: not of this protocol, or too long; MR_FAILED_PRECONDITION:
 * another version, which *version has */
mr_code mr__read_head(const unsigned char *head, uint32_t *version, mr__word *word, size_t *bytes,
                      mr_status *st) MR_NODISCARD;
/* Payloads; data must live as long as what is read. errors MR_DATA_LOSS */
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
mr_code mr__read_claim(const unsigned char *data, size_t bytes, uint64_t *number, int64_t *step,
                       const char **what, mr_status *st) MR_NODISCARD;
/* *why = what the peer ended with. */
mr_code mr__read_abort(const unsigned char *data, size_t bytes, mr_status *why,
                       mr_status *st) MR_NODISCARD;

/* MR_OK, or the first fact in which theirs differ, both values named; whose: "rank 1 (b:5000)".
 * errors MR_FAILED_PRECONDITION */
mr_code mr__compare_facts(const mr__hello *mine, const mr__hello *theirs, const char *whose,
                          mr_status *st) MR_NODISCARD;
#endif
