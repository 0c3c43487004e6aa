/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CALLBACK_H
#define MR_TRAINER_CALLBACK_H
/* Callbacks from text, in Keras's names: "early_stopping(patience=3)". docs/callbacks.md lists
 * them, callback_desc.h says how to add one; a callback of a program's own is a struct of functions
 * (fit.h) beside these.
 *
 *     mr_callback list[2] = {{0}, {.ctx = mine, .epoch_end = on_epoch_end}};
 *     mr_callback_parse(&list[0], "csv_logger(\"log.csv\")", &st);
 *     mr_fit(s, m, ds, loss, o, &(mr_fit_opts){.callbacks = list, .n_callbacks = 2}, NULL, &st);
 *     mr_callback_reset(&list[0]);
 *
 * A callback may serve several calls of mr_fit, one after the other. With several workers each has
 * its own; only the chief writes files.
 *
 * thread   one at a time
 * since    0.1 */
#include "fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out (overwritten) = the callback, to be freed by mr_callback_reset.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_callback_parse(mr_callback *out, const char *text, mr_status *st) MR_NODISCARD;

/* As learning_rate_schedule, by a function: it gets the epoch's number from 0 and the learning rate
 * so far, and gives that of the epoch. *out is overwritten; ctx is borrowed while it is in use. */
MR_API mr_code mr_callback_learning_rate(mr_callback *out,
                                         double (*fn)(void *ctx, int64_t epoch, double rate),
                                         void *ctx, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
