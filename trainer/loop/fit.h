/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FIT_H
#define MR_TRAINER_FIT_H
/* Training, evaluation and prediction over a dataset batched with the *global* batch size. Each
 * step takes one batch and gives every replica an equal slice of it (docs/sharding.md: the last
 * ones may have fewer rows, or none), sums the gradients over the replicas and divides by the rows
 * that the batch really has: the losses do not depend on the number of replicas, but for rounding.
 *
 * The loop is at most two steps ahead of the devices, and waits for nothing else. A label out of
 * range is therefore reported up to two steps later; the weights are then those before the step
 * that it was in.
 *
 *     mr_fit(s, model, ds, loss, optimizer, &(mr_fit_opts){.epochs = 5}, &result, &st);
 *
 * thread   one at a time per strategy
 * since    0.1 */
#include "../../pipeline/engine/iterator.h"
#include "../objectives/loss.h"
#include "../objectives/metric.h"
#include "../../shard/distribute/distribute.h"
#include "history.h"
#include "../model/model.h"
#include "../device/timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mr_fit_opts;
struct mr__fit_loop;

#define MR_MAX_METRICS 16

/* The losses of a model with several outputs, those of each that has one: means over its rows, not
 * weighted. */
typedef struct mr_output_losses {
    size_t n;                          /* 0: the model has one output, whose loss is all there is */
    const char *names[MR_MAX_OUTPUTS]; /* borrowed from the model */
    float values[MR_MAX_OUTPUTS];
} mr_output_losses;

typedef struct mr_fit_result {
    int64_t steps, epochs, rows; /* done, since the call */
    float loss;                  /* mean over the rows of the last epoch; of all rows evaluated */
    mr_output_losses outputs;    /* whose weighted sum, with penalties, is loss */
    double metrics[MR_MAX_METRICS]; /* of the last epoch, in the order asked for */
    double seconds, waited_seconds; /* the time it took; the part of it in which the next batch was
                                       fetched and no step was under way */
    bool stopped;                   /* mr_fit_opts.stopping ended it */
} mr_fit_result;

/* Where training stands. Borrowed during a callback. */
typedef struct mr_train_event {
    int64_t step;  /* steps submitted, from 1 over all epochs; batch_result: the step it is about */
    int64_t epoch; /* from 1 */
    int64_t rows;  /* of this step's global batch; of the epoch so far, in epoch_end */
    /* Of the whole global batch, before the update, penalties included. batch_result: of this step.
     * batch_end: of step loss_step, the last with a known loss; 0 before the first. epoch_end: mean
     * over the epoch's rows. Otherwise 0 */
    float loss;
    int64_t loss_step;
    mr_output_losses outputs; /* of the same steps as loss */
    mr_code error;            /* train_end: what ended training; MR_OK where nothing failed */
    size_t n_metrics;
    mr_metric *const *metrics; /* over the epoch so far; as far as results are there */
    mr_model *model;
    mr_optimizer *optimizer; /* its learning rate may be read and set */
    const mr_loss *loss_function;
    mr_strategy *strategy;
    const struct mr_fit_opts *opts;  /* what mr_fit was given */
    int64_t epoch_step;              /* steps of this epoch submitted */
    const mr_fit_result *validation; /* epoch_end: what validation gave; NULL: there was none */
    double seconds, waited_seconds;  /* as in mr_fit_result, so far */
    bool stopping;                   /* training ends after this step or epoch: save now */
    struct mr__fit_loop *loop;       /* for mr_checkpoint_save and _restore */
} mr_train_event;

/* A value of the event by Keras's name: "loss", "accuracy" and other metrics asked for, of a model
 * with several outputs "OUTPUT_loss" and "OUTPUT_METRIC", with validation "val_loss" and so on, and
 * "learning_rate". false: it has none of that name. */
MR_API bool mr_train_value(const mr_train_event *e, const char *name, double *value);
/* The names of all values that it has, the i-th written to name; false: there are fewer. */
MR_API bool mr_train_value_name(const mr_train_event *e, size_t i, char *name, size_t size);

