/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_INFER_H
#define MR_PIPELINE_PARAMS_INFER_H
/* Helpers for the infer slots of ops: specs and their limits. Private to pipeline/. */
#include "spec.h"

/* Maximum number of levels of a spec, itself and the elements of datasets included. A node whose
 * elements are deeper carries an error, so that recursion over specs is bounded. */
#define MR__SPEC_MAX_DEPTH 256

/* Maximum number of leaves of an element; each is a column of every block. */
#define MR__SPEC_MAX_LEAVES 65536
/* Fails if s exceeds one of these limits. */
mr_code mr__spec_check(const mr_spec *s, mr_status *st) MR_NODISCARD;

/* Sets *twice to a name that occurs more than once (borrowed), or to NULL. */
mr_code mr__name_twice(char *const *names, size_t n, const char **twice,
                       mr_status *st) MR_NODISCARD;

/* Ends an infer slot: returns spec in *out (owned), or fails with out of memory if it is NULL. */
mr_code mr__inferred(mr_spec *spec, mr_spec **out, mr_status *st) MR_NODISCARD;
/* True if every element of `special` is also an element of `general`, which may leave dimensions
 * and ranks unknown. */
bool mr__spec_covers(const mr_spec *general, const mr_spec *special);
/* The shapes of s as a list of numbers. For each leaf: its rank, its dimensions (-1: unknown), and
 * for a dataset the shapes of its elements. The first returns the length of the list, the second
 * writes it and returns its end. */
size_t mr__spec_shapes_count(const mr_spec *s);
int64_t *mr__spec_shapes(const mr_spec *s, int64_t *to);
/* Makes *out a copy of s with shapes read from the *n numbers at *v, and advances both; owned.
 * errors   MR_INVALID_ARGUMENT: the numbers are invalid, or do not cover the shapes of s */
mr_code mr__spec_with_shapes(const mr_spec *s, const int64_t **v, size_t *n, mr_spec **out,
                             mr_status *st) MR_NODISCARD;
/* Size of one element in bytes; 0 if it is not known when the graph is built. */
size_t mr__row_bytes(const mr_spec *spec);
#endif
