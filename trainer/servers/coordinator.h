/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_COORDINATOR_H
#define MR_TRAINER_SERVERS_COORDINATOR_H
/* Custom training loops over parameter servers: the coordinator schedules steps, and each runs on
 * whichever worker is free. tf.distribute's ClusterCoordinator.
 *
 *     double loss[100];
 *     mr_coordinator_open(&c, strategy, model, loss_function, optimizer, NULL, &st);
 *     mr_coordinator_create_per_worker_dataset(c, make_data, NULL, &st);
 *     for (int i = 0; i < 100; i++)
 *         mr_coordinator_schedule(c, NULL, NULL, &loss[i], &st);
 *     mr_coordinator_join(c, &st);        // now the model has the trained values
 *     mr_coordinator_close(c);
 *
 * A step takes the next batch of its worker's dataset and the variables as they are on the servers
 * at that moment. It is the training step of mr_fit, or a named step that was registered in the
 * worker's process: by a custom program that calls mr_server_run, or by a shared object, `millrace
 * server --load lib.so`.
 *
 * The steps of a lost worker move to other workers, so a step may run twice; a lost parameter
 * server, or a failed step, ends the coordinator: all later calls return that error.
 *
 * thread   one at a time per coordinator, which has exclusive use of the strategy, the model and
 *          the optimizer until it is closed
 * since    0.1 */
#include "../component.h"
#include "../loop/fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of a named step, on the worker's only replica. */
typedef struct mr_worker_step {
    mr_model *model; /* with the variables as they are on the servers */
    const mr_loss *loss;
    const mr_array *columns; /* the batch: tensors [rows, ...] in device memory */
    size_t n_columns;
    int64_t rows;
    int64_t step;    /* from 1 */
    const char *ctx; /* the scheduled ctx; "": none was passed */
    double *value;   /* one number in device memory, initially 0: the result for the coordinator */
} mr_worker_step;

/* run submits work to the replica's stream, like a step of mr_strategy_run. If it calls
 * mr_model_backward, the gradients are pushed to the servers, which apply them; it does not call
 * mr_model_apply_gradients, and a step without a backward pass changes nothing. */
typedef struct mr_worker_step_desc {
    mr_component is; /* without parameters; the example is a ctx */
    mr_code (*run)(mr_replica *r, const mr_worker_step *w, mr_status *st);
} mr_worker_step_desc;

/* Registers a step for the workers of this process; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name, parameters
 * thread   any */
MR_API mr_code mr_worker_step_register(const mr_worker_step_desc *d, mr_status *st) MR_NODISCARD;

typedef struct mr_coordinator mr_coordinator;

/* s, m, loss and o are borrowed until it is closed; s is made by mr_strategy_parameter_server. A
 * model that is not built is built from the first batch. Of opts (NULL: defaults), which is also
 * borrowed, seed, mixed_precision and iterator are used. Returns owned.
 * errors   MR_FAILED_PRECONDITION: another strategy · memory */
MR_API mr_code mr_coordinator_open(mr_coordinator **out, mr_strategy *s, mr_model *m, mr_loss *loss,
                                   mr_optimizer *o, const mr_fit_opts *opts,
                                   mr_status *st) MR_NODISCARD;
/* Waits for steps in progress, unless the coordinator has failed. NULL: nothing. */
MR_API void mr_coordinator_close(mr_coordinator *c);

/* From the next step on every worker reads a separate dataset, and restarts it when it ends: the
 * result of fn for num_input_pipelines workers and the worker's input_pipeline_id, with one replica
 * in sync. It is sent as text. fn is called in this process, for all workers, and may be called
 * again until the coordinator is closed; it makes batches of (features, labels), even if named
 * steps use them differently. A later call replaces the dataset, after waiting for the scheduled
 * steps.
 * errors   fn's · MR_FAILED_PRECONDITION: a dataset without text · those of mr_coordinator_join */
MR_API mr_code mr_coordinator_create_per_worker_dataset(mr_coordinator *c, mr_input_fn fn,
                                                        void *ctx, mr_status *st) MR_NODISCARD;

/* Schedules a step: the training step if step is NULL, whose value is the loss of its batch; else
 * the one that workers have registered under that name, with ctx (NULL: "") copied. *value (NULL:
 * not needed) is written when the step has run, and must stay valid until then: until
 * mr_coordinator_fetch of it, or mr_coordinator_join, has returned. At most two steps per worker
 * are in progress; beyond that this call waits for the earliest.
 * errors   MR_INVALID_ARGUMENT: step or ctx are not UTF-8, or exceed 1 MiB; nothing is scheduled,
 *          and the coordinator remains usable ·
 *          MR_FAILED_PRECONDITION: no dataset yet, or it has no batch · MR_NOT_FOUND: no step of
 *          this name is registered in a worker · MR_UNAVAILABLE: a parameter server is lost; names
 *          it · MR_CANCELLED · the error of an earlier step */
MR_API mr_code mr_coordinator_schedule(mr_coordinator *c, const char *step, const char *ctx,
                                       double *value, mr_status *st) MR_NODISCARD;
/* Waits until all steps have run, and updates the model and the optimizer.
 * errors   as schedule */
MR_API mr_code mr_coordinator_join(mr_coordinator *c, mr_status *st) MR_NODISCARD;
/* *done = whether all steps have run; waits for nothing.
 * errors   as schedule */
MR_API mr_code mr_coordinator_done(mr_coordinator *c, bool *done, mr_status *st) MR_NODISCARD;
/* Waits until *value, passed to mr_coordinator_schedule, has been written.
 * errors   as schedule */
MR_API mr_code mr_coordinator_fetch(mr_coordinator *c, const double *value,
                                    mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
