/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_PARAMS_H
#define MR_PIPELINE_PARAMS_PARAMS_H
/* Params structs, driven by their table: copies them, fills them from values, reads them as values.
 *
 * A struct made here ("own" below) owns everything that the fields of its table point to, and has
 * defaults for parameters that were not given. Fields outside the table are copied bytewise. A list
 * is one allocation, which one mr_free frees:
 *
 *     mr_strs   v = [mr_bytes x n][bool is_path x n][bytes and a NUL, for each]
 *
 * Messages begin with `owner`. Private to pipeline/. */
#include "param.h"

size_t mr__params_count(const mr_param *params);
/* Copies the struct of a C constructor: unset fields get their defaults, the others are checked. */
mr_code mr__params_of_c(const mr_param_table *t, const void *given, void **own,
                        mr_status *st) MR_NODISCARD;
mr_code mr__params_copy(const mr_param_table *t, const void *own, void **copy,
                        mr_status *st) MR_NODISCARD;
/* Makes a struct of defaults. */
mr_code mr__params_defaults(const mr_param_table *t, void **own, mr_status *st) MR_NODISCARD;
/* Sets a parameter from a value (UNSET: the default) and checks type and range. *unknown: the value
 * is unknown (see mr_param_unknown), and the parameter has its default. */
mr_code mr__param_set(const char *owner, const mr_param *p, void *own, const mr_value *v,
                      bool *unknown, mr_status *st) MR_NODISCARD;
/* Reads a parameter as a value, UNSET if it has its default. Not for OWN. */
mr_code mr__param_get(const mr_param *p, const void *own, mr_value *out,
                      mr_status *st) MR_NODISCARD;
/* True if v is or contains an UNKNOWN value. */
bool mr__value_unknown(const mr_value *v);

/* ---- the arguments of one call, assigned to the parameters of a table ---- */

typedef struct mr__arguments {
    const mr_param_table *t;
    mr_value *values; /* one per parameter; UNSET: not given */
    size_t n;
    size_t items_capacity, names_capacity; /* of the variadic parameter's value */
} mr__arguments;
mr_code mr__arguments_init(mr__arguments *a, const mr_param_table *t, mr_status *st) MR_NODISCARD;
void mr__arguments_reset(mr__arguments *a);
/* The parameter for the next positional argument; -1 if no parameter is left. */
int64_t mr__arguments_next(const mr__arguments *a);
/* Finds the parameter of an argument; key NULL: a positional one.
 * errors   MR_INVALID_ARGUMENT, without a place: unknown, repeated, too many */
mr_code mr__arguments_place(const mr__arguments *a, const char *key, size_t *at,
                            mr_status *st) MR_NODISCARD;
/* Stores the argument for parameter `at`; *v is moved. */
mr_code mr__arguments_put(mr__arguments *a, size_t at, const char *key, mr_value *v,
                          mr_status *st) MR_NODISCARD;
/* Reads e as a number, string, bool, none or auto; *is_literal is false for other expressions. */
mr_code mr__literal_value(const mr_expr *e, mr_value *out, bool *is_literal,
                          mr_status *st) MR_NODISCARD;

/* ---- shared by the files of pipeline/params ---- */

void *mr__param_field(const mr_param *p, const void *params);
bool *mr__param_has(const mr_param *p, const void *params); /* NULL: no has_ bool */
bool mr__param_required(const mr_param *p);
mr_code mr__param_default(const mr_param *p, void *own, mr_status *st) MR_NODISCARD;
/* v, but MR_AUTO for -1 (tf.data's AUTOTUNE) if the parameter accepts auto. */
int64_t mr__param_auto(const mr_param *p, int64_t v);
mr_code mr__param_check_i64(const char *owner, const mr_param *p, int64_t v,
                            mr_status *st) MR_NODISCARD;
mr_code mr__param_check_f64(const char *owner, const mr_param *p, double v,
                            mr_status *st) MR_NODISCARD;
mr_code mr__param_check_word(const char *owner, const mr_param *p, const char *s,
                             mr_status *st) MR_NODISCARD;
mr_code mr__param_check_lists(const char *owner, const mr_param *p, const void *own,
                              mr_status *st) MR_NODISCARD;
mr_code mr__param_fail_missing(const char *owner, const mr_param *p, mr_status *st);
/* Allocates a list of n strings of `bytes` bytes in total; *text is where mr__strs_put writes. */
mr_code mr__strs_new(size_t n, size_t bytes, mr_strs *out, char **text, mr_status *st) MR_NODISCARD;
void mr__strs_put(mr_strs *list, size_t i, const char *s, size_t size, bool path, char **text);
/* Takes a reference to a function or dataset, whose types are defined in graph/ and opaque here.
 * Returns object. */
void *mr__reference(void *object);
#endif
