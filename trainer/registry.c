/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/registry.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/params/guess.h"

enum { MAX_REGISTERED = 4096 };

/* Call with the lock held. */
static const mr_component *at(const mr__registry *r, size_t i)
{
    size_t built_in = 0;
    while (built_in < i && r->built_in[built_in])
        built_in++;
    if (r->built_in[built_in])
        return r->built_in[built_in];
    return i - built_in < r->n ? r->registered[i - built_in] : NULL;
}

const mr_component *mr__registry_at(mr__registry *r, size_t i)
{
    pthread_mutex_lock(&r->lock);
    const mr_component *c = at(r, i);
    pthread_mutex_unlock(&r->lock);
    return c;
}

static bool bears(const mr_component *c, const char *name)
{
    return strcmp(c->name, name) == 0 || (c->alias && strcmp(c->alias, name) == 0);
}

static bool has(mr__registry *r, const char *name)
{
    const mr_component *c;
    for (size_t i = 0; (c = mr__registry_at(r, i)); i++)
        if (bears(c, name))
            return true;
    return false;
}

/* The component that e names; otherwise the closest names in g and all of them in known. */
static const mr_component *look_for(mr__registry *r, const mr_expr *e, mr_guess *g, char *known,
                                    size_t size)
{
    const mr_component *c;
    size_t n = 0;
    for (size_t k = 0; k < 2 && (k == 0 || r->also); k++)
        for (size_t i = 0; (c = mr__registry_at(k == 0 ? r : r->also, i)); i++) {
            if (k == 0 && bears(c, e->text))
                return c;
            if (k == 1 && has(r, c->name))
                continue;
            mr_guess_try(g, c->name);
            if (c->alias)
                mr_guess_try(g, c->alias);
            n += (size_t)snprintf(known + n, size - n, "%s%s", n ? ", " : "", c->name);
            n = n < size ? n : size - 1;
        }
    return NULL;
}

mr_code mr__registry_find(mr__registry *r, const mr_expr *e, const mr_component **out,
                          mr_status *st)
{
    char known[1024] = "", guessed[96] = "";
    mr_guess g = {.word = e->text};
    const mr_component *c = look_for(r, e, &g, known, sizeof known);
    if (!c && g.best)
        snprintf(guessed, sizeof guessed, "; did you mean '%s'?", g.best);
    if (!c)
        return mr_expr_fail_at(st, e, "there is no %s '%s'%s; there are %s", r->group, e->text,
                               guessed, known);
    *out = c;
    return MR_OK;
}

static mr_code make(mr__registry *r, const mr_expr *e, const mr_component **out, void **params,
                    mr_status *st)
{
    const mr_component *c;
    MR_TRY(mr__registry_find(r, e, &c, st));
    MR_TRY(mr_params_parse(&(mr_param_table){c->name, c->params, c->params_size}, e, params, st));
    *out = c;
    return MR_OK;
}

mr_code mr__registry_parse(mr__registry *r, const char *text, const mr_component **c, void **params,
                           mr_status *st)
{
    const mr_expr *e;
    MR_TRY(mr_expr_parse(text, text ? strlen(text) : 0, &e, st));
    mr_code rc;
    if (e->kind == MR_EX_NAME || e->kind == MR_EX_CALL || e->kind == MR_EX_STRING)
        rc = make(r, e, c, params, st);
    else
        rc = mr_expr_fail_at(
            st, e, "expected the name of a %s, with or without arguments in brackets", r->group);
    mr_expr_unref(e);
    return rc;
}

/* Call with the lock held. */
static mr_code add(mr__registry *r, const mr_component *c, mr_status *st)
{
    const mr_component *other;
    for (size_t i = 0; (other = at(r, i)); i++)
        if (bears(other, c->name) || (c->alias && bears(other, c->alias)))
            return mr_fail(st, MR_ALREADY_EXISTS, "%s %s is registered already", r->group,
                           other->name);
    MR_TRY(
        MR_GROW(r->registered, r->capacity, r->n + 1, MAX_REGISTERED, "a table of components", st));
    r->registered[r->n++] = c;
    return MR_OK;
}

mr_code mr__registry_add(mr__registry *r, const mr_component *c, bool complete, mr_status *st)
{
    if (!c)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the %s is NULL", r->group);
    if (c->abi != MR_ABI_VERSION)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a %s has ABI version %u; this library has %u: build both from one version",
                       r->group, c->abi, MR_ABI_VERSION);
    MR_TRY(mr_params_check(&(mr_param_table){c->name, c->params, c->params_size}, st));
    if (!c->doc || !*c->doc || !c->example || !*c->example || !complete)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s %s lacks its doc, its example or a function that its descriptor needs",
                       r->group, c->name);
    pthread_mutex_lock(&r->lock);
    mr_code rc = add(r, c, st);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void mr__component_free_params(const mr_component *c, void *params)
{
    mr_params_free(&(mr_param_table){c->name, c->params, c->params_size}, params);
}
