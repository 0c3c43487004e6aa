/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_REMOTE_STEPS_H
#define MR_TRAINER_SERVERS_REMOTE_STEPS_H
/* The steps of mr_fit on workers: the coordinator's queue. A step is assigned to whichever worker
 * is free; that of a lost worker is assigned to another. Results are collected in the order of the
 * steps.
 *
 * While steps are in flight, the servers have the current variables. mr__run_settle reads the state
 * of all servers into the model; before the next step it is sent back, including the changes that
 * callbacks made.
 *
 * thread   one at a time per run */
#include "trainer/loop/fit_run.h"
#include "trainer/servers/servers.h"

/* Runs the steps of mr_fit on the servers, which the strategy then owns. */
void mr__remote_attach(mr_strategy *s, mr__servers *servers);
/* NULL: not a parameter server strategy. */
mr__servers *mr__strategy_servers(const mr_strategy *s);

/* Schedules the step that workers have registered as `name`, with ctx (coordinator.h); NULL: the
 * training step.
 * errors   a lost parameter server's · the error of a worker */
mr_code mr__remote_submit(mr__run *x, int64_t step, int64_t epoch, const char *name,
                          const char *ctx, mr_status *st) MR_NODISCARD;
/* Processes the answers that have arrived, and assigns steps to free workers, without waiting.
 * errors: as above */
mr_code mr__remote_look(mr__run *x, mr_status *st) MR_NODISCARD;
#endif
