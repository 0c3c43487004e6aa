/* SPDX-License-Identifier: Apache-2.0 */
/* Converts graphs to protobuf (graph.proto). An item is added after the items that it refers to.
 * Tensors and strings point into the graph until they are packed. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/libprotobuf.h"
#include "pipeline/graph/graph.pb-c.h"
#include "pipeline/params/literal.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/id_map.h"
#include "pipeline/params/infer.h"
#include "pipeline/params/params.h"

enum {
    FORMAT = 1, /* Graph.version */
    MAX_LEVEL = MR_EXPR_MAX_DEPTH,
    MAX_ITEMS = 1 << 24
};
#define MAX_BYTES ((size_t)1 << 31) /* limit of protobuf */

static const char too_large[] = "a graph of %zu bytes exceeds protobuf's limit of 2 GiB; read "
                                "large constants from files";

/* Memory that is kept until the message is packed. */
struct chunk {
    struct chunk *next;
    max_align_t data[];
};

/* A copy of a parameter, which items point into. */
struct kept {
    struct kept *next;
    mr_value v;
};

struct writer {
    Mr__Graph__Item **items;
    size_t n, capacity;
    mr__id_map nodes; /* indices of the items of nodes */
    struct chunk *chunks;
    struct kept *kept;
    int level;
    bool origins; /* are written */
    mr_status *st;
};

static mr_code write_dataset(struct writer *w, const mr_dataset *ds, uint32_t *index);

static void *allocate(struct writer *w, size_t bytes)
{
    struct chunk *c = mr_calloc(1, sizeof *c + bytes);
    if (!c) {
        mr_fail_memory(w->st, bytes, "the protobuf form of a graph");
        return NULL;
    }
    c->next = w->chunks;
    w->chunks = c;
    return c->data;
}

/* A graph without origins is compared, so that presigned URLs may have another signature. */
static mr_code write_string(struct writer *w, const void *data, size_t n, ProtobufCBinaryData *to)
{
    to->data = (uint8_t *)(uintptr_t)data;
    to->len = n;
    if (w->origins || !n || !memmem(data, n, "://", 3) || memchr(data, 0, n))
        return MR_OK;
    char *text = allocate(w, n + 1);
    if (!text)
        return MR_RESOURCE_EXHAUSTED;
    memcpy(text, data, n);
    mr_text_drop_secrets(text);
    to->data = (uint8_t *)text;
    to->len = strlen(text);
    return MR_OK;
}

static mr_code enter(struct writer *w)
{
    if (++w->level > MAX_LEVEL)
        return mr_fail(w->st, MR_FAILED_PRECONDITION,
                       "a graph nested more than %d levels deep cannot be serialized", MAX_LEVEL);
    return MR_OK;
}

/* Adds an empty item; its index is w->n - 1. */
static mr_code add_item(struct writer *w, Mr__Graph__Item **out)
{
    MR_TRY(
        MR_GROW(w->items, w->capacity, w->n + 1, MAX_ITEMS, "the protobuf form of a graph", w->st));
    Mr__Graph__Item *item = allocate(w, sizeof *item);
    if (!item)
        return MR_RESOURCE_EXHAUSTED;
    mr__graph__item__init(item);
    w->items[w->n++] = item;
    *out = item;
    return MR_OK;
}

/* ---- functions and values ---- */

static mr_code write_value(struct writer *w, const mr_value *v, uint32_t *index);

/* The text of the expression, or the name of the callback; owned by w. */
static mr_code write_text(struct writer *w, const mr_fn *fn, char **text)
{
    char *printed = NULL;
    if (fn->error)
        return mr_fail(w->st, fn->error->code, "%s", fn->error->message);
    if (fn->kind == MR_FN_EXPR)
        MR_TRY(mr_expr_print(fn->expr, &printed, w->st));
    else if (!fn->name)
        return mr_fail(w->st, MR_FAILED_PRECONDITION,
                       "a C function that is not registered cannot be serialized; give it a name "
                       "in mr_fn_opts");
    const char *source = printed ? printed : fn->name;
    *text = allocate(w, strlen(source) + 1);
    if (*text)
        strcpy(*text, source);
    if (*text && !w->origins)
        mr_text_drop_secrets(*text);
    mr_free(printed);
    return *text ? MR_OK : MR_RESOURCE_EXHAUSTED;
}

/* Writes the shapes that the template of an instance had for its captures. */
static mr_code write_capture_shapes(struct writer *w, const mr_fn *fn, Mr__Graph__Function *f)
{
    size_t n = 0;
    for (size_t i = 0; fn->capture_specs && i < fn->n_captures; i++) {
        if (!fn->capture_specs[i])
            return MR_OK;
        n += mr__spec_shapes_count(fn->capture_specs[i]);
    }
    if (n == 0)
        return MR_OK;
    int64_t *at = f->shapes = allocate(w, n * sizeof *f->shapes);
    if (!at)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < fn->n_captures; i++)
        at = mr__spec_shapes(fn->capture_specs[i], at);
    f->n_shapes = n;
    return MR_OK;
}

