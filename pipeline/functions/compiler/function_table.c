/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions: those of functions.def, and registered ones. */
#include <pthread.h>
#include <string.h>

#include "pipeline/functions/compiler/type_check.h"
#include "pipeline/graph/op.h"
#include "pipeline/params/token.h"
#include "pipeline/system/fork.h"

#define MR_FUNCTION(name) extern const mr_function mr_function_##name;
#include "pipeline/functions/library/functions.def"
#undef MR_FUNCTION

static const mr_function *const built_in[] = {
#define MR_FUNCTION(name) &mr_function_##name,
#include "pipeline/functions/library/functions.def"
#undef MR_FUNCTION
};

enum { N_BUILT_IN = sizeof built_in / sizeof *built_in, MAX_REGISTERED = 4096 };

static struct {
    pthread_mutex_t lock; /* guards the rest */
    const mr_function **v;
    size_t n, capacity;
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};
MR__AROUND_FORK(registered.lock, NULL)

const mr_function *mr_function_at(size_t i)
{
    if (i < N_BUILT_IN)
        return built_in[i];
    pthread_mutex_lock(&registered.lock);
    const mr_function *f = i - N_BUILT_IN < registered.n ? registered.v[i - N_BUILT_IN] : NULL;
    pthread_mutex_unlock(&registered.lock);
    return f;
}

const mr_function *mr_function_find(const char *name)
{
    const mr_function *f;
    for (size_t i = 0; (f = mr_function_at(i)); i++)
        if (!f->form && strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

const mr_function *mr__operator(const char *name, size_t n_inputs)
{
    for (size_t i = 0; i < N_BUILT_IN; i++) {
        const mr_function *f = built_in[i];
        size_t n = 0;
        while (f->params[n].name)
            n++;
        if (f->form && n == n_inputs && strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

bool mr__function_name_taken(const char *name)
{
    mr_dtype t;
    size_t n = strlen(name);
    return !mr__is_name(name, n) || mr_function_find(name) || mr_op_find(name, n) ||
           mr_dtype_find(name, n, &t);
}

enum {
    ALL_PROPS = MR_FUNCTION_CONSTANTS | MR_FUNCTION_FOLDS | MR_FUNCTION_DRAWS | MR_FUNCTION_READS |
                MR_FUNCTION_ELEMENTWISE
};

static const char *bad_descriptor(const mr_function *f)
{
    if (!f->doc || !*f->doc || !f->example || !*f->example || !f->params || !f->type || !f->run)
        return "it needs doc, example, params, type and run";
    if (f->form)
        return "operators belong to the grammar";
    if (f->props & ~(uint32_t)ALL_PROPS)
        return "props has a bit that no MR_FUNCTION_ names";
    bool variadic = false;
    for (const mr_param *p = f->params; p->name; p++) {
        bool input = p->type == MR_PT_OWN && p->kind && mr_param_input(p);
        if (!p->doc || !*p->doc || (p->type == MR_PT_OWN && !p->kind))
            return "a parameter needs a doc, and one of type OWN a kind";
        if (!input && p->at >= f->params_size)
            return "an option lies outside the params struct";
        if (input && variadic)
            return "an input follows the variadic one";
        variadic = variadic || (input && (p->flags & MR_P_VARIADIC));
    }
    return NULL;
}

mr_code mr_function_register(const mr_function *f, mr_status *st)
{
    if (!f)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the function is NULL");
    if (f->abi != MR_ABI_VERSION)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "a function has ABI version %u; this library has %u: build both from one version",
            f->abi, MR_ABI_VERSION);
    if (!f->name || mr__function_name_taken(f->name))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "'%s' cannot name a function: it is not a name, or is taken",
                       f->name ? f->name : "");
    const char *bad = bad_descriptor(f);
    if (bad)
        return mr_fail(st, MR_INVALID_ARGUMENT, "function %s: %s", f->name, bad);
    mr_fn *fn = mr__fn_registered(f->name);
    mr_fn_unref(fn);
    if (fn)
        return mr_fail(st, MR_ALREADY_EXISTS, "a function '%s' is registered already", f->name);
    pthread_mutex_lock(&registered.lock);
    mr_code rc = MR_GROW(registered.v, registered.capacity, registered.n + 1, MAX_REGISTERED,
                         "the table of functions", st);
    if (rc == MR_OK)
        registered.v[registered.n++] = f;
    pthread_mutex_unlock(&registered.lock);
    return rc;
}
