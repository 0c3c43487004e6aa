/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CHECKPOINT_H
#define MR_TRAINER_CHECKPOINT_H
/* Checkpoints: a saved model (saved_model.h) and everything else that is needed to go on training
 * as if it had not been interrupted.
 *
 *   model.txt, training.json, weights.safetensors
 *   optimizer.safetensors   what the optimizer remembers: "dense/kernel/slot_0", ...
 *   state.json              epoch, step, learning rate, seed, metrics, versions, what callbacks
 *                           remember
 *   callbacks.safetensors   the best weights, where a callback keeps them
 *   position-0, ...         where the data of each worker go on
 *
 * A checkpoint is there whole or not at all. The file `checkpoint` beside it names the one that was
 * written last.
 *
 * A checkpoint of N replicas can be restored on M, under another strategy or none. With the same
 * numbers of processes and replicas training goes on bit for bit. With others the batches of the
 * epoch that were trained on are read again and dropped, and sums are taken in another order.
 *
 * thread   inside callbacks
 * since    0.1 */
#include "fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Saves where training stands: in batch_end of a step that the callback's `saves` asked for, or in
 * epoch_end or train_end; the callback must have the slot `saves`. With several workers all must
 * call it: the first writes. A checkpoint of this name is replaced.
 * errors   those of mr_model_save · MR_FAILED_PRECONDITION: in another callback */
MR_API mr_code mr_checkpoint_save(const mr_train_event *e, const char *path,
                                  mr_status *st) MR_NODISCARD;
/* In train_begin: goes on where the checkpoint stands, or the latest of a directory of them. Names,
 * shapes and sizes are compared first: where they differ nothing is changed.
 * errors   those of mr_saved_open and mr_saved_load · MR_INVALID_ARGUMENT: another optimizer, other
 *          data · MR_FAILED_PRECONDITION: in another callback */
MR_API mr_code mr_checkpoint_restore(const mr_train_event *e, const char *path,
                                     mr_status *st) MR_NODISCARD;

/* A checkpoint of a directory. */
typedef struct mr_checkpoint_info {
    const char *name; /* borrowed during the call */
    bool whole;       /* every file of it can be read; of one that cannot, the numbers are 0 */
    bool latest;      /* the file `checkpoint` names it */
    int64_t epoch, step;
    double loss;
    uint64_t bytes;  /* of its files */
    const char *why; /* what is wrong with one that is not whole */
} mr_checkpoint_info;

/* Calls fn for each checkpoint in a directory, in the order of their steps; those that were being
 * written when a process was killed are listed as not whole.
 * errors   as opendir(3) · what fn returns */
MR_API mr_code mr_checkpoint_list(const char *directory,
                                  mr_code (*fn)(void *ctx, const mr_checkpoint_info *c,
                                                mr_status *st),
                                  void *ctx, mr_status *st) MR_NODISCARD;

/* Where a callback "checkpoint(...)" of mr_callback_parse saves, borrowed from it; NULL: it is
 * another callback. */
MR_API const char *mr_checkpoint_callback_path(const mr_callback *c);

#ifdef __cplusplus
}
#endif
#endif