static mr_code write_fn(struct writer *w, const mr_fn *fn, uint32_t *index)
{
    Mr__Graph__Function *f = allocate(w, sizeof *f);
    uint32_t *captures = allocate(w, fn->n_captures * sizeof *captures);
    if (!f || !captures)
        return MR_RESOURCE_EXHAUSTED;
    mr__graph__function__init(f);
    MR_TRY(write_text(w, fn, &f->text));
    for (size_t i = 0; i < fn->n_captures; i++)
        MR_TRY(write_value(w, &fn->captures[i], &captures[i]));
    f->n_captures = f->n_capture_names = fn->n_captures;
    f->captures = captures;
    f->capture_names = fn->capture_names;
    MR_TRY(write_capture_shapes(w, fn, f));
    Mr__Graph__Item *item;
    MR_TRY(add_item(w, &item));
    item->function = f;
    *index = (uint32_t)(w->n - 1);
    return MR_OK;
}

static mr_code write_tensor(struct writer *w, const mr_array *a, Mr__Graph__Value *to)
{
    const int64_t *shape = mr_array_row_shape(a, 0), *splits = NULL;
    size_t values = 1;
    int from = 0;
    if (a->storage == MR_RAGGED && (splits = ((const mr_row *)a->data)->splits)) {
        values = (size_t)splits[shape[0]];
        from = 2;
        to->n_splits = (size_t)shape[0] + 1;
        to->splits = (int64_t *)(uintptr_t)splits;
    }
    for (int d = from; d < a->rank; d++)
        values *= (size_t)shape[d];
    to->dtype = (char *)(uintptr_t)mr_dtype_name(a->dtype);
    to->n_shape = (size_t)a->rank;
    to->shape = (int64_t *)(uintptr_t)shape;
    const void *data = mr__literal_values(a);
    if (a->dtype != MR_STRING) {
        to->data.data = (uint8_t *)(uintptr_t)data;
        to->data.len = values * mr_dtype_size(a->dtype);
        return MR_OK;
    }
    to->n_strings = values;
    to->strings = allocate(w, values * sizeof *to->strings);
    if (!to->strings)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < values; i++) {
        const mr_bytes *b = (const mr_bytes *)data + i;
        MR_TRY(write_string(w, b->data, b->size, &to->strings[i]));
    }
    return MR_OK;
}

static mr_code write_items(struct writer *w, const mr_value *v, Mr__Graph__Value *to)
{
    to->items = allocate(w, v->n * sizeof *to->items);
    if (!to->items)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < v->n; i++)
        MR_TRY(write_value(w, &v->items[i], &to->items[i]));
    to->n_items = v->n;
    if (v->kind == MR_V_RECORD) {
        to->n_names = v->n;
        to->names = v->names;
    }
    return MR_OK;
}

static mr_code write_content(struct writer *w, const mr_value *v, Mr__Graph__Value *to)
{
    to->kind = (Mr__Graph__Kind)v->kind;
    to->computed = v->computed;
    switch (v->kind) {
    case MR_V_BOOL:
    case MR_V_INT:
        to->i = v->i;
        break;
    case MR_V_FLOAT:
        to->f = v->f;
        break;
    case MR_V_STRING:
        return write_string(w, v->s, v->size, &to->s);
    case MR_V_TENSOR:
        to->resident = v->tensor.resident;
        return write_tensor(w, &v->tensor, to);
    case MR_V_LIST:
    case MR_V_TUPLE:
    case MR_V_RECORD:
        return write_items(w, v, to);
    case MR_V_FN:
        return write_fn(w, v->fn, &to->ref);
    case MR_V_DATASET:
        return write_dataset(w, v->dataset, &to->ref);
    case MR_V_UNKNOWN:
        return mr_fail(w->st, MR_FAILED_PRECONDITION,
                       "a value that is known only when a function is called cannot be "
                       "serialized");
    case MR_V_UNSET:
    case MR_V_NONE:
    case MR_V_AUTO:
        break;
    }
    return MR_OK;
}

static mr_code write_value(struct writer *w, const mr_value *v, uint32_t *index)
{
    Mr__Graph__Value *to = allocate(w, sizeof *to);
    if (!to)
        return MR_RESOURCE_EXHAUSTED;
    mr__graph__value__init(to);
    MR_TRY(enter(w));
    MR_TRY(write_content(w, v, to));
    w->level--;
    Mr__Graph__Item *item;
    MR_TRY(add_item(w, &item));
    item->value = to;
    *index = (uint32_t)(w->n - 1);
    return MR_OK;
}

/* ---- nodes ---- */

