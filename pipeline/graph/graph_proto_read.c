/* SPDX-License-Identifier: Apache-2.0 */
/* Reads graphs from protobuf. The bytes are untrusted: memory for unpacking is bounded by the size
 * of the input; references must point backwards; a value or function is moved to the only item that
 * refers to it; lengths are checked against the available bytes. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/libprotobuf.h"
#include "pipeline/graph/graph.pb-c.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/params/infer.h"
#include "pipeline/params/params.h"

enum {
    FORMAT = 1,
    MAX_DEPTH = 256,    /* of nested lists */
    MEMORY_FACTOR = 64, /* unpacked bytes for each byte of input: an empty item takes 2 */
    MEMORY_BASE = 64 << 10
};

/* The result for an item; empty after a value or function was moved out. */
struct made {
    mr_dataset *node;
    mr_value value;
    mr_fn *fn;
    bool is_value;
    int depth; /* levels of lists and captures in the value or function */
};

struct reader {
    const Mr__Graph__Graph *graph;
    struct made *made;
    size_t at; /* the current item */
    mr_status *st;
};

static mr_code malformed(struct reader *r, const char *what)
{
    return mr_fail(r->st, MR_INVALID_ARGUMENT, "malformed graph: item %zu: %s", r->at, what);
}

/* ---- references ---- */

static mr_code take_value(struct reader *r, uint32_t index, mr_value *out, int *depth)
{
    if (index >= r->at || !r->made[index].is_value)
        return malformed(r, "expected an earlier value that nothing else refers to");
    struct made *m = &r->made[index];
    if (m->depth >= *depth)
        *depth = m->depth + 1;
    *out = m->value;
    m->value = (mr_value){0};
    m->is_value = false;
    return MR_OK;
}

static mr_code find_node(struct reader *r, uint32_t index, mr_dataset **out)
{
    if (index >= r->at || !r->made[index].node)
        return malformed(r, "expected an earlier node");
    *out = r->made[index].node;
    return MR_OK;
}

static mr_code take_fn(struct reader *r, uint32_t index, mr_fn **out, int *depth)
{
    if (index >= r->at || !r->made[index].fn)
        return malformed(r, "expected an earlier function that nothing else refers to");
    if (r->made[index].depth >= *depth)
        *depth = r->made[index].depth + 1;
    *out = r->made[index].fn;
    r->made[index].fn = NULL;
    return MR_OK;
}

/* ---- tensors ---- */

/* Multiplies *values by the dimensions from axis `from` on; false if one is negative or the result
 * overflows. */
static bool count_values(const Mr__Graph__Value *v, size_t from, size_t *values)
{
    for (size_t d = from; d < v->n_shape; d++)
        if (v->shape[d] < 0 || __builtin_mul_overflow(*values, (size_t)v->shape[d], values))
            return false;
    return true;
}

static bool good_splits(const Mr__Graph__Value *v)
{
    if (v->n_shape < 2 || v->shape[1] != -1 || v->shape[0] < 0 ||
        v->n_splits - 1 != (uint64_t)v->shape[0] || v->splits[0] != 0)
        return false;
    for (size_t i = 1; i < v->n_splits; i++)
        if (v->splits[i] < v->splits[i - 1])
            return false;
    return true;
}

/* Copies all strings to one buffer, which the buffer of the views holds. */
static mr_code fill_strings(struct reader *r, const Mr__Graph__Value *v, mr_array *a)
{
    size_t bytes = 0;
    for (size_t i = 0; i < v->n_strings; i++)
        bytes += v->strings[i].len;
    mr_buffer *text;
    MR_TRY(mr_buffer_alloc(&text, bytes, r->st));
    mr_code rc = mr_buffer_hold(a->owner, text, r->st);
    char *at = mr_buffer_data(text);
    for (size_t i = 0; i < v->n_strings; i++) {
        if (v->strings[i].len)
            memcpy(at, v->strings[i].data, v->strings[i].len);
        ((mr_bytes *)a->data)[i] = (mr_bytes){.data = at, .size = v->strings[i].len};
        at += v->strings[i].len;
    }
    mr_buffer_unref(text);
    return rc;
}

static void fill_data(const Mr__Graph__Value *v, mr_array *a)
{
    if (v->data.len)
        memcpy(a->data, v->data.data, v->data.len);
    if (a->dtype == MR_BOOL) {
        uint8_t *b = a->data;
        for (size_t i = 0; i < v->data.len; i++)
            b[i] = b[i] != 0;
    }
}

