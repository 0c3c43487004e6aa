/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_PARTS_H
#define MR_TESTS_TRAINER_PARTS_H
/* What training takes, all in one. */
#include "trainer/loop/fit.h"

typedef struct parts {
    mr_strategy *s;
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o;
    mr_dataset *ds;
} parts;

/* Takes over ds, which may be NULL. The model is not built yet. */
parts parts_make(size_t replicas, const char *model, const char *loss, const char *optimizer,
                 mr_dataset *ds);
void parts_drop(parts *p);
/* For callbacks: saves nothing by itself. */
bool parts_never(void *ctx, const mr_train_event *e);
/* mr_fit of the parts. */
mr_code parts_fit(parts *p, const mr_fit_opts *o, mr_fit_result *r, mr_status *st);
#endif
