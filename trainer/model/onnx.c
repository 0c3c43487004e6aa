/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/onnx.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/version.h"
#include "trainer/model/model_impl.h"
#include "trainer/model/onnx.pb-c.h"
#include "trainer/model/onnx_impl.h"
#include "trainer/files/saved_files.h"

enum { OPSET = 17, ML_OPSET = 2, IR_VERSION = 8, MAX_PARTS = 1 << 20 };
enum { TYPE_FLOAT = 1, TYPE_INT64 = 7, TYPE_STRING = 8 };
static const size_t max_bytes = (size_t)INT32_MAX;
static char input_name[] = "input", output_name[] = "output", batch_name[] = "batch",
            ml_domain[] = "ai.onnx.ml";

/* A list of pointers. */
typedef struct list {
    void **v;
    size_t n, capacity;
} list;

struct mr_onnx {
    const mr_model *m;
    size_t layer;   /* the layer being exported */
    float **values; /* of every variable, on the host */
    list kept;      /* all memory of the messages */
    list nodes, constants;
    char *last;                       /* output of the last node */
    mr_dtype type;                    /* of its values */
    mr_dtype features[MR_MAX_INPUTS]; /* of the model's inputs */
    bool *has_constant;               /* per variable: it is in the graph */
    char **results;                   /* output of each layer, and its type */
    mr_dtype *types;
    bool uses_ml; /* the ONNX-ML operators */
    size_t n_names;
};

/* ---- memory of one export, freed together ---- */

static bool append(list *l, void *p)
{
    mr_code rc = MR_GROW(l->v, l->capacity, l->n + 1, MAX_PARTS, "an ONNX graph", NULL);
    if (rc == MR_OK)
        l->v[l->n++] = p;
    return rc == MR_OK;
}

static void *keep(mr_onnx *g, size_t bytes)
{
    void *p = mr_calloc(1, bytes + 1);
    if (p && !append(&g->kept, p)) {
        mr_free(p);
        return NULL;
    }
    return p;
}

static char *keep_text(mr_onnx *g, const char *text)
{
    char *copy = keep(g, strlen(text));
    if (copy)
        strcpy(copy, text);
    return copy;
}

static mr_code fail_memory(mr_status *st)
{
    return mr_fail_memory(st, 0, "an ONNX graph");
}

/* A unique name: "dense_1:0". */
static char *fresh_name(mr_onnx *g)
{
    char text[128];
    snprintf(text, sizeof text, "%.100s:%zu", g->m->layers[g->layer].name, g->n_names++);
    return keep_text(g, text);
}

/* ---- constants ---- */

static const char *add_constant(mr_onnx *g, char *name, int32_t type, int rank,
                                const int64_t *shape, const void *values, size_t bytes)
{
    Mr__Onnx__TensorProto *t = keep(g, sizeof *t);
    int64_t *dims = keep(g, (size_t)rank * sizeof *dims);
    void *data = keep(g, bytes);
    if (!t || !dims || !data || !name)
        return NULL;
    mr__onnx__tensor_proto__init(t);
    if (rank > 0)
        memcpy(dims, shape, (size_t)rank * sizeof *dims);
    if (bytes > 0)
        memcpy(data, values, bytes);
    t->name = name;
    t->data_type = type;
    t->n_dims = (size_t)rank;
    t->dims = dims;
    t->raw_data = (ProtobufCBinaryData){bytes, data};
    return append(&g->constants, t) ? name : NULL;
}

const char *mr_onnx_floats(mr_onnx *g, int rank, const int64_t *shape, const float *values)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)shape[i];
    return add_constant(g, fresh_name(g), TYPE_FLOAT, rank, shape, values, n * sizeof *values);
}

const char *mr_onnx_ints(mr_onnx *g, size_t n, const int64_t *values)
{
    const int64_t shape = (int64_t)n;
    return add_constant(g, fresh_name(g), TYPE_INT64, 1, &shape, values, n * sizeof *values);
}

static size_t variable_of(const mr_onnx *g, size_t i)
{
    size_t shares = g->m->layers[g->layer].shares;
    return g->m->first_variable[shares > 0 ? shares - 1 : g->layer] + i;
}

