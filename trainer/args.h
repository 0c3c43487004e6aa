/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_ARGS_H
#define MR_TRAINER_ARGS_H
/* Arguments of a call in text form (`dense(64, activation="relu")`) into a params struct, by a
 * table: what layers, losses, optimizers, metrics, initializers and regularizers have in common. */
#include <stdbool.h>
#include <stddef.h>
#include "pipeline/graph/expr.h"
#include "trainer/activations.h"
#include "trainer/initializer.h"

typedef enum mr__arg_type {
    MR__I64,         /* int64_t */
    MR__F64,         /* double; an integer literal will do */
    MR__BOOL,        /* bool */
    MR__FLAG,        /* int8_t: -1 unset, 0, 1 */
    MR__DIMS,        /* mr__dims: the integers from here on, or one list of them */
    MR__ACTIVATION,  /* const mr__activation *; none: linear */
    MR__INITIALIZER, /* mr_initializer: a name, or a call such as constant(0.5) */
    MR__REGULARIZER  /* mr_regularizer: none, "l2", l2(0.01) */
} mr__arg_type;

typedef struct mr__dims {
    int rank;
    int64_t shape[MR_MAX_RANK];
} mr__dims;

typedef struct mr__arg {
    const char *name, *doc; /* doc: one sentence */
    mr__arg_type type;
    bool required;
    uint32_t at;          /* offset in the params struct */
    double def;           /* numbers and flags */
    double min, max;      /* numbers: checked unless equal */
    const char *def_name; /* initializers */
} mr__arg;

#define MR__ARG(T, f, t, ...)                                                                      \
    {                                                                                              \
        .name = #f, .at = offsetof(T, f), .type = t, __VA_ARGS__                                   \
    }

/* The text an expression was parsed from, for messages. */
typedef struct mr__source {
    const char *text;
    size_t size;
} mr__source;

/* Fills params, of the defaults first. e is a NAME, CALL or METHOD; table ends with name == NULL.
 * errors   MR_INVALID_ARGUMENT with line and caret */
mr_code mr__args_bind(const mr__source *src, const mr_expr *e, const mr__arg *table, void *params,
                      mr_status *st) MR_NODISCARD;
/* MR_INVALID_ARGUMENT at e. */
mr_code mr__args_fail(const mr__source *src, const mr_expr *e, mr_status *st, const char *fmt, ...)
    MR_PRINTF(4, 5);
#endif