/* Makes a ragged row of `values`, a flat array that it takes over. */
static mr_code make_ragged(struct reader *r, const Mr__Graph__Value *v, mr_array *values,
                           mr_array *out)
{
    mr_array a = {0};
    mr_buffer *splits = NULL;
    size_t bytes = v->n_splits * sizeof(int64_t);
    mr_code rc = mr_array_alloc_ragged(&a, values->dtype, (int)v->n_shape, 1, r->st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&splits, bytes, r->st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, splits, r->st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, values->owner, r->st);
    if (rc == MR_OK) {
        int64_t *shape = mr_array_shape_slot(&a, 0);
        memcpy(shape, v->shape, v->n_shape * sizeof *shape);
        memcpy(mr_buffer_data(splits), v->splits, bytes);
        *(mr_row *)a.data =
            (mr_row){.data = values->data, .shape = shape, .splits = mr_buffer_data(splits)};
        *out = a;
    } else if (a.owner)
        mr_array_reset(&a);
    mr_buffer_unref(splits);
    mr_array_reset(values);
    return rc;
}

static mr_code make_tensor(struct reader *r, const Mr__Graph__Value *v, mr_array *out)
{
    mr_dtype t;
    size_t values = 1;
    bool ragged = v->n_splits > 0;
    if (!mr_dtype_find(v->dtype, strlen(v->dtype), &t) || t == MR_DATASET)
        return malformed(r, "a tensor has an unknown dtype");
    if (v->n_shape > MR_MAX_RANK)
        return malformed(r, "a tensor has too many axes");
    if (ragged && !good_splits(v))
        return malformed(r, "the splits of a ragged tensor do not match its shape");
    if (ragged)
        values = (size_t)v->splits[v->n_splits - 1];
    size_t bytes = 0;
    if (!count_values(v, ragged ? 2 : 0, &values) ||
        __builtin_mul_overflow(values, mr_dtype_size(t), &bytes) ||
        (t == MR_STRING ? v->n_strings != values : v->data.len != bytes))
        return malformed(r, "the data of a tensor do not match its shape");
    mr_array a;
    int64_t flat = (int64_t)values;
    MR_TRY(
        mr_array_alloc(&a, t, ragged ? 1 : (int)v->n_shape, ragged ? &flat : v->shape, 1, r->st));
    mr_code rc = MR_OK;
    if (t == MR_STRING)
        rc = fill_strings(r, v, &a);
    else
        fill_data(v, &a);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    if (ragged)
        return make_ragged(r, v, &a, out);
    *out = a;
    return MR_OK;
}

/* ---- values ---- */

static mr_code make_items(struct reader *r, const Mr__Graph__Value *v, mr_value *to, int *depth)
{
    size_t n = v->n_items;
    bool record = to->kind == MR_V_RECORD;
    if (v->n_names != (record ? n : 0))
        return malformed(r, "a record needs a name for each component");
    to->items = mr_calloc(n ? n : 1, sizeof *to->items);
    if (record)
        to->names = mr_calloc(n ? n : 1, sizeof *to->names);
    if (!to->items || (record && !to->names))
        return mr_fail_memory(r->st, n * sizeof *to->items, "a list of values");
    to->n = n;
    for (size_t i = 0; i < n; i++) {
        MR_TRY(take_value(r, v->items[i], &to->items[i], depth));
        if (record && !(to->names[i] = mr_strdup(v->names[i])))
            return mr_fail_memory(r->st, strlen(v->names[i]) + 1, "a name");
    }
    return MR_OK;
}

static mr_code make_content(struct reader *r, const Mr__Graph__Value *v, mr_value *to, int *depth)
{
    mr_dataset *node = NULL;
    const char *twice;
    to->computed = v->computed;
    switch (to->kind) {
    case MR_V_BOOL:
        to->i = v->i != 0;
        return MR_OK;
    case MR_V_INT:
        to->i = v->i;
        return MR_OK;
    case MR_V_FLOAT:
        to->f = v->f;
        return MR_OK;
    case MR_V_STRING:
        to->size = v->s.len;
        to->s = mr_strndup(v->s.len ? (const char *)v->s.data : "", v->s.len);
        return to->s ? MR_OK : mr_fail_memory(r->st, v->s.len + 1, "a string");
    case MR_V_TENSOR:
        MR_TRY(make_tensor(r, v, &to->tensor));
        to->tensor.resident = v->resident;
        return MR_OK;
    case MR_V_RECORD:
        MR_TRY(mr__name_twice(v->names, v->n_names, &twice, r->st));
        if (twice)
            return malformed(r, "a record has two components of one name");
        return make_items(r, v, to, depth);
    case MR_V_LIST:
    case MR_V_TUPLE:
        return make_items(r, v, to, depth);
    case MR_V_FN:
        return take_fn(r, v->ref, &to->fn, depth);
    case MR_V_DATASET:
        MR_TRY(find_node(r, v->ref, &node));
        to->dataset = mr_dataset_ref(node);
        return mr__stored_dataset_writes(node, r->st);
    default:
        return MR_OK;
    }
}

