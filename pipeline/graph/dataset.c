/* SPDX-License-Identifier: Apache-2.0 */
/* A node is a body, which copies of the node share, and what is its own:
 *
 *     mr_dataset: inputs, shared state   --->  body: op, params, spec, cardinality, or an error
 *     mr_dataset (an instance of it)     --/
 *
 * Datasets refer to datasets along inputs, values and captures, in chains of any length: the last
 * reference to one is let go without recursion, by a list of the dead that one loop a thread works
 * off. */
#include "pipeline/graph/dataset.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/graph/params.h"
#include "pipeline/memory/object.h"

struct body {
    mr_object obj;
    const mr_op *op; /* NULL: carries an error */
    void *params;
    mr_value *unknown; /* UNKNOWN for each parameter that is; NULL: none is */
    bool is_template;  /* some value is not known, also deep within one */
    mr_spec *spec;
    int64_t cardinality;
    mr_status *error;
};

struct mr_dataset {
    mr_object obj;
    struct body *body;
    mr_dataset **inputs;
    size_t n_inputs;
    pthread_mutex_t lock; /* guards the two below */
    void *shared;
    void (*destroy_shared)(void *);
    mr_dataset *next_dead;
};

/* ---- life ---- */

static void destroy_body(mr_object *o)
{
    struct body *b = (struct body *)o;
    if (b->op) {
        size_t n = mr__params_count(b->op);
        for (size_t i = 0; b->unknown && i < n; i++)
            mr_value_reset(&b->unknown[i]);
        mr__params_free(b->op, b->params);
    }
    mr_free(b->unknown);
    mr_spec_unref(b->spec);
    mr_free(b->error);
    mr_free(b);
}

static void free_node(mr_dataset *ds)
{
    if (ds->shared && ds->destroy_shared)
        ds->destroy_shared(ds->shared);
    mr_free(ds->shared);
    for (size_t i = 0; i < ds->n_inputs; i++)
        mr_dataset_unref(ds->inputs[i]);
    mr_free(ds->inputs);
    mr_object_unref(&ds->body->obj);
    pthread_mutex_destroy(&ds->lock);
    mr_free(ds);
}

static void destroy(mr_object *o)
{
    static _Thread_local mr_dataset *dead;
    static _Thread_local bool working;
    mr_dataset *ds = (mr_dataset *)o;
    ds->next_dead = dead;
    dead = ds;
    if (working)
        return;
    working = true;
    while (dead) {
        ds = dead;
        dead = ds->next_dead;
        free_node(ds);
    }
    working = false;
}

mr_dataset *mr_dataset_ref(mr_dataset *ds)
{
    mr_object_ref(&ds->obj);
    return ds;
}

void mr_dataset_unref(mr_dataset *ds)
{
    if (ds)
        mr_object_unref(&ds->obj);
}

/* ---- errors ---- */

static mr_status no_memory_status = {
    .code = MR_RESOURCE_EXHAUSTED,
    .message = "out of memory while a graph was built; use smaller constants or free memory",
    .offset = -1,
    .record = -1};

static struct body no_memory_body = {
    .obj = {.refs = 1}, .cardinality = MR_UNKNOWN_COUNT, .error = &no_memory_status};

/* Carries the error of a dataset for which not even the memory of a failed one could be had. Its
 * count starts where no number of references handed out brings it to zero. */
static mr_dataset no_memory = {
    .obj = {.refs = SIZE_MAX / 2}, .body = &no_memory_body, .lock = PTHREAD_MUTEX_INITIALIZER};

/* A node with that body (a reference, taken also on failure) and room for n inputs; NULL: no
 * memory. */
