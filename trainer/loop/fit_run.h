/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_FIT_RUN_H
#define MR_TRAINER_LOOP_FIT_RUN_H
/* Steps over a dataset, submitted in sequence, and their results, which arrive asynchronously.
 *
 * A step's results (the sum of losses, the penalty, the fault word, the metrics' totals,
 * predictions) are copied to pinned memory at its end, in stream order; a separate stream then
 * notifies the host. There is room for the results of a few steps: the loop waits for a step only
 * when it is two ahead of it.
 *
 * thread   one */
#include "trainer/loop/feed.h"
#include "trainer/loop/step_records.h"
#include "trainer/loop/fit.h"
#include "trainer/device/completion.h"
#include "trainer/device/drop.h"
#include "trainer/device/math.h"

enum { MR__RUN_SLOTS = 3 }; /* steps with pending results, including the one being submitted */

/* The results of one step from one replica; pinned. */
typedef struct mr__replica_result {
    mr_math_fault fault;
    /* The losses of all outputs, each the sum over the replica's examples, unscaled; the penalty;
     * then the totals of all metrics, concatenated, over the epoch so far. */
    double sums[];
} mr__replica_result;

typedef struct mr__step_result {
    mr__completion done;
    mr__replica_result **replicas; /* one per replica */
    /* Those of all outputs of each replica, pinned; NULL: not requested, or none yet. */
    void **predictions;
    size_t *capacity; /* bytes, per prediction */
    mr_array *shapes; /* per prediction */
    uint64_t strategy_step;
    int64_t step, epoch, rows;     /* step and epoch: the caller's */
    double scales[MR_MAX_OUTPUTS]; /* of the losses of each output */
    /* When collected: the loss of the step over the rows of all workers, penalties included; and
     * the unweighted loss of each output. */
    double loss, losses[MR_MAX_OUTPUTS];
} mr__step_result;

/* The computation for one output. */
typedef struct mr__term {
    mr_loss *loss; /* NULL: the output has no loss */
    mr_loss *owned;
    double weight;
    /* Columns of the batch; -1: none */
    int labels, sample_weight;
} mr__term;

typedef struct mr__stepper mr__stepper;

typedef struct mr__run {
    mr_strategy *s;
    mr_model *m;
    mr_loss *loss;   /* NULL: the run computes predictions */
    mr_optimizer *o; /* NULL: no training */
    const mr_fit_opts *opts;
    mr__feed feed;
    mr__step_records *records; /* of a ledger; closed by the caller after the run. NULL: none */
    size_t n_replicas;
    size_t n_outputs;
    mr__term terms[MR_MAX_OUTPUTS];
    size_t n_columns; /* number of columns, for a model with several outputs; 0: one output */
    mr_metric *metrics[MR_MAX_METRICS];
    size_t metric_outputs[MR_MAX_METRICS];
    size_t n_totals;     /* of all of them */
    mr_stream **results; /* one per replica */
    mr_event **ended;
    double **sums; /* losses and penalty of a step, one per replica, in device memory */
    mr__step_result slots[MR__RUN_SLOTS];
    size_t head, tail;     /* pending results: slots [head, tail) modulo MR__RUN_SLOTS */
    size_t slot;           /* of the feed: the batch taken */
    int64_t steps_in_pass; /* over the data; MR_INFINITE, MR_UNKNOWN_COUNT */
    /* The last part of a training step, inside it, instead of the update by o; NULL: the update. */
    mr_code (*give)(void *ctx, mr_replica *r, mr_status *st);
    /* The next step, instead of a pass of the model; it adds its result to sums[replica][0]. NULL:
     * a pass. */
    mr_code (*instead)(void *ctx, mr_replica *r, mr_status *st);
    void *give_ctx; /* of both */
    const mr__stepper *stepper;
    void *remote;            /* data of a remote stepper */
    bool drops;              /* a cancellation drops the steps that are not kept */
    mr_cancel_waiter waiter; /* for it */
    mr_drop drop;
    double waited; /* seconds in which data were fetched while no step was running */
} mr__run;

/* Runs the steps: on the replicas of this process, or by a remote job (strategy_impl.h), whose
 * stepper mr__run_open uses for training. The slots are the mr__run_ functions of the same name. */