const float *mr_onnx_values(const mr_onnx *g, size_t i)
{
    return g->values[variable_of(g, i)];
}

const char *mr_onnx_variable(mr_onnx *g, size_t i)
{
    const mr_variable *v = g->m->variables[variable_of(g, i)];
    if (g->has_constant[variable_of(g, i)]) /* layers may share it */
        return keep_text(g, mr_variable_name(v));
    g->has_constant[variable_of(g, i)] = true;
    return add_constant(g, keep_text(g, mr_variable_name(v)), TYPE_FLOAT, mr_variable_rank(v),
                        mr_variable_shape(v), mr_onnx_values(g, i),
                        mr_variable_size(v) * sizeof(float));
}

/* ---- nodes ---- */

static Mr__Onnx__AttributeProto *make_attribute(mr_onnx *g, const mr_onnx_attribute *a)
{
    Mr__Onnx__AttributeProto *p = keep(g, sizeof *p);
    int64_t *ints = keep(g, sizeof a->ints);
    char *name = keep_text(g, a->name);
    if (!p || !ints || !name)
        return NULL;
    mr__onnx__attribute_proto__init(p);
    p->name = name;
    p->i = a->i;
    p->f = a->f;
    if (a->type == MR_ONNX_INT)
        p->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    else if (a->type == MR_ONNX_FLOAT)
        p->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    else {
        p->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        memcpy(ints, a->ints, a->n * sizeof *ints);
        p->n_ints = a->n;
        p->ints = ints;
    }
    return p;
}

/* Appends a node with room for its inputs and attributes; NULL: out of memory. */
static Mr__Onnx__NodeProto *new_node(mr_onnx *g, const char *op, size_t n, size_t n_attributes)
{
    Mr__Onnx__NodeProto *node = keep(g, sizeof *node);
    char **in = keep(g, n * sizeof *in), **out = keep(g, sizeof *out);
    Mr__Onnx__AttributeProto **all = keep(g, n_attributes * sizeof *all);
    char *type = keep_text(g, op), *name = fresh_name(g);
    if (!node || !in || !out || !all || !type || !name)
        return NULL;
    mr__onnx__node_proto__init(node);
    out[0] = name;
    node->name = name;
    node->op_type = type;
    node->n_input = n;
    node->input = in;
    node->n_output = 1;
    node->output = out;
    node->n_attribute = n_attributes;
    node->attribute = all;
    return append(&g->nodes, node) ? node : NULL;
}

mr_code mr__onnx_node_of(mr_onnx *g, const char *op, const char *const *inputs, size_t n,
                         const mr_onnx_attribute *attributes, size_t n_attributes, mr_status *st)
{
    Mr__Onnx__NodeProto *node = new_node(g, op, n, n_attributes);
    if (!node)
        return fail_memory(st);
    for (size_t i = 0; i < n; i++)
        if (!(node->input[i] = (char *)(uintptr_t)inputs[i]))
            return fail_memory(st);
    for (size_t i = 0; i < n_attributes; i++)
        if (!(node->attribute[i] = make_attribute(g, &attributes[i])))
            return fail_memory(st);
    g->last = node->name;
    return MR_OK;
}

mr_code mr_onnx_node(mr_onnx *g, const char *op, const char *const *inputs, size_t n,
                     const mr_onnx_attribute *attributes, size_t n_attributes, mr_status *st)
{
    const char **all = keep(g, (n + 1) * sizeof *all);
    if (!all)
        return fail_memory(st);
    all[0] = g->last;
    for (size_t i = 0; i < n; i++)
        all[i + 1] = inputs[i];
    return mr__onnx_node_of(g, op, all, n + 1, attributes, n_attributes, st);
}

/* ---- types ---- */

static int32_t number_of(mr_dtype t)
{
    return t == MR_STRING ? TYPE_STRING : t == MR_INT64 ? TYPE_INT64 : TYPE_FLOAT;
}

void mr__onnx_gives(mr_onnx *g, mr_dtype t)
{
    g->type = t;
}

