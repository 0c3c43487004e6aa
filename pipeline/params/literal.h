/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_LITERAL_H
#define MR_PIPELINE_PARAMS_LITERAL_H
/* Prints values as literals that parse to the same value, and reads numbers of tensors. Private to
 * pipeline/. */
#include "value.h"

/* A growing text, at most as long as the parser accepts. */
typedef struct mr__text {
    char *s; /* not NUL-terminated before mr__text_finish */
    size_t n, capacity;
} mr__text;
mr_code mr__text_puts(mr__text *t, const char *s, mr_status *st) MR_NODISCARD;
/* Moves the text to *out, NUL-terminated and owned. */
mr_code mr__text_finish(mr__text *t, char **out, mr_status *st) MR_NODISCARD;

#define MR__DOUBLE_TEXT 40 /* size of the buffers below */
/* Writes the shortest literal that reads as the double f, or as a double that converts to the
 * float32 f. Infinities are written 1e999 and -1e999. */
void mr__literal_double(double f, char *buf);
void mr__literal_float(float f, char *buf);
mr_code mr__literal_string(mr__text *t, const char *s, size_t n, mr_status *st) MR_NODISCARD;
/* Prints a tensor of one row: nested lists, in a cast() unless literals have its dtype; if it is
 * resident, a reference, which does not parse: array("float32[2, 3]", "hash of the values").
 * errors   MR_FAILED_PRECONDITION: ragged */
mr_code mr__literal_tensor(mr__text *t, const mr_array *a, mr_status *st) MR_NODISCARD;

/* The values of row 0. */
const void *mr__literal_values(const mr_array *a);
/* Reads value i of row 0 as an int64 or a double; false if its dtype is not an integer (or float)
 * or the value does not fit. */
bool mr__literal_int_at(const mr_array *a, size_t i, int64_t *out);
bool mr__literal_double_at(const mr_array *a, size_t i, double *out);
/* strtod in the C locale. end may be NULL. */
double mr__literal_parse(const char *s, char **end);
#endif