struct mr__stepper {
    /* Its processes read the data themselves: batches are taken in this process only until the
     * model is built. */
    bool reads_apart;
    /* In an elastic job, whose streams the processes read; NULL: nothing to do. takes: the next
     * batch; MR_END. rewind, save, restore: as those of mr__feed, of all streams; restore without
     * bytes: to the beginning of pass `pass`. */
    mr_code (*take)(mr__run *x, mr_status *st);
    mr_code (*rewind)(mr__run *x, mr_status *st);
    mr_code (*save)(mr__run *x, void **bytes, size_t *size, mr_status *st);
    mr_code (*restore)(mr__run *x, const void *bytes, size_t size, int64_t pass, mr_status *st);
    /* job: mr__remote_job.self; ds NULL: the result of the run's input function. NULL: nothing to
     * do. close is also called after a failed open. */
    mr_code (*open)(mr__run *x, void *job, const mr_dataset *ds, mr_status *st);
    void (*close)(mr__run *x);
    size_t (*most)(const mr__run *x);
    /* The batch, if any, was taken, and the model is built. */
    mr_code (*submit)(mr__run *x, int64_t step, int64_t epoch, bool fetch_next, mr_status *st);
    bool (*is_ready)(mr__run *x); /* steps are in flight */
    mr_code (*collect)(mr__run *x, const mr__step_result **result, mr_status *st);
    mr_code (*settle)(mr__run *x, mr_status *st); /* NULL: nothing to do */
};

/* ds NULL: the result of opts->input. Close the run after a failure too. */
mr_code mr__run_open(mr__run *x, mr_dataset *ds, mr_status *st) MR_NODISCARD;
/* *out (owned) = the result of opts->input, with class weights. */
mr_code mr__run_input(const mr__run *x, const mr_input_context *c, mr_dataset **out,
                      mr_status *st) MR_NODISCARD;
/* Waits until the devices have run the submitted work. */
void mr__run_close(mr__run *x);

/* Takes the next batch; MR_END. */
mr_code mr__run_take(mr__run *x, mr_status *st) MR_NODISCARD;
/* Starts the next pass over the data. */
mr_code mr__run_rewind(mr__run *x, mr_status *st) MR_NODISCARD;
/* The position of the data, as mr__feed_save. */
mr_code mr__run_save(mr__run *x, void **bytes, size_t *size, mr_status *st) MR_NODISCARD;
/* Its processes read the streams of an elastic job, which have common epochs. */
bool mr__run_has_remote_streams(const mr__run *x);
/* Checks the structure of the batch taken, and builds the model from the first one. */
mr_code mr__run_build(mr__run *x, mr_status *st) MR_NODISCARD;
/* Submits the step on the batch taken, and meanwhile fetches the next if requested. Fewer than
 * MR__RUN_SLOTS steps may be in flight before. */
mr_code mr__run_submit(mr__run *x, int64_t step, int64_t epoch, bool fetch_next,
                       mr_status *st) MR_NODISCARD;
/* The number of steps whose results have not been collected. */
size_t mr__run_under_way(const mr__run *x);
/* Maximum number of steps in flight before another may be submitted. */
size_t mr__run_most(const mr__run *x);
/* Rows of the batch taken; 0 if another process takes it. */
size_t mr__run_rows(const mr__run *x);
/* Pulls variables from the parameter servers so that the caller may inspect model and optimizer.
 * All steps must have been collected. */
mr_code mr__run_settle(mr__run *x, mr_status *st) MR_NODISCARD;
/* Whether the next results have arrived. */
bool mr__run_is_ready(mr__run *x);
/* Waits for the results of the earliest step that has not been collected, borrowed until the next
 * submit. After a bad label all later steps are discarded too.
 * errors   MR_INVALID_ARGUMENT: a label out of range · MR_CANCELLED: the run's cancel object was
 *          triggered before the step had changed anything · a failed device's */
mr_code mr__run_collect(mr__run *x, const mr__step_result **result, mr_status *st) MR_NODISCARD;
/* *out = the predictions of the replicas of all workers for one output and the batch of a step, in
 * input order; data are sharded by MR_SHARD_DATA. Every worker calls it for every step. Owned. */
mr_code mr__run_predictions(const mr__run *x, const mr__step_result *result, size_t output,
                            mr_array *out, mr_status *st) MR_NODISCARD;

/* Checks that the built model can evaluate ds with the loss and the metrics of x, using the types
 * and shapes that are known without reading. */
mr_code mr__run_check_form(const mr__run *x, mr_dataset *ds, mr_status *st) MR_NODISCARD;
#endif
