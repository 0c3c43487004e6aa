/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_CHECKPOINT_H
#define MR_TRAINER_LOOP_CHECKPOINT_H
/* Checkpoints: a saved model (saved_model.h) and all other state that is needed to continue
 * training as if it had not been interrupted.
 *
 *   model.txt, training.json, weights.safetensors
 *   optimizer.safetensors   the optimizer's slots: "dense/kernel/slot_0", ...
 *   state.json              epoch, step, learning rate, seed, metrics, versions, state of callbacks
 *   callbacks.safetensors   the best weights, if a callback keeps them
 *   position-0, ...         the position of each worker in its data
 *
 * Checkpoints are written atomically. The file `checkpoint` in the same directory names the latest.
 *
 * A checkpoint of N replicas can be restored on M, under another strategy or none. With the same
 * numbers of processes and replicas training continues bit for bit. With others sums are computed
 * in another order, and within an epoch the data must have the same order: under the policies DATA
 * and OFF, and in one process, the finished batches of the epoch are read again and skipped;
 * otherwise mr_fit_opts.restart_epoch begins the epoch again. A checkpoint between epochs can be
 * restored with any numbers.
 *
 * thread   inside callbacks
 * since    0.1 */
#include "fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Saves the state of training: in batch_end of a step that the callback's `saves` accepted, or in
 * epoch_end or train_end; the callback must have the slot `saves`. With several workers all must
 * call it: the first writes. Replaces a checkpoint of this name.
 * errors   those of mr_model_save · MR_FAILED_PRECONDITION: in another callback */
MR_API mr_code mr_checkpoint_save(const mr_train_event *e, const char *path,
                                  mr_status *st) MR_NODISCARD;
/* In train_begin: continues from this checkpoint, or the latest in a directory of them. Names,
 * shapes and sizes are compared first: if they differ, nothing is changed.
 * errors   those of mr_saved_open and mr_saved_load · MR_INVALID_ARGUMENT: another optimizer, other
 *          data · MR_FAILED_PRECONDITION: in another callback; the rest of the epoch would have
 *          other records */
MR_API mr_code mr_checkpoint_restore(const mr_train_event *e, const char *path,
                                     mr_status *st) MR_NODISCARD;

/* A checkpoint in a directory. */
typedef struct mr_checkpoint_info {
    const char *name; /* borrowed during the call */
    bool whole;       /* all of its files can be read; otherwise the numbers are 0 */
    bool latest;      /* the file `checkpoint` names it */
    int64_t epoch, step;
    double loss;
    uint64_t bytes;  /* total size of its files */
    const char *why; /* the error, if it is not whole */
} mr_checkpoint_info;

/* Calls fn for each checkpoint in a directory, in the order of their steps; those that were being
 * written when a process was killed are listed as not whole.
 * errors   as opendir(3) · the error that fn returns */
MR_API mr_code mr_checkpoint_list(const char *directory,
                                  mr_code (*fn)(void *ctx, const mr_checkpoint_info *c,
                                                mr_status *st),
                                  void *ctx, mr_status *st) MR_NODISCARD;

/* *finished: the run that keeps checkpoints in this directory has ended, and no more will follow.
 * errors   those of a store. since 0.2 */
MR_API mr_code mr_checkpoint_finished(const char *directory, bool *finished,
                                      mr_status *st) MR_NODISCARD;

/* The path that a callback "checkpoint(...)" from mr_callback_parse saves to, borrowed from it;
 * NULL: another kind of callback. */
MR_API const char *mr_checkpoint_callback_path(const mr_callback *c);

#ifdef __cplusplus
}
#endif
#endif
