/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_PARAMETERS_H
#define MR_TRAINER_SERVERS_PARAMETERS_H
/* The state of a parameter server: variables, and the optimizer with its slots. Gradients are
 * applied as they arrive, one step at a time.
 *
 * thread   one at a time per object */
#include "trainer/objectives/optimizer.h"
#include "trainer/servers/server_call.h"

/* More steps than workers have in progress. */
enum { MR__APPLIED_STEPS = 4096 };

typedef struct mr__parameters {
    mr_strategy *s; /* one replica, on the CPU */
    mr_optimizer *o;
    mr_variable **variables;
    mr_variable **learned;
    float **gradients; /* of learned: scratch memory of a step */
    size_t n, n_learned, n_values;
    uint64_t job;  /* 0: no state yet */
    float *values; /* as they are read: those of all variables, then each slot's, of all learned */
    float *pushed; /* a step's gradients; as large as all variables */
    /* Steps whose gradients came: all up to `after`, and the latest ones. A step that was made
     * again is applied once. */
    int64_t after, applied[MR__APPLIED_STEPS];
    size_t n_applied;
} mr__parameters;

/* p must be zeroed. errors: those of mr_strategy_one_device */
mr_code mr__parameters_open(mr__parameters *p, mr_status *st) MR_NODISCARD;
void mr__parameters_close(mr__parameters *p);
/* Serves a call, and answers it on c.
 * errors   the error to answer instead: MR_FAILED_PRECONDITION: the variables belong to another
 *          job, or were never sent · MR_DATA_LOSS: an invalid call */
mr_code mr__parameters_take(mr__parameters *p, mr__connection *c, const mr__call *call,
                            mr_status *st) MR_NODISCARD;
#endif
