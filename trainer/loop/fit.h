/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_FIT_H
#define MR_TRAINER_LOOP_FIT_H
/* Training, evaluation and prediction over a dataset batched with the *global* batch size. Each
 * step takes one batch, assigns every replica an equal slice of it (docs/sharding.md: the last ones
 * may have fewer rows, or none), sums the gradients over the replicas and divides by the actual
 * number of rows in the batch: apart from rounding, losses do not depend on the number of replicas.
 *
 * The loop runs at most two steps ahead of the devices, and waits for nothing else. A label out of
 * range is therefore reported up to two steps later; the weights are then those before its step.
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

/* The losses of a model with several outputs, for each output that has a loss: unweighted means
 * over its rows. */
typedef struct mr_output_losses {
    size_t n;                          /* 0: the model has one output, whose loss is the only one */
    const char *names[MR_MAX_OUTPUTS]; /* borrowed from the model */
    float values[MR_MAX_OUTPUTS];
} mr_output_losses;

typedef struct mr_fit_result {
    int64_t steps, epochs, rows;    /* completed since the call */
    float loss;                     /* mean over the rows of the last epoch or of the evaluation */
    mr_output_losses outputs;       /* `loss` is their weighted sum plus penalties */
    double metrics[MR_MAX_METRICS]; /* of the last epoch, in the order requested */
    /* Total time; the part of it in which the next batch was being fetched and no step was
     * running. */
    double seconds, waited_seconds;
    bool stopped; /* mr_fit_opts.stopping ended it */
} mr_fit_result;

/* The state of training. Borrowed during a callback. */
typedef struct mr_train_event {
    int64_t step;  /* submitted, from 1 over all epochs; batch_result: of the result */
    int64_t epoch; /* from 1 */
    int64_t rows;  /* in this step's global batch; epoch_end: in the epoch so far */
    /* Over the whole global batch, before the update, penalties included. batch_result: of this
     * step. batch_end: of step loss_step, the last with a known loss; 0 before the first.
     * epoch_end: mean over the epoch's rows. Otherwise 0 */
    float loss;
    int64_t loss_step;
    mr_output_losses outputs; /* of the same steps as loss */
    mr_code error;            /* train_end: the error that ended training, or MR_OK */
    size_t n_metrics;
    mr_metric *const *metrics; /* over the steps of the epoch whose results have arrived */
    mr_model *model;
    mr_optimizer *optimizer; /* its learning rate may be read and set */
    const mr_loss *loss_function;
    mr_strategy *strategy;
    const struct mr_fit_opts *opts;  /* the options passed to mr_fit */
    int64_t epoch_step;              /* steps of this epoch submitted */
    const mr_fit_result *validation; /* epoch_end: its result; NULL: no validation */
    double seconds, waited_seconds;  /* as in mr_fit_result, so far */
    bool stopping;                   /* training is interrupted after this step: save now */
    struct mr__fit_loop *loop;       /* for mr_checkpoint_save and _restore */
} mr_train_event;

/* A value of the event by Keras's name: "loss", "accuracy" and other requested metrics, for a model
 * with several outputs "OUTPUT_loss" and "OUTPUT_METRIC", with validation "val_loss" and so on, and
 * "learning_rate". false: it has no value of that name. */
MR_API bool mr_train_value(const mr_train_event *e, const char *name, double *value);
/* The names of all values of the event: writes the i-th to name; false: there are fewer. */
MR_API bool mr_train_value_name(const mr_train_event *e, size_t i, char *name, size_t size);

/* The iterator that this process reads the training batches from, for mr_iterator_trace and related
 * functions. Borrowed during a callback. */
MR_API mr_iterator *mr_train_input(const mr_train_event *e);

/* State of a callback over the epochs so far, as stored in checkpoints; borrowed. */
enum { MR_MAX_REMEMBERED = 8 };
typedef struct mr_callback_memory {
    const char *of; /* the value that it monitors, "val_loss", or the file it writes; NULL: none */
    size_t n;
    double numbers[MR_MAX_REMEMBERED];
    const char *text;     /* UTF-8; NULL: none */
    const float *weights; /* of all variables of the model, concatenated; NULL: none */
    size_t n_weights;     /* recall: number of values in weights */
} mr_callback_memory;

/* NULL slots are skipped. A slot that returns MR_END ends training as if the last step had been
 * done; an error ends it with that error.
 *
 * The loop continues while a step runs on the devices; its loss arrives later, in batch_result. */
