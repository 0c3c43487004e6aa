/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_VALUE_H
#define MR_PIPELINE_PARAMS_VALUE_H
/* The value of a parameter as text and protobuf represent it, independent of the C type of the
 * params field. A value is a tree that owns its strings, lists, tensors and references.
 *
 * thread   one at a time; immutable once in a node
 * since    0.1 */
#include "spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_fn mr_fn;
typedef struct mr_dataset mr_dataset;

typedef enum mr_value_kind {
    MR_V_UNSET,
    MR_V_NONE,
    MR_V_AUTO,
    MR_V_BOOL,    /* i */
    MR_V_INT,     /* i */
    MR_V_FLOAT,   /* f: a float32 literal, stored as double so that 0.1 keeps its digits */
    MR_V_STRING,  /* s, size */
    MR_V_TENSOR,  /* tensor: one row, of rank >= 1 or of a dtype without literals */
    MR_V_LIST,    /* items that do not form a tensor */
    MR_V_TUPLE,   /* items */
    MR_V_RECORD,  /* items with names */
    MR_V_FN,      /* fn */
    MR_V_DATASET, /* dataset */
    MR_V_UNKNOWN  /* within a function: known only when it is called; spec is its type */
} mr_value_kind;

typedef struct mr_value mr_value;
struct mr_value {
    mr_value_kind kind;
    bool computed; /* STRING, or TENSOR of strings: computed, not a literal of the text. As a file
                      name it is a path, never a pattern. Ignored by mr_value_equal */
    int64_t i;
    double f;
    char *s;
    size_t size;
    mr_array tensor;
    size_t n;
    mr_value *items;
    char **names;
    mr_fn *fn;
    mr_dataset *dataset;
    mr_spec *spec;
};

MR_API void mr_value_reset(mr_value *v); /* frees what v owns; v becomes UNSET */
MR_API mr_code mr_value_copy(mr_value *dst, const mr_value *src, mr_status *st) MR_NODISCARD;
MR_API bool mr_value_equal(const mr_value *a, const mr_value *b);
/* Converts v to a tensor of one row: INT (int64), FLOAT (float32), BOOL, STRING, TENSOR.
 * errors   MR_INVALID_ARGUMENT: v is of another kind */
MR_API mr_code mr_value_to_array(const mr_value *v, mr_array *out, mr_status *st) MR_NODISCARD;
/* Converts a row of a: to INT, FLOAT, BOOL, STRING or DATASET if it is a scalar of this type, else
 * to TENSOR. */
MR_API mr_code mr_value_from_array(mr_value *v, const mr_array *a, size_t row,
                                   mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
