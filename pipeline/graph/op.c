/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/op.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/graph/params.h"

#define MR_OP(name) extern const mr_op mr_op_##name;
#include "pipeline/ops/ops.def"
#undef MR_OP

/* In order of names, NULL behind the last. */
static const mr_op *const built_in[] = {
#define MR_OP(name) &mr_op_##name,
#include "pipeline/ops/ops.def"
#undef MR_OP
    NULL};

#define N_BUILT_IN (sizeof built_in / sizeof *built_in - 1)
enum { MAX_REGISTERED = 4096 };

static struct {
    pthread_mutex_t lock; /* guards the rest */
    const mr_op **v;      /* in order of names */
    size_t n, capacity;
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int compare(const mr_op *op, const char *name, size_t n)
{
    int order = strncmp(op->name, name, n);
    return order ? order : op->name[n] != '\0';
}

/* Where name is among ops, or would be; *found says which. */
static size_t place(const mr_op *const *ops, size_t count, const char *name, size_t n, bool *found)
{
    size_t lo = 0, hi = count;
    *found = false;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = compare(ops[mid], name, n);
        if (order == 0) {
            *found = true;
            return mid;
        }
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const mr_op *mr_op_find(const char *name, size_t n)
{
    bool found;
    size_t at = place(built_in, N_BUILT_IN, name, n, &found);
    if (found)
        return built_in[at];
    pthread_mutex_lock(&registered.lock);
    at = place(registered.v, registered.n, name, n, &found);
    const mr_op *op = found ? registered.v[at] : NULL;
    pthread_mutex_unlock(&registered.lock);
    return op;
}

const mr_op *mr_op_at(size_t i)
{
    if (i < N_BUILT_IN)
        return built_in[i];
    pthread_mutex_lock(&registered.lock);
    const mr_op *op = i - N_BUILT_IN < registered.n ? registered.v[i - N_BUILT_IN] : NULL;
    pthread_mutex_unlock(&registered.lock);
    return op;
}

/* ---- what a descriptor must be ---- */

static bool good_name(const char *s)
{
    if (!s || *s < 'a' || *s > 'z')
        return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static bool good_text(const char *s)
{
    return s && *s;
}

static size_t field_size(mr_ptype t)
{
    static const size_t sizes[] = {
        [MR_PT_I64] = sizeof(int64_t),      [MR_PT_F64] = sizeof(double),
        [MR_PT_BOOL] = sizeof(bool),        [MR_PT_TRI] = sizeof(mr_tri),
        [MR_PT_STR] = sizeof(char *),       [MR_PT_FN] = sizeof(mr_fn *),
        [MR_PT_VALUE] = sizeof(mr_value),   [MR_PT_INTS] = sizeof(mr_ints),
        [MR_PT_FLOATS] = sizeof(mr_floats), [MR_PT_STRS] = sizeof(mr_strs)};
    return t >= 0 && (size_t)t < sizeof sizes / sizeof *sizes ? sizes[t] : 0;
}

/* A default that the table's own range refuses, or that a C caller could not tell from a zero that
 * he means. */
static const char *bad_default(const mr_param *p)
{
    if (p->type != MR_PT_I64 || (p->flags & (MR_P_POSITIONAL | MR_P_OPTIONAL)) == MR_P_POSITIONAL)
        return NULL;
    bool ranged = p->min.i < p->max.i;
    bool zero_legal = !ranged || (p->min.i <= 0 && p->max.i >= 0);
    if (p->def.i == 0)
        return NULL;
    if (ranged && p->def.i != MR_AUTO && (p->def.i < p->min.i || p->def.i > p->max.i))
        return "a default outside its range";
    if (zero_legal && !p->has_at)
        return "a default that 0 from C would hide; give it a has_ field";
    return NULL;
}

static const char *bad_param(const mr_op *op, const mr_param *p)
{
    size_t size = field_size(p->type);
    if (!good_name(p->name))
        return "a name that is not [a-z][a-z0-9_]*";
    if (!good_text(p->doc))
        return "no doc";
    if (size == 0 || p->at + size > op->params_size || p->has_at >= op->params_size)
        return "a field outside the params struct";
    for (const mr_param *q = op->params; q < p; q++)
        if (strcmp(p->name, q->name) == 0 || p->at == q->at)
            return "the name or the field of another";
    return bad_default(p);
}

mr_code mr__op_check(const mr_op *op, mr_status *st)
{
    if (op->abi != MR_ABI_VERSION)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an op has ABI version %u; this library has %u: build both from one version",
                       op->abi, MR_ABI_VERSION);
    if (!good_name(op->name))
        return mr_fail(st, MR_INVALID_ARGUMENT, "an op's name must be [a-z][a-z0-9_]*, not \"%s\"",
                       op->name ? op->name : "");
    if (!good_text(op->doc) || !good_text(op->example) || !op->infer)
        return mr_fail(st, MR_INVALID_ARGUMENT, "op %s needs doc, example and infer", op->name);
    if (op->min_inputs < 0 || (op->max_inputs >= 0 && op->max_inputs < op->min_inputs))
        return mr_fail(st, MR_INVALID_ARGUMENT, "op %s takes %d to %d inputs", op->name,
                       op->min_inputs, op->max_inputs);
    for (const mr_param *p = op->params; p && p->name; p++) {
        const char *bad = bad_param(op, p);
        if (bad)
            return mr_fail(st, MR_INVALID_ARGUMENT, "parameter %s of op %s has %s", p->name,
                           op->name, bad);
    }
    return MR_OK;
}

mr_code mr_op_register(const mr_op *op, mr_status *st)
{
    MR_TRY(mr__op_check(op, st));
    size_t length = strlen(op->name);
    bool found;
    place(built_in, N_BUILT_IN, op->name, length, &found);
    mr_code rc = MR_OK;
    pthread_mutex_lock(&registered.lock);
    size_t at = 0;
    if (!found)
        at = place(registered.v, registered.n, op->name, length, &found);
    if (found)
        rc = mr_fail(st, MR_ALREADY_EXISTS, "there is an op %s already", op->name);
    else
        rc = mr_grow((void **)&registered.v, &registered.capacity, registered.n + 1,
                     sizeof *registered.v, MAX_REGISTERED, "the table of ops", st);
    if (rc == MR_OK) {
        memmove(registered.v + at + 1, registered.v + at,
                (registered.n - at) * sizeof *registered.v);
        registered.v[at] = op;
        registered.n++;
    }
    pthread_mutex_unlock(&registered.lock);
    return rc;
}
