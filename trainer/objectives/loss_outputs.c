/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of models with several outputs: one for each, with a weight. */
#include <float.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/objectives/loss_impl.h"

enum { NUMBER = 40 };

void mr__loss_parts_free(mr_loss *l)
{
    for (size_t i = 0; i < l->n_parts; i++) {
        mr_free(l->parts[i].name);
        mr_loss_free(l->parts[i].loss);
    }
    mr_free(l->parts);
    l->parts = NULL;
    l->n_parts = 0;
}

static bool is_number(const mr_expr *e)
{
    return e->kind == MR_EX_INT || e->kind == MR_EX_FLOAT;
}

static double number_of(const mr_expr *e)
{
    return e->kind == MR_EX_INT ? (double)e->i : e->f;
}

static mr_code check_weight(const mr_expr *e, mr_status *st)
{
    if (!is_number(e) || !(number_of(e) >= 0 && number_of(e) <= DBL_MAX))
        return mr_expr_fail_at(st, e, "expected the weight of a loss, a number from 0 on");
    return MR_OK;
}

/* Parses a loss, or a weight times a loss. */
static mr_code parse_part(mr__loss_part *p, const mr_expr *e, const char *name, mr_status *st)
{
    char *text = NULL;
    p->weight = 1;
    if (name && !(p->name = mr_strdup(name)))
        return mr_fail_memory(st, strlen(name), "a loss");
    if (e->kind == MR_EX_BINARY && e->op == '*') {
        MR_TRY(check_weight(e->children[0], st));
        p->weight = number_of(e->children[0]);
        e = e->children[1];
    }
    if (e->kind == MR_EX_RECORD || e->kind == MR_EX_LIST)
        return mr_expr_fail_at(st, e, "expected the loss of one output");
    MR_TRY(mr_expr_print(e, &text, st));
    mr_code rc = mr_loss_parse(&p->loss, text, st);
    mr_free(text);
    return rc;
}

mr_code mr__loss_parse_parts(mr_loss *l, const mr_expr *e, mr_status *st)
{
    if (e->n < 1 || e->n > MR_MAX_OUTPUTS)
        return mr_expr_fail_at(st, e, "expected the losses of 1 to %d outputs", MR_MAX_OUTPUTS);
    l->parts = mr_calloc(e->n, sizeof *l->parts);
    if (!l->parts)
        return mr_fail_memory(st, e->n * sizeof *l->parts, "a loss");
    for (l->n_parts = 0; l->n_parts < e->n;) {
        size_t i = l->n_parts++;
        MR_TRY(parse_part(&l->parts[i], e->children[i], e->keys ? e->keys[i] : NULL, st));
    }
    return MR_OK;
}

/* ---- weights ---- */

static mr__loss_part *find(const mr_loss *l, const char *name)
{
    for (size_t i = 0; i < l->n_parts; i++)
        if (l->parts[i].name && strcmp(l->parts[i].name, name) == 0)
            return &l->parts[i];
    return NULL;
}

/* One loss for all outputs becomes one for each that has a weight. */
static mr_code spread(mr_loss *l, const mr_expr *e, mr_status *st)
{
    l->parts = mr_calloc(e->n, sizeof *l->parts);
    if (!l->parts)
        return mr_fail_memory(st, e->n * sizeof *l->parts, "a loss");
    for (l->n_parts = 0; l->n_parts < e->n;) {
        mr__loss_part *p = &l->parts[l->n_parts++];
        p->weight = 1;
        if (e->keys && !(p->name = mr_strdup(e->keys[l->n_parts - 1])))
            return mr_fail_memory(st, 0, "a loss");
        MR_TRY(mr_loss_parse(&p->loss, l->text, st));
    }
    return MR_OK;
}

static mr_code take_weights(mr_loss *l, const mr_expr *e, mr_status *st)
{
    bool named = e->kind == MR_EX_RECORD;
    if ((!named && e->kind != MR_EX_LIST) || e->n < 1 || e->n > MR_MAX_OUTPUTS)
        return mr_expr_fail_at(
            st, e,
            "weights of losses must be a record of numbers with the names of the outputs, {\"a\": "
            "1.0, \"b\": 0.5}, or a list in their order, [1.0, 0.5]");
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(check_weight(e->children[i], st));
    if (l->n_parts == 0)
        MR_TRY(spread(l, e, st));
    if (!named && (l->parts[0].name || l->n_parts != e->n))
        return mr_expr_fail_at(
            st, e,
            l->parts[0].name
                ? "the losses have names: write the weights with names too, as in {\"a\": 1.0}"
                : "there must be as many weights as losses");
    for (size_t i = 0; named && i < e->n; i++)
        if (!find(l, e->keys[i]))
            return mr_expr_fail_at(st, e->children[i], "there is a weight, but no loss, for %s",
                                   e->keys[i]);
    for (size_t i = 0; i < e->n; i++)
        (named ? find(l, e->keys[i]) : &l->parts[i])->weight = number_of(e->children[i]);
    return MR_OK;
}

