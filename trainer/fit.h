/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FIT_H
#define MR_TRAINER_FIT_H
/* Training, evaluation and prediction over a dataset batched with the *global* batch size. Each
 * step takes one batch, gives every replica an equal slice of it (distribute.md, the last ones
 * possibly fewer rows or none), sums the gradients over the replicas and divides by the rows the
 * batch really has: the losses do not depend on the number of replicas, but for rounding.
 *
 *     mr_fit(s, model, ds, loss, optimizer, &(mr_fit_opts){.epochs = 5}, &result, &st);
 *
 * thread   one at a time per strategy
 * since    0.1 */
#include "../pipeline/engine/iterator.h"
#include "loss.h"
#include "metric.h"
#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where training stands. Borrowed during a callback. */
typedef struct mr_train_event {
    int64_t step;  /* steps done or under way, from 1 over all epochs */
    int64_t epoch; /* from 1 */
    int64_t rows;  /* of this step's global batch; of the epoch so far, in epoch_end */
    float loss;    /* batch_end: of the whole global batch, before the update, penalties included.
                      epoch_end: mean over the epoch's rows. Otherwise 0 */
    size_t n_metrics;
    mr_metric *const *metrics; /* over the epoch so far */
    mr_model *model;
    mr_optimizer *optimizer; /* its learning rate may be read and set */
} mr_train_event;

/* NULL slots are skipped. A slot that returns MR_END ends training as if the last step had been
 * done; an error ends it with that error. */
typedef struct mr_callback {
    void *ctx;
    mr_code (*train_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*epoch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*epoch_end)(void *ctx, const mr_train_event *e,
                         mr_status *st); /* also of the epoch
                                           that training ends in */
    mr_code (*train_end)(void *ctx, const mr_train_event *e, mr_status *st);
} mr_callback;

typedef struct mr_fit_opts {
    int64_t epochs; /* 0: unset */
    int64_t steps;  /* 0: unset. Alone: goes round the data as often as needed. With epochs:
                       whichever comes first. Neither: one epoch */
    const char *const *metrics; /* names, mr_metric_parse's */
    size_t n_metrics;
    const mr_callback *callbacks;
    size_t n_callbacks;
    uint64_t seed;                    /* for a model that is not built yet */
    const mr_iterator_opts *iterator; /* NULL: defaults */
    size_t staging_depth;             /* batches on their way to the devices; 0: 2 */
    /* NULL, or called with the iterator over the data when it is open and with NULL before it is
     * closed: mr_iterator_cancel on it, from another thread or a signal handler, ends the call with
     * MR_CANCELLED also while the data let it wait. */
    void (*watch)(void *ctx, mr_iterator *it);
    void *watch_ctx;
} mr_fit_opts;

#define MR_MAX_METRICS 16

typedef struct mr_fit_result {
    int64_t steps, epochs, rows; /* done */
    float loss;                  /* mean over the rows of the last epoch; of all rows evaluated */
    double metrics[MR_MAX_METRICS]; /* of the last epoch, in the order asked for */
} mr_fit_result;

/* Trains. ds yields (features, labels). A model that is not built is built from the first batch.
 * result NULL allowed.
 * errors   what the dataset gives · MR_INVALID_ARGUMENT: shapes, dtypes, labels out of range ·
 *          MR_FAILED_PRECONDITION: the data are empty; a model of another strategy */
MR_API mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o,
                      const mr_fit_opts *opts, mr_fit_result *result, mr_status *st) MR_NODISCARD;
/* Loss and metrics over ds without training; of opts, metrics, iterator, steps (0: all), seed and
 * staging_depth count. */
MR_API mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss,
                           const mr_fit_opts *opts, mr_fit_result *result,
                           mr_status *st) MR_NODISCARD;
/* Calls fn with the predictions for each batch, a tensor [rows, ...] in input order, borrowed
 * during the call. ds yields features, or (features, labels) whose labels are not looked at. */
MR_API mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
                          mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st),
                          void *ctx, const mr_fit_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
