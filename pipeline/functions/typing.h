/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_TYPING_H
#define MR_PIPELINE_FUNCTIONS_TYPING_H
/* What the two files of typing share: operators and structure are in expression_type.c, calls in
 * expression_call.c, where each function is explained. Private to them. */
#include "pipeline/functions/typed.h"

mr_code mr__type_settle(typed *t, mr_dtype to, const mr_expr *e, mr_status *st);
mr_code mr__type_unify(typed **v, const mr_expr *const *es, size_t n, const char *what, mr_dtype *t,
                       mr_status *st);
mr_code mr__type_broadcast(const mr_leaf *a, const mr_leaf *b, mr_leaf *out, const mr_expr *e,
                           mr_status *st);
mr_code mr__type_set_leaf(typed *t, const mr_leaf *leaf, mr_status *st);
mr_code mr__type_node_of(typed_kind kind, typed **children, size_t n, typed **out, mr_status *st);
mr_code mr__type_want_tensor(const typed *t, const mr_expr *e, const char *what,
                             const mr_leaf **leaf, mr_status *st);
const mr_leaf *mr__type_tensor_of(const typed *t);
mr_code mr__type_no_memory(mr_status *st);
bool mr__type_is_numeric(mr_dtype t);
mr_code mr__type_stack(const mr_expr *e, typed **v, size_t n, bool join, typed **out,
                       mr_status *st);
mr_code mr__type_call(const mr_expr *e, const scope *s, typed **out, mr_status *st);
mr_code mr__type_name(const mr_expr *e, const char *name, const scope *s, typed **out,
                      mr_status *st);
#endif
