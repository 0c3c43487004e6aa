/* SPDX-License-Identifier: Apache-2.0 */
/* Types calls: assigns arguments to the parameters of a descriptor's table, types and checks
 * inputs as the table requires, reads options, and calls the type slot to determine the result. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/compiler/elementwise_loops.h"
#include "pipeline/functions/compiler/graph_builder.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/functions/compiler/type_check.h"
#include "pipeline/params/guess.h"
#include "pipeline/params/infer.h"
#include "pipeline/params/params.h"

/* ---- kinds of parameters ---- */

#define INTEGERS                                                                                   \
    (MR_DTYPE_BIT(MR_INT8) | MR_DTYPE_BIT(MR_INT16) | MR_DTYPE_BIT(MR_INT32) |                     \
     MR_DTYPE_BIT(MR_INT64) | MR_DTYPE_BIT(MR_UINT8) | MR_DTYPE_BIT(MR_UINT16) |                   \
     MR_DTYPE_BIT(MR_UINT32) | MR_DTYPE_BIT(MR_UINT64))
#define FLOATS                                                                                     \
    (MR_DTYPE_BIT(MR_FLOAT16) | MR_DTYPE_BIT(MR_BFLOAT16) | MR_DTYPE_BIT(MR_FLOAT32) |             \
     MR_DTYPE_BIT(MR_FLOAT64))
#define BOOLS   MR_DTYPE_BIT(MR_BOOL)
#define STRINGS MR_DTYPE_BIT(MR_STRING)
const mr_input_kind mr_input_tensor = {.name = "a tensor",
                                       .dtypes = INTEGERS | FLOATS | BOOLS | STRINGS};
const mr_input_kind mr_input_numbers = {.name = "numbers", .dtypes = INTEGERS | FLOATS};
const mr_input_kind mr_input_integers = {.name = "integers", .dtypes = INTEGERS};
const mr_input_kind mr_input_bools = {.name = "bools", .dtypes = BOOLS};
const mr_input_kind mr_input_strings = {.name = "strings", .dtypes = STRINGS};
const mr_input_kind mr_input_integer = {.name = "an integer", .dtypes = INTEGERS, .scalar = true};
const mr_input_kind mr_input_bool = {.name = "a single bool", .dtypes = BOOLS, .scalar = true};
const mr_input_kind mr_input_shape = {
    .name = "a list of integers", .dtypes = INTEGERS, .shape = true};

static mr_code parse_dtype(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    (void)p;
    if ((e->kind == MR_EX_STRING || e->kind == MR_EX_NAME) &&
        mr_dtype_find(e->text, strlen(e->text), field))
        return MR_OK;
    return mr_expr_fail_at(st, e, "expected a dtype, as in \"float32\"");
}
const mr_param_kind mr_option_dtype = {.size = sizeof(mr_dtype), .parse = parse_dtype};

static mr_code add_expr(mr_exprs *list, const char *name, const mr_expr *e, mr_status *st)
{
    const mr_expr **v = mr_realloc(list->v, (list->n + 1) * sizeof *v);
    if (v)
        list->v = v;
    const char **names = mr_realloc(list->names, (list->n + 1) * sizeof *names);
    if (names)
        list->names = names;
    if (!v || !names)
        return mr__type_no_memory(st);
    v[list->n] = e;
    names[list->n++] = name;
    return MR_OK;
}

static mr_code parse_exprs(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    (void)p;
    return add_expr(field, NULL, e, st);
}

static void clear_exprs(void *field)
{
    mr_exprs *list = field;
    mr_free(list->v);
    mr_free(list->names);
    *list = (mr_exprs){0};
}
const mr_param_kind mr_option_exprs = {
    .size = sizeof(mr_exprs), .parse = parse_exprs, .clear = clear_exprs};

const mr_input_kind *mr_param_input(const mr_param *p)
{
    /* Inputs are the kinds that read nothing from the text; the kind is their first member. */
    return p->type == MR_PT_OWN && !p->kind->parse ? (const mr_input_kind *)p->kind : NULL;
}

/* The parameter of input i: a variadic one takes all further inputs. NULL: too many inputs. */
static const mr_param *input_param(const mr_function *f, size_t i)
{
    for (const mr_param *p = f->params; p->name; p++)
        if (mr_param_input(p) && (i == 0 || (p->flags & MR_P_VARIADIC)))
            return p;
        else
            i -= mr_param_input(p) != NULL;
    return NULL;
}

