/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_SPEC_H
#define MR_PIPELINE_PARAMS_SPEC_H
/* What an element looks like: a tree whose leaves are typed tensors or datasets.
 *
 *     zip(range(3), from_tensors(image=.., label=..))
 *         TUPLE -+- LEAF int64 []
 *                +- RECORD -+- "image" LEAF uint8 [28, 28]
 *                           +- "label" LEAF int64 []
 *
 * Specs are immutable and reference-counted. A tuple of one component is that component. A record's
 * components are ordered by name, bytewise. The leaves in depth-first order are the columns of a
 * block. Dimension -1 is unknown until run time; rank -1: even the rank is.
 *
 * thread   any
 * since    0.1 */
#include "../memory/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_spec mr_spec;
typedef enum mr_spec_kind { MR_SPEC_LEAF, MR_SPEC_TUPLE, MR_SPEC_RECORD } mr_spec_kind;

typedef struct mr_leaf {
    mr_dtype dtype;
    int8_t rank;                /* -1 unknown */
    bool ragged;                /* axis 1 has inner lengths of its own (mr_row.splits) */
    int64_t shape[MR_MAX_RANK]; /* -1 unknown */
    const mr_spec *element; /* MR_DATASET: what its elements look like; borrowed from the spec */
} mr_leaf;

/* Constructors return owned specs, NULL when out of memory (a NULL child gives NULL); children are
 * taken over, also on failure. Record names are copied; the record must have distinct names. */
MR_API mr_spec *mr_spec_tensor(mr_dtype t, int rank, const int64_t *shape);
MR_API mr_spec *mr_spec_scalar(mr_dtype t);
MR_API mr_spec *mr_spec_of_leaf(const mr_leaf *leaf);
MR_API mr_spec *mr_spec_dataset(mr_spec *element);
MR_API mr_spec *mr_spec_tuple(mr_spec *const *children, size_t n);
MR_API mr_spec *mr_spec_record(const char *const *names, mr_spec *const *children, size_t n);
/* The same tree over other leaves: leaves[i] replaces leaf i. */
MR_API mr_spec *mr_spec_with_leaves(const mr_spec *s, const mr_leaf *leaves);

/* ref returns s; the last unref frees. NULL: nothing. */
MR_API mr_spec *mr_spec_ref(const mr_spec *s);
MR_API void mr_spec_unref(const mr_spec *s);

/* The tree: what s is, and its children (tuples and records), borrowed from s. */
MR_API mr_spec_kind mr_spec_kind_of(const mr_spec *s);
MR_API size_t mr_spec_n_children(const mr_spec *s);
MR_API const mr_spec *mr_spec_child(const mr_spec *s, size_t i);
MR_API const char *mr_spec_child_name(const mr_spec *s, size_t i); /* records; NULL for tuples */
/* Index of the record's component called name, or -1. */
MR_API int64_t mr_spec_find(const mr_spec *s, const char *name);

/* The leaves, depth first: one a column of a block. Borrowed from s. */
MR_API size_t mr_spec_n_leaves(const mr_spec *s);
MR_API const mr_leaf *mr_spec_leaf(const mr_spec *s, size_t i);
/* First leaf of child i: where its columns begin in a block. */
MR_API size_t mr_spec_first_leaf(const mr_spec *s, size_t child);
/* Paths of the leaves ("label", "0/image"; "" for a lone leaf): n_leaves of them, made at the first
 * call. Borrowed from s; NULL: no memory. */
MR_API const char *const *mr_spec_leaf_names(const mr_spec *s);

/* Same tree, names and dtypes (shapes may differ). */
MR_API bool mr_spec_same_types(const mr_spec *a, const mr_spec *b);
/* Same in everything, shapes too. */
MR_API bool mr_spec_equal(const mr_spec *a, const mr_spec *b);
/* For specs of the same types: what holds for elements of both (differing dimensions -1). Owned. */
MR_API mr_spec *mr_spec_merge(const mr_spec *a, const mr_spec *b);
/* true if a tensor of this shape fits the leaf. */
MR_API bool mr_leaf_admits(const mr_leaf *leaf, int rank, const int64_t *shape);

/* "(int64[], {image: uint8[28, 28]})" into buf, always NUL-ended; returns the length it needed. */
MR_API size_t mr_spec_format(const mr_spec *s, char *buf, size_t size);
MR_API size_t mr_shape_format(int rank, const int64_t *shape, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
