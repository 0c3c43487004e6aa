/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_CALLBACK_H
#define MR_TRAINER_LOOP_CALLBACK_H
/* Callbacks from text, with Keras's names: "early_stopping(patience=3)". docs/callbacks.md lists
 * them, and callback_desc.h shows how to add one; a program's own callback is a struct of functions
 * (fit.h), used together with these.
 *
 *     mr_callback list[2] = {{0}, {.ctx = mine, .epoch_end = on_epoch_end}};
 *     mr_callback_parse(&list[0], "csv_logger(\"log.csv\")", &st);
 *     mr_fit(s, m, ds, loss, o, &(mr_fit_opts){.callbacks = list, .n_callbacks = 2}, NULL, &st);
 *     mr_callback_reset(&list[0]);
 *
 * A callback may be used by several calls of mr_fit in succession. With several workers each has
 * separate callbacks; only the chief writes files.
 *
 * thread   one at a time
 * since    0.1 */
#include "fit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out (overwritten) = the callback; free it with mr_callback_reset.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_callback_parse(mr_callback *out, const char *text, mr_status *st) MR_NODISCARD;

/* Like learning_rate_schedule, with a function that maps the epoch's number, from 0, and the
 * current learning rate to the rate of the epoch. *out is overwritten; ctx is borrowed while it is
 * in use. */
MR_API mr_code mr_callback_learning_rate(mr_callback *out,
                                         double (*fn)(void *ctx, int64_t epoch, double rate),
                                         void *ctx, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