static mr_dataset *new_node(struct body *body, size_t n_inputs)
{
    mr_dataset *ds = mr_calloc(1, sizeof *ds);
    mr_dataset **inputs = n_inputs ? mr_calloc(n_inputs, sizeof(mr_dataset *)) : NULL;
    if (!ds || (n_inputs && !inputs) || pthread_mutex_init(&ds->lock, NULL) != 0) {
        mr_free(inputs);
        mr_free(ds);
        mr_object_unref(&body->obj);
        return NULL;
    }
    mr_object_init(&ds->obj, destroy);
    ds->body = body;
    ds->inputs = inputs;
    ds->n_inputs = n_inputs;
    return ds;
}

static struct body *new_body(void)
{
    struct body *b = mr_calloc(1, sizeof *b);
    if (b) {
        mr_object_init(&b->obj, destroy_body);
        b->cardinality = MR_UNKNOWN_COUNT;
    }
    return b;
}

mr_dataset *mr_dataset_fail(const mr_status *st)
{
    assert(st->code < 0 && "a dataset carries errors only");
    struct body *b = new_body();
    if (b && !(b->error = mr_memdup(st, sizeof *st))) {
        mr_object_unref(&b->obj);
        b = NULL;
    }
    mr_dataset *ds = b ? new_node(b, 0) : NULL;
    return ds ? ds : &no_memory;
}

/* ---- reading ---- */

mr_code mr_dataset_check(const mr_dataset *ds, mr_status *st)
{
    const mr_status *error = ds->body->error;
    if (!error)
        return MR_OK;
    if (st)
        *st = *error;
    return error->code;
}

const mr_spec *mr_dataset_spec(const mr_dataset *ds)
{
    return ds->body->spec;
}

int64_t mr_dataset_cardinality(const mr_dataset *ds)
{
    return ds->body->cardinality;
}

const mr_op *mr_dataset_op(const mr_dataset *ds)
{
    return ds->body->op;
}

const void *mr_dataset_params(const mr_dataset *ds)
{
    return ds->body->params;
}

size_t mr_dataset_n_inputs(const mr_dataset *ds)
{
    return ds->n_inputs;
}

mr_dataset *mr_dataset_input(const mr_dataset *ds, size_t i)
{
    return ds->inputs[i];
}

static bool unknown_at(const struct body *b, size_t index)
{
    return b->unknown && b->unknown[index].kind == MR_V_UNKNOWN;
}

mr_code mr_dataset_param(const mr_dataset *ds, size_t index, mr_value *out, mr_status *st)
{
    const struct body *b = ds->body;
    if (unknown_at(b, index))
        return mr_value_copy(out, &b->unknown[index], st);
    return mr__param_get(&b->op->params[index], b->params, out, st);
}

/* Index of the parameter called name, or the number of parameters. */
static size_t find_param(const mr_op *op, const char *name)
{
    size_t i = 0, n = mr__params_count(op);
    while (i < n && strcmp(op->params[i].name, name) != 0)
        i++;
    return i;
}

mr_code mr_dataset_param_named(const mr_dataset *ds, const char *name, mr_value *out, mr_status *st)
{
    const mr_op *op = ds->body->op;
    size_t i = op ? find_param(op, name) : 0;
    if (op && i < mr__params_count(op))
        return mr_dataset_param(ds, i, out, st);
    *out = (mr_value){0};
    return MR_OK;
}

bool mr_param_unknown(const mr_dataset *ds, size_t at)
{
    const struct body *b = ds->body;
    for (size_t i = 0; b->unknown && b->op->params[i].name; i++)
        if (b->op->params[i].at == at)
            return unknown_at(b, i);
    return false;
}

/* ---- making ---- */

static void unref_inputs(mr_dataset *const *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mr_dataset_unref(inputs[i]);
}

/* The error says which op it is about, however deep it came from. */
static void name_op(mr_status *st, const mr_op *op)
{
    char message[sizeof st->message];
    size_t n = strlen(op->name);
    if (strncmp(st->message, op->name, n) == 0 && st->message[n] == ':')
        return;
    if (strncmp(st->message, "line ", 5) == 0) { /* shows its place, with a caret */
        mr_status_set_op(st, op->name);
        return;
    }
    memcpy(message, st->message, sizeof message);
    snprintf(st->message, sizeof st->message, "%s: %.*s", op->name, (int)(sizeof message - n - 3),
             message);
}

