/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_CONSTANT_H
#define MR_PIPELINE_COLUMNS_CONSTANT_H
/* Elements contained in the graph itself: a value (a tuple or record of tensors and datasets) as
 * one element, or its slices along axis 0 as several.
 *
 *     state of a source op:  all  [ ... delivered ... | at ... ]
 *
 * Columns are views of the value's memory, so they are resident. */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__constant {
    mr_block all;
    size_t at;
} mr__constant;

typedef enum mr__cut {
    MR_WHOLE,  /* one element */
    MR_SLICES, /* elements along axis 0; those of a list of datasets are the datasets */
    MR_ROWS    /* the same; also, the elements of a list of tensors of any shapes are the tensors */
} mr__cut;

/* Spec of v's elements; *count = number of slices; the caller must set it to -1 (unknown) first. */
mr_code mr__constant_spec(const mr_value *v, mr__cut cut, mr_spec **out, int64_t *count,
                          mr_status *st) MR_NODISCARD;
/* All elements of v, whose spec is `spec`, as a block. */
mr_code mr__constant_block(const mr_value *v, mr__cut cut, const mr_spec *spec, mr_block *out,
                           mr_status *st) MR_NODISCARD;

/* Slots of a source op whose params are one mr_value, the components, and whose elements are its
 * slices. */
mr_code mr__slices_open(mr_iter *it, mr_status *st);
mr_code mr__slices_infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st);
int64_t mr__slices_cardinality(const mr_dataset *self, const void *params, const int64_t *in);

/* A dataset of such an op, or of from_tensors: n components, each row 0 of an array; names NULL: a
 * tuple. Always returns a dataset, which may carry an error. */
mr_dataset *mr__constant_dataset(const mr_op *op, const mr_array *components,
                                 const char *const *names, size_t n);

/* Slots of a source op whose iterator state is an mr__constant that open has filled. */
mr_code mr__constant_skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st);
mr_code mr__constant_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st);
mr_code mr__constant_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__constant_close(mr_iter *it);
mr_code mr__constant_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__constant_restore(mr_iter *it, mr_state_r *r, mr_status *st);
#endif