const char *mr__onnx_last(const mr_onnx *g)
{
    return g->last;
}

const char *mr__onnx_result(const mr_onnx *g, size_t layer)
{
    return g->results[layer];
}

/* The input that the layer reads, possibly reshaped; n_inputs: none. */
static size_t features_read(const mr_onnx *g)
{
    const mr_layer *all = g->m->layers;
    size_t at = all[g->layer].source;
    while (at > 0 && all[at - 1].desc->view && !all[at - 1].desc->prepare &&
           all[at - 1].desc != &mr__residual_begin && all[at - 1].input == 0)
        at = all[at - 1].source;
    return mr__input_made(g->m, at);
}

/* An input that several layers read has the type required by the first of them. */
static bool is_settled(const mr_onnx *g, size_t input)
{
    size_t readers = 0;
    for (size_t i = 0; i < g->m->n_layers && g->m->input_layers[input] > 0; i++)
        for (size_t k = 0; k < g->m->layers[i].n_inputs; k++)
            readers += mr__source_of(&g->m->layers[i], k) == g->m->input_layers[input];
    return readers > 1;
}

static mr_code cast(mr_onnx *g, mr_dtype t, mr_status *st)
{
    const mr_onnx_attribute to = {"to", MR_ONNX_INT, .i = number_of(t)};
    if (g->type == t)
        return MR_OK;
    g->type = t;
    return mr_onnx_node(g, "Cast", NULL, 0, &to, 1, st);
}

mr_code mr__onnx_take(mr_onnx *g, mr_dtype t, mr_status *st)
{
    size_t input = features_read(g);
    if (input == g->m->n_inputs || is_settled(g, input))
        return cast(g, t, st);
    g->features[input] = g->type = t;
    return MR_OK;
}

static mr_code merge(const mr_layer *l, mr_onnx *g, const char *op,
                     const mr_onnx_attribute *attributes, size_t n, mr_status *st)
{
    const char **all = keep(g, l->n_inputs * sizeof *all);
    if (!all)
        return fail_memory(st);
    for (size_t k = 0; k < l->n_inputs; k++) {
        g->last = g->results[l->sources[k] - 1];
        g->type = g->types[l->sources[k] - 1];
        MR_TRY(cast(g, MR_FLOAT32, st));
        all[k] = g->last;
    }
    return mr__onnx_node_of(g, op, all, l->n_inputs, attributes, n, st);
}

mr_code mr__onnx_merge(const mr_layer *l, mr_onnx *g, const char *op, mr_status *st)
{
    return merge(l, g, op, NULL, 0, st);
}

mr_code mr__onnx_joined(const mr_layer *l, mr_onnx *g, int64_t axis, mr_status *st)
{
    const mr_onnx_attribute along = {"axis", MR_ONNX_INT, .i = axis};
    return merge(l, g, "Concat", &along, 1, st);
}

/* ---- ONNX-ML operators ---- */

static Mr__Onnx__AttributeProto *named_attribute(mr_onnx *g, const char *name, size_t n)
{
    Mr__Onnx__AttributeProto *a = keep(g, sizeof *a);
    int64_t *ints = keep(g, n * sizeof *ints);
    char *copy = keep_text(g, name);
    if (!a || !ints || !copy)
        return NULL;
    mr__onnx__attribute_proto__init(a);
    a->name = copy;
    a->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    a->n_ints = n;
    a->ints = ints;
    return a;
}

/* The attribute with the tokens. */
static Mr__Onnx__AttributeProto *keys_of(mr_onnx *g, const mr_bytes *strings,
                                         const int64_t *integers, size_t n)
{
    Mr__Onnx__AttributeProto *a = named_attribute(g, strings ? "keys_strings" : "keys_int64s", n);
    ProtobufCBinaryData *items = keep(g, n * sizeof *items);
    if (!a || !items)
        return NULL;
    for (size_t i = 0; i < n && integers; i++)
        a->ints[i] = integers[i];
    if (integers)
        return a;
    a->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    a->n_ints = 0;
    a->n_strings = n;
    a->strings = items;
    for (size_t i = 0; i < n; i++) {
        char *copy = keep(g, strings[i].size);
        if (!copy)
            return NULL;
        if (strings[i].size > 0)
            memcpy(copy, strings[i].data, strings[i].size);
        items[i] = (ProtobufCBinaryData){strings[i].size, (uint8_t *)copy};
    }
    return a;
}

