/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_TYPE_CHECK_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_TYPE_CHECK_H
/* Shared by the two files of typing: expression_type.c (structure) and call.c (calls). Private to
 * them. */
#include "pipeline/functions/compiler/typed_tree.h"

/* The operator spelled `name` ("and", "[:]") that has n_inputs inputs in its table. */
const mr_function *mr__operator(const char *name, size_t n_inputs);
/* Types a call of f, an operator or a function, with inputs v (moved from) written at `at`, and
 * options params (taken over, also on failure). */
mr_code mr__type_function(const mr_function *f, const mr_expr *e, typed **v,
                          const mr_expr *const *at, size_t n, void *params, typed **out,
                          mr_status *st);
mr_code mr__type_call(const mr_expr *e, const scope *s, typed **out, mr_status *st);
mr_code mr__type_name(const mr_expr *e, const char *name, const scope *s, typed **out,
                      mr_status *st);

mr_code mr__type_constant(mr_array *value, char weak, typed **out, mr_status *st);
mr_code mr__type_settle(typed *t, mr_dtype to, const mr_expr *e, mr_status *st);
/* The stronger of two kinds of literals. */
char mr__type_stronger(char a, char b);
mr_code mr__type_unify(typed **v, const mr_expr *const *es, size_t n, const char *what, mr_dtype *t,
                       mr_status *st);
mr_code mr__type_node_of(typed_kind kind, typed **children, size_t n, typed **out, mr_status *st);
mr_code mr__type_want_tensor(const typed *t, const mr_expr *e, const char *what,
                             const mr_leaf **leaf, mr_status *st);
const mr_leaf *mr__type_tensor_of(const typed *t);
mr_code mr__type_no_memory(mr_status *st);
#endif
