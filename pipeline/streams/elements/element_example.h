/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_EXAMPLE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_EXAMPLE_H
/* Encodes elements as tf.train.Example records, the inverse of parse_example. Ints become int64
 * lists, floats float lists, strings and uint8 tensors bytes lists. Features have the names of the
 * element's components ("label"; "0" if unnamed, "a/b" if nested; "value" for a single component).
 * A single scalar string is written unchanged.
 *
 * thread   one at a time per encoder
 * since    0.1 */
#include "../../params/spec.h"
#include "../../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_element_encoder mr_element_encoder;

/* errors   MR_INVALID_ARGUMENT: an Example cannot hold such elements (datasets) */
MR_API mr_code mr_element_encoder_new(mr_element_encoder **out, const mr_spec *spec,
                                      mr_status *st) MR_NODISCARD;
MR_API void mr_element_encoder_free(mr_element_encoder *e);
/* *record = row `row` of b, serialized; borrowed until the next call.
 * errors   MR_INVALID_ARGUMENT: a uint64 above INT64_MAX; a ragged tensor with several axes */
MR_API mr_code mr_element_encode(mr_element_encoder *e, const mr_block *b, size_t row,
                                 mr_bytes *record, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