mr_code mr__onnx_encode(mr_onnx *g, const mr_bytes *strings, const int64_t *integers, size_t n,
                        int64_t from, mr_status *st)
{
    MR_TRY(mr__onnx_take(g, strings ? MR_STRING : MR_INT64, st));
    Mr__Onnx__NodeProto *node = new_node(g, "LabelEncoder", 1, 3);
    Mr__Onnx__AttributeProto *keys = keys_of(g, strings, integers, n);
    Mr__Onnx__AttributeProto *values = named_attribute(g, "values_int64s", n),
                             *other = named_attribute(g, "default_int64", 0);
    char *domain = keep_text(g, ml_domain);
    if (!node || !keys || !values || !other || !domain)
        return fail_memory(st);
    for (size_t i = 0; i < n; i++)
        values->ints[i] = from + (int64_t)i;
    other->type = MR__ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT; /* for 0 */
    node->domain = domain;
    node->input[0] = g->last;
    node->attribute[0] = keys;
    node->attribute[1] = values;
    node->attribute[2] = other;
    g->last = node->name;
    g->type = MR_INT64;
    g->uses_ml = true;
    return MR_OK;
}

mr_code mr_onnx_activation(mr_onnx *g, mr_math_activation f, mr_status *st)
{
    static const float zero = 0, six = 6;
    static const mr_onnx_attribute last_axis = {"axis", MR_ONNX_INT, .i = -1},
                                   slope = {"alpha", MR_ONNX_FLOAT, .f = 0.2f};
    static const char *const plain[] = {
        [MR_ACT_RELU] = "Relu",         [MR_ACT_SIGMOID] = "Sigmoid",
        [MR_ACT_TANH] = "Tanh",         [MR_ACT_ELU] = "Elu",
        [MR_ACT_SELU] = "Selu",         [MR_ACT_SOFTPLUS] = "Softplus",
        [MR_ACT_SOFTSIGN] = "Softsign", [MR_ACT_EXPONENTIAL] = "Exp"};
    if (f == MR_ACT_LINEAR)
        return MR_OK;
    if (f == MR_ACT_SOFTMAX)
        return mr_onnx_node(g, "Softmax", NULL, 0, &last_axis, 1, st);
    if (f == MR_ACT_LEAKY_RELU)
        return mr_onnx_node(g, "LeakyRelu", NULL, 0, &slope, 1, st);
    if (f == MR_ACT_RELU6) {
        const char *const bounds[] = {mr_onnx_floats(g, 0, NULL, &zero),
                                      mr_onnx_floats(g, 0, NULL, &six)};
        return mr_onnx_node(g, "Clip", bounds, 2, NULL, 0, st);
    }
    if ((size_t)f < sizeof plain / sizeof *plain && plain[f])
        return mr_onnx_node(g, plain[f], NULL, 0, NULL, 0, st);
    return mr_fail(st, MR_UNIMPLEMENTED,
                   "ONNX export does not know one of the model's activations");
}

/* Reshapes the values; 0 keeps the existing dimension, the batch. */
static mr_code reshape(mr_onnx *g, const mr_dims *to, mr_status *st)
{
    int64_t shape[MR_MAX_RANK + 1] = {0};
    for (int i = 0; i < to->rank; i++)
        shape[i + 1] = to->shape[i];
    const char *name = mr_onnx_ints(g, (size_t)to->rank + 1, shape);
    return mr_onnx_node(g, "Reshape", &name, 1, NULL, 0, st);
}

/* The name of an input in the file. */
static char *name_of(const mr_onnx *g, size_t input)
{
    return g->m->n_inputs > 1 ? (char *)(uintptr_t)mr_model_input_name(g->m, input) : input_name;
}

