/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/fn.h"

#include <string.h>

static void destroy_cache(mr__object *o)
{
    struct mr_fn_cache *c = (struct mr_fn_cache *)o;
    mr_spec_unref(c->in);
    mr__object_unref(c->program);
    mr__lock_destroy(&c->lock);
    mr_free(c);
}

static struct mr_fn_cache *new_cache(void)
{
    struct mr_fn_cache *c = mr_calloc(1, sizeof *c);
    if (c) {
        mr__lock_init(&c->lock);
        mr__object_init(&c->obj, destroy_cache);
    }
    return c;
}

static void destroy_fn(mr__object *o)
{
    mr_fn *fn = (mr_fn *)o;
    mr_expr_unref(fn->expr);
    for (size_t i = 0; i < fn->n_captures; i++) {
        mr_free(fn->capture_names[i]);
        mr_value_reset(&fn->captures[i]);
    }
    for (size_t i = 0; fn->capture_specs && i < fn->n_captures; i++)
        mr_spec_unref(fn->capture_specs[i]);
    mr_free(fn->capture_names);
    mr_free(fn->captures);
    mr_free(fn->capture_specs);
    mr_free(fn->name);
    mr_free(fn->label);
    mr_free(fn->rows);
    if (fn->release)
        fn->release(fn->ctx);
    mr_spec_unref(fn->out);
    mr_free(fn->error);
    if (fn->cache)
        mr__object_unref(&fn->cache->obj);
    mr_free(fn);
}

mr_fn *mr__fn_new(mr__fn_kind kind)
{
    mr_fn *fn = mr_calloc(1, sizeof *fn);
    if (!fn)
        return NULL;
    mr__object_init(&fn->obj, destroy_fn);
    fn->kind = kind;
    fn->cache = new_cache();
    if (!fn->cache) {
        mr_free(fn);
        return NULL;
    }
    return fn;
}

mr_fn *mr_fn_ref(mr_fn *fn)
{
    if (fn)
        mr__object_ref(&fn->obj);
    return fn;
}

void mr_fn_unref(mr_fn *fn)
{
    if (fn)
        mr__object_unref(&fn->obj);
}

static mr_code copy_captures(mr_fn *fn, const char *const *names, const mr_value *values, size_t n,
                             mr_status *st)
{
    fn->capture_names = mr_calloc(n ? n : 1, sizeof *fn->capture_names);
    fn->captures = mr_calloc(n ? n : 1, sizeof *fn->captures);
    if (!fn->capture_names || !fn->captures)
        return mr_fail_memory(st, n * sizeof *fn->captures, "a function's captures");
    fn->n_captures = n;
    for (size_t i = 0; i < n; i++) {
        fn->capture_names[i] = mr_strdup(names[i]);
        if (!fn->capture_names[i])
            return mr_fail_memory(st, strlen(names[i]) + 1, "a function's captures");
        MR_TRY(mr_value_copy(&fn->captures[i], &values[i], st));
    }
    return MR_OK;
}

mr_code mr__fn_of_expr(const mr_expr *expr, const char *const *names, const mr_value *values,
                       size_t n, mr_fn **out, mr_status *st)
{
    mr_fn *fn = mr__fn_new(MR_FN_EXPR);
    if (!fn)
        return mr_fail_memory(st, sizeof *fn, "a function");
    fn->expr = mr_expr_ref(expr);
    mr_code rc = copy_captures(fn, names, values, n, st);
    if (rc == MR_OK)
        *out = fn;
    else
        mr_fn_unref(fn);
    return rc;
}

mr_code mr__fn_with_captures(const mr_fn *fn, const mr_value *values, mr_fn **out, mr_status *st)
{
    mr_fn *copy = NULL;
    MR_TRY(mr__fn_of_expr(fn->expr, (const char *const *)fn->capture_names, values, fn->n_captures,
                          &copy, st));
    mr__object_unref(&copy->cache->obj);
    copy->cache = fn->cache;
    mr__object_ref(&copy->cache->obj);
    copy->instance = true;
    copy->capture_specs = mr_calloc(fn->n_captures + 1, sizeof(mr_spec *));
    if (!copy->capture_specs) {
        mr_fn_unref(copy);
        return mr_fail_memory(st, fn->n_captures * sizeof(mr_spec *), "a function's captures");
    }
    for (size_t i = 0; i < fn->n_captures; i++)
        if (fn->captures[i].kind == MR_V_UNKNOWN)
            copy->capture_specs[i] = mr_spec_ref(fn->captures[i].spec);
    *out = copy;
    return MR_OK;
}
