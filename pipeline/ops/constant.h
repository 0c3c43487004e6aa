/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_CONSTANT_H
#define MR_PIPELINE_OPS_CONSTANT_H
/* Elements that the graph itself carries: a value (a tuple or record of tensors and datasets) as
 * one element, or its slices along axis 0 as several.
 *
 *     state of a source op:  all  [ ... delivered ... | at ... ]
 *
 * Columns are views of the value's own memory, so they are resident. */
#include "pipeline/engine/iter.h"

typedef struct mr_constant {
    mr_block all;
    size_t at;
} mr_constant;

typedef enum mr_cut {
    MR_WHOLE,  /* one element */
    MR_SLICES, /* elements along axis 0; a list of datasets has datasets */
    MR_ROWS    /* the same, and a list of tensors of any shapes has those */
} mr_cut;

/* Spec of v's elements; *count = number of slices, -1: unknown (as it must be set before). */
mr_code mr__constant_spec(const mr_value *v, mr_cut cut, mr_spec **out, int64_t *count,
                          mr_status *st) MR_NODISCARD;
/* All elements of v, whose spec is `spec`, as a block. */
mr_code mr__constant_block(const mr_value *v, mr_cut cut, const mr_spec *spec, mr_block *out,
                           mr_status *st) MR_NODISCARD;
/* A value of n components, each row 0 of an array; names NULL: a tuple. Owned. */
mr_code mr__constant_value(const mr_array *components, const char *const *names, size_t n,
                           mr_value *out, mr_status *st) MR_NODISCARD;

/* Slots of a source op whose iterator state is an mr_constant that open has filled. */
mr_code mr__constant_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__constant_close(mr_iter *it);
mr_code mr__constant_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__constant_restore(mr_iter *it, mr_state_r *r, mr_status *st);
#endif
