/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_STEPS_H
#define MR_TRAINER_SERVERS_STEPS_H
/* What a worker of parameter servers does: it reads a dataset of its own, and makes the steps that
 * the coordinator gives out: pulls the variables, computes a batch's gradients, pushes them.
 *
 * thread   one at a time per object */
#include "trainer/loop/fit_run.h"
#include "trainer/registry.h"
#include "trainer/servers/coordinator.h"
#include "trainer/servers/layout.h"
#include "trainer/servers/server_connections.h"
#include "trainer/servers/wanted_rows.h"

/* Named steps of this process; the library has none. */
extern mr__registry mr__worker_steps;

typedef struct mr__steps {
    mr_strategy *s;
    mr_cancel *cancel;
    mr__token token;
    uint64_t job; /* 0: not set up */
    mr__server_connections servers;
    bool has_servers, is_running;
    bool has_given; /* there are gradients of the step under way, in values */
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o; /* says that the passes are training; the servers have those that update */
    mr_dataset *ds;
    const char **metrics;
    json_t *setup; /* keeps the texts */
    /* The named step under way; NULL: the training step. */
    const mr_worker_step_desc *named;
    const char *ctx;
    int64_t number;
    mr_fit_opts opts;
    mr_iterator_opts iterator;
    mr__run run;
    mr__layout layout;
    mr__wanted_rows wanted; /* by the step under way */
    float *values;          /* as pulled, in the model's order; then what is pushed */
    float *packed;          /* as a server has them */
    size_t *expected;       /* values that each server is to give */
} mr__steps;

/* x is zeroed but for cancel and token, which are borrowed. */
void mr__steps_close(mr__steps *x);
/* Does what a call asks for, and answers it on c.
 * errors   what is to be answered instead · MR_UNAVAILABLE: a parameter server is lost; names it */
mr_code mr__steps_take(mr__steps *x, mr__connection *c, const mr__call *call,
                       mr_status *st) MR_NODISCARD;
/* Whether mr__steps_take failed, with rc, of a parameter server that this worker cannot reach. */
bool mr__steps_is_cut_off(const mr__steps *x, mr_code rc);
#endif