/* Builds the text including the weights. */
static mr_code write_text(mr_loss *l, mr_status *st)
{
    bool named = l->parts[0].name != NULL;
    size_t size = 3, at = 1;
    for (size_t i = 0; i < l->n_parts; i++)
        size += strlen(l->parts[i].loss->text) + NUMBER + (named ? strlen(l->parts[i].name) : 0);
    char *text = mr_malloc(size);
    if (!text)
        return mr_fail_memory(st, size, "a loss");
    text[0] = named ? '{' : '[';
    for (size_t i = 0; i < l->n_parts; i++) {
        const mr__loss_part *p = &l->parts[i];
        const char *q = named ? "\"" : "";
        at +=
            (size_t)snprintf(text + at, size - at, "%s%s%s%s%s%.17g * %s", i ? ", " : "", q,
                             named ? p->name : "", q, named ? ": " : "", p->weight, p->loss->text);
    }
    text[at] = named ? '}' : ']';
    text[at + 1] = '\0';
    mr_free(l->text);
    l->text = text;
    return MR_OK;
}

mr_code mr_loss_weigh(mr_loss *l, const char *weights, mr_status *st)
{
    const mr_expr *e;
    MR_TRY(mr_expr_parse(weights, strlen(weights), &e, st));
    bool spreads = l->n_parts == 0;
    mr_code rc = take_weights(l, e, st);
    mr_expr_unref(e);
    if (rc == MR_OK)
        rc = write_text(l, st);
    if (rc != MR_OK && spreads) /* restores the loss for all outputs */
        mr__loss_parts_free(l);
    else if (spreads)
        l->is_spread = true;
    return rc;
}

/* ---- for a model ---- */

const mr_loss *mr_loss_of_output(const mr_loss *l, const char *name, size_t i, double *weight)
{
    const mr__loss_part *p = NULL;
    *weight = 1;
    if (l->n_parts == 0)
        return l;
    if (l->parts[0].name)
        p = find(l, name);
    else if (i < l->n_parts)
        p = &l->parts[i];
    if (p)
        *weight = p->weight;
    return p ? p->loss : NULL;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    size_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i < n;
}

mr_code mr__loss_check_outputs(const mr_loss *l, const char *const *names, size_t n, mr_status *st)
{
    char all[256] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", names[i]);
    if (l->n_parts > 0 && (!l->parts[0].name || l->is_spread) && l->n_parts != n)
        return mr_fail(
            st, MR_INVALID_ARGUMENT, "there are %s for %zu output%s, but the model has %zu (%s)",
            l->is_spread ? "weights" : "losses", l->n_parts, l->n_parts == 1 ? "" : "s", n, all);
    for (size_t i = 0; i < l->n_parts; i++)
        if (l->parts[i].name && !is_one_of(l->parts[i].name, names, n))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "there is a loss for %s, but the model's outputs are called %s",
                           l->parts[i].name, all);
    return MR_OK;
}

/* ---- settings ---- */

static mr_code add_loss(const mr_loss *l, const char *name, mr__settings *out, mr_status *st)
{
    return mr__settings_add_table(out, name, l->desc->is.name, l->desc->is.params, l->params, st);
}

mr_code mr__loss_settings(const mr_loss *l, mr__settings *out, mr_status *st)
{
    char name[128], weight[NUMBER];
    if (l->n_parts == 0)
        return add_loss(l, "loss", out, st);
    for (size_t i = 0; i < l->n_parts; i++) {
        const mr__loss_part *p = &l->parts[i];
        if (p->name)
            snprintf(name, sizeof name, "loss of %.100s", p->name);
        else
            snprintf(name, sizeof name, "loss of output %zu", i);
        MR_TRY(add_loss(p->loss, name, out, st));
        snprintf(weight, sizeof weight, "%.15g", p->weight);
        snprintf(name + strlen(name), sizeof name - strlen(name), "/weight");
        MR_TRY(mr__settings_add(out, name, weight, st));
    }
    return MR_OK;
}
