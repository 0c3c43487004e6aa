/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_NPY_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_NPY_H
/* Elements as entries of numpy's files of arrays. Elements of one component are the entries of an
 * array of its type; those of several are records of a structured type, their fields named as
 * element_example.h names features, one after the other without padding:
 *
 *     range(3)                               descr '<i8'
 *     zip of int64[] and float32[2, 3]       descr [('0', '<i8'), ('1', '<f4', (2, 3))]
 *
 * Every element has the shapes of the first one.
 *
 * thread   one at a time per encoder
 * since    0.1 */
#include "../../memory/block.h"
#include "../../params/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_npy_encoder mr_npy_encoder;

/* What mr_shard_writer_set_entry takes; borrowed from the encoder. */
typedef struct mr_npy_entry {
    const char *descr;
    int rank;
    const int64_t *shape;
} mr_npy_entry;

/* errors   MR_INVALID_ARGUMENT: a component that is a string, a dataset or bfloat16, none of which
 *          has a type there */
MR_API mr_code mr_npy_encoder_new(mr_npy_encoder **out, const mr_spec *spec,
                                  mr_status *st) MR_NODISCARD;
MR_API void mr_npy_encoder_free(mr_npy_encoder *e); /* NULL: nothing */
/* The type of entries, whose shapes are those of row 0 of b; NULL: there are no elements, and axes
 * of unknown size are 0. Once, before the first element. */
MR_API mr_code mr_npy_encoder_begin(mr_npy_encoder *e, const mr_block *b, mr_npy_entry *out,
                                    mr_status *st) MR_NODISCARD;
/* *entry = row `row` of b; borrowed until the next call.
 * errors   MR_INVALID_ARGUMENT: it has another shape than the first; a ragged tensor */
MR_API mr_code mr_npy_encode(mr_npy_encoder *e, const mr_block *b, size_t row, mr_bytes *entry,
                             mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