static mr_code make_value(struct reader *r, const Mr__Graph__Value *v, struct made *out)
{
    if (v->kind < 0 || v->kind >= (int)MR_V_UNKNOWN)
        return malformed(r, "a value has an unknown kind");
    mr_value value = {.kind = (mr_value_kind)v->kind};
    mr_code rc = make_content(r, v, &value, &out->depth);
    if (rc == MR_OK && out->depth > MAX_DEPTH)
        rc = malformed(r, "values are nested too deeply");
    if (rc != MR_OK) {
        mr_value_reset(&value);
        return rc;
    }
    out->value = value;
    out->is_value = true;
    return MR_OK;
}

/* ---- functions ---- */

static void free_values(mr_value *values, size_t n)
{
    for (size_t i = 0; values && i < n; i++)
        mr_value_reset(&values[i]);
    mr_free(values);
}

/* Reads the specs that the template had for the captures. */
static mr_code take_shapes(struct reader *r, const Mr__Graph__Function *f, mr_fn *fn)
{
    const int64_t *at = f->shapes;
    size_t left = f->n_shapes;
    if (left == 0)
        return MR_OK;
    fn->capture_specs = mr_calloc(fn->n_captures + 1, sizeof(mr_spec *));
    if (!fn->capture_specs)
        return mr_fail_memory(r->st, fn->n_captures * sizeof(mr_spec *), "a function's captures");
    for (size_t i = 0; i < fn->n_captures; i++) {
        mr_spec *spec = NULL;
        MR_TRY(mr__value_spec(&fn->captures[i], &spec, r->st));
        mr_code rc = mr__spec_with_shapes(spec, &at, &left, &fn->capture_specs[i], r->st);
        mr_spec_unref(spec);
        MR_TRY(rc);
    }
    return left ? malformed(r, "more shapes than captures") : MR_OK;
}

static mr_code make_fn(struct reader *r, const Mr__Graph__Function *f, struct made *out)
{
    const mr_expr *expr;
    size_t n = f->n_captures;
    if (f->n_capture_names != n)
        return malformed(r, "a function needs a name for each capture");
    MR_TRY(mr_expr_parse(f->text, strlen(f->text), &expr, r->st));
    mr_value *captures = mr_calloc(n ? n : 1, sizeof *captures);
    mr_code rc = MR_OK;
    if (expr->kind != MR_EX_LAMBDA && expr->kind != MR_EX_NAME)
        rc = malformed(r, "expected a function, such as x => x, or a name");
    else if (!captures)
        rc = mr_fail_memory(r->st, n * sizeof *captures, "a function's captures");
    for (size_t i = 0; rc == MR_OK && i < n; i++)
        rc = take_value(r, f->captures[i], &captures[i], &out->depth);
    if (rc == MR_OK)
        rc = mr__fn_of_expr(expr, (const char *const *)f->capture_names, captures, n, &out->fn,
                            r->st);
    if (rc == MR_OK)
        rc = take_shapes(r, f, out->fn);
    free_values(captures, n);
    mr_expr_unref(expr);
    return rc;
}

/* ---- nodes ---- */

static mr_code take_params(struct reader *r, const Mr__Graph__Node *node, const mr_op *op,
                           mr_value *values)
{
    size_t n = mr__params_count(op->params);
    for (size_t i = 0; i < node->n_params; i++) {
        const char *key = node->params[i]->key;
        size_t k = 0;
        int depth = 0;
        while (k < n && strcmp(op->params[k].name, key) != 0)
            k++;
        if (k == n)
            return mr_fail(r->st, MR_INVALID_ARGUMENT,
                           "op %s has no parameter %.60s here: the graph has format %" PRIu32
                           ", this millrace is %s and writes format %d; use the newer version",
                           op->name, key, r->graph->version, MR_VERSION, FORMAT);
        if (values[k].kind != MR_V_UNSET)
            return malformed(r, "a parameter is given twice");
        MR_TRY(take_value(r, node->params[i]->value, &values[k], &depth));
    }
    return MR_OK;
}

static mr_code take_inputs(struct reader *r, const Mr__Graph__Node *node, mr_dataset **inputs)
{
    for (size_t i = 0; i < node->n_inputs; i++)
        MR_TRY(find_node(r, node->inputs[i], &inputs[i]));
    return MR_OK;
}

static mr_code widen(struct reader *r, const Mr__Graph__Node *node, mr_dataset *ds)
{
    const int64_t *at = node->shapes;
    size_t left = node->n_shapes;
    mr_spec *spec = NULL;
    MR_TRY(mr__spec_with_shapes(mr_dataset_spec(ds), &at, &left, &spec, r->st));
    mr__dataset_widen(ds, spec);
    mr_spec_unref(spec);
    return left ? malformed(r, "more shapes than components") : MR_OK;
}