static mr_code check_inputs(const mr_op *op, mr_dataset *const *inputs, size_t n, mr_status *st)
{
    if (n < (size_t)op->min_inputs || (op->max_inputs >= 0 && n > (size_t)op->max_inputs)) {
        bool few = n < (size_t)op->min_inputs;
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: expected at %s %d input datasets, found %zu",
                       op->name, few ? "least" : "most", few ? op->min_inputs : op->max_inputs, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!inputs[i])
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s: input %zu is NULL", op->name, i);
        MR_TRY(mr_dataset_check(inputs[i], st));
    }
    return MR_OK;
}

static int64_t count_elements(const mr_dataset *ds)
{
    const struct body *b = ds->body;
    int64_t few[4], *in = few, n = MR_UNKNOWN_COUNT;
    if (b->is_template)
        return MR_UNKNOWN_COUNT;
    if (!b->op->cardinality) {
        bool keeps = (b->op->props & MR_OP_KEEPS_COUNT) && ds->n_inputs == 1;
        return keeps ? mr_dataset_cardinality(ds->inputs[0]) : MR_UNKNOWN_COUNT;
    }
    if (ds->n_inputs > sizeof few / sizeof *few)
        in = mr_calloc(ds->n_inputs, sizeof *in);
    for (size_t i = 0; in && i < ds->n_inputs; i++)
        in[i] = mr_dataset_cardinality(ds->inputs[i]);
    if (in)
        n = b->op->cardinality(ds, b->params, in);
    if (in != few)
        mr_free(in);
    return n;
}

static bool is_template(const struct body *b)
{
    if (b->unknown)
        return true;
    for (const mr_param *p = b->op->params; p && p->name; p++)
        if (p->type == MR_PT_VALUE && mr__value_unknown(mr__param_field(p, b->params)))
            return true;
    return false;
}

static mr_code check_and_infer(mr_dataset *ds, mr_status *st)
{
    struct body *b = ds->body;
    b->is_template = is_template(b);
    if (b->op->check && !b->is_template)
        MR_TRY(b->op->check(b->params, st));
    MR_TRY(b->op->infer(ds, b->params, &b->spec, st));
    if (mr__spec_depth(b->spec) > MR__SPEC_MAX_DEPTH)
        return mr_fail(st, MR_INVALID_ARGUMENT, "its elements would nest more than %d levels deep",
                       MR__SPEC_MAX_DEPTH);
    b->cardinality = count_elements(ds);
    return MR_OK;
}

/* A node of these parameters (own, from params.h) and unknowns; takes everything over. */
static mr_dataset *make(const mr_op *op, void *params, mr_value *unknown, mr_dataset *const *inputs,
                        size_t n_inputs)
{
    mr_status st;
    mr_status_init(&st);
    struct body *b = new_body();
    if (!b) {
        struct body lost = {.op = op, .params = params, .unknown = unknown};
        for (size_t i = 0; unknown && i < mr__params_count(op); i++)
            mr_value_reset(&lost.unknown[i]);
        mr_free(unknown);
        mr__params_free(op, params);
        unref_inputs(inputs, n_inputs);
        return &no_memory;
    }
    b->op = op;
    b->params = params;
    b->unknown = unknown;
    mr_dataset *ds = new_node(b, n_inputs);
    if (!ds) {
        unref_inputs(inputs, n_inputs);
        return &no_memory;
    }
    for (size_t i = 0; i < n_inputs; i++)
        ds->inputs[i] = inputs[i];
    if (check_and_infer(ds, &st) == MR_OK)
        return ds;
    name_op(&st, op);
    mr_dataset_unref(ds);
    return mr_dataset_fail(&st);
}

