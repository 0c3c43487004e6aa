/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_PARAMS_H
#define MR_PIPELINE_PARAMS_PARAMS_H
/* A params struct, as its table describes it: copied, filled from values, read as values.
 *
 * A struct from here (own) has every pointer of the table for itself, and defaults where nothing
 * was given; fields that the table does not name are copied as they are. Lists are one allocation,
 * so that one mr_free frees them:
 *
 *     mr_strs   v = [mr_bytes x n][bool is_path x n][bytes and a NUL, for each]
 *
 * `owner` is the name that messages begin with. Private to pipeline/. */
#include "param.h"

size_t mr__params_count(const mr_param *params);
/* own struct of what a C constructor gave: unset fields get their defaults, the rest is checked. */
mr_code mr__params_of_c(const mr_param_table *t, const void *given, void **own,
                        mr_status *st) MR_NODISCARD;
mr_code mr__params_copy(const mr_param_table *t, const void *own, void **copy,
                        mr_status *st) MR_NODISCARD;
/* own struct with defaults only. */
mr_code mr__params_defaults(const mr_param_table *t, void **own, mr_status *st) MR_NODISCARD;
/* Sets one from a value, UNSET being its default; checks type and range. *unknown: as
 * mr_param_unknown, the parameter then having its default. */
mr_code mr__param_set(const char *owner, const mr_param *p, void *own, const mr_value *v,
                      bool *unknown, mr_status *st) MR_NODISCARD;
/* The opposite: UNSET where it has its default. Not for OWN. */
mr_code mr__param_get(const mr_param *p, const void *own, mr_value *out,
                      mr_status *st) MR_NODISCARD;
/* true if v is UNKNOWN or holds such a value. */
bool mr__value_unknown(const mr_value *v);

/* ---- the arguments of one call, sorted to the parameters of a table ---- */

typedef struct mr__arguments {
    const mr_param_table *t;
    mr_value *values; /* one a parameter; UNSET: not given */
    size_t n;
    size_t items_capacity, names_capacity; /* of the variadic one's */
} mr__arguments;
mr_code mr__arguments_init(mr__arguments *a, const mr_param_table *t, mr_status *st) MR_NODISCARD;
void mr__arguments_reset(mr__arguments *a);
/* The parameter that the next positional argument is for; -1: none is left. */
int64_t mr__arguments_next(const mr__arguments *a);
/* The parameter that an argument (key NULL: positional) is for.
 * errors   MR_INVALID_ARGUMENT, without a place: unknown, repeated, too many */
mr_code mr__arguments_place(const mr__arguments *a, const char *key, size_t *at,
                            mr_status *st) MR_NODISCARD;
/* Puts it there; *v is moved from. */
mr_code mr__arguments_put(mr__arguments *a, size_t at, const char *key, mr_value *v,
                          mr_status *st) MR_NODISCARD;
/* *out = a number, string, bool, none or auto as it is written; false: e is something else. */
mr_code mr__literal_value(const mr_expr *e, mr_value *out, bool *is_literal,
                          mr_status *st) MR_NODISCARD;

/* ---- shared by the files of this room ---- */

void *mr__param_field(const mr_param *p, const void *params);
bool *mr__param_has(const mr_param *p, const void *params); /* NULL: it has none */
bool mr__param_required(const mr_param *p);
mr_code mr__param_default(const mr_param *p, void *own, mr_status *st) MR_NODISCARD;
/* v, or MR_AUTO where it is tf.data's AUTOTUNE, -1, in a parameter that takes auto. */
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
/* Room for n strings of `bytes` bytes together; *text is where mr__strs_put puts them. */
mr_code mr__strs_new(size_t n, size_t bytes, mr_strs *out, char **text, mr_status *st) MR_NODISCARD;
void mr__strs_put(mr_strs *list, size_t i, const char *s, size_t size, bool path, char **text);
/* Functions and datasets are objects of the rooms above; here they are references alone. Returns
 * object. */
void *mr__reference(void *object);
#endif
