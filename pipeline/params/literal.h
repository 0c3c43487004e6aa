/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_LITERAL_H
#define MR_PIPELINE_PARAMS_LITERAL_H
/* Values as text that gives them again, and numbers of tensors. Private to graph/. */
#include "value.h"

/* A growing text with a limit: that of what the parser takes. */
typedef struct mr__text {
    char *s; /* no NUL at its end until mr__text_finish */
    size_t n, capacity;
} mr__text;
mr_code mr__text_puts(mr__text *t, const char *s, mr_status *st) MR_NODISCARD;
/* *out = the text, NUL-ended, owned; t is empty then. */
mr_code mr__text_finish(mr__text *t, char **out, mr_status *st) MR_NODISCARD;

#define MR__DOUBLE_TEXT 40 /* bytes that a number's text needs */
/* The shortest literal that reads as f, or, of the second, as a double that is f as float32. The
 * infinities are 1e999 and -1e999. */
void mr__literal_double(double f, char *buf);
void mr__literal_float(float f, char *buf);
mr_code mr__literal_string(mr__text *t, const char *s, size_t n, mr_status *st) MR_NODISCARD;
/* A tensor of one row: nested lists, within cast() where the dtype has no literal.
 * errors   MR_FAILED_PRECONDITION: ragged */
mr_code mr__literal_tensor(mr__text *t, const mr_array *a, mr_status *st) MR_NODISCARD;

/* Values of row 0. */
const void *mr__literal_values(const mr_array *a);
/* Its value i as an integer, or as a number; false: its dtype is none, or it does not fit. */
bool mr__literal_int_at(const mr_array *a, size_t i, int64_t *out);
bool mr__literal_double_at(const mr_array *a, size_t i, double *out);
/* strtod as in the C locale. end may be NULL. */
double mr__literal_parse(const char *s, char **end);
#endif
