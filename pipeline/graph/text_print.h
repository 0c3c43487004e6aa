/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_TEXT_PRINT_H
#define MR_PIPELINE_GRAPH_TEXT_PRINT_H
/* Prints expressions, values and datasets as text. Private to graph/. */
#include "../params/expr.h"
#include "fn.h"
#include "../params/literal.h"

/* Precedence of the constructs of the grammar, lowest first. */
typedef enum mr__binding {
    MR__BIND_LAMBDA,
    MR__BIND_IF,
    MR__BIND_OR,
    MR__BIND_AND,
    MR__BIND_NOT,
    MR__BIND_COMPARE,
    MR__BIND_ADD,
    MR__BIND_MULTIPLY,
    MR__BIND_SIGN,
    MR__BIND_POWER,
    MR__BIND_POSTFIX,
    MR__BIND_ATOM
} mr__binding;

/* A scope of names: the parameters of an enclosing lambda, or the captures of the function being
 * printed, which are replaced by their values. */
typedef struct mr__scope {
    const struct mr__scope *outer;
    const mr_expr *lambda; /* or */
    const mr_fn *fn;       /* hides all outer scopes */
} mr__scope;

typedef struct mr__printer {
    mr__text text;
    const mr__scope *scope;
    int level;
    bool outline; /* leave out the inputs and weights of MR_OP_NAMES_INPUTS */
    mr_status *st;
} mr__printer;

mr_code mr__print_value(mr__printer *p, const mr_value *v, mr__binding least) MR_NODISCARD;
mr_code mr__print_dataset(mr__printer *p, const mr_dataset *ds) MR_NODISCARD;
/* Counts a level of recursion, which is limited. */
mr_code mr__print_enter(mr__printer *p) MR_NODISCARD;
#endif
