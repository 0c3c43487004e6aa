/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_EXAMPLE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_EXAMPLE_H
/* Elements as records, the opposite of parse_example: ints become int64 lists, floats float lists,
 * strings and uint8 tensors bytes. Features are named by the element's components ("label"; "0"
 * where unnamed, "a/b" where nested; "value" for a lone component). A lone scalar string is written
 * as it is.
 *
 * thread   one at a time per encoder
 * since    0.1 */
#include "../../params/spec.h"
#include "../../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_element_encoder mr_element_encoder;

/* errors   MR_INVALID_ARGUMENT: elements that no Example can hold (datasets) */
MR_API mr_code mr_element_encoder_new(mr_element_encoder **out, const mr_spec *spec,
                                      mr_status *st) MR_NODISCARD;
MR_API void mr_element_encoder_free(mr_element_encoder *e);
/* *record = row `row` of b, serialized; borrowed until the next call.
 * errors   MR_INVALID_ARGUMENT: a uint64 above INT64_MAX; a ragged tensor of several axes */
MR_API mr_code mr_element_encode(mr_element_encoder *e, const mr_block *b, size_t row,
                                 mr_bytes *record, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
