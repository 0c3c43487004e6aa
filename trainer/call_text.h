/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CALL_TEXT_H
#define MR_TRAINER_CALL_TEXT_H
/* "adam(learning_rate=0.001)": the text of one name or call, for losses, optimizers and metrics. */
#include "trainer/args.h"

typedef struct mr__call_text {
    mr__source src;
    const mr_expr *e; /* a NAME, CALL or STRING */
} mr__call_text;

/* Parses text, which must stay; `what` is for the message: "a loss". Reset with mr_expr_unref(e).
 */
mr_code mr__call_text_parse(mr__call_text *c, const char *text, const char *what,
                            mr_status *st) MR_NODISCARD;
bool mr__call_text_is(const mr__call_text *c, const char *name);
/* Zeroed memory for a params struct, bound to the call's arguments; owned. */
mr_code mr__call_text_bind(const mr__call_text *c, const mr__arg *args, size_t params_size,
                           void **params, mr_status *st) MR_NODISCARD;
#endif
