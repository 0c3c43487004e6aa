/* SPDX-License-Identifier: Apache-2.0 */
/* A node refers to a body, which copies of the node share:
 *
 *     mr_dataset: inputs, shared state   --->  body: op, params, spec, cardinality, or an error
 *     mr_dataset (an instance of it)     --/
 *
 * Datasets refer to other datasets through inputs, values and captures, in chains of any length. To
 * free them without recursion, each thread has a list of dead nodes, which a single loop frees. */
#include "pipeline/graph/dataset.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/params/params.h"
#include "pipeline/memory/object.h"
#include "pipeline/params/infer.h"
#include "pipeline/system/fork.h"
#include "pipeline/wait/cancel_internal.h"

/* The number of elements was not requested yet; counting them reads files. */
#define NOT_COUNTED INT64_MIN

struct body {
    mr__object obj;
    const mr_op *op; /* NULL: carries an error */
    void *params;
    mr_value *unknown; /* UNKNOWN for each parameter that is unknown; NULL: all are known */
    bool is_template;  /* a value is unknown, or contains an unknown one */
    bool widened;      /* spec leaves more unknown than was inferred */
    bool is_literal;   /* set by mr__dataset_set_literal */
    mr_spec *spec;
    _Atomic int64_t cardinality; /* or NOT_COUNTED */
    mr_status *error;
};

struct mr_dataset {
    mr__object obj;
    struct body *body;
    mr_dataset **inputs;
    size_t n_inputs;
    uint64_t n_sources, *sources_before; /* one entry per input, allocated with `inputs` */
    uint32_t all_props;                  /* of its op and all below */
    mr__origin origin;
    mr__lock lock; /* guards the next two fields */
    void *shared;
    void (*destroy_shared)(void *);
    mr_dataset *next_dead;
};

/* ---- lifetime ---- */

static void destroy_body(mr__object *o)
{
    struct body *b = (struct body *)o;
    if (b->op) {
        size_t n = mr__params_count(b->op->params);
        for (size_t i = 0; b->unknown && i < n; i++)
            mr_value_reset(&b->unknown[i]);
        mr_params_free(MR__TABLE(b->op), b->params);
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
    mr__object_unref(&ds->body->obj);
    mr__lock_destroy(&ds->lock);
    mr_free(ds);
}

static void destroy(mr__object *o)
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
    if (ds)
        mr__object_ref(&ds->obj);
    return ds;
}

void mr_dataset_unref(mr_dataset *ds)
{
    if (ds)
        mr__object_unref(&ds->obj);
}

/* ---- errors ---- */

static mr_status no_memory_status = {
    .code = MR_RESOURCE_EXHAUSTED,
    .sys_errno = ENOMEM,
    .message = "out of memory while building a graph; use smaller constants or free memory",
    .offset = -1,
    .record = -1,
    .element = MR_OF_NO_ELEMENT};

static struct body no_memory_body = {
    .obj = {.refs = 1}, .cardinality = MR_UNKNOWN_COUNT, .error = &no_memory_status};

/* The dataset that is returned if a failed one cannot be allocated either. Its count starts so high
 * that no number of refs and unrefs brings it to zero. */
static mr_dataset no_memory = {
    .obj = {.refs = SIZE_MAX / 2}, .body = &no_memory_body, .lock = MR__LOCK_FREE};

/* Makes a node with a body (whose reference it takes, also on failure) and room for n_inputs
 * inputs; NULL if out of memory. */
static mr_dataset *new_node(struct body *body, size_t n_inputs)
{
    mr_dataset *ds = mr_calloc(1, sizeof *ds);
    size_t room = sizeof(mr_dataset *) + sizeof(uint64_t);
    mr_dataset **inputs = n_inputs ? mr_calloc(n_inputs, room) : NULL;
    if (!ds || (n_inputs && !inputs)) {
        mr_free(inputs);
        mr_free(ds);
        mr__object_unref(&body->obj);
        return NULL;
    }
    mr__lock_init(&ds->lock);
    mr__object_init(&ds->obj, destroy);
    ds->body = body;
    ds->inputs = inputs;
    if (inputs)
        ds->sources_before = (uint64_t *)(inputs + n_inputs);
    ds->n_inputs = n_inputs;
    return ds;
}

