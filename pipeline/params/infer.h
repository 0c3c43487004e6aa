/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_INFER_H
#define MR_PIPELINE_PARAMS_INFER_H
/* Specs as the infer slots of ops make, read and bound them. Private to pipeline/. */
#include "spec.h"

/* Levels of a spec, itself included; elements of datasets count. Nodes whose elements go deeper
 * carry an error, so that recursion over specs is bounded. */
#define MR__SPEC_MAX_DEPTH 256

/* Leaves of an element: each is a column of every block. */
#define MR__SPEC_MAX_LEAVES 65536
/* Fails if s is deeper or has more leaves than a node's elements may. */
mr_code mr__spec_check(const mr_spec *s, mr_status *st) MR_NODISCARD;

/* *twice = a name that is there more than once, borrowed; NULL: there is none. */
mr_code mr__name_twice(char *const *names, size_t n, const char **twice,
                       mr_status *st) MR_NODISCARD;

/* Ends an infer: *out = spec (owned), or for NULL the error that memory ran out. */
mr_code mr__inferred(mr_spec *spec, mr_spec **out, mr_status *st) MR_NODISCARD;
/* true if whatever is an element of `special` is one of `general` too, which may leave dimensions
 * and numbers of axes open. */
bool mr__spec_covers(const mr_spec *general, const mr_spec *special);
/* The shapes of s as numbers: of each leaf how many axes it has, then their lengths (-1: not
 * known), and after those of a dataset those of its elements. How many, and they themselves. */
size_t mr__spec_shapes_count(const mr_spec *s);
int64_t *mr__spec_shapes(const mr_spec *s, int64_t *to);
/* *out = s with the shapes that are the first of *n numbers at *v, which move on; owned.
 * errors   MR_INVALID_ARGUMENT: they are none that cover those of s */
mr_code mr__spec_with_shapes(const mr_spec *s, const int64_t **v, size_t *n, mr_spec **out,
                             mr_status *st) MR_NODISCARD;
/* Bytes of one element as far as its shape is known when the graph is built; 0: it is not. */
size_t mr__row_bytes(const mr_spec *spec);
#endif
