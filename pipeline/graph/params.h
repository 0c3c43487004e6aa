/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_PARAMS_H
#define MR_PIPELINE_GRAPH_PARAMS_H
/* A node's params struct, as the op's table describes it: copied, filled from values, read as
 * values.
 *
 * A struct from here (own) has every pointer of the table for itself, and defaults where nothing
 * was given; fields that the table does not name are copied as they are. Lists are one allocation,
 * so that one mr_free lets them go:
 *
 *     mr_strs   v = [mr_bytes x n][bool is_path x n][bytes and a NUL, for each]
 *
 * Private to graph/. */
#include "op.h"

size_t mr__params_count(const mr_op *op);
void mr__params_free(const mr_op *op, void *own);
/* own struct of what a C constructor gave: unset fields get their defaults, the rest is checked. */
mr_code mr__params_of_c(const mr_op *op, const void *given, void **own, mr_status *st) MR_NODISCARD;
mr_code mr__params_copy(const mr_op *op, const void *own, void **copy, mr_status *st) MR_NODISCARD;
/* own struct with defaults only. */
mr_code mr__params_defaults(const mr_op *op, void **own, mr_status *st) MR_NODISCARD;
/* Sets one from a value, UNSET being its default; checks type and range. *unknown: as
 * mr_param_unknown, the parameter then having its default. */
mr_code mr__param_set(const mr_op *op, const mr_param *p, void *own, const mr_value *v,
                      bool *unknown, mr_status *st) MR_NODISCARD;
/* The opposite: UNSET where it has its default. */
mr_code mr__param_get(const mr_param *p, const void *own, mr_value *out,
                      mr_status *st) MR_NODISCARD;
/* true if a required parameter has nothing in it. */
bool mr__param_missing(const mr_param *p, const void *own);
/* true if v is UNKNOWN or holds such a value. */
bool mr__value_unknown(const mr_value *v);

/* Shared by params.c and param_values.c. */
void *mr__param_field(const mr_param *p, const void *params);
bool *mr__param_has(const mr_param *p, const void *params); /* NULL: it has none */
bool mr__param_required(const mr_param *p);
mr_code mr__param_default(const mr_param *p, void *own, mr_status *st) MR_NODISCARD;
mr_code mr__param_check_i64(const mr_op *op, const mr_param *p, int64_t v,
                            mr_status *st) MR_NODISCARD;
mr_code mr__param_check_f64(const mr_op *op, const mr_param *p, double v,
                            mr_status *st) MR_NODISCARD;
mr_code mr__param_check_word(const mr_op *op, const mr_param *p, const char *s,
                             mr_status *st) MR_NODISCARD;
mr_code mr__param_check_lists(const mr_op *op, const mr_param *p, const void *own,
                              mr_status *st) MR_NODISCARD;
/* The error that a function carries. */
mr_code mr__param_check_fn(const mr_param *p, const void *own, mr_status *st) MR_NODISCARD;
/* Room for n strings of `bytes` bytes together; *text is where mr__strs_put puts them. */
mr_code mr__strs_new(size_t n, size_t bytes, mr_strs *out, char **text, mr_status *st) MR_NODISCARD;
void mr__strs_put(mr_strs *list, size_t i, const char *s, size_t size, bool path, char **text);
#endif