bool mr__input_decides_shape(const mr_function *f, size_t i)
{
    return input_param(f, i)->flags & MR_P_DECIDES_SHAPE;
}

/* ---- services for type slots ---- */

mr_code mr_call_fail(const mr_call *c, mr_status *st, int i, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return mr_expr_fail_at(st, i < 0 ? c->e : c->at[i], "%s", text);
}

mr_code mr__call_shape(const mr_call *c, size_t i, bool one_free, mr_leaf *leaf, mr_status *st)
{
    const mr_array *known = c->known[i];
    const mr_leaf *in = c->in[i];
    leaf->rank = -1;
    if (!known) {
        if (in->rank == 1 && in->shape[0] >= 0 && in->shape[0] <= MR_MAX_RANK)
            leaf->rank = (int8_t)in->shape[0];
        /* The text of [n, 2] determines one axis. */
        const mr_expr *e = c->at[i];
        bool list = e->kind == MR_EX_LIST && (int64_t)e->n == leaf->rank;
        for (int d = 0; d < leaf->rank; d++) {
            bool said = list && e->children[d]->kind == MR_EX_INT && e->children[d]->i >= 0;
            leaf->shape[d] = said ? e->children[d]->i : -1;
        }
        return MR_OK;
    }
    size_t n = mr_array_row_values(known);
    int n_free = 0;
    if (n > MR_MAX_RANK)
        return mr_call_fail(c, st, (int)i, "a shape has at most %d axes", MR_MAX_RANK);
    leaf->rank = (int8_t)n;
    for (size_t d = 0; d < n; d++) {
        leaf->shape[d] = mr__int_at(known, d);
        n_free += leaf->shape[d] == -1;
        if (leaf->shape[d] < 0 && !(one_free && leaf->shape[d] == -1 && n_free == 1))
            return mr_call_fail(c, st, (int)i,
                                one_free
                                    ? "a shape has at most one -1, and no other negative number"
                                    : "a dimension is negative");
    }
    return MR_OK;
}

/* ---- inputs ---- */

/* The inputs of a call, typed, and room for what mr_call borrows. */
typedef struct inputs {
    const mr_function *f;
    const mr_expr *e;
    typed **v;
    const mr_expr *const *at;
    size_t n;
    const char *what; /* for messages */
    typed **alike;
    const mr_expr **alike_at;
    const mr_leaf **leaves;
    const mr_array **known;
} inputs;

/* Converts literals to the type that the table requires, or to that of their neighbours. */
static mr_code settle_inputs(inputs *x, mr_status *st)
{
    const mr_leaf *leaf;
    mr_dtype t;
    size_t n_alike = 0;
    for (size_t i = 0; i < x->n; i++) {
        const mr_param *p = input_param(x->f, i);
        MR_TRY(mr__type_want_tensor(x->v[i], x->at[i], x->what, &leaf, st));
        if (p->flags & MR_P_ALIKE) {
            x->alike[n_alike] = x->v[i];
            x->alike_at[n_alike++] = x->at[i];
        } else if (mr_param_input(p)->shape) {
            if (x->v[i]->weak == 'f' && mr_array_row_values(&x->v[i]->value) == 0)
                x->v[i]->weak = 'i'; /* [] is an empty shape too */
            MR_TRY(mr__type_settle(x->v[i], MR_INT64, x->at[i], st));
        } else
            MR_TRY(mr__type_settle_default(x->v[i], x->at[i], st));
    }
    return n_alike ? mr__type_unify(x->alike, x->alike_at, n_alike, x->what, &t, st) : MR_OK;
}

static mr_code check_inputs(inputs *x, mr_status *st)
{
    for (size_t i = 0; i < x->n; i++) {
        const mr_input_kind *kind = mr_param_input(input_param(x->f, i));
        const mr_leaf *leaf = mr__type_tensor_of(x->v[i]);
        x->leaves[i] = leaf;
        x->known[i] = x->v[i]->kind == TYPED_CONST ? &x->v[i]->value : NULL;
        if ((kind->dtypes & MR_DTYPE_BIT(leaf->dtype)) && !(kind->scalar && leaf->rank > 0) &&
            !(kind->shape && leaf->rank > 1))
            continue;
        char found[128];
        mr_spec_format(x->v[i]->spec, found, sizeof found);
        return mr_expr_fail_at(st, x->at[i], "%s expects %s, not %s", x->what, kind->name, found);
    }
    return MR_OK;
}

