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
    bool computed; /* STRING, or TENSOR of strings: computed, not written as a literal. As a file
                      name, such a string is a literal path, never a pattern. mr_value_equal ignores
                      this field */
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
/* Copies src to *dst, which is overwritten. Strings and items are copied; tensors, functions,
 * datasets and specs are shared.
 * errors   MR_RESOURCE_EXHAUSTED; *dst is then unchanged */
MR_API mr_code mr_value_copy(mr_value *dst, const mr_value *src, mr_status *st) MR_NODISCARD;
/* True if both have the same kind and contents; floats are compared by their bits. */
MR_API bool mr_value_equal(const mr_value *a, const mr_value *b);
/* *out (overwritten) = v as an array of one row: INT as int64, FLOAT as float32, BOOL as bool,
 * STRING as string; a TENSOR is shared.
 * errors   MR_INVALID_ARGUMENT: v is of another kind; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_value_to_array(const mr_value *v, mr_array *out, mr_status *st) MR_NODISCARD;
/* *v (overwritten) = one row of a, marked as computed: a scalar int64, float32, bool, string or
 * dataset as INT, FLOAT, BOOL, STRING or DATASET, any other row as a TENSOR that shares a's memory.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_value_from_array(mr_value *v, const mr_array *a, size_t row,
                                   mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