/* All iterators of a random op draw from a shared state, so opening one whose rows are never used
 * changes the rows of later ones. An op that reopens its input does so in a separate pull; an op
 * above it that pulls several times per block may cause too many openings. */
static uint32_t draws(uint32_t props, uint32_t below)
{
    bool pulls_once = (props & MR_OP_KEEPS_COUNT) && !(props & MR_OP_REORDERS);
    if ((props & MR_OP_OPENS_LATER) && (below & MR_OP_RANDOM))
        return MR__OPENS_RANDOM;
    return (below & MR__OPENS_RANDOM) && !pulls_once ? MR_OP_REMEMBERS : 0;
}

/* Index of the parameter called name, or the number of parameters. */
static size_t find_param(const mr_op *op, const char *name)
{
    size_t i = 0, n = mr__params_count(op->params);
    while (i < n && strcmp(op->params[i].name, name) != 0)
        i++;
    return i;
}

/* A mixture that repeats its sources opens them again. */
static bool repeats_inputs(const struct body *b)
{
    size_t last = 0;
    if (!(b->op->props & MR_OP_NAMES_INPUTS))
        return false;
    const mr_param *p = &b->op->params[find_param(b->op, "stop")];
    if (!p->name || !p->names)
        return false;
    while (p->names[last + 1])
        last++;
    const char *stop = *(char *const *)mr__param_field(p, b->params);
    return stop && strcmp(stop, p->names[last]) == 0;
}

bool mr__dataset_opens_later(const mr_dataset *ds)
{
    return (ds->body->op->props & MR_OP_OPENS_LATER) || repeats_inputs(ds->body);
}

/* Derives fields from the inputs, which must be set. */
static void sum_inputs(mr_dataset *ds)
{
    const mr_op *op = ds->body->op;
    uint32_t below = 0, props = op->props;
    if (mr__dataset_opens_later(ds))
        props |= MR_OP_OPENS_LATER;
    ds->n_sources = ds->n_inputs == 0;
    for (size_t i = 0; i < ds->n_inputs; i++) {
        ds->sources_before[i] = ds->n_sources;
        ds->n_sources += ds->inputs[i]->n_sources;
        below |= ds->inputs[i]->all_props;
    }
    ds->all_props = props | below | draws(props, below);
}

static struct body *new_body(void)
{
    struct body *b = mr_calloc(1, sizeof *b);
    if (b) {
        mr__object_init(&b->obj, destroy_body);
        b->cardinality = MR_UNKNOWN_COUNT;
    }
    return b;
}

mr_dataset *mr_dataset_fail(const mr_status *st)
{
    assert(st->code < 0 && "a dataset carries errors only");
    struct body *b = new_body();
    if (b && !(b->error = mr_memdup(st, sizeof *st))) {
        mr__object_unref(&b->obj);
        b = NULL;
    }
    mr_dataset *ds = b ? new_node(b, 0) : NULL;
    return ds ? ds : &no_memory;
}

/* ---- reading ---- */

mr_code mr_dataset_check(const mr_dataset *ds, mr_status *st)
{
    if (!ds)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the dataset is NULL");
    const mr_status *error = ds->body->error;
    if (!error)
        return MR_OK;
    if (st)
        *st = *error;
    return error->code;
}

const mr_spec *mr_dataset_spec(const mr_dataset *ds)
{
    return ds ? ds->body->spec : NULL;
}

