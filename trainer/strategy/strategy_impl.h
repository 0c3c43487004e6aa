/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_IMPL_H
#define MR_TRAINER_STRATEGY_IMPL_H
/* What models, optimizers and fit need of a strategy beyond what its users do.
 *
 * A step has been *submitted* when fn has returned on every replica; it has *ended* when the
 * devices have run what fn submitted. mr_strategy_join waits for both. fit waits for the first, and
 * learns of the second from results that come by themselves; until then the step can still turn out
 * bad (a label out of range): its updates, and those of all later steps, did nothing on the devices
 * then, and what the host counted for them is undone. */
#include "trainer/device/math.h"
#include "trainer/collective/ring/ring.h"
#include "trainer/strategy/strategy.h"

/* multi_worker_mirrored is mirrored with a world. */
typedef enum mr__strategy_kind {
    MR__DEFAULT,
    MR__ONE_DEVICE,
    MR__MIRRORED,
    MR__CENTRAL_STORAGE
} mr__strategy_kind;

/* Names of devices, one a replica; n may be more than there is room for. */
typedef struct mr__device_names {
    size_t n;
    char names[MR_MAX_REPLICAS][64];
} mr__device_names;

/* Adds the devices that the options name, else num_replicas of those that there are. */
void mr__devices_of(mr__device_names *l, const mr_strategy_opts *o);

/* mirrored with several replicas, one_device with one. */
mr_code mr__strategy_choose(mr_strategy **out, const mr_strategy_opts *opts,
                            mr_status *st) MR_NODISCARD;
mr_strategy *mr__strategy_default(void);
/* Opens the default strategy, which is there before its device is; nothing for any other. To be
 * called by whoever needs a replica's device or stream and can fail.
 * errors   those of mr_strategy_mirrored */
mr_code mr__strategy_ready(mr_strategy *s, mr_status *st) MR_NODISCARD;
/* One copy of each variable; replica 0 alone updates it. */
bool mr__strategy_is_central(const mr_strategy *s);

/* A job of other processes that make the training steps of a strategy: servers/ opens one. */
typedef struct mr__remote_job {
    void *self; /* NULL: the strategy's own replicas make its steps */
    void (*close)(void *self);
    /* The job failed or is to be continued: closing it leaves its processes for another start. */
    void (*failed)(void *self);
    const struct mr__stepper *stepper; /* loop/fit_run.h: how mr_fit makes a step there */
} mr__remote_job;
const mr__remote_job *mr__strategy_remote(const mr_strategy *s);
void mr__strategy_set_remote(mr_strategy *s, const mr__remote_job *job); /* owns job->self */
/* Training will be continued by another run: the remote job, if any, waits for it. */
void mr__strategy_pause(mr_strategy *s);

/* Meets the other processes; *ring and *world are owned. */
mr_code mr__workers_open(mr__ring **ring, mr__world **world, const mr_workers_opts *o,
                         size_t replicas, mr_status *st) MR_NODISCARD;
/* NULL: this process is alone. */
mr__world *mr__strategy_world(const mr_strategy *s);
mr__ring *mr__strategy_ring(const mr_strategy *s);

/* true between steps in a thread that entered a strategy. */
bool mr__in_cross_replica_context(void);

/* Whether d can be reduced or gathered, between steps. any: bools and strings too.
 * errors   MR_INVALID_ARGUMENT · MR_FAILED_PRECONDITION: inside a step */
mr_code mr__check_values(const mr_strategy *s, const mr_distributed *d, bool any, const char *what,
                         mr_status *st) MR_NODISCARD;

/* Steps that failed so far: where it differs from what a replica last saw, that replica's part of
 * the failed step must be forgotten. Constant during a step. */
uint64_t mr__strategy_failures(const mr_strategy *s);
/* The number of the step started last. */
uint64_t mr__strategy_step(const mr_strategy *s);

/* mr_strategy_start, but that the first replica of this process submits in the calling thread: a
 * change of threads costs as much as a small step. */
mr_code mr__strategy_begin(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st) MR_NODISCARD;
/* Joins the threads of the step alone. Where this fails, the devices have come to rest too.
 * errors   as join, but for labels */
mr_code mr__strategy_submitted(mr_strategy *s, mr_status *st) MR_NODISCARD;
/* Waits for all that replicas' streams hold. errors: theirs */
mr_code mr__strategy_synchronize(mr_strategy *s, mr_status *st) MR_NODISCARD;

/* Inside a step, on replica 0: fn(ctx, amount) takes back what is counted for it. Before it,
 * reserve makes room for two of them, which is what can fail. */
mr_code mr__strategy_reserve_undo(mr_strategy *s, mr_status *st) MR_NODISCARD;
void mr__strategy_on_undo(mr_strategy *s, void (*fn)(void *ctx, uint64_t amount), void *ctx,
                          uint64_t amount);
/* Steps up to this one ended well. */
void mr__strategy_settle(mr_strategy *s, uint64_t step);
/* This step was bad: takes back it and those after it, which must have ended, and makes the fault
 * words those of nothing again. */
mr_code mr__strategy_undo(mr_strategy *s, uint64_t step, mr_status *st) MR_NODISCARD;

/* The replica's word for labels out of range, in device memory. */
mr_math_fault *mr__replica_fault(const mr_replica *r);
/* Its sum of squares of gradients, for the update under way, in device memory. */
double *mr__replica_squares(const mr_replica *r);
/* The error that a fault means; MR_OK: none. */
mr_code mr__fault_status(const mr_math_fault *f, mr_status *st) MR_NODISCARD;

/* Between steps: copies between plain host memory and the replica's device, and waits for it. */
mr_code mr__replica_write(mr_replica *r, void *dst, const void *src, size_t bytes,
                          mr_status *st) MR_NODISCARD;
mr_code mr__replica_read(mr_replica *r, void *dst, const void *src, size_t bytes,
                         mr_status *st) MR_NODISCARD;
#endif