/* Computes a call of literals now. false: that fails, so it is left to run (and fail) with the
 * elements. */
static bool fold(const inputs *x, mr_array *out, char *weak)
{
    mr_array in[2] = {{0}, {0}};
    static const bool constant[2] = {true, true};
    *weak = 0;
    for (size_t i = 0; i < x->n; i++)
        *weak = mr__type_stronger(*weak, x->v[i]->weak);
    mr_row_sink sink = {.n_rows = 1};
    mr_code rc = x->n <= 2 ? MR_OK : MR_UNIMPLEMENTED;
    for (size_t i = 0; i < x->n && rc == MR_OK; i++)
        rc = mr__kernel_cast(&x->v[i]->value, *weak == 'i' ? MR_INT64 : MR_FLOAT64, &in[i], NULL);
    const mr_rows r = {
        .function = x->f, .in = in, .constant = constant, .n = x->n, .rows = 1, .errors = &sink};
    if (rc == MR_OK)
        rc = x->f->run(&r, out, NULL);
    mr_array_reset(&in[0]);
    mr_array_reset(&in[1]);
    bool good = rc == MR_OK && sink.errors.n == 0 && !sink.out_of_memory;
    mr__sink_free(&sink);
    if (!good) {
        mr_array_reset(out);
        return false;
    }
    /* A quotient of integers is a float64 unless a neighbour decides. */
    *weak = out->dtype == MR_BOOL ? 0 : *weak == 'i' && out->dtype == MR_FLOAT64 ? 'd' : *weak;
    return true;
}

static bool all_weak(const inputs *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (!x->v[i]->weak)
            return false;
    return true;
}

/* The node of a call whose inputs are checked; takes params. */
static mr_code make_node(inputs *x, void *params, typed **out, mr_status *st)
{
    mr_call c = {.function = x->f,
                 .params = params,
                 .n = x->n,
                 .in = x->leaves,
                 .known = x->known,
                 .e = x->e,
                 .at = x->at};
    mr_code rc = x->f->type(&c, st);
    typed *t = NULL;
    if (rc == MR_OK && !c.spec && !(c.spec = mr_spec_of_leaf(&c.out)))
        rc = mr__type_no_memory(st);
    mr_status why;
    if (rc == MR_OK && mr__spec_check(c.spec, &why) != MR_OK)
        rc = mr_call_fail(&c, st, -1, "%s", why.message);
    if (rc == MR_OK && c.averages && x->v[0]->kind == TYPED_CALL && x->v[0]->function->shrink)
        x->v[0]->function->shrink(x->v[0]->params, &c.out);
    if (rc == MR_OK)
        rc = mr__type_node_of(TYPED_CALL, x->v, x->n, &t, st);
    if (rc != MR_OK) {
        if (c.plan)
            x->f->free_plan(c.plan);
        mr_spec_unref(c.spec);
        mr__function_params_free(x->f, params);
        return rc;
    }
    t->e = x->e;
    t->function = x->f;
    t->constant = t->constant && !(x->f->props & MR_FUNCTION_DRAWS);
    t->params = params;
    t->plan = c.plan;
    t->spec = c.spec;
    t->steps = mr__tile_steps(t);
    *out = t;
    return MR_OK;
}

mr_code mr__type_function(const mr_function *f, const mr_expr *e, typed **v,
                          const mr_expr *const *at, size_t n, void *params, typed **out,
                          mr_status *st)
{
    inputs x = {.f = f, .e = e, .v = v, .at = at, .n = n};
    x.what = e->kind == MR_EX_LIST ? "a list" : f->name;
    /* One allocation: four arrays of pointers. */
    void **room = mr_calloc(4 * n + 1, sizeof *room);
    mr_code rc = room ? MR_OK : mr__type_no_memory(st);
    if (rc == MR_OK) {
        x.alike = (typed **)room;
        x.alike_at = (const mr_expr **)(room + n);
        x.leaves = (const mr_leaf **)(room + 2 * n);
        x.known = (const mr_array **)(room + 3 * n);
    }
    const mr_leaf *leaf;
    mr_array value = {0};
    char weak;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = mr__type_want_tensor(v[i], at[i], x.what, &leaf, st);
    bool folded =
        rc == MR_OK && (f->props & MR_FUNCTION_FOLDS) && all_weak(&x) && fold(&x, &value, &weak);
    if (rc == MR_OK && !folded)
        rc = settle_inputs(&x, st);
    if (rc == MR_OK && !folded)
        rc = check_inputs(&x, st);
    if (rc == MR_OK && !folded)
        rc = make_node(&x, params, out, st);
    else
        mr__function_params_free(f, params);
    if (folded)
        rc = mr__type_constant(&value, weak, out, st);
    mr_free(room);
    return rc;
}

