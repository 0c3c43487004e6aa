/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_ALONG_AXIS_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_ALONG_AXIS_H
/* For functions that work along one axis of a tensor. One loop processes all rows of a block: a
 * block consists of `outer` groups of `inner` lines of n values each, and value i of line k of
 * group o is at index (o * n + i) * inner + k. Private to functions/.
 *
 * thread   any */
#include "pipeline/functions/compiler/typed_tree.h"

typedef struct mr__axis {
    int64_t axis;
    bool has_axis; /* false: over all values */
} mr__axis;
/* The option `axis` of struct T, which holds an mr__axis called o. */
#define MR__AXIS_OPTION(T, says)                                                                   \
    {                                                                                              \
        .name = "axis", .doc = (says), .type = MR_PT_I64, .flags = MR_P_OPTIONAL | MR_P_NONE,      \
        .at = offsetof(T, axis), .has_at = offsetof(T, has_axis)                                   \
    }

/* For functions that reduce several axes together. */
typedef struct mr__axes {
    mr_ints axis;
    bool has_axis; /* false: all of them */
    bool keepdims;
} mr__axes;
/* Two options for the end of a table whose struct is an mr__axes. */
#define MR__AXES_OPTIONS(says)                                                                     \
    {.name = "axis",                                                                               \
     .doc = (says),                                                                                \
     .type = MR_PT_INTS,                                                                           \
     .flags = MR_P_OPTIONAL | MR_P_NONE,                                                           \
     .at = offsetof(mr__axes, axis),                                                               \
     .has_at = offsetof(mr__axes, has_axis)},                                                      \
        MR_PARAM(mr__axes, keepdims, .doc = "Keeps reduced axes with length 1.")
#define MR__AXES_SAY                                                                               \
    "The axis to reduce, or a list of axes; -1 is the last; none: all values of the tensor."

typedef struct mr__lines {
    size_t outer, n, inner;
} mr__lines;

/* The index of axis `axis` (from the end if negative) of a tensor with `rank` axes; -1: no such
 * axis. */
int mr__axis_of(int64_t axis, int rank);
/* The same when typed: *at is -1 if the rank is not known. */
mr_code mr__axis_type(const mr_call *c, int64_t axis, int rank, int *at, mr_status *st);
/* The same when run. false: it has no such axis; the rows have failed. */
bool mr__axis_run(const mr_rows *r, int64_t axis, int rank, int *at);
/* *out = rank and shape of the reduced x. */
mr_code mr__axes_type(const mr_call *c, const mr__axes *p, const mr_leaf *x, mr_leaf *out,
                      mr_status *st);
/* z[k] = the reduction of line k of n values. */
typedef void (*mr__reducer)(const void *x, void *z, size_t lines, size_t n);
/* *out = x reduced along the axes in r's parameters, an mr__axes, with dtype `gives`. loops: one
 * reducer for each dtype; half floats are converted to float32. needs_values: the reduction of no
 * values is undefined, and the rows fail. */
mr_code mr__axes_reduce(const mr_rows *r, const mr_array *x, const mr__reducer *loops,
                        mr_dtype gives, bool needs_values, mr_array *out, mr_status *st);
/* x's rows as lines along axis `at`; -1: each row is one line. */
mr__lines mr__lines_of(const mr_array *x, int at);
#endif
