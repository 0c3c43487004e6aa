/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_ONNX_IMPL_H
#define MR_TRAINER_MODEL_ONNX_IMPL_H
/* ONNX export for the library's own layers, beyond onnx.h. */
#include "trainer/model/onnx.h"

/* Declares the layer's input type: MR_FLOAT32, the default, MR_INT64 or MR_STRING. The model's
 * features are declared with it; the output of another layer is converted. */
mr_code mr__onnx_take(mr_onnx *g, mr_dtype t, mr_status *st) MR_NODISCARD;
/* Declares the type of the last node's values. */
void mr__onnx_gives(mr_onnx *g, mr_dtype t);
/* The name of the last node's output, and of a layer's. */
const char *mr__onnx_last(const mr_onnx *g);
const char *mr__onnx_result(const mr_onnx *g, size_t layer);
/* A node that reads all inputs of the layer; the same with the attribute axis. */
mr_code mr__onnx_merge(const mr_layer *l, mr_onnx *g, const char *op, mr_status *st) MR_NODISCARD;
mr_code mr__onnx_joined(const mr_layer *l, mr_onnx *g, int64_t axis, mr_status *st) MR_NODISCARD;
/* Like mr_onnx_node, with all inputs named. */
mr_code mr__onnx_node_of(mr_onnx *g, const char *op, const char *const *inputs, size_t n,
                         const mr_onnx_attribute *attributes, size_t n_attributes,
                         mr_status *st) MR_NODISCARD;
/* Token i becomes from + i, any other 0. strings NULL: the tokens are the integers. */
mr_code mr__onnx_encode(mr_onnx *g, const mr_bytes *strings, const int64_t *integers, size_t n,
                        int64_t from, mr_status *st) MR_NODISCARD;
#endif
