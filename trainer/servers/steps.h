/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_STEPS_H
#define MR_TRAINER_SERVERS_STEPS_H
/* A worker of parameter servers: it reads a separate dataset, and runs the steps that the
 * coordinator assigns: pulls the variables, computes a batch's gradients, pushes them.
 *
 * thread   one at a time per object */
#include "trainer/loop/fit_run.h"
#include "trainer/registry.h"
#include "trainer/servers/coordinator.h"
#include "trainer/servers/hosted_streams.h"
#include "trainer/servers/layout.h"
#include "trainer/servers/server_connections.h"
#include "trainer/servers/wanted_rows.h"

typedef struct mr__steps {
    mr_strategy *s;
    mr_cancel *cancel;
    mr__token token;
    uint64_t job; /* 0: not set up */
    mr__server_connections servers;
    bool has_servers, is_running;
    bool has_given; /* values has the gradients of the current step */
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o; /* marks the passes as training; the servers apply the updates */
    mr_dataset *ds;
    mr__hosted_streams streams; /* of an elastic job */
    const char **metrics;
    json_t *setup; /* keeps the texts */
    /* The named step in progress; NULL: the training step. */
    const mr_worker_step_desc *named;
    const char *ctx;
    int64_t number;
    mr_fit_opts opts;
    mr_iterator_opts iterator;
    mr__run run;
    mr__layout layout;
    mr__wanted_rows wanted; /* by the current step */
    float *values;          /* as pulled, in the model's order; then the values to push */
    float *packed;          /* in a server's order */
    size_t *expected;       /* number of values expected from each server */
} mr__steps;

/* x must be zeroed except for cancel and token, which are borrowed. */
void mr__steps_close(mr__steps *x);
/* Serves a call, and answers it on c.
 * errors   the error to answer instead · MR_UNAVAILABLE: a parameter server is lost; names it */
mr_code mr__steps_take(mr__steps *x, mr__connection *c, const mr__call *call,
                       mr_status *st) MR_NODISCARD;
/* Whether mr__steps_take failed, with rc, because this worker cannot reach a parameter server. */
bool mr__steps_is_cut_off(mr__steps *x, mr_code rc);
#endif