/* The failed dataset for st, an error of op, or the input that carries one; lets the inputs go. */
static mr_dataset *fail_over(mr_status *st, const mr_op *op, mr_dataset *const *inputs, size_t n)
{
    mr_dataset *failed = NULL;
    for (size_t i = 0; i < n && !failed; i++)
        if (inputs[i] && inputs[i]->body->error)
            failed = mr_dataset_ref(inputs[i]);
    unref_inputs(inputs, n);
    if (failed)
        return failed;
    name_op(st, op);
    return mr_dataset_fail(st);
}

mr_dataset *mr_dataset_new(const mr_op *op, const void *params, mr_dataset *const *inputs,
                           size_t n_inputs)
{
    mr_status st;
    void *own = NULL;
    mr_status_init(&st);
    if (check_inputs(op, inputs, n_inputs, &st) != MR_OK ||
        mr__params_of_c(op, params, &own, &st) != MR_OK)
        return fail_over(&st, op, inputs, n_inputs);
    return make(op, own, NULL, inputs, n_inputs);
}

/* Sets parameter i, and whether it is unknown in *unknown (an array, made when first needed). */
static mr_code set_param(const mr_op *op, size_t i, void *own, mr_value **unknown,
                         const mr_value *v, mr_status *st)
{
    bool is_unknown;
    MR_TRY(mr__param_set(op, &op->params[i], own, v, &is_unknown, st));
    if (*unknown)
        mr_value_reset(&(*unknown)[i]);
    if (!is_unknown)
        return MR_OK;
    if (!*unknown)
        *unknown = mr_calloc(mr__params_count(op), sizeof **unknown);
    if (!*unknown)
        return mr_fail_memory(st, sizeof **unknown, "an op's parameters");
    if (v->kind == MR_V_UNKNOWN)
        return mr_value_copy(&(*unknown)[i], v, st);
    (*unknown)[i] = (mr_value){.kind = MR_V_UNKNOWN};
    return MR_OK;
}

/* Lets go of an array of unknowns; an array without any is none. */
static void free_unknown(const mr_op *op, mr_value *unknown)
{
    for (size_t i = 0; unknown && i < mr__params_count(op); i++)
        mr_value_reset(&unknown[i]);
    mr_free(unknown);
}

static mr_value *some_unknown(const mr_op *op, mr_value *unknown)
{
    for (size_t i = 0; unknown && i < mr__params_count(op); i++)
        if (unknown[i].kind == MR_V_UNKNOWN)
            return unknown;
    mr_free(unknown);
    return NULL;
}

mr_dataset *mr_dataset_from_values(const mr_op *op, const mr_value *values,
                                   mr_dataset *const *inputs, size_t n_inputs)
{
    mr_status st;
    void *own = NULL;
    mr_value *unknown = NULL;
    mr_status_init(&st);
    mr_code rc = check_inputs(op, inputs, n_inputs, &st);
    if (rc == MR_OK)
        rc = mr__params_defaults(op, &own, &st);
    for (size_t i = 0; rc == MR_OK && i < mr__params_count(op); i++)
        rc = set_param(op, i, own, &unknown, &values[i], &st);
    if (rc == MR_OK)
        return make(op, own, unknown, inputs, n_inputs);
    if (own)
        mr__params_free(op, own);
    free_unknown(op, unknown);
    return fail_over(&st, op, inputs, n_inputs);
}

static mr_code copy_unknown(const struct body *b, mr_value **out, mr_status *st)
{
    size_t n = b->unknown ? mr__params_count(b->op) : 0;
    mr_value *copy = n ? mr_calloc(n, sizeof *copy) : NULL;
    if (n && !copy)
        return mr_fail_memory(st, n * sizeof *copy, "an op's parameters");
    for (size_t i = 0; i < n; i++) {
        mr_code rc = mr_value_copy(&copy[i], &b->unknown[i], st);
        if (rc != MR_OK) {
            free_unknown(b->op, copy);
            return rc;
        }
    }
    *out = copy;
    return MR_OK;
}

