/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_PARAMETERS_H
#define MR_TRAINER_SERVERS_PARAMETERS_H
/* What a parameter server keeps: variables, and the optimizer with what it remembers of them.
 * Gradients are applied as they come, one step's at a time.
 *
 * thread   one at a time per object */
#include "trainer/objectives/optimizer.h"
#include "trainer/servers/server_call.h"

typedef struct mr__parameters {
    mr_strategy *s; /* one replica, on the processor */
    mr_optimizer *o;
    mr_variable **variables;
    mr_variable **learned;
    float **gradients; /* of learned: scratch memory of a step */
    size_t n, n_learned, n_values;
    uint64_t job;  /* 0: nothing is kept yet */
    float *values; /* as they are read: all variables', then each slot's, of all learned */
    float *pushed; /* a step's gradients, as many values as the variables have */
} mr__parameters;

/* p is zeroed before. errors: those of mr_strategy_one_device */
mr_code mr__parameters_open(mr__parameters *p, mr_status *st) MR_NODISCARD;
void mr__parameters_close(mr__parameters *p);
/* Does what a call asks for, and answers it on c.
 * errors   what is to be answered instead: MR_FAILED_PRECONDITION: the variables are of another
 *          job, or were never brought · MR_DATA_LOSS: not what the caller must send */
mr_code mr__parameters_take(mr__parameters *p, mr__connection *c, const mr__call *call,
                            mr_status *st) MR_NODISCARD;
#endif
