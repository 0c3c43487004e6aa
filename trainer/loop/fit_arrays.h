/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_FIT_ARRAYS_H
#define MR_TRAINER_LOOP_FIT_ARRAYS_H
/* Training on arrays in memory, like Keras's fit(x, y): batches of 32, reshuffled in each epoch.
 *
 *     mr_array x = {.dtype = MR_FLOAT32, .rank = 1, .shape = {4}, .rows = n, .data = features},
 *              y = {.dtype = MR_INT64, .rows = n, .data = labels};
 *     mr_fit_arrays a = {.x = &x, .y = &y, .validation_split = 0.1};
 *     mr_fit_from_arrays(s, m, &a, loss, o, &(mr_fit_opts){.epochs = 3}, &result, &st);
 *
 * mr_evaluate and mr_predict take mr_batch(mr_from_arrays(columns, NULL, n), batch_size, NULL).
 *
 * thread   as mr_fit
 * since    0.1 */
#include "fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Row i of each array belongs to example i. Dense, in host memory, unchanged during the call;
 * memory without an owner must outlive the call. */
typedef struct mr_fit_arrays {
    const mr_array *x, *y;
    const mr_array *sample_weight; /* NULL: all 1 */
    int64_t batch_size;            /* rows of the global batch; 0: 32 */
    /* Reshuffle all examples in each epoch, in an order that depends on mr_fit_opts.seed; default
     * yes. */
    mr_tri shuffle;
    /* If mr_fit_opts.validation is NULL, the last examples, this fraction of all, are used for
     * validation; at least 0 and below 1. */
    double validation_split;
} mr_fit_arrays;

/* Like mr_fit. With several workers all pass the same arrays, and each trains on its share.
 * errors   those of mr_fit · MR_INVALID_ARGUMENT: arrays that are not dense or differ in rows, a
 *          split that leaves no example for one of the two */
MR_API mr_code mr_fit_from_arrays(mr_strategy *s, mr_model *m, const mr_fit_arrays *arrays,
                                  mr_loss *loss, mr_optimizer *o, const mr_fit_opts *opts,
                                  mr_fit_result *result, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
