/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/named_inputs.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/graph/text_print.h"
#include "pipeline/params/params.h"

/* Where `name` is among the n names; n: nowhere. */
static size_t place_of(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static mr_code unknown_name(const char *op, const char *name, const char *const *names, size_t n,
                            mr_status *st)
{
    char all[200] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\"%s\"", i ? ", " : "", names[i]);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: " MR__WEIGHTS " names \"%s\", which is not a source; the sources are %s",
                   op, name, all);
}

/* A number becomes a float; what is only known in a call stays. */
static mr_code make_float(const char *op, const char *name, mr_value *v, mr_status *st)
{
    if (v->kind == MR_V_INT)
        *v = (mr_value){.kind = MR_V_FLOAT, .f = (double)v->i};
    if (v->kind == MR_V_FLOAT || v->kind == MR_V_UNKNOWN)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: " MR__WEIGHTS " must have a number for \"%s\"", op,
                   name);
}

/* *record = an empty record with room for n items. */
static mr_code new_record(size_t n, mr_value *record, mr_status *st)
{
    mr_value *items = mr_calloc(n ? n : 1, sizeof *items);
    char **names = mr_calloc(n ? n : 1, sizeof *names);
    *record = (mr_value){.kind = MR_V_RECORD, .items = items, .names = names};
    if (items && names)
        return MR_OK;
    mr_value_reset(record);
    return mr_fail_memory(st, n * sizeof *items, "weights");
}

static mr_code order_weights(const char *op, const char *const *names, size_t n,
                             const mr_value *given, mr_value *out, mr_status *st)
{
    for (size_t i = 0; i < given->n; i++)
        if (place_of(given->names[i], names, n) == n)
            return unknown_name(op, given->names[i], names, n, st);
    for (size_t i = 0; i < n; i++) {
        size_t k = place_of(names[i], (const char *const *)given->names, given->n);
        if (given->n && k == given->n)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s: " MR__WEIGHTS " has no \"%s\"; give one number for each source", op,
                           names[i]);
        if (!(out->names[i] = mr_strdup(names[i])))
            return mr_fail_memory(st, strlen(names[i]) + 1, "weights");
        out->n++;
        if (given->n == 0)
            out->items[i] = (mr_value){.kind = MR_V_FLOAT, .f = 1};
        else
            MR_TRY(mr_value_copy(&out->items[i], &given->items[k], st));
        MR_TRY(make_float(op, names[i], &out->items[i], st));
    }
    return MR_OK;
}

mr_code mr__name_inputs(const char *op, const char *const *names, size_t n, mr_value *weights,
                        mr_status *st)
{
    mr_value record;
    for (size_t i = 1; i < n; i++)
        if (place_of(names[i], names, i) < i)
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s: two sources are called \"%s\"", op,
                           names[i]);
    if (weights->kind == MR_V_UNKNOWN)
        return MR_OK;
    bool given = weights->kind != MR_V_UNSET && weights->kind != MR_V_NONE;
    if (given && (weights->kind != MR_V_RECORD || weights->n == 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: " MR__WEIGHTS " must be a record with a number for each source, as in "
                       "{\"%s\": 1.0}",
                       op, names[0]);
    MR_TRY(new_record(n, &record, st));
    mr_code rc = order_weights(op, names, n, weights, &record, st);
    if (rc != MR_OK) {
        mr_value_reset(&record);
        return rc;
    }
    mr_value_reset(weights);
    *weights = record;
    return MR_OK;
}

const char *mr__dataset_input_name(const mr_dataset *ds, size_t i)
{
    const mr_op *op = mr_dataset_op(ds);
    if (!op || !(op->props & MR_OP_NAMES_INPUTS))
        return NULL;
    for (const mr_param *p = op->params; p->name; p++) {
        if (strcmp(p->name, MR__WEIGHTS) != 0)
            continue;
        const mr_value *v = mr__param_field(p, mr_dataset_params(ds));
        return v->kind == MR_V_RECORD && i < v->n ? v->names[i] : NULL;
    }
    return NULL;
}

uint64_t mr__dataset_input_place(const mr_dataset *ds, uint64_t place, size_t i)
{
    const char *name = mr__dataset_input_name(ds, i);
    const char *op = mr_dataset_op(ds)->name;
    return name ? mr__mix_text(mr__mix_text(place, name), op) : mr__place_of_input(place, i, op);
}

bool mr__dataset_is_mixed(const mr_dataset *ds)
{
    return mr__dataset_all_props(ds) & MR_OP_NAMES_INPUTS;
}

/* The ops of a graph that has no text, those below named inputs left out. */
static mr_code outline_ops(const mr_dataset *ds, mr__text *text, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    size_t n_inputs = 0;
    for (size_t i = 0; i < nodes.n; i++)
        n_inputs += mr_dataset_n_inputs(nodes.v[i]);
    enum { SHOWN = 1, WHOLE = 2 }; /* WHOLE: below an op that keeps its graph */
    unsigned char *shown = mr_calloc(nodes.n, sizeof *shown);
    mr_code rc = shown ? MR_OK : mr_fail_memory(st, nodes.n, "the ops of a graph");
    if (shown)
        shown[nodes.n - 1] = SHOWN;
    for (size_t i = nodes.n; i-- > 0 && rc == MR_OK;) {
        size_t n = mr_dataset_n_inputs(nodes.v[i]);
        const mr_op *op = mr_dataset_op(nodes.v[i]);
        n_inputs -= n;
        if (!shown[i])
            continue;
        bool stops = (op->props & MR_OP_NAMES_INPUTS) && !(shown[i] & WHOLE);
        for (size_t k = 0; k < n && !stops; k++)
            shown[nodes.inputs[n_inputs + k]] |=
                shown[i] | (op->props & MR_OP_KEEPS_GRAPH ? WHOLE : 0);
        rc = mr__text_puts(text, ".", st);
        if (rc == MR_OK)
            rc = mr__text_puts(text, op->name, st);
    }
    mr_free(shown);
    mr__nodes_reset(&nodes);
    return rc;
}

mr_code mr__dataset_outline(const mr_dataset *ds, char **out, mr_status *st)
{
    mr_status why;
    mr__printer p = {.st = &why, .outline = true};
    mr_code rc = mr__print_dataset(&p, ds);
    if (rc == MR_FAILED_PRECONDITION) {
        p.text.n = 0;
        rc = outline_ops(ds, &p.text, &why);
    }
    if (rc == MR_OK)
        rc = mr__text_finish(&p.text, out, &why);
    if (rc == MR_OK)
        mr_text_drop_secrets(*out);
    if (rc != MR_OK && st)
        *st = why;
    mr_free(p.text.s);
    return rc;
}