/* What this process reads the batches of training from, for mr_iterator_trace and its kin. Borrowed
 * during a callback. */
MR_API mr_iterator *mr_train_input(const mr_train_event *e);

/* What a callback remembers of the epochs so far, as checkpoints keep it; borrowed. */
enum { MR_MAX_REMEMBERED = 8 };
typedef struct mr_callback_memory {
    const char *of; /* the value that it watches, "val_loss"; NULL: none */
    size_t n;
    double numbers[MR_MAX_REMEMBERED];
    const float *weights; /* of all variables of the model, one after the other; NULL: none */
    size_t n_weights;     /* recall: values of them */
} mr_callback_memory;

/* NULL slots are skipped. A slot that returns MR_END ends training as if the last step had been
 * done; an error ends it with that error.
 *
 * A step runs on the devices while the loop goes on; its loss comes later, in batch_result. */
typedef struct mr_callback {
    void *ctx;
    mr_code (*train_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*epoch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    /* When the step has been submitted. */
    mr_code (*batch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* Also for the epoch that training ends in; not for one without rows, nor after an error. */
    mr_code (*epoch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* Also after an error, which it cannot replace. */
    mr_code (*train_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* For every step in order, when its loss has come: at most two steps later, and before
     * epoch_end. */
    mr_code (*batch_result)(void *ctx, const mr_train_event *e, mr_status *st);
    /* batch_end comes after batch_result of the same step, and has its loss: the loop waits for
     * every step, which costs speed. */
    bool wants_loss;
    /* Asked before each step is submitted: will its batch_end save where training stands
     * (mr_checkpoint_save)? The loop then waits for the step, and fetches nothing ahead of it.
     * Where any callback has this slot, the data are read with positions. */
    bool (*saves)(void *ctx, const mr_train_event *e);
    bool backs_up; /* it saves where mr_fit_opts.stopping ends training */
    /* What it remembers goes into checkpoints under `name`, and comes back when one is restored:
     * after train_begin of all, to the callback that has the same place among those of this name
     * that watch the same. MR_END: training had ended, and does not go on. Callbacks that save are
     * called after those that do not, and those that back up last of all, so that a checkpoint has
     * what all others made of the epoch; train_begin comes in the order given. */
    const char *name;
    void (*remember)(const void *ctx, mr_callback_memory *out);
    mr_code (*recall)(void *ctx, const mr_callback_memory *m, mr_status *st);
    void (*free)(void *ctx); /* called by mr_callback_reset alone */
    bool sets_learning_rate; /* csv_logger, where it comes after this one, writes the rate too */
} mr_callback;
/* Frees what c owns; it may be zeroed. */
MR_API void mr_callback_reset(mr_callback *c);

/* Pointers are borrowed during the call. */
typedef struct mr_fit_opts {
    /* ---- how long ---- */
    int64_t epochs; /* 0: unset */
    int64_t steps; /* 0: unset. Alone: as many epochs as the steps take. With epochs: whichever ends
                       first. Neither: one epoch */
    int64_t
        steps_per_epoch; /* 0: an epoch is one pass over the data. Otherwise it is this number of
                                steps, and the next epoch continues where it ended (from the start
                                after exactly one pass); data that end early end training with a
                                warning */
    /* Called before each batch is fetched, from the calling thread; true ends training after that
     * batch, with MR_OK. If it is true in one worker, all of them end. */
    bool (*stopping)(void *ctx);
    void *stopping_ctx;

    /* ---- data ---- */
    /* Used by mr_fit and mr_check_data if their dataset is NULL: makes the dataset of each
     * worker, batched by the size of a replica's batch; it is not sharded. May be called any
     * number of times, for example by a coordinator of parameter servers for all workers, each
     * of which has one replica in sync. */
    mr_input_fn input;
    void *input_ctx;
    const mr_iterator_opts *iterator; /* NULL: defaults. Its cancel object ends the call with
                                         MR_CANCELLED, also while it waits for data */
    bool has_auto_shard; /* with several workers: use auto_shard instead of the graph's policy */
    mr_shard_policy auto_shard;
    size_t staging_depth; /* number of batches on their way to the devices; at least 2 */

    /* ---- loss and metrics ---- */
    /* A weight for each class, by which the losses of its examples are multiplied, in addition to
     * sample weights in the data; labels are class numbers. NULL: all 1. Not used in validation. */
    const double *class_weights;
    size_t n_class_weights;
    const char *const *metrics; /* names, as mr_metric_parse reads them */
    size_t n_metrics;

    /* ---- validation ---- */
    mr_dataset *validation;   /* evaluated after every epoch, before epoch_end; NULL: none */
    int64_t validation_steps; /* number of its batches; 0: all */
    /* What mr_evaluate will be given afterwards, with the same loss and metrics: its form is
     * checked before the first step, as that of validation is. NULL: nothing. */
    mr_dataset *evaluation;

    /* ---- callbacks and results ---- */
    const mr_callback *callbacks; /* called in this order, except that those that save come last */
    size_t n_callbacks;
    /* Steps between batch_begin and batch_end: one is called before the first of them, the other
     * after the last, or at the end of the epoch; 0: 1. batch_result is called for every step. */
    int64_t steps_per_execution;
    mr_history *history; /* receives the values of each epoch; NULL: none */
    mr_timeline
        *timeline; /* of mr_fit: receives when each step was submitted and ran; NULL: none */
    /* Receives lines that callbacks print (print_learning_rate), without line ends: as words and as
     * a JSON object. NULL: the words are logged. */
    void (*print)(void *ctx, const char *text, const char *json);
    void *print_ctx;

    /* ---- the model, if it is not built yet ---- */
    uint64_t seed;        /* mr_model_opts.seed */
    bool mixed_precision; /* mr_model_opts.mixed_precision */

    /* ---- debugging ---- */
    bool
        check_replicas; /* compare the variables of all replicas after each step; a difference is an
                            error that names the variable, replicas and step */
    bool no_cuda_graph; /* submit each operation of a step to GPUs separately */
} mr_fit_opts;

/* Finds out before a long run whether ds can be read: looks up the files that its text names, also
 * in functions, slices it for the replicas, opens it and closes it again. ds NULL: what opts->input
 * makes. Of opts, iterator counts beside it.
 * errors   MR_NOT_FOUND: a file or pattern, which it names · MR_FAILED_PRECONDITION: ds is empty ·
 *          what opening ds gives */
MR_API mr_code mr_check_data(mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                             mr_status *st) MR_NODISCARD;

/* Trains. ds yields (features, labels), or (features, labels, sample weights): a number for each
 * example, by which its loss is multiplied (metrics are not). Where a model has several outputs,
 * labels are a record with their names or a tuple in their order; weights are such a structure, or
 * one tensor for all outputs. ds NULL: what opts->input makes. A model that is not built is built
 * from the first batch. result NULL allowed.
 * errors   what the dataset gives · MR_INVALID_ARGUMENT: shapes, dtypes, labels out of range ·
 *          MR_FAILED_PRECONDITION: the data are empty; a model of another strategy; a worker's
 *          weights are not those of worker 0, of mr_evaluate and mr_predict too */
MR_API mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o,
                      const mr_fit_opts *opts, mr_fit_result *result, mr_status *st) MR_NODISCARD;
/* Loss and metrics over ds without training; of opts, metrics, iterator, steps (0: all), seed and
 * staging_depth count. */
MR_API mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss,
                           const mr_fit_opts *opts, mr_fit_result *result,
                           mr_status *st) MR_NODISCARD;
/* Calls fn with the predictions for each batch, a tensor [rows, ...] for each output of the model
 * in input order, borrowed during the call. Of several workers each reads all data and predicts its
 * slices of each batch; fn is called only in worker 0, the chief, with the predictions of all. ds
 * yields features, or tuples that begin with them. */
MR_API mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
                          mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st),
                          void *ctx, const mr_fit_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
