/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_PASS_H
#define MR_TESTS_TRAINER_PASS_H
/* Passes of a model over PASS_ROWS rows, divided among any number of replicas: what they give, and
 * their gradients against finite differences. */
#include "trainer/model/model.h"

enum { PASS_ROWS = 5, PASS_MOST = 4, PASS_MOST_VARIABLES = 16 };

typedef struct pass {
    mr_model *m;
    size_t n_inputs, n_outputs;
    size_t width[PASS_MOST]; /* values of each output for one example */
    mr_array x[PASS_MOST];   /* of all rows, as dx, dy and y are; x and dy may be changed */
    float *dx[PASS_MOST], *dy[PASS_MOST], *y[PASS_MOST];
    float *grads[PASS_MOST_VARIABLES]; /* of the variables that learn */
    bool forward_only, no_dx, frozen;
    mr_optimizer *o; /* updates the variables at the end; NULL: they stay */
} pass;

/* The model of text, which says the shapes of its inputs; x and dy are random. opts may be NULL. */
pass pass_open(const char *model, mr_strategy *s, const mr_model_opts *opts);
/* For mr_strategy_run, with a pass: fills y, dx and grads. */
mr_code pass_run(mr_replica *r, void *p, mr_status *st);
void pass_close(pass *p);

/* The gradients by the inputs and, unless frozen, the variables of a model. */
void pass_check_gradients(const char *model, size_t replicas, bool frozen);
#endif