/* ---- arguments ---- */

static size_t count_params(const mr_function *f)
{
    size_t n = 0;
    while (f->params[n].name)
        n++;
    return n;
}

void mr__function_params_free(const mr_function *f, void *params)
{
    const mr_param_table t = {f->name, f->params, f->params_size};
    mr_params_free(&t, params);
}

typedef struct call {
    const mr_function *f;
    const mr_expr *e;
    const scope *s;
    size_t n_params;
    size_t *param_of; /* of each argument */
    bool *given;      /* each parameter */
    typed **v;
    const mr_expr **at;
    size_t n; /* inputs */
    void *params;
} call;

static bool takes_names(const mr_param *p)
{
    return p->kind == &mr_option_exprs && (p->flags & MR_P_VARIADIC);
}

static mr_code given_twice(const call *c, const mr_param *p, const mr_expr *e, mr_status *st)
{
    for (size_t k = 0; k < c->n_params; k++)
        if (takes_names(&c->f->params[k]))
            return mr_expr_fail_at(st, e,
                                   "%s: %s is given twice; a name that is also an argument's goes "
                                   "in braces: {\"%s\": ...}",
                                   c->f->name, p->name, p->name);
    return mr_expr_fail_at(st, e, "%s: %s is given twice", c->f->name, p->name);
}

/* The parameter that argument i is for. */
static mr_code place_argument(call *c, size_t i, mr_status *st)
{
    const char *key = c->e->keys ? c->e->keys[i] : NULL;
    const mr_param *params = c->f->params;
    size_t at = c->n_params;
    for (size_t k = 0; key && k < c->n_params && at == c->n_params; k++)
        if (strcmp(params[k].name, key) == 0 && !takes_names(&params[k]))
            at = k;
    for (size_t k = 0; key && k < c->n_params && at == c->n_params; k++)
        if (takes_names(&params[k]))
            at = k;
    for (int pass = 0; pass < 2 && !key; pass++)
        for (size_t k = 0; k < c->n_params && at == c->n_params; k++)
            if ((params[k].flags & (pass ? MR_P_OPTIONAL : MR_P_POSITIONAL)) &&
                (!c->given[k] || (params[k].flags & MR_P_VARIADIC)))
                at = k;
    const mr_expr *e = c->e->children[i];
    if (at == c->n_params && key) {
        char all[200] = "";
        for (size_t k = 0; k < c->n_params; k++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? ", " : "",
                     params[k].name);
        return mr_expr_fail_at(st, e, "%s has no argument '%s'; it has %s", c->f->name, key, all);
    }
    if (at == c->n_params)
        return mr_expr_fail_at(st, e, "%s takes no further argument here", c->f->name);
    if (c->given[at] && !(params[at].flags & MR_P_VARIADIC))
        return given_twice(c, &params[at], e, st);
    c->given[at] = true;
    c->param_of[i] = at;
    return MR_OK;
}

