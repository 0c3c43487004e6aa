/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_SPEC_H
#define MR_PIPELINE_PARAMS_SPEC_H
/* Specs: the structure of an element, a tree whose leaves are typed tensors or datasets.
 *
 *     zip(range(3), from_tensors(image=.., label=..))
 *         TUPLE -+- LEAF int64 []
 *                +- RECORD -+- "image" LEAF uint8 [28, 28]
 *                           +- "label" LEAF int64 []
 *
 * Specs are immutable and reference-counted. A tuple of one component is that component. The
 * components of a record are ordered by name, bytewise. The leaves in depth-first order are the
 * columns of a block. A dimension or rank of -1 is unknown until run time.
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
    bool ragged;                /* axis 1 is ragged within a row (mr_row.splits) */
    int64_t shape[MR_MAX_RANK]; /* -1 unknown */
    const mr_spec *element;     /* MR_DATASET: the spec of its elements; borrowed from the spec */
} mr_leaf;

/* Constructors return owned specs, or NULL if out of memory or if a child is NULL. They take the
 * children over, also on failure. Record names are copied and must be distinct. */
MR_API mr_spec *mr_spec_tensor(mr_dtype t, int rank, const int64_t *shape);
MR_API mr_spec *mr_spec_scalar(mr_dtype t);
MR_API mr_spec *mr_spec_of_leaf(const mr_leaf *leaf);
MR_API mr_spec *mr_spec_dataset(mr_spec *element);
MR_API mr_spec *mr_spec_tuple(mr_spec *const *children, size_t n);
MR_API mr_spec *mr_spec_record(const char *const *names, mr_spec *const *children, size_t n);
/* Copies the tree of s, with leaves[i] as leaf i. */
MR_API mr_spec *mr_spec_with_leaves(const mr_spec *s, const mr_leaf *leaves);

/* ref returns s; the last unref frees it. NULL: no-op. */
MR_API mr_spec *mr_spec_ref(const mr_spec *s);
MR_API void mr_spec_unref(const mr_spec *s);

/* The kind of s and, for tuples and records, its children, borrowed from s. */
MR_API mr_spec_kind mr_spec_kind_of(const mr_spec *s);
MR_API size_t mr_spec_n_children(const mr_spec *s);
MR_API const mr_spec *mr_spec_child(const mr_spec *s, size_t i);
MR_API const char *mr_spec_child_name(const mr_spec *s, size_t i); /* records; NULL for tuples */
/* Index of the component of a record, or -1. */
MR_API int64_t mr_spec_find(const mr_spec *s, const char *name);

/* The leaves, depth first: the columns of a block. Borrowed from s. */
MR_API size_t mr_spec_n_leaves(const mr_spec *s);
MR_API const mr_leaf *mr_spec_leaf(const mr_spec *s, size_t i);
/* Index of the first leaf of a child, which is its first column in a block. */
MR_API size_t mr_spec_first_leaf(const mr_spec *s, size_t child);
/* Paths of the n_leaves leaves ("label", "0/image"; "" for a single leaf), built on the first call.
 * Borrowed from s; NULL if out of memory. */
MR_API const char *const *mr_spec_leaf_names(const mr_spec *s);

/* True if tree, names and dtypes are equal; shapes may differ. */
MR_API bool mr_spec_same_types(const mr_spec *a, const mr_spec *b);
/* True if shapes are equal too. */
MR_API bool mr_spec_equal(const mr_spec *a, const mr_spec *b);
/* The spec that covers two specs of the same types: dimensions that differ become -1. Owned. */
MR_API mr_spec *mr_spec_merge(const mr_spec *a, const mr_spec *b);
/* True if a tensor of this shape fits the leaf. */
MR_API bool mr_leaf_admits(const mr_leaf *leaf, int rank, const int64_t *shape);

/* Writes e.g. "(int64[], {image: uint8[28, 28]})" to buf (always NUL-terminated, truncated if
 * needed) and returns the length of the whole text. */
MR_API size_t mr_spec_format(const mr_spec *s, char *buf, size_t size);
MR_API size_t mr_shape_format(int rank, const int64_t *shape, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
