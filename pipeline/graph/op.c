/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/op.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/params/params.h"
#include "pipeline/system/fork.h"

#define MR_OP(name) extern const mr_op mr_op_##name;
#include "pipeline/ops/ops.def"
#undef MR_OP

/* Sorted by name, NULL after the last. */
static const mr_op *const built_in[] = {
#define MR_OP(name) &mr_op_##name,
#include "pipeline/ops/ops.def"
#undef MR_OP
    NULL};

#define N_BUILT_IN (sizeof built_in / sizeof *built_in - 1)
enum { MAX_REGISTERED = 4096 };

static struct {
    pthread_mutex_t lock; /* guards the rest */
    const mr_op **v;      /* sorted by name */
    size_t n, capacity;
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};
MR__AROUND_FORK(registered.lock, NULL)

static int compare(const mr_op *op, const char *name, size_t n)
{
    int order = strncmp(op->name, name, n);
    return order ? order : op->name[n] != '\0';
}

/* The index of name in ops if *found, else the index to insert it at. */
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

bool mr__op_is_built_in(const mr_op *op)
{
    bool found;
    size_t at = place(built_in, N_BUILT_IN, op->name, strlen(op->name), &found);
    return found && built_in[at] == op;
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

/* ---- checks of a descriptor ---- */

static bool good_text(const char *s)
{
    return s && *s;
}

/* Rejects what only ops may not have: a type that cannot be serialized, and a default that a 0 from
 * a C caller would set although 0 is a legal value. */
static const char *bad_param(const mr_param *p)
{
    if (p->type == MR_PT_OWN)
        return "a custom type, which text and protobuf cannot represent";
    if (p->type != MR_PT_I64 || mr__param_required(p) || p->def.i == 0 || p->has_at)
        return NULL;
    bool zero_legal = p->min.i >= p->max.i || (p->min.i <= 0 && p->max.i >= 0);
    return zero_legal ? "a default other than 0 although 0 is legal; give it a has_ field" : NULL;
}

/* Rejects traits without the parameter or input that they refer to. */
static const char *bad_trait(const mr_op *op)
{
    static const struct {
        uint32_t trait;
        const char *param, *without;
    } needs[] = {{MR_OP_RANDOM, "seed", "is random without a parameter seed"},
                 {MR_OP_READS_AHEAD, "buffer_size", "reads ahead without a parameter buffer_size"},
                 {MR_OP_SHARDS, "num_shards", "shards without a parameter num_shards"},
                 {MR_OP_SHARDS, "index", "shards without a parameter index"},
                 {MR_OP_NAMES_INPUTS, "weights", "names inputs without a parameter weights"}};
    const uint32_t of_input = MR_OP_KEEPS_COUNT | MR_OP_SHARD_BELOW | MR_OP_READS_AHEAD |
                              MR_OP_HOLDS_OPTIONS | MR_OP_WHOLE_INPUT | MR_OP_SHARDS |
                              MR_OP_KEEPS_SHARDS;
    if (op->props & MR__OPENS_RANDOM)
        return "has a bit in props that no MR_OP_ names";
    if ((unsigned)op->role > MR_ROLE_PARALLEL)
        return "has a role that does not exist";
    if (op->min_inputs == 0 && (!op->infer || (op->props & of_input)))
        return "may have no input, but has a slot or trait that needs one";
    if ((op->props & MR_OP_KEEPS_COUNT) && op->cardinality)
        return "has two cardinalities: MR_OP_KEEPS_COUNT and the slot";
    int8_t inputs = 1;
    for (const mr_param *p = op->params; p && p->name; p++)
        if (p->type == MR_PT_BOOL && (p->flags & MR_P_SHUFFLES))
            inputs = 0;
    if ((op->props & MR_OP_REORDERS) && (op->min_inputs != inputs || op->max_inputs != inputs))
        return "has MR_OP_REORDERS, but is neither an op with one input nor a source with a "
               "parameter MR_P_SHUFFLES";
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const mr_param *p = op->params;
        while (p && p->name && strcmp(p->name, needs[i].param) != 0)
            p++;
        if ((op->props & needs[i].trait) && (!p || !p->name))
            return needs[i].without;
    }
    return NULL;
}

mr_code mr__op_check(const mr_op *op, mr_status *st)
{
    if (!op)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the op is NULL");
    if (op->abi != MR_ABI_VERSION)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an op has ABI version %u; this library has %u: build both from one version",
                       op->abi, MR_ABI_VERSION);
    MR_TRY(mr_params_check(MR__TABLE(op), st));
    if (!good_text(op->doc) || !good_text(op->example))
        return mr_fail(st, MR_INVALID_ARGUMENT, "op %s needs doc and example", op->name);
    if (op->min_inputs < 0 || (op->max_inputs >= 0 && op->max_inputs < op->min_inputs))
        return mr_fail(st, MR_INVALID_ARGUMENT, "op %s takes %d to %d inputs", op->name,
                       op->min_inputs, op->max_inputs);
    const char *wrong = bad_trait(op);
    if (wrong)
        return mr_fail(st, MR_INVALID_ARGUMENT, "op %s %s", op->name, wrong);
    for (const mr_param *p = op->params; p && p->name; p++) {
        const char *bad = bad_param(p);
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
        rc = mr_fail(st, MR_ALREADY_EXISTS, "an op %s already exists", op->name);
    else
        rc = MR_GROW(registered.v, registered.capacity, registered.n + 1, MAX_REGISTERED,
                     "the table of ops", st);
    if (rc == MR_OK) {
        memmove(registered.v + at + 1, registered.v + at,
                (registered.n - at) * sizeof *registered.v);
        registered.v[at] = op;
        registered.n++;
    }
    pthread_mutex_unlock(&registered.lock);
    return rc;
}
