/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_STATEMENTS_H
#define MR_TRAINER_MODEL_STATEMENTS_H
/* A model's text: `NAME = expression; ...; expression`. A single expression is also valid.
 *
 * thread   any */
#include "pipeline/params/expr.h"

typedef struct mr__statement {
    char *name;       /* owned; NULL: none */
    const mr_expr *e; /* owned; its positions refer to the whole text */
} mr__statement;

typedef struct mr__statements {
    size_t n, capacity;
    mr__statement *v;
} mr__statements;

/* errors   MR_INVALID_ARGUMENT: syntax, with line and caret; out is empty then */
mr_code mr__statements_parse(const char *text, mr__statements *out, mr_status *st) MR_NODISCARD;
void mr__statements_drop(mr__statements *s);
#endif