/* Relaxed: all threads store the same number. */
static int64_t count_of(const mr_dataset *ds)
{
    return atomic_load_explicit(&ds->body->cardinality, memory_order_relaxed);
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

mr_code mr_dataset_param_named(const mr_dataset *ds, const char *name, mr_value *out, mr_status *st)
{
    const mr_op *op = ds->body->op;
    size_t i = op ? find_param(op, name) : 0;
    if (op && i < mr__params_count(op->params))
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

/* ---- construction ---- */

static void unref_inputs(mr_dataset *const *inputs, size_t n)
{
    for (size_t i = 0; inputs && i < n; i++)
        mr_dataset_unref(inputs[i]);
}

/* Adds the name of the op to the error, unless it starts with it. */
static void name_op(mr_status *st, const mr_op *op)
{
    if (!op)
        return;
    size_t n = strlen(op->name);
    if (strncmp(st->message, op->name, n) == 0 && st->message[n] == ':')
        return;
    if (st->file[0] || strncmp(st->message, "line ", 5) == 0) { /* has a place, maybe a caret */
        mr_status_set_op(st, op->name);
        return;
    }
    mr_status_prefix(st, "%s", op->name);
}

static mr_code check_inputs(const mr_op *op, mr_dataset *const *inputs, size_t n, mr_status *st)
{
    if (!op)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the op is NULL");
    if (n < (size_t)op->min_inputs || (op->max_inputs >= 0 && n > (size_t)op->max_inputs)) {
        bool few = n < (size_t)op->min_inputs;
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: expected at %s %d input datasets, found %zu",
                       op->name, few ? "least" : "most", few ? op->min_inputs : op->max_inputs, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!inputs || !inputs[i])
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
    if (b->op->props & MR_OP_KEEPS_COUNT)
        return mr_dataset_cardinality(ds->inputs[0]);
    if (!b->op->cardinality)
        return MR_UNKNOWN_COUNT;
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

int64_t mr_dataset_cardinality(const mr_dataset *ds)
{
    mr__nodes nodes;
    if (!ds)
        return MR_UNKNOWN_COUNT;
    if (count_of(ds) != NOT_COUNTED)
        return count_of(ds);
    if (mr__nodes_of(ds, &nodes, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    int64_t n = MR_UNKNOWN_COUNT;
    bool cancelled = false;
    /* In this order, inputs are counted before their users. */
    for (size_t i = 0; i < nodes.n && !cancelled; i++) {
        n = count_of(nodes.v[i]);
        if (n != NOT_COUNTED)
            continue;
        n = count_elements(nodes.v[i]);
        cancelled = n == MR_UNKNOWN_COUNT && mr_cancel_is_cancelled(mr__cancel_of_thread());
        if (!cancelled) /* else it may be known the next time */
            atomic_store_explicit(&nodes.v[i]->body->cardinality, n, memory_order_relaxed);
    }
    mr__nodes_reset(&nodes);
    return n;
}

static mr_code check_indexed(const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = ds->body->op;
    if (!op->at)
        return mr_fail(st, MR_FAILED_PRECONDITION, "%s is not indexed: it %s", op->name,
                       ds->n_inputs ? "determines the places of its elements only while it runs"
                                    : "produces its elements in sequence only");
    mr_code rc = op->indexed ? op->indexed(ds, ds->body->params, st) : MR_OK;
    if (rc != MR_OK)
        mr_status_prefix(st, "%s is not indexed", op->name);
    return rc;
}

mr_code mr_dataset_indexed(const mr_dataset *ds, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr_dataset_check(ds, st));
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++)
        rc = check_indexed(nodes.v[i], st);
    mr__nodes_reset(&nodes);
    return rc;
}

int64_t mr__dataset_fixed_count(const mr_dataset *ds)
{
    return ds->all_props & (MR_OP_LATE_COUNT | MR_OP_WHOLE_INPUT) ? MR_UNKNOWN_COUNT
                                                                  : mr_dataset_cardinality(ds);
}

/* True if the elements are counted only on request. */
static bool counts_late(const mr_dataset *ds)
{
    const struct body *b = ds->body;
    bool late = b->op->props & MR_OP_LATE_COUNT;
    for (size_t i = 0; i < ds->n_inputs && !late; i++)
        late = count_of(ds->inputs[i]) == NOT_COUNTED;
    return late && !b->is_template;
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

/* Fails with the error that a function among the parameters carries. */
static mr_code check_functions(const struct body *b, mr_status *st)
{
    for (const mr_param *p = b->op->params; p && p->name; p++) {
        const mr_fn *fn = p->type == MR_PT_FN ? *(mr_fn **)mr__param_field(p, b->params) : NULL;
        if (fn && fn->error) {
            *st = *fn->error;
            return st->code;
        }
    }
    return MR_OK;
}

static mr_code check_and_infer(mr_dataset *ds, mr_status *st)
{
    struct body *b = ds->body;
    MR_TRY(check_functions(b, st));
    b->is_template = is_template(b);
    if (b->op->check && !b->is_template)
        MR_TRY(b->op->check(b->params, st));
    if (b->op->infer)
        MR_TRY(b->op->infer(ds, b->params, &b->spec, st));
    else
        b->spec = mr_spec_ref(ds->inputs[0]->body->spec);
    MR_TRY(mr__spec_check(b->spec, st));
    b->cardinality = counts_late(ds) ? NOT_COUNTED : count_elements(ds);
    return MR_OK;
}

/* Makes a node with these params (own, see params.h) and unknown values; takes over all arguments,
 * also on failure. */
static mr_dataset *make(const mr_op *op, void *params, mr_value *unknown, mr_dataset *const *inputs,
                        size_t n_inputs)
{
    mr_status st;
    mr_status_init(&st);
    struct body *b = new_body();
    if (!b) {
        struct body lost = {.op = op, .params = params, .unknown = unknown};
        for (size_t i = 0; unknown && i < mr__params_count(op->params); i++)
            mr_value_reset(&lost.unknown[i]);
        mr_free(unknown);
        mr_params_free(MR__TABLE(op), params);
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
    sum_inputs(ds);
    if (check_and_infer(ds, &st) == MR_OK)
        return ds;
    name_op(&st, op);
    mr_dataset_unref(ds);
    return mr_dataset_fail(&st);
}

/* Returns the first input that carries an error, or else a failed dataset for st, an error of op.
 * Releases the inputs. */
static mr_dataset *fail_over(mr_status *st, const mr_op *op, mr_dataset *const *inputs, size_t n)
{
    mr_dataset *failed = NULL;
    for (size_t i = 0; inputs && i < n && !failed; i++)
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
        mr__params_of_c(MR__TABLE(op), params, &own, &st) != MR_OK)
        return fail_over(&st, op, inputs, n_inputs);
    return make(op, own, NULL, inputs, n_inputs);
}

/* Sets parameter i. If its value is unknown, stores it in *unknown, an array made when needed. */
static mr_code set_param(const mr_op *op, size_t i, void *own, mr_value **unknown,
                         const mr_value *v, mr_status *st)
{
    bool is_unknown;
    MR_TRY(mr__param_set(op->name, &op->params[i], own, v, &is_unknown, st));
    if (*unknown)
        mr_value_reset(&(*unknown)[i]);
    if (!is_unknown)
        return MR_OK;
    if (!*unknown)
        *unknown = mr_calloc(mr__params_count(op->params), sizeof **unknown);
    if (!*unknown)
        return mr_fail_memory(st, sizeof **unknown, "an op's parameters");
    if (v->kind == MR_V_UNKNOWN)
        return mr_value_copy(&(*unknown)[i], v, st);
    (*unknown)[i] = (mr_value){.kind = MR_V_UNKNOWN};
    return MR_OK;
}

static void free_unknown(const mr_op *op, mr_value *unknown)
{
    for (size_t i = 0; unknown && i < mr__params_count(op->params); i++)
        mr_value_reset(&unknown[i]);
    mr_free(unknown);
}

/* Returns the array if it has an unknown value; otherwise frees it and returns NULL. */
static mr_value *some_unknown(const mr_op *op, mr_value *unknown)
{
    for (size_t i = 0; unknown && i < mr__params_count(op->params); i++)
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
        rc = mr__params_defaults(MR__TABLE(op), &own, &st);
    for (size_t i = 0; rc == MR_OK && i < mr__params_count(op->params); i++)
        rc = set_param(op, i, own, &unknown, &values[i], &st);
    if (rc == MR_OK)
        return make(op, own, unknown, inputs, n_inputs);
    if (own)
        mr_params_free(MR__TABLE(op), own);
    free_unknown(op, unknown);
    return fail_over(&st, op, inputs, n_inputs);
}

static mr_code copy_unknown(const struct body *b, mr_value **out, mr_status *st)
{
    size_t n = b->unknown ? mr__params_count(b->op->params) : 0;
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

/* Copies ds with v as parameter `index` (unless v is NULL), and with these inputs (taken over). */
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
        rc = mr__params_copy(MR__TABLE(b->op), b->params, &own, &st);
    if (rc == MR_OK)
        rc = copy_unknown(b, &unknown, &st);
    if (rc == MR_OK && v)
        rc = set_param(b->op, index, own, &unknown, v, &st);
    if (rc == MR_OK) {
        mr_dataset *made = make(b->op, own, some_unknown(b->op, unknown), inputs, n);
        mr__dataset_set_origin(made, ds->origin);
        return made;
    }
    if (own)
        mr_params_free(MR__TABLE(b->op), own);
    free_unknown(b->op, unknown);
    return fail_over(&st, b->op, inputs, n);
}

mr_dataset *mr_dataset_with_inputs(const mr_dataset *ds, mr_dataset *const *inputs, size_t n)
{
    mr_status st;
    if (mr_dataset_check(ds, &st) != MR_OK) {
        unref_inputs(inputs, n);
        return mr_dataset_fail(&st);
    }
    return remake(ds, 0, NULL, inputs, n);
}

mr_dataset *mr_dataset_with_param(const mr_dataset *ds, const char *name, const mr_value *v)
{
    mr_status st;
    if (mr_dataset_check(ds, &st) != MR_OK)
        return mr_dataset_fail(&st);
    const struct body *b = ds->body;
    size_t n = mr__params_count(b->op->params), index = name ? find_param(b->op, name) : n;
    if (index == n) {
        mr_fail(&st, MR_INVALID_ARGUMENT, "%s: has no parameter %.60s", b->op->name,
                name ? name : "");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < ds->n_inputs; i++)
        mr_dataset_ref(ds->inputs[i]);
    return remake(ds, index, v, ds->inputs, ds->n_inputs);
}

void mr__dataset_widen(mr_dataset *ds, const mr_spec *spec)
{
    struct body *b = ds->body;
    if (b->error || b->spec == spec || !mr__spec_covers(spec, b->spec))
        return;
    b->widened = !mr_spec_equal(spec, b->spec);
    mr_spec_unref(b->spec);
    b->spec = mr_spec_ref(spec);
}

void mr__dataset_set_literal(mr_dataset *ds)
{
    if (!ds->body->error)
        ds->body->is_literal = true;
}

bool mr__dataset_is_literal(const mr_dataset *ds)
{
    return ds->body->is_literal;
}

bool mr__dataset_widened(const mr_dataset *ds)
{
    return ds->body->widened;
}

uint64_t mr__dataset_n_sources(const mr_dataset *ds)
{
    return ds->n_sources;
}

uint64_t mr__dataset_sources_before(const mr_dataset *ds, size_t i)
{
    return ds->sources_before[i];
}

uint32_t mr__dataset_all_props(const mr_dataset *ds)
{
    return ds->all_props;
}

/* ---- instances ---- */

/* Copies a node, with the copies of its inputs; NULL if out of memory. */
static mr_dataset *copy_node(const mr_dataset *node, mr_dataset *const *copies,
                             const size_t *inputs)
{
    mr__object_ref(&node->body->obj);
    mr_dataset *ds = new_node(node->body, node->n_inputs);
    for (size_t i = 0; ds && i < node->n_inputs; i++)
        ds->inputs[i] = mr_dataset_ref(copies[inputs[i]]);
    if (ds) {
        ds->origin = node->origin;
        sum_inputs(ds);
    }
    return ds;
}

/* origins: of the copies; NULL: those of the nodes. */
static mr_dataset *copy_graph(const mr__nodes *nodes, const mr__origin *origins)
{
    mr_dataset **copies = mr_calloc(nodes->n, sizeof(mr_dataset *));
    const size_t *inputs = nodes->inputs;
    size_t made = 0;
    for (; copies && made < nodes->n; made++) {
        copies[made] = copy_node(nodes->v[made], copies, inputs);
        if (!copies[made])
            break;
        if (origins)
            copies[made]->origin = origins[made];
        if (inputs) /* a graph of one source has none */
            inputs += nodes->v[made]->n_inputs;
    }
    mr_dataset *whole = copies && made == nodes->n ? mr_dataset_ref(copies[made - 1]) : NULL;
    for (size_t i = 0; i < made; i++)
        mr_dataset_unref(copies[i]);
    mr_free(copies);
    return whole;
}

mr_dataset *mr__dataset_instance(const mr_dataset *ds)
{
    if (ds->n_inputs == 0)
        return copy_node(ds, NULL, NULL);
    mr__nodes nodes;
    if (mr__nodes_of(ds, &nodes, NULL) != MR_OK)
        return NULL;
    mr_dataset *whole = copy_graph(&nodes, NULL);
    mr__nodes_reset(&nodes);
    return whole;
}

/* ---- origins ---- */

MR_API mr__origin mr__dataset_origin(const mr_dataset *ds)
{
    return ds->origin;
}

MR_API void mr__dataset_set_origin(mr_dataset *ds, mr__origin origin)
{
    if (!ds->body->error)
        ds->origin = origin;
}

/* A node that is to be visited at a place. */
struct visit {
    size_t node;
    uint64_t place;
};

/* Gives the nodes their places. A node with several is given that at which a walk from the sink,
 * first input first, meets it first, as iterators do. */
static void find_places(const mr__nodes *nodes, const size_t *first_input, uint64_t root,
                        struct visit *stack, mr__origin *origins)
{
    size_t depth = 0;
    stack[depth++] = (struct visit){nodes->n - 1, root};
    while (depth) {
        const struct visit at = stack[--depth];
        const mr_dataset *node = nodes->v[at.node];
        mr__origin *o = &origins[at.node];
        if (o->has_place)
            continue;
        o->has_place = true;
        o->place = at.place;
        for (size_t i = node->n_inputs; i-- > 0;)
            stack[depth++] = (struct visit){nodes->inputs[first_input[at.node] + i],
                                            mr__dataset_input_place(node, at.place, i)};
    }
}

MR_API mr_code mr__dataset_settle(const mr_dataset *ds, uint64_t root, const uint64_t *seed,
                                  mr_dataset **out, mr_status *st)
{
    mr__nodes nodes;
    size_t n_inputs = 0;
    *out = NULL;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    for (size_t i = 0; i < nodes.n; i++)
        n_inputs += nodes.v[i]->n_inputs;
    mr__origin *origins = mr_calloc(nodes.n, sizeof *origins);
    size_t *first_input = mr_calloc(nodes.n, sizeof *first_input);
    struct visit *stack = mr_calloc(n_inputs + 1, sizeof *stack);
    if (origins && first_input && stack) {
        for (size_t i = 0, at = 0; i < nodes.n; at += nodes.v[i++]->n_inputs) {
            first_input[i] = at;
            origins[i] = nodes.v[i]->origin;
        }
        if (!ds->origin.has_place)
            find_places(&nodes, first_input, root, stack, origins);
        for (size_t i = 0; seed && i < nodes.n; i++)
            if (!origins[i].has_seed) {
                origins[i].has_seed = true;
                origins[i].seed = *seed;
            }
        *out = copy_graph(&nodes, origins);
    }
    mr_free(stack);
    mr_free(first_input);
    mr_free(origins);
    mr__nodes_reset(&nodes);
    return *out ? MR_OK : mr_fail_memory(st, n_inputs, "a graph");
}

mr_code mr__dataset_shared(mr_dataset *ds, size_t size, void (*init)(void *),
                           void (*destroy_state)(void *), void **out, mr_status *st)
{
    mr_code rc = MR_OK;
    mr__lock_take(&ds->lock);
    if (!ds->shared) {
        ds->shared = mr_calloc(1, size);
        if (!ds->shared)
            rc = mr_fail_memory(st, size, "the shared state of a dataset's iterators");
        else {
            ds->destroy_shared = destroy_state;
            if (init)
                init(ds->shared);
        }
    }
    if (rc == MR_OK)
        *out = ds->shared;
    mr__lock_release(&ds->lock);
    return rc;
}
