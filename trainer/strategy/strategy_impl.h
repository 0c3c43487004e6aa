/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_STRATEGY_IMPL_H
#define MR_TRAINER_STRATEGY_STRATEGY_IMPL_H
/* The interface of strategies for models, optimizers and fit.
 *
 * A step has been *submitted* when fn has returned on every replica; it has *ended* when the
 * devices have run the work that fn submitted. mr_strategy_join waits for both. fit waits only for
 * the first, and learns of the second from results that arrive asynchronously; until then the step
 * can still fail (a label out of range): its updates, and those of all later steps, then have no
 * effect on the devices, and the host's counts for them are undone. */
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

/* Device names, one per replica; n may exceed the capacity. */
typedef struct mr__device_names {
    size_t n;
    char names[MR_MAX_REPLICAS][64];
} mr__device_names;

/* Adds the devices that the options name, else num_replicas of the available ones. */
void mr__devices_of(mr__device_names *l, const mr_strategy_opts *o);

/* mirrored with several replicas, one_device with one. */
mr_code mr__strategy_choose(mr_strategy **out, const mr_strategy_opts *opts,
                            mr_status *st) MR_NODISCARD;
mr_strategy *mr__strategy_default(void);
/* Opens the default strategy, which exists before its device is open; no effect on other
 * strategies. Call it before using a replica's device or stream where a failure can be reported.
 * errors   those of mr_strategy_mirrored */
mr_code mr__strategy_ready(mr_strategy *s, mr_status *st) MR_NODISCARD;
/* A number that no other object of the process has had: an address is used again after free. */
uint64_t mr__next_serial(void);
uint64_t mr__strategy_serial(const mr_strategy *s);
/* One copy of each variable; replica 0 alone updates it. */
bool mr__strategy_is_central(const mr_strategy *s);

/* A job of other processes that run a strategy's training steps; opened by servers/. */
typedef struct mr__remote_job {
    void *self; /* NULL: the strategy's own replicas run the steps */
    void (*close)(void *self);
    /* The job failed or will be continued: closing it leaves its processes running for another
     * start. */
    void (*failed)(void *self);
    bool (*has_lost)(const void *self); /* mr_strategy_lost_peer */
    const struct mr__stepper *stepper;  /* loop/fit_run.h: how mr_fit runs a step there */
} mr__remote_job;
const mr__remote_job *mr__strategy_remote(const mr_strategy *s);
void mr__strategy_set_remote(mr_strategy *s, const mr__remote_job *job); /* owns job->self */
/* Training will be continued by another run: the remote job, if any, keeps running for it. */
void mr__strategy_pause(mr_strategy *s);

/* Connects to the other processes; *ring and *world are owned. */
mr_code mr__workers_open(mr__ring **ring, mr__world **world, const mr_workers_opts *o,
                         size_t replicas, mr_status *st) MR_NODISCARD;
/* NULL: the only process. */
mr__world *mr__strategy_world(const mr_strategy *s);
mr__ring *mr__strategy_ring(const mr_strategy *s);

/* true between steps in a thread that entered a strategy. */
bool mr__in_cross_replica_context(void);

/* Whether d can be reduced or gathered, between steps. any: bools and strings are allowed.
 * errors   MR_INVALID_ARGUMENT · MR_FAILED_PRECONDITION: inside a step */
mr_code mr__check_values(const mr_strategy *s, const mr_distributed *d, bool any, const char *what,
                         mr_status *st) MR_NODISCARD;

/* Number of steps that have failed. If it differs from the number a replica last saw, that replica
 * must discard its part of the failed step. Constant during a step. */
uint64_t mr__strategy_failures(const mr_strategy *s);
/* The number of the last of them; 0: none. */
uint64_t mr__strategy_failed_step(const mr_strategy *s);
/* The number of the latest step. */
uint64_t mr__strategy_step(const mr_strategy *s);

/* Like mr_strategy_start, except that the first replica of this process submits in the calling
 * thread: a thread switch costs as much as a small step. */
mr_code mr__strategy_begin(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st) MR_NODISCARD;
/* Joins only the threads of the step. If this fails, the devices are idle too.
 * errors   as join, except labels */
mr_code mr__strategy_submitted(mr_strategy *s, mr_status *st) MR_NODISCARD;
/* Waits for all work in the replicas' streams. errors: theirs */
mr_code mr__strategy_synchronize(mr_strategy *s, mr_status *st) MR_NODISCARD;

/* Inside a step, on replica 0: fn(ctx, amount) reverts a count if the step fails. Call reserve
 * first: it makes room for two entries, and is the call that can fail. */
mr_code mr__strategy_reserve_undo(mr_strategy *s, mr_status *st) MR_NODISCARD;
void mr__strategy_on_undo(mr_strategy *s, void (*fn)(void *ctx, uint64_t amount), void *ctx,
                          uint64_t amount);
/* Steps up to this one succeeded. */
void mr__strategy_settle(mr_strategy *s, uint64_t step);
/* This step failed: reverts it and later steps, which must have ended, and resets the fault
 * words. */
mr_code mr__strategy_undo(mr_strategy *s, uint64_t step, mr_status *st) MR_NODISCARD;

/* The replica's fault word for labels out of range, in device memory. */
mr_math_fault *mr__replica_fault(const mr_replica *r);
/* Its sum of squares of gradients, for the current update, in device memory. */
double *mr__replica_squares(const mr_replica *r);
/* The error for a fault; MR_OK: none. */
mr_code mr__fault_status(const mr_math_fault *f, mr_status *st) MR_NODISCARD;

/* Between steps: copies between plain host memory and the replica's device, and waits for the
 * copy. */
mr_code mr__replica_write(mr_replica *r, void *dst, const void *src, size_t bytes,
                          mr_status *st) MR_NODISCARD;
mr_code mr__replica_read(mr_replica *r, void *dst, const void *src, size_t bytes,
                         mr_status *st) MR_NODISCARD;
#endif