static mr_code make_node(struct reader *r, const Mr__Graph__Node *node, struct made *out)
{
    const mr_op *op = mr_op_find(node->op, strlen(node->op));
    if (!op)
        return mr_fail(r->st, MR_INVALID_ARGUMENT,
                       "unknown op %.60s: the graph has format %" PRIu32
                       ", this millrace is %s; use a newer version or register the op",
                       node->op, r->graph->version, MR_VERSION);
    size_t n = mr__params_count(op->params), n_inputs = node->n_inputs;
    mr_value *values = mr_calloc(n ? n : 1, sizeof *values);
    mr_dataset **inputs = mr_calloc(n_inputs ? n_inputs : 1, sizeof(mr_dataset *));
    mr_code rc = values && inputs ? MR_OK : mr_fail_memory(r->st, n * sizeof *values, "a node");
    if (rc == MR_OK)
        rc = take_params(r, node, op, values);
    if (rc == MR_OK)
        rc = take_inputs(r, node, inputs);
    if (rc == MR_OK) {
        for (size_t i = 0; i < n_inputs; i++)
            mr_dataset_ref(inputs[i]);
        out->node = mr_dataset_from_values(op, values, inputs, n_inputs);
        rc = mr_dataset_check(out->node, r->st);
    }
    if (rc == MR_OK && node->n_shapes)
        rc = widen(r, node, out->node);
    if (rc == MR_OK)
        mr__dataset_set_origin(out->node, (mr__origin){.has_place = node->has_place,
                                                       .place = node->place,
                                                       .has_seed = node->has_seed,
                                                       .seed = node->seed});
    free_values(values, n);
    mr_free(inputs);
    return rc;
}

/* ---- the graph ---- */

static mr_code make_item(struct reader *r, const Mr__Graph__Item *item, struct made *out)
{
    if (!!item->node + !!item->value + !!item->function != 1)
        return malformed(r, "expected exactly one of node, value and function");
    if (item->node)
        return make_node(r, item->node, out);
    if (item->value)
        return make_value(r, item->value, out);
    return make_fn(r, item->function, out);
}

static mr_code make_graph(struct reader *r, mr_dataset **out)
{
    const Mr__Graph__Graph *g = r->graph;
    if (g->version == 0)
        return mr_fail(r->st, MR_INVALID_ARGUMENT, "malformed graph: it has no format version");
    r->made = mr_calloc(g->n_items ? g->n_items : 1, sizeof *r->made);
    if (!r->made)
        return mr_fail_memory(r->st, g->n_items * sizeof *r->made, "a graph");
    for (; r->at < g->n_items; r->at++)
        MR_TRY(make_item(r, g->items[r->at], &r->made[r->at]));
    if (g->n_items == 0 || !r->made[g->n_items - 1].node)
        return malformed(r, "expected a node as the last item");
    *out = mr_dataset_ref(r->made[g->n_items - 1].node);
    return MR_OK;
}

/* The allocator for protobuf-c: limits its memory in proportion to the input. */
struct budget {
    size_t left;
    bool refused;
};

static void *budget_alloc(void *ctx, size_t bytes)
{
    struct budget *b = ctx;
    void *p = bytes <= b->left ? mr_malloc(bytes) : NULL;
    b->left -= p ? bytes : 0;
    b->refused |= !p;
    return p;
}

static void budget_free(void *ctx, void *p)
{
    (void)ctx;
    mr_free(p);
}

mr_code mr_dataset_from_proto(const void *bytes, size_t size, mr_dataset **out, mr_status *st)
{
    struct budget budget = {.left = MEMORY_BASE};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    if (size >= (size_t)1 << 31)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "malformed graph: expected at most 2 GiB, found %zu bytes", size);
    MR_TRY(mr__protobuf_need(st));
    budget.left += size * MEMORY_FACTOR;
    Mr__Graph__Graph *graph = mr__graph__graph__unpack(&allocator, size, bytes);
    if (!graph && budget.refused)
        return mr_fail_memory(st, size * MEMORY_FACTOR, "a graph");
    if (!graph)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "malformed graph: not a protobuf Graph message (%zu bytes)", size);
    struct reader r = {.graph = graph, .st = st};
    mr_code rc = make_graph(&r, out);
    for (size_t i = 0; r.made && i < graph->n_items; i++) {
        mr_dataset_unref(r.made[i].node);
        mr_value_reset(&r.made[i].value);
        mr_fn_unref(r.made[i].fn);
    }
    mr_free(r.made);
    mr__graph__graph__free_unpacked(graph, &allocator);
    return rc;
}
