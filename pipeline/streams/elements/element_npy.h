/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_NPY_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_NPY_H
/* Encodes elements as entries of NPY files (numpy). If elements have one component, the array has
 * its type. If they have several, the array has a structured type without padding, whose fields are
 * named like the features of element_example.h:
 *
 *     range(3)                               descr '<i8'
 *     zip of int64[] and float32[2, 3]       descr [('0', '<i8'), ('1', '<f4', (2, 3))]
 *
 * All elements must have the shapes of the first one.
 *
 * thread   one at a time per encoder
 * since    0.1 */
#include "../../memory/block.h"
#include "../../params/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_npy_encoder mr_npy_encoder;

/* Arguments of mr_shard_writer_set_entry; borrowed from the encoder. */
typedef struct mr_npy_entry {
    const char *descr;
    int rank;
    const int64_t *shape;
} mr_npy_entry;

/* errors   MR_INVALID_ARGUMENT: a component is a string, a dataset or bfloat16, which NPY has no
 *          types for */
MR_API mr_code mr_npy_encoder_new(mr_npy_encoder **out, const mr_spec *spec,
                                  mr_status *st) MR_NODISCARD;
MR_API void mr_npy_encoder_free(mr_npy_encoder *e); /* NULL: nothing */
/* *out = the type of entries, with the shapes of row 0 of b. b NULL: there are no elements; axes of
 * unknown size become 0. Call it once, before the first element. */
MR_API mr_code mr_npy_encoder_begin(mr_npy_encoder *e, const mr_block *b, mr_npy_entry *out,
                                    mr_status *st) MR_NODISCARD;
/* *entry = row `row` of b; borrowed until the next call.
 * errors   MR_INVALID_ARGUMENT: its shape differs from the first element's; a ragged tensor */
MR_API mr_code mr_npy_encode(mr_npy_encoder *e, const mr_block *b, size_t row, mr_bytes *entry,
                             mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