static mr_code read_option(call *c, const mr_param *p, const char *key, const mr_expr *e,
                           mr_status *st)
{
    void *field = mr__param_field(p, c->params);
    if (p->type == MR_PT_OWN)
        return p->kind == &mr_option_exprs ? add_expr(field, key, e, st)
                                           : p->kind->parse(p, e, field, st);
    static const scope nothing;
    const builder b = {.s = &nothing};
    mr_value v = {0};
    bool unknown;
    mr_status why;
    MR_TRY(mr__build_value(&b, e, &v, st));
    mr_code rc = mr__param_set(c->f->name, p, c->params, &v, &unknown, &why);
    mr_value_reset(&v);
    if (rc == MR_INVALID_ARGUMENT)
        return mr_expr_fail_at(st, e, "%s", why.message);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

/* The arguments of parameter k, in the order they were given. */
static mr_code read_parameter(call *c, size_t k, mr_status *st)
{
    const mr_param *p = &c->f->params[k];
    bool input = mr_param_input(p) != NULL;
    if (!c->given[k] && (p->flags & MR_P_POSITIONAL))
        return mr_expr_fail_at(st, c->e, "%s expects %s; an example is %s", c->f->name, p->name,
                               c->f->example);
    for (size_t i = 0; i < c->e->n; i++) {
        if (c->param_of[i] != k)
            continue;
        const mr_expr *e = c->e->children[i];
        if (!input) {
            MR_TRY(read_option(c, p, c->e->keys ? c->e->keys[i] : NULL, e, st));
            continue;
        }
        if (e->kind == MR_EX_NONE && (p->flags & MR_P_OPTIONAL))
            continue; /* as if it were not there */
        c->at[c->n] = e;
        MR_TRY(mr__type(e, c->s, &c->v[c->n], st));
        c->n++;
    }
    return MR_OK;
}

static mr_code read_call(call *c, mr_status *st)
{
    for (size_t i = 0; i < c->e->n; i++)
        MR_TRY(place_argument(c, i, st));
    for (size_t k = 0; k < c->n_params; k++)
        MR_TRY(read_parameter(c, k, st));
    return MR_OK;
}

static mr_code call_function(const mr_function *f, const mr_expr *e, const scope *s, typed **out,
                             mr_status *st)
{
    call c = {.f = f, .e = e, .s = s, .n_params = count_params(f)};
    const mr_param_table t = {f->name, f->params, f->params_size};
    c.param_of = mr_calloc(e->n + 1, sizeof *c.param_of);
    c.given = mr_calloc(c.n_params + 1, sizeof *c.given);
    c.v = mr_calloc(e->n + 1, sizeof *c.v);
    c.at = mr_calloc(e->n + 1, sizeof *c.at);
    mr_code rc = c.param_of && c.given && c.v && c.at ? MR_OK : mr__type_no_memory(st);
    if (rc == MR_OK && f->params_size)
        rc = mr__params_defaults(&t, &c.params, st);
    if (rc == MR_OK)
        rc = read_call(&c, st);
    if (rc == MR_OK)
        rc = mr__type_function(f, e, c.v, c.at, c.n, c.params, out, st);
    else
        mr__function_params_free(f, c.params);
    for (size_t i = 0; c.v && i < e->n; i++)
        mr__typed_free(c.v[i]);
    mr_free(c.param_of);
    mr_free(c.given);
    mr_free(c.v);
    mr_free(c.at);
    return rc;
}

/* ---- functions registered as mr_fn ---- */

/* What the calls that are being typed, one within the other, have made: functions that several ways
 * lead to are typed once for each type. */
typedef struct made {
    const mr_fn *fn; /* registered, so never freed */
    mr_spec *in;
    const mr_program *program;
} made;

typedef struct made_list {
    made *v;
    size_t n, capacity;
} made_list;

typedef struct typing {
    const mr_fn *fn;
    int levels; /* of the expressions of this call and of those around it */
    const struct typing *outer;
    made_list *list; /* of the outermost call */
} typing;

static _Thread_local const typing *innermost;

/* Bounds the recursion; a call takes the stack of several levels. */
enum { MAX_LEVELS = 4 * MR_EXPR_MAX_DEPTH, LEVELS_OF_CALL = 16 };

static mr_code enter_call(typing *t, const mr_fn *fn, made_list *own, const mr_expr *e,
                          mr_status *st)
{
    const typing *outer = innermost;
    *t = (typing){fn, LEVELS_OF_CALL + (fn->expr ? fn->expr->depth : 0), outer, own};
    for (const typing *o = outer; o; o = o->outer)
        if (o->fn == fn)
            return mr_expr_fail_at(st, e, "'%s' is registered as an expression that calls itself",
                                   e->text);
    if (outer) {
        t->levels += outer->levels;
        t->list = outer->list;
    }
    if (t->levels > MAX_LEVELS)
        return mr_expr_fail_at(
            st, e, "functions registered as expressions call each other too deeply at '%s'",
            e->text);
    innermost = t;
    return MR_OK;
}

static void leave_call(const typing *t)
{
    innermost = t->outer;
    if (t->outer)
        return;
    for (size_t i = 0; i < t->list->n; i++) {
        mr_spec_unref(t->list->v[i].in);
        mr_program_unref(t->list->v[i].program);
    }
    mr_free(t->list->v);
}

static mr_code program_of(mr_fn *fn, mr_spec *in, const mr_program **out, mr_status *st)
{
    made_list *list = innermost->list;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].fn == fn && mr_spec_equal(list->v[i].in, in)) {
            *out = mr__program_ref(list->v[i].program);
            return MR_OK;
        }
    const mr_program *p = NULL;
    MR_TRY(mr_program_get(fn, in, &p, st));
    mr_code rc = MR_GROW(list->v, list->capacity, list->n + 1, SIZE_MAX / sizeof *list->v,
                         "the functions that an expression calls", st);
    if (rc == MR_OK) {
        list->v[list->n++] = (made){fn, mr_spec_ref(in), p};
        *out = mr__program_ref(p);
    } else
        mr_program_unref(p);
    return rc;
}