static char *output_name_of(const mr_onnx *g, size_t i)
{
    return g->m->n_outputs > 1 ? (char *)(uintptr_t)mr_model_output_name(g->m, i) : output_name;
}

/* Adds a node with the output's name. */
static mr_code add_output(mr_onnx *g, size_t i, mr_status *st)
{
    g->layer = g->m->outputs[i] - 1;
    g->last = g->results[g->layer];
    g->type = g->types[g->layer];
    MR_TRY(cast(g, MR_FLOAT32, st));
    MR_TRY(mr_onnx_node(g, "Identity", NULL, 0, NULL, 0, st));
    Mr__Onnx__NodeProto *end = g->nodes.v[g->nodes.n - 1];
    end->output[0] = output_name_of(g, i);
    return MR_OK;
}

static mr_code add_layers(mr_onnx *g, mr_status *st)
{
    const mr_model *m = g->m;
    g->results = keep(g, m->n_layers * sizeof *g->results);
    g->types = keep(g, m->n_layers * sizeof *g->types);
    if (!g->results || !g->types)
        return fail_memory(st);
    for (g->layer = 0; g->layer < m->n_layers; g->layer++) {
        const mr_layer *l = &m->layers[g->layer];
        g->last = l->source > 0 ? g->results[l->source - 1] : input_name;
        g->type = l->source > 0 ? g->types[l->source - 1] : g->features[0];
        if (l->input > 0) {
            g->results[g->layer] = name_of(g, l->input - 1);
            g->types[g->layer] = MR_FLOAT32;
            continue;
        }
        if (!l->desc->takes_numbers && !l->desc->prepare && !l->desc->view)
            MR_TRY(mr__onnx_take(g, MR_FLOAT32, st));
        if (l->desc->onnx)
            MR_TRY(l->desc->onnx(l, g, st));
        else if (l->desc->view && !l->desc->prepare)
            MR_TRY(reshape(g, &l->out, st));
        else
            return mr_fail(
                st, MR_UNIMPLEMENTED,
                "layer %s: a %s cannot be exported as ONNX: its descriptor has no export", l->name,
                l->desc->is.name);
        g->results[g->layer] = g->last;
        g->types[g->layer] = g->type;
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        MR_TRY(add_output(g, i, st));
    return MR_OK;
}

/* ---- the file ---- */

static Mr__Onnx__ValueInfoProto *describe(mr_onnx *g, char *name, const mr_dims *d, mr_dtype t)
{
    size_t n = (size_t)d->rank + 1;
    Mr__Onnx__ValueInfoProto *v = keep(g, sizeof *v);
    Mr__Onnx__TypeProto *type = keep(g, sizeof *type);
    Mr__Onnx__TypeProto__Tensor *tensor = keep(g, sizeof *tensor);
    Mr__Onnx__TensorShapeProto *shape = keep(g, sizeof *shape);
    Mr__Onnx__TensorShapeProto__Dimension **dims = keep(g, n * sizeof *dims);
    if (!v || !type || !tensor || !shape || !dims)
        return NULL;
    mr__onnx__value_info_proto__init(v);
    mr__onnx__type_proto__init(type);
    mr__onnx__type_proto__tensor__init(tensor);
    mr__onnx__tensor_shape_proto__init(shape);
    for (size_t i = 0; i < n; i++) {
        if (!(dims[i] = keep(g, sizeof **dims)))
            return NULL;
        mr__onnx__tensor_shape_proto__dimension__init(dims[i]);
        if (i == 0) {
            dims[i]->value_case = MR__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dims[i]->dim_param = batch_name;
        } else {
            dims[i]->value_case = MR__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dims[i]->dim_value = d->shape[i - 1];
        }
    }
    shape->n_dim = n;
    shape->dim = dims;
    tensor->elem_type = number_of(t);
    tensor->shape = shape;
    type->tensor_type = tensor;
    v->name = name;
    v->type = type;
    return v;
}

static mr_code write_model(const mr_onnx *g, Mr__Onnx__ValueInfoProto **in,
                           Mr__Onnx__ValueInfoProto **out, const char *path, mr_status *st)
{
    static char name[] = "model", producer[] = "millrace", version[] = MR_VERSION, domain[] = "";
    Mr__Onnx__OperatorSetIdProto opset = MR__ONNX__OPERATOR_SET_ID_PROTO__INIT,
                                 ml = MR__ONNX__OPERATOR_SET_ID_PROTO__INIT,
                                 *opsets[] = {&opset, &ml};
    Mr__Onnx__GraphProto graph = MR__ONNX__GRAPH_PROTO__INIT;
    Mr__Onnx__ModelProto model = MR__ONNX__MODEL_PROTO__INIT;
    opset.domain = domain;
    opset.version = OPSET;
    ml.domain = ml_domain;
    ml.version = ML_OPSET;
    graph.name = name;
    graph.n_node = g->nodes.n;
    graph.node = (Mr__Onnx__NodeProto **)g->nodes.v;
    graph.n_initializer = g->constants.n;
    graph.initializer = (Mr__Onnx__TensorProto **)g->constants.v;
    graph.n_input = g->m->n_inputs;
    graph.n_output = g->m->n_outputs;
    graph.input = in;
    graph.output = out;
    model.ir_version = IR_VERSION;
    model.producer_name = producer;
    model.producer_version = version;
    model.graph = &graph;
    model.n_opset_import = g->uses_ml ? 2 : 1;
    model.opset_import = opsets;
    size_t size = mr__onnx__model_proto__get_packed_size(&model);
    if (size > max_bytes)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model has %zu bytes as ONNX, but one file holds 2 GiB at most", size);
    uint8_t *bytes = mr_malloc(size);
    if (!bytes)
        return mr_fail_memory(st, size, "an ONNX file");
    mr__onnx__model_proto__pack(&model, bytes);
    mr_code rc = mr_file_replace(path, bytes, size, st);
    mr_free(bytes);
    return rc;
}

static mr_code read_values(mr_onnx *g, mr_status *st)
{
    g->values = keep(g, g->m->n_variables * sizeof *g->values);
    g->has_constant = keep(g, g->m->n_variables * sizeof *g->has_constant);
    if (!g->values || !g->has_constant)
        return fail_memory(st);
    for (size_t i = 0; i < g->m->n_variables; i++) {
        const mr_variable *v = g->m->variables[i];
        if (!(g->values[i] = keep(g, mr_variable_size(v) * sizeof(float))))
            return fail_memory(st);
        MR_TRY(mr_variable_read(v, g->values[i], st));
    }
    return MR_OK;
}

static mr_code export_model(mr_onnx *g, const char *path, mr_status *st)
{
    const mr_model *m = g->m;
    for (size_t i = 0; i < m->n_inputs; i++)
        g->features[i] = MR_FLOAT32;
    MR_TRY(read_values(g, st));
    MR_TRY(add_layers(g, st));
    Mr__Onnx__ValueInfoProto *in[MR_MAX_INPUTS], *out[MR_MAX_OUTPUTS];
    for (size_t i = 0; i < m->n_inputs; i++) {
        mr_dims shape = m->built_for;
        if (m->input_layers[i] > 0)
            shape = m->layers[m->input_layers[i] - 1].out;
        if (!(in[i] = describe(g, name_of(g, i), &shape, g->features[i])))
            return fail_memory(st);
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        if (!(out[i] =
                  describe(g, output_name_of(g, i), &m->layers[m->outputs[i] - 1].out, MR_FLOAT32)))
            return fail_memory(st);
    return write_model(g, in, out, path, st);
}

mr_code mr_onnx_export(const mr_model *m, const char *path, mr_status *st)
{
    mr_onnx g = {.m = m};
    if (!mr_model_is_built(m))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the model is not built, so it has no weights to export");
    mr_code rc = export_model(&g, path, st);
    for (size_t i = 0; i < g.kept.n; i++)
        mr_free(g.kept.v[i]);
    mr_free(g.kept.v);
    mr_free(g.nodes.v);
    mr_free(g.constants.v);
    return rc;
}
