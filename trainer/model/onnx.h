/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_ONNX_H
#define MR_TRAINER_MODEL_ONNX_H
/* Models as ONNX files (opset 17): one input "input" and one output "output" in the model's own
 * layout (images [height, width, channels]), whose first dimension is "batch". Layers that only act
 * in training are omitted. The input is float32; int64 if the model begins with class numbers;
 * strings if it begins with a lookup of strings.
 *
 * A layer is exported by its descriptor's slot `onnx`: it adds nodes to a chain, each of which
 * takes the output of the previous one:
 *
 *     static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
 *     {
 *         const struct params *o = l->params;
 *         const char *factor = mr_onnx_floats(g, 0, NULL, &o->factor);
 *         return mr_onnx_node(g, "Mul", &factor, 1, NULL, 0, st);
 *     }
 *
 * thread   one at a time; between steps
 * since    0.1 */
#include "layer.h"
#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a built model to a file, atomically.
 * errors   as open(2) and write(2) · MR_UNIMPLEMENTED: a layer that cannot be exported, which it
 *          names · MR_FAILED_PRECONDITION: not built · MR_INVALID_ARGUMENT: more than 2 GiB, the
 *          limit of the format */
MR_API mr_code mr_onnx_export(const mr_model *m, const char *path, mr_status *st) MR_NODISCARD;

/* ---- for layers ---- */

typedef struct mr_onnx_attribute {
    const char *name;
    enum { MR_ONNX_INT, MR_ONNX_FLOAT, MR_ONNX_INTS } type;
    int64_t i;
    float f;
    size_t n; /* number of ints */
    int64_t ints[MR_MAX_RANK];
} mr_onnx_attribute;

/* Adds a node, whose inputs are the output of the last node and inputs[0..n). A NULL input is a
 * constant that could not be allocated: MR_RESOURCE_EXHAUSTED. */
MR_API mr_code mr_onnx_node(mr_onnx *g, const char *op, const char *const *inputs, size_t n,
                            const mr_onnx_attribute *attributes, size_t n_attributes,
                            mr_status *st) MR_NODISCARD;
/* Adds the nodes of an activation; softmax is along the last axis. */
MR_API mr_code mr_onnx_activation(mr_onnx *g, mr_math_activation f, mr_status *st) MR_NODISCARD;
/* Constants; the values are copied. Return the name, borrowed until the export ends; NULL: out of
 * memory. */
MR_API const char *mr_onnx_floats(mr_onnx *g, int rank, const int64_t *shape, const float *values);
MR_API const char *mr_onnx_ints(mr_onnx *g, size_t n, const int64_t *values);
/* The layer's variable `i` as a constant under its own name, and its values; borrowed until the
 * export ends. */
MR_API const char *mr_onnx_variable(mr_onnx *g, size_t i);
MR_API const float *mr_onnx_values(const mr_onnx *g, size_t i);

#ifdef __cplusplus
}
#endif
#endif