/* Like ds, with parameter `index` being v (v NULL: all as they are), over inputs (taken). */
static mr_dataset *remake(const mr_dataset *ds, size_t index, const mr_value *v,
                          mr_dataset *const *inputs, size_t n)
{
    const struct body *b = ds->body;
    mr_status st;
    void *own = NULL;
    mr_value *unknown = NULL;
    mr_status_init(&st);
    mr_code rc = check_inputs(b->op, inputs, n, &st);
    if (rc == MR_OK)
        rc = mr__params_copy(b->op, b->params, &own, &st);
    if (rc == MR_OK)
        rc = copy_unknown(b, &unknown, &st);
    if (rc == MR_OK && v)
        rc = set_param(b->op, index, own, &unknown, v, &st);
    if (rc == MR_OK)
        return make(b->op, own, some_unknown(b->op, unknown), inputs, n);
    if (own)
        mr__params_free(b->op, own);
    free_unknown(b->op, unknown);
    return fail_over(&st, b->op, inputs, n);
}

mr_dataset *mr_dataset_with_inputs(const mr_dataset *ds, mr_dataset *const *inputs, size_t n)
{
    if (ds->body->error) {
        unref_inputs(inputs, n);
        return mr_dataset_fail(ds->body->error);
    }
    return remake(ds, 0, NULL, inputs, n);
}

mr_dataset *mr_dataset_with_param(const mr_dataset *ds, const char *name, const mr_value *v)
{
    const struct body *b = ds->body;
    if (b->error)
        return mr_dataset_fail(b->error);
    mr_status st;
    mr_status_init(&st);
    size_t index = find_param(b->op, name);
    if (index == mr__params_count(b->op)) {
        mr_fail(&st, MR_INVALID_ARGUMENT, "%s: has no parameter %.60s", b->op->name, name);
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < ds->n_inputs; i++)
        mr_dataset_ref(ds->inputs[i]);
    return remake(ds, index, v, ds->inputs, ds->n_inputs);
}

/* ---- instances ---- */

/* A copy of `node` over the copies of its inputs; NULL: no memory. */
static mr_dataset *copy_node(const mr_dataset *node, mr_dataset *const *copies,
                             const size_t *inputs)
{
    mr_object_ref(&node->body->obj);
    mr_dataset *ds = new_node(node->body, node->n_inputs);
    for (size_t i = 0; ds && i < node->n_inputs; i++)
        ds->inputs[i] = mr_dataset_ref(copies[inputs[i]]);
    return ds;
}

mr_dataset *mr__dataset_instance(const mr_dataset *ds)
{
    if (ds->n_inputs == 0)
        return copy_node(ds, NULL, NULL);
    mr__nodes nodes;
    if (mr__nodes_of(ds, &nodes, NULL) != MR_OK)
        return NULL;
    mr_dataset **copies = mr_calloc(nodes.n, sizeof(mr_dataset *));
    const size_t *inputs = nodes.inputs;
    size_t made = 0;
    for (; copies && made < nodes.n; made++) {
        copies[made] = copy_node(nodes.v[made], copies, inputs);
        if (!copies[made])
            break;
        inputs += nodes.v[made]->n_inputs;
    }
    mr_dataset *whole = copies && made == nodes.n ? mr_dataset_ref(copies[made - 1]) : NULL;
    for (size_t i = 0; i < made; i++)
        mr_dataset_unref(copies[i]);
    mr_free(copies);
    mr__nodes_reset(&nodes);
    return whole;
}

mr_code mr__dataset_shared(mr_dataset *ds, size_t size, void (*init)(void *),
                           void (*destroy_state)(void *), void **out, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&ds->lock);
    if (!ds->shared) {
        ds->shared = mr_calloc(1, size);
        if (!ds->shared)
            rc = mr_fail_memory(st, size, "the state that the iterators of a dataset share");
        else {
            ds->destroy_shared = destroy_state;
            if (init)
                init(ds->shared);
        }
    }
    if (rc == MR_OK)
        *out = ds->shared;
    pthread_mutex_unlock(&ds->lock);
    return rc;
}