static mr_code type_program(mr_fn *fn, const mr_expr *e, typed **v, typed **out, mr_status *st)
{
    mr_spec **specs = mr_calloc(e->n + 1, sizeof *specs);
    mr_code rc = specs ? MR_OK : mr__type_no_memory(st);
    for (size_t i = 0; i < e->n && rc == MR_OK; i++) {
        rc = mr__type_settle_default(v[i], e->children[i], st);
        specs[i] = mr_spec_ref(v[i]->spec);
    }
    mr_spec *in = rc == MR_OK ? mr_spec_tuple(specs, e->n) : NULL;
    for (size_t i = 0; specs && rc != MR_OK && i < e->n; i++)
        mr_spec_unref(specs[i]);
    mr_free(specs);
    if (rc == MR_OK && !in)
        rc = mr__type_no_memory(st);
    const mr_program *p = NULL;
    typing t;
    made_list own = {0};
    if (rc == MR_OK)
        rc = enter_call(&t, fn, &own, e, st);
    if (rc == MR_OK) {
        rc = program_of(fn, in, &p, st);
        leave_call(&t);
    }
    mr_spec_unref(in);
    if (rc != MR_OK)
        return rc;
    rc = mr__type_node_of(TYPED_PROGRAM, v, e->n, out, st);
    if (rc != MR_OK) {
        mr_program_unref(p);
        return rc;
    }
    (*out)->constant = false;
    (*out)->program = p;
    (*out)->spec = mr_spec_ref(mr_program_output(p));
    return MR_OK;
}

static mr_code call_program(mr_fn *fn, const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    typed **v = mr_calloc(e->n + 1, sizeof *v);
    mr_code rc = v ? MR_OK : mr__type_no_memory(st);
    for (size_t i = 0; i < e->n && rc == MR_OK; i++)
        rc = e->keys && e->keys[i] ? mr_expr_fail_at(st, e->children[i], "%s has no argument '%s'",
                                                     e->text, e->keys[i])
                                   : mr__type(e->children[i], s, &v[i], st);
    if (rc == MR_OK)
        rc = type_program(fn, e, v, out, st);
    for (size_t i = 0; v && i < e->n; i++)
        mr__typed_free(v[i]);
    mr_free(v);
    return rc;
}

static mr_code unknown_function(const mr_expr *e, mr_status *st)
{
    const char *hint = mr__type_hint(e);
    const mr_function *f;
    mr_guess g = {.word = e->text};
    for (size_t i = 0; (f = mr_function_at(i)); i++)
        if (!f->form)
            mr_guess_try(&g, f->name);
    if (*hint || !g.best)
        return mr_expr_fail_at(st, e, "unknown function '%s'%s", e->text,
                               *hint ? hint : "; 'millrace ops' lists them");
    return mr_expr_fail_at(st, e, "unknown function '%s'; did you mean '%s'?", e->text, g.best);
}

mr_code mr__type_call(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    /* A function of the environment was computed before (build.c). */
    char place[32];
    snprintf(place, sizeof place, "@%u", (unsigned)e->begin);
    if (mr__scope_find(s, place) >= 0)
        return mr__type_name(e, place, s, out, st);
    const mr_function *f = mr_function_find(e->text);
    if (f)
        return call_function(f, e, s, out, st);
    mr_fn *fn = mr__fn_registered(e->text);
    if (!fn)
        return unknown_function(e, st);
    mr_code rc = call_program(fn, e, s, out, st);
    mr_fn_unref(fn);
    return rc;
}
