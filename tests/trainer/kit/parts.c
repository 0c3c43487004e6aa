/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/parts.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"

parts parts_make(size_t replicas, const char *model, const char *loss, const char *optimizer,
                 mr_dataset *ds)
{
    parts p = {.s = open_strategy(replicas), .ds = ds};
    mr_status st;
    mr_ok(mr_model_parse(&p.m, model, &st), &st);
    mr_ok(mr_loss_parse(&p.loss, loss, &st), &st);
    mr_ok(mr_optimizer_parse(&p.o, optimizer, &st), &st);
    return p;
}

void parts_drop(parts *p)
{
    mr_dataset_unref(p->ds);
    mr_optimizer_free(p->o);
    mr_loss_free(p->loss);
    mr_model_free(p->m);
    mr_strategy_free(p->s);
}

bool parts_never(void *ctx, const mr_train_event *e)
{
    (void)ctx;
    (void)e;
    return false;
}

mr_code parts_fit(parts *p, const mr_fit_opts *o, mr_fit_result *r, mr_status *st)
{
    return mr_fit(p->s, p->m, p->ds, p->loss, p->o, o, r, st);
}
