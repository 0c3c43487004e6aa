/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_REMOTE_STEPS_H
#define MR_TRAINER_SERVERS_REMOTE_STEPS_H
/* The steps of mr_fit where workers make them: the coordinator's queue. A step is given to
 * whichever worker is free; that of a worker that is lost is given to another. Results are
 * collected in the order of the steps.
 *
 * While steps are under way, the variables on the servers count. Where somebody looks at the model
 * (mr__run_settle) the state of all servers is read into it; before the next step it is brought
 * back there, with what callbacks made of it.
 *
 * thread   one at a time per object */
#include "trainer/loop/fit_run.h"
#include "trainer/servers/servers.h"

/* NULL: no strategy of parameter servers. */
mr__servers *mr__strategy_servers(const mr_strategy *s);
void mr__strategy_set_servers(mr_strategy *s, mr__servers *servers); /* owned from then on */

/* ds NULL: each worker has what the run's input function makes for it.
 * errors   MR_FAILED_PRECONDITION: the data have no text · MR_UNIMPLEMENTED: an optimizer that must
 *          see all gradients at once, with several servers */
mr_code mr__remote_open(mr__remote **out, mr__servers *s, const mr__run *x, const mr_dataset *ds,
                        mr_status *st) MR_NODISCARD;
void mr__remote_close(mr__remote *r); /* NULL: nothing */
size_t mr__remote_most(const mr__remote *r);
/* Schedules a step: the training step, or the one that workers have registered as `name`, with ctx
 * (coordinator.h). errors: a lost parameter server's · what a worker failed of */
mr_code mr__remote_submit(mr__remote *r, mr__run *x, int64_t step, int64_t epoch, const char *name,
                          const char *ctx, mr_status *st) MR_NODISCARD;
/* Takes what has come, and gives out what can be done, without waiting. errors: as above */
mr_code mr__remote_look(mr__remote *r, const mr__run *x, mr_status *st) MR_NODISCARD;
bool mr__remote_is_ready(const mr__remote *r, const mr__run *x);
mr_code mr__remote_collect(mr__remote *r, mr__run *x, const mr__step_result **result,
                           mr_status *st) MR_NODISCARD;
mr_code mr__remote_settle(mr__remote *r, mr__run *x, mr_status *st) MR_NODISCARD;
#endif