typedef struct mr_callback {
    void *ctx;
    mr_code (*train_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    /* Also for an epoch that is resumed: then epoch_step is not 0. */
    mr_code (*epoch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    /* After the step has been submitted. */
    mr_code (*batch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* Also for the epoch in which training ends; not for one without rows, nor after an error, nor
     * if mr_fit_opts.stopping ended training within it: the resumed run has its epoch_end. */
    mr_code (*epoch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* Also after an error, which it cannot replace. */
    mr_code (*train_end)(void *ctx, const mr_train_event *e, mr_status *st);
    /* For every step in order, when its loss has arrived: at most two steps later, and before
     * epoch_end. */
    mr_code (*batch_result)(void *ctx, const mr_train_event *e, mr_status *st);
    /* batch_end follows batch_result of the same step, and has its loss: the loop waits for every
     * step, which costs speed. */
    bool wants_loss;
    /* Called before each step; return true if batch_end of that step will save a checkpoint
     * (mr_checkpoint_save). The loop then waits for the step, and does not read ahead of it. If any
     * callback has this slot, the data are read with positions. */
    bool (*saves)(void *ctx, const mr_train_event *e);
    bool backs_up; /* also save when training is stopped by mr_fit_opts.stopping */
    /* State that checkpoints store under `name` and restore: after train_begin of all callbacks, it
     * is passed to the callback at the same position among those with this name and the same `of`.
     * MR_END: training had ended, and does not continue. Callbacks that save are called after those
     * that do not, and those with backs_up last, so that a checkpoint contains the state of all
     * others after the epoch; train_begin is called in the order of the list. A callback that
     * writes a file remembers how far it had come, and cuts off what a run that was killed wrote
     * after the checkpoint. */
    const char *name;
    void (*remember)(const void *ctx, mr_callback_memory *out);
    mr_code (*recall)(void *ctx, const mr_callback_memory *m, mr_status *st);
    void (*free)(void *ctx); /* called by mr_callback_reset alone */
    bool sets_learning_rate; /* a csv_logger that follows this callback also writes the rate */
} mr_callback;
/* Frees what c owns; it may be zeroed. */
MR_API void mr_callback_reset(mr_callback *c);

/* Pointers are borrowed during the call. */
typedef struct mr_fit_opts {
    /* ---- how long ---- */
    int64_t epochs; /* 0: unset */
    /* 0: unset. Alone: as many epochs as the steps take. With epochs: whichever ends first.
     * Neither: one epoch. */
    int64_t steps;
    /* 0: an epoch is one pass over the data. Otherwise it is this number of steps, and the next
     * epoch continues where it ended (from the start after exactly one pass); data that end early
     * end training with a warning. */
    int64_t steps_per_epoch;
    /* Called before each batch is fetched, from the calling thread; true interrupts training after
     * that batch, with MR_OK. If it is true in one worker, all of them end. The interrupted epoch
     * has no epoch_end. */
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
                                         MR_CANCELLED, also while it waits for data or
                                         for a step: on CPUs one that has not begun its
                                         update is dropped, if this is the only process */
    bool has_auto_shard; /* with several workers: use auto_shard instead of the graph's policy */
    mr_shard_policy auto_shard;
    /* Streams of an elastic job (shard/distribute/distribute.h); 0: what the graph says. Its
     * checkpoints continue with any number of processes and replicas up to it, or of workers of
     * parameter servers. since 0.2 */
    int64_t elastic_streams;
    size_t staging_depth; /* number of batches on their way to the devices; at least 2 */
    /* mr_fit only: the name of a ledger (pipeline/formats/ledger/ledger.h) of the records of each
     * step, numbered from the beginning of the job, which the first worker writes for all: in the
     * order of the rows of the global batch. It has the steps that were trained, those of a
     * checkpoint are durable before the checkpoint is published, and a run that restores the
     * checkpoint continues it after the checkpoint's step. NULL: none. since 0.2 */
    const char *ledger;

    /* ---- loss and metrics ---- */
    /* A weight for each class, by which the losses of its examples are multiplied, in addition to
     * sample weights in the data; labels are class numbers, and those from n_class_weights on count
     * 1. At most MR_MAX_CLASS_WEIGHTS, each a float32 from 0. NULL: all 1. Not in validation. */
    const double *class_weights;
    size_t n_class_weights;
    const char *const *metrics; /* names, as mr_metric_parse reads them; "weighted(accuracy)" uses
                                   sample and class weights, others don't */
    size_t n_metrics;

    /* ---- validation ---- */
    mr_dataset *validation;   /* evaluated after every epoch, before epoch_end; NULL: none */
    int64_t validation_steps; /* number of its batches; 0: all */
    /* The dataset of a later mr_evaluate, with the same loss and metrics: its structure is checked
     * before the first step, like that of validation. NULL: none. */
    mr_dataset *evaluation;

    /* ---- callbacks and results ---- */
    const mr_callback *callbacks; /* called in this order, except that those that save come last */
    size_t n_callbacks;
    /* Steps between batch_begin and batch_end: one is called before the first of them, the other
     * after the last, or at the end of the epoch; 0: 1. batch_result is called for every step. */
    int64_t steps_per_execution;
    mr_history *history; /* receives the values of each epoch; NULL: none */
    /* mr_fit only: records when each step was submitted and ran; NULL: none. */
    mr_timeline *timeline;
    /* Receives lines that callbacks print (print_learning_rate), without line ends: as words and as
     * a JSON object. NULL: the words are logged. */
    void (*print)(void *ctx, const char *text, const char *json);
    void *print_ctx;

    /* mr_checkpoint_restore accepts a checkpoint of a run with another seed or other settings of
     * model, loss or optimizer, and logs them: training continues with the new ones. Otherwise it
     * is refused. */
    bool resume_changed;
    /* mr_checkpoint_restore of a checkpoint within an epoch begins that epoch again from its first
     * step, with the weights of the checkpoint: the records of the steps that were done are trained
     * on a second time. Step numbers continue; losses and metrics of the epoch start again.
     * Needed where the data cannot continue in the order of the interrupted epoch: with another
     * number of processes or replicas under most policies, other data, or another seed. since 0.2
     */
    bool restart_epoch;

    /* ---- the model, if it is not built yet ---- */
    uint64_t seed;        /* mr_model_opts.seed */
    bool mixed_precision; /* mr_model_opts.mixed_precision */

    /* ---- debugging ---- */
    /* Compare the variables of all replicas after each step; a difference is an error that names
     * the variable, replicas and step. */
    bool check_replicas;
    bool no_cuda_graph; /* submit each operation of a step to GPUs separately */
} mr_fit_opts;

/* Checks before a long run that ds can be read: looks up the files that its text names, also in
 * functions, slices it for the replicas, opens it and closes it again. ds NULL: the dataset of
 * opts->input. Of opts, iterator is also used.
 * errors   MR_NOT_FOUND: a file or pattern, which it names · MR_FAILED_PRECONDITION: ds is empty ·
 *          those of opening ds */
MR_API mr_code mr_check_data(mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                             mr_status *st) MR_NODISCARD;

/* Trains. ds yields (features, labels), or (features, labels, sample weights): a number for each
 * example, by which its loss is multiplied (and its part of metrics "weighted(...)"). If a model
 * has several outputs, labels are a record with their names or a tuple in their order; weights
 * have the same structure, or are one tensor for all outputs. ds NULL: the dataset of opts->input.
 * A model that is not built is built from the first batch. result may be NULL.
 * errors   those of the dataset · MR_INVALID_ARGUMENT: shapes, dtypes, labels out of range ·
 *          MR_FAILED_PRECONDITION: the data are empty; a model of another strategy; a worker's
 *          weights differ from those of worker 0, also in mr_evaluate and mr_predict */
MR_API mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o,
                      const mr_fit_opts *opts, mr_fit_result *result, mr_status *st) MR_NODISCARD;
/* Computes loss and metrics over ds without training; of opts, metrics, iterator, steps (0: all),
 * seed and staging_depth are used. */
MR_API mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss,
                           const mr_fit_opts *opts, mr_fit_result *result,
                           mr_status *st) MR_NODISCARD;
/* Calls fn with the predictions for each batch, a tensor [rows, ...] for each output of the model
 * in input order, borrowed during the call. With several workers, each reads all data and predicts
 * its slices of each batch; fn is called only in worker 0, the chief, with the predictions of all.
 * ds yields features, or tuples that begin with them. */
MR_API mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
                          mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st),
                          void *ctx, const mr_fit_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
