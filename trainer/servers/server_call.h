/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_SERVER_CALL_H
#define MR_TRAINER_SERVERS_SERVER_CALL_H
/* The protocol of a coordinator, workers and parameter servers, over connections of transport/wire:
 * a call, and its answer. Each is one block frame (docs/wire.md): `job` is the job, `stream` the
 * kind, `first` the number of the call, `position` a JSON object, and the only column has the
 * float32 values, with one extra at the end, because a block cannot be empty.
 *
 *     coordinator -> ps       PREPARE    the variables' shapes, and all of their state
 *                             READ       returns that state
 *                             RATE       the learning rate, if no schedule sets it
 *     worker -> ps            PULL       returns the values of all variables of this server
 *                             PUSH       a step's gradients, which are applied at once
 *     coordinator -> worker   SETUP      model, data, and where the variables are
 *                             STEP       a step to run; returns loss and metrics
 *                             LOOK       opens a stream of the data; returns whether it has ended
 *     coordinator -> both     END        the process must exit
 *
 * thread   one at a time per object */
#include <jansson.h>
#include "transport/wire/connection.h"

typedef enum mr__call_kind {
    MR__CALL_ANSWER = 1,
    MR__CALL_PREPARE,
    MR__CALL_READ,
    MR__CALL_RATE,
    MR__CALL_PULL,
    MR__CALL_PUSH,
    MR__CALL_SETUP,
    MR__CALL_STEP,
    MR__CALL_END,
    MR__CALL_LOOK
} mr__call_kind;

typedef struct mr__call {
    mr__call_kind kind;
    uint64_t job, number;
    json_t *text;        /* an object; owned */
    const float *values; /* n of them, in block */
    size_t n;
    mr_block block;
} mr__call;

/* For both sides of a new connection: enables keepalive. The kernel closes the connection after
 * half a minute without a reply from the other machine, or after a minute in which sent data were
 * not acknowledged. */
void mr__call_watch(const mr__connection *c);

/* Checks that n values fit in one call. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__call_check_values(size_t n, mr_status *st) MR_NODISCARD;

/* Queues a call. text (borrowed; NULL: {}) and values are copied.
 * errors   MR_RESOURCE_EXHAUSTED: memory, or larger than a frame */
mr_code mr__call_send(mr__connection *c, mr__call_kind kind, uint64_t job, uint64_t number,
                      const json_t *text, const float *values, size_t n,
                      mr_status *st) MR_NODISCARD;
/* Answers a call with an error. cut_off: from a worker that cannot reach a parameter server which
 * its coordinator may reach. */
mr_code mr__call_refuse(mr__connection *c, const mr__call *call, const mr_status *why, bool cut_off,
                        mr_status *st) MR_NODISCARD;
/* *out (overwritten) = the received frame; takes over payload.
 * errors   MR_DATA_LOSS: not a call */
mr_code mr__call_read(const mr__incoming *head, mr_buffer *payload, mr__call *out,
                      mr_status *st) MR_NODISCARD;
void mr__call_reset(mr__call *c);
/* The error in an answer; MR_OK: none. */
mr_code mr__call_error(const mr__call *answer, mr_status *st);
bool mr__call_is_cut_off(const mr__call *answer);

/* Members of a call's object. errors MR_DATA_LOSS: missing, or of another type; names it */
mr_code mr__call_text(const mr__call *c, const char *name, const char **out,
                      mr_status *st) MR_NODISCARD;
mr_code mr__call_integer(const mr__call *c, const char *name, int64_t *out,
                         mr_status *st) MR_NODISCARD;
mr_code mr__call_number(const mr__call *c, const char *name, double *out,
                        mr_status *st) MR_NODISCARD;
mr_code mr__call_list(const mr__call *c, const char *name, json_t **out,
                      mr_status *st) MR_NODISCARD;
/* The member `name` of an object: the n bytes, as base64. put: false: out of memory. get: *out is
 * owned (mr_free), NULL if there is no such member. errors MR_DATA_LOSS; MR_RESOURCE_EXHAUSTED */
bool mr__call_put_bytes(json_t *to, const char *name, const void *bytes, size_t n);
mr_code mr__call_get_bytes(const json_t *from, const char *name, void **out, size_t *n,
                           mr_status *st) MR_NODISCARD;
/* shape[0..*rank) = a list of at most MR_MAX_RANK lengths, none negative.
 * errors   MR_DATA_LOSS */
mr_code mr__call_lengths(const json_t *list, int *rank, int64_t *shape, mr_status *st) MR_NODISCARD;
#endif
