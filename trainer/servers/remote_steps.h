/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_REMOTE_STEPS_H
#define MR_TRAINER_SERVERS_REMOTE_STEPS_H
/* The steps of mr_fit where workers make them: the coordinator's queue. A step is given to
 * whichever worker is free; that of a worker that is lost is given to another. Results are
 * collected in the order of the steps.
 *
 * While steps are under way, the variables on the servers count. mr__run_settle reads the state of
 * all servers into the model; before the next step it is brought back there, with what callbacks
 * made of it.
 *
 * thread   one at a time per run */
#include "trainer/loop/fit_run.h"
#include "trainer/servers/servers.h"

/* Makes the steps of mr_fit on the servers, which the strategy owns from then on. */
void mr__remote_attach(mr_strategy *s, mr__servers *servers);
/* NULL: no strategy of parameter servers. */
mr__servers *mr__strategy_servers(const mr_strategy *s);

/* Schedules the step that workers have registered as `name`, with ctx (coordinator.h); NULL: the
 * training step.
 * errors   a lost parameter server's · what a worker failed of */
mr_code mr__remote_submit(mr__run *x, int64_t step, int64_t epoch, const char *name,
                          const char *ctx, mr_status *st) MR_NODISCARD;
/* Takes what has come, and gives out what can be done, without waiting. errors: as above */
mr_code mr__remote_look(mr__run *x, mr_status *st) MR_NODISCARD;
#endif