static mr_code write_params(struct writer *w, const mr_dataset *ds, Mr__Graph__Node *to)
{
    const mr_op *op = mr_dataset_op(ds);
    size_t n = mr__params_count(op->params);
    to->params = allocate(w, n * sizeof *to->params);
    if (!to->params)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        struct kept *k = allocate(w, sizeof *k);
        Mr__Graph__Param *param = allocate(w, sizeof *param);
        if (!k || !param)
            return MR_RESOURCE_EXHAUSTED;
        MR_TRY(mr_dataset_param(ds, i, &k->v, w->st));
        k->next = w->kept;
        w->kept = k;
        if (k->v.kind == MR_V_UNSET)
            continue;
        mr__graph__param__init(param);
        param->key = (char *)(uintptr_t)op->params[i].name;
        MR_TRY(write_value(w, &k->v, &param->value));
        to->params[to->n_params++] = param;
    }
    return MR_OK;
}

static mr_code write_node(struct writer *w, const mr_dataset *ds)
{
    Mr__Graph__Node *to = allocate(w, sizeof *to);
    if (!to)
        return MR_RESOURCE_EXHAUSTED;
    mr__graph__node__init(to);
    to->op = (char *)(uintptr_t)mr_dataset_op(ds)->name;
    to->n_inputs = mr_dataset_n_inputs(ds);
    to->inputs = allocate(w, to->n_inputs * sizeof *to->inputs);
    if (!to->inputs)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < to->n_inputs; i++)
        to->inputs[i] = (uint32_t)*mr__id_map_find(&w->nodes, (uintptr_t)mr_dataset_input(ds, i));
    MR_TRY(write_params(w, ds, to));
    if (mr__dataset_widened(ds)) {
        const mr_spec *spec = mr_dataset_spec(ds);
        to->n_shapes = mr__spec_shapes_count(spec);
        to->shapes = allocate(w, to->n_shapes * sizeof *to->shapes);
        if (!to->shapes)
            return MR_RESOURCE_EXHAUSTED;
        mr__spec_shapes(spec, to->shapes);
    }
    const mr__origin origin = w->origins ? mr__dataset_origin(ds) : (mr__origin){0};
    to->has_place = origin.has_place;
    to->place = origin.place;
    to->has_seed = origin.has_seed;
    to->seed = origin.seed;
    Mr__Graph__Item *item;
    MR_TRY(add_item(w, &item));
    item->node = to;
    return mr__id_map_put(&w->nodes, (uintptr_t)ds, w->n - 1, w->st);
}

/* Writes the nodes of ds that have no item yet; *index is the item of ds. */
static mr_code write_dataset(struct writer *w, const mr_dataset *ds, uint32_t *index)
{
    mr__nodes order;
    MR_TRY(mr_dataset_check(ds, w->st));
    MR_TRY(enter(w));
    MR_TRY(mr__nodes_of(ds, &order, w->st));
    mr_code rc = MR_OK;
    for (size_t i = 0; rc == MR_OK && i < order.n; i++)
        if (!mr__id_map_find(&w->nodes, (uintptr_t)order.v[i]))
            rc = write_node(w, order.v[i]);
    mr__nodes_reset(&order);
    w->level--;
    if (rc == MR_OK)
        *index = (uint32_t)*mr__id_map_find(&w->nodes, (uintptr_t)ds);
    return rc;
}

static void reset_writer(struct writer *w)
{
    for (struct kept *k = w->kept; k; k = k->next)
        mr_value_reset(&k->v);
    while (w->chunks) {
        struct chunk *next = w->chunks->next;
        mr_free(w->chunks);
        w->chunks = next;
    }
    mr__id_map_reset(&w->nodes);
    mr_free(w->items);
}

static mr_code to_proto(const mr_dataset *ds, bool origins, void **bytes, size_t *size,
                        mr_status *st)
{
    struct writer w = {.st = st, .origins = origins};
    uint32_t root;
    MR_TRY(mr__protobuf_need(st));
    mr_code rc = write_dataset(&w, ds, &root);
    if (rc == MR_OK) {
        Mr__Graph__Graph graph = MR__GRAPH__GRAPH__INIT;
        graph.version = FORMAT;
        graph.n_items = w.n;
        graph.items = w.items;
        size_t n = mr__graph__graph__get_packed_size(&graph);
        uint8_t *packed = n < MAX_BYTES ? mr_malloc(n) : NULL;
        if (packed) {
            *size = mr__graph__graph__pack(&graph, packed);
            *bytes = packed;
        } else
            rc = n < MAX_BYTES ? mr_fail_memory(st, n, "the protobuf form of a graph")
                               : mr_fail(st, MR_FAILED_PRECONDITION, too_large, n);
    }
    reset_writer(&w);
    return rc;
}

mr_code mr_dataset_to_proto(const mr_dataset *ds, void **bytes, size_t *size, mr_status *st)
{
    return to_proto(ds, true, bytes, size, st);
}

mr_code mr__dataset_to_bare_proto(const mr_dataset *ds, void **bytes, size_t *size, mr_status *st)
{
    return to_proto(ds, false, bytes, size, st);
}
