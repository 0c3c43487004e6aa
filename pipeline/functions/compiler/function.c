/* SPDX-License-Identifier: Apache-2.0 */
/* Creates functions, and registers them under names. */
#include "pipeline/functions/compiler/function.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/graph/fn.h"
#include "pipeline/graph/op.h"
#include "pipeline/system/fork.h"

/* Registered functions; they are few, and looked up when a graph is built. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the three below */
static struct entry {
    char *name;
    mr_fn *fn;
    /* Of mr__registered_does: the answers, and how many functions were registered then; 0: not
     * asked yet. Functions that are registered later may change a false. */
    bool does[MR__N_DEEDS];
    size_t asked[MR__N_DEEDS];
} * registry;
static size_t n_registered, registry_capacity;
MR__AROUND_FORK(registry_lock, NULL)

/* A function that only carries the error of its construction. NULL if memory is lacking, which
 * an op treats as a missing function. */
static mr_fn *carry(mr_status *why)
{
    mr_fn *fn = mr__fn_new(MR_FN_EXPR);
    if (fn && !(fn->error = mr_memdup(why, sizeof *why))) {
        mr_fn_unref(fn);
        return NULL;
    }
    return fn;
}

mr_fn *mr_fn_text(const char *text)
{
    mr_status st;
    const mr_expr *e = NULL;
    mr_fn *fn = NULL;
    mr_code rc = text ? mr_expr_parse(text, strlen(text), &e, &st)
                      : mr_fail(&st, MR_INVALID_ARGUMENT, "the text of a function is NULL");
    if (rc == MR_OK && e->kind != MR_EX_LAMBDA && e->kind != MR_EX_NAME)
        rc = mr_fail(&st, MR_INVALID_ARGUMENT,
                     "expected a function, as in 'x => x * 2', not '%.60s'", text);
    if (rc == MR_OK)
        rc = mr__fn_of_expr(e, NULL, NULL, 0, &fn, &st);
    mr_expr_unref(e);
    return rc == MR_OK ? fn : carry(&st);
}

static mr_fn *of_callback(mr__fn_kind kind, mr_fn_call f, void *ctx, const mr_fn_opts *opts)
{
    mr_fn *fn = mr__fn_new(kind);
    if (!fn) {
        if (opts && opts->release)
            opts->release(ctx);
        return NULL;
    }
    fn->callback = f;
    fn->ctx = ctx;
    if (!opts)
        return fn;
    fn->out = opts->out ? mr_spec_ref(opts->out) : NULL;
    fn->may_block = opts->may_block;
    fn->release = opts->release;
    mr_status st;
    if (opts->name && mr_fn_register(opts->name, fn, &st) != MR_OK) {
        mr_fn_unref(fn);
        return carry(&st);
    }
    return fn;
}

static mr_fn *of_call(mr__fn_kind kind, mr_fn_call f, void *ctx, const mr_fn_opts *opts)
{
    mr_status st;
    if (f)
        return of_callback(kind, f, ctx, opts);
    if (opts && opts->release)
        opts->release(ctx);
    mr_fail(&st, MR_INVALID_ARGUMENT, "the callback of a function is NULL");
    return carry(&st);
}

mr_fn *mr_fn_block(mr_fn_call f, void *ctx, const mr_fn_opts *opts)
{
    return of_call(MR_FN_BLOCK, f, ctx, opts);
}

mr_fn *mr_fn_element(mr_fn_call f, void *ctx, const mr_fn_opts *opts)
{
    return of_call(MR_FN_ELEMENT, f, ctx, opts);
}

static mr_code set_rows(mr_fn *fn, const mr_rows_fn *f, mr_status *st)
{
    fn->out = f->out ? mr_spec_ref(f->out) : NULL;
    fn->may_block = f->may_block;
    fn->rows = mr_memdup(f, sizeof *f);
    if (!fn->rows || (f->label && !(fn->label = mr_strdup(f->label))) ||
        (f->alias && !(fn->name = mr_strdup(f->alias))))
        return mr_fail_memory(st, sizeof *f, "a function");
    return f->name ? mr_fn_register(f->name, fn, st) : MR_OK;
}

mr_fn *mr_fn_rows(const mr_rows_fn *f)
{
    mr_status st;
    mr_fn *fn = of_callback(MR_FN_ROWS, NULL, f->ctx, &(mr_fn_opts){.release = f->release});
    if (!fn || set_rows(fn, f, &st) == MR_OK)
        return fn;
    mr_fn_unref(fn);
    return carry(&st);
}

/* The index of the function, n_registered: none. With the lock. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < n_registered && strcmp(registry[i].name, name) != 0)
        i++;
    return i;
}

mr_code mr_fn_register(const char *name, mr_fn *fn, mr_status *st)
{
    if (!fn || !name || mr__function_name_taken(name))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "'%s' cannot name a function: it is not a name, or is taken",
                       name ? name : "");
    if (fn->error) {
        if (st)
            *st = *fn->error;
        return fn->error->code;
    }
    mr_code rc = MR_OK;
    pthread_mutex_lock(&registry_lock);
    if (find(name) < n_registered)
        rc = mr_fail(st, MR_ALREADY_EXISTS, "a function '%s' is registered already", name);
    if (rc == MR_OK)
        rc = MR_GROW(registry, registry_capacity, n_registered + 1, 1 << 20,
                     "the registry of functions", st);
    char *copy = rc == MR_OK ? mr_strdup(name) : NULL;
    if (rc == MR_OK && !fn->name && fn->kind != MR_FN_EXPR && !(fn->name = mr_strdup(name)))
        rc = mr_fail_memory(st, strlen(name), "a name");
    if (rc == MR_OK && !copy)
        rc = mr_fail_memory(st, strlen(name), "a name");
    if (rc == MR_OK)
        registry[n_registered++] = (struct entry){.name = copy, .fn = mr_fn_ref(fn)};
    else
        mr_free(copy);
    pthread_mutex_unlock(&registry_lock);
    return rc;
}

mr_fn *mr__fn_registered(const char *name)
{
    pthread_mutex_lock(&registry_lock);
    size_t i = find(name);
    mr_fn *fn = i < n_registered ? mr_fn_ref(registry[i].fn) : NULL;
    pthread_mutex_unlock(&registry_lock);
    return fn;
}

bool mr__registered_does(const char *name, mr__deed deed, bool (*does)(const mr_fn *fn))
{
    pthread_mutex_lock(&registry_lock);
    size_t i = find(name), n = n_registered;
    const mr_fn *fn = i < n ? registry[i].fn : NULL; /* kept by the registry */
    bool found = fn && registry[i].does[deed], known = !fn || found || registry[i].asked[deed] == n;
    pthread_mutex_unlock(&registry_lock);
    if (known)
        return found;
    found = does(fn);
    pthread_mutex_lock(&registry_lock);
    registry[i].does[deed] = found;
    registry[i].asked[deed] = n;
    pthread_mutex_unlock(&registry_lock);
    return found;
}
