/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/optimizer.h"
#include <pthread.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/collective_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/builtins.h"
#include "trainer/objectives/schedule.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/strategy/variable_impl.h"

/* The state of one variable, for every replica: slots[replica * n_slots + slot]. Dropped when the
 * variable is freed: another may get its address. */
typedef struct memory {
    mr_variable *v;
    mr_strategy *s;
    int64_t from; /* updates that the optimizer had made before the first of this variable */
    float **slots;
} memory;

/* The parameters of every optimizer, stored after its own struct. */
typedef struct common {
    mr__schedule rate; /* unset: the default of learning_rate */
    double weight_decay, clipnorm, global_clipnorm, clipvalue; /* 0: none */
} common;

enum { MAX_PARAMS = 32, N_COMMON = 5 };

struct mr_optimizer {
    uint64_t serial;
    const mr_optimizer_desc *desc;
    mr_param table[MAX_PARAMS + N_COMMON]; /* the descriptor's, and those of common */
    size_t params_size;                    /* of the struct it describes */
    void *params;
    common *common; /* in params */
    char *text;     /* the source text */
    size_t n_slots;
    int64_t iterations[MR_MAX_REPLICAS]; /* each replica counts its own updates */
    uint64_t strategy;    /* mr__strategy_serial of the last update's strategy; UINT64_MAX: none */
    pthread_mutex_t lock; /* guards the list, which the first update fills, and strategy */
    memory *memories;
    size_t n_memories, capacity;
};

enum { MAX_VARIABLES = 1 << 20 };

static mr_param option(const char *name, size_t at, double otherwise, const char *doc)
{
    return (mr_param){.name = name,
                      .doc = doc,
                      .type = MR_PT_F64,
                      .flags = MR_P_NONE,
                      .at = (uint32_t)at,
                      .def.f = otherwise,
                      .max.f = 1e30};
}

/* The descriptor's table with a schedule for learning_rate and the common parameters. */
static mr_code extend_table(mr_optimizer *o, mr_status *st)
{
    const mr_component *c = &o->desc->is;
    const size_t at = (c->params_size + 15) / 16 * 16;
    size_t n = 0;
    while (c->params[n].name && n < MAX_PARAMS - 1) {
        o->table[n] = c->params[n];
        n++;
    }
    if (c->params[n].name)
        return mr_fail(st, MR_INVALID_ARGUMENT, "optimizer %s has more than %d parameters", c->name,
                       MAX_PARAMS - 1);
    mr_param *rate = &o->table[0];
    rate->type = MR_PT_OWN;
    rate->kind = &mr__param_schedule;
    rate->at = (uint32_t)(at + offsetof(common, rate));
    rate->def.s = NULL;
    if (rate->min.f >= rate->max.f)
        rate->max.f = 1e30;
    o->table[n] =
        option("weight_decay", at + offsetof(common, weight_decay), o->desc->weight_decay,
               "Fraction of each weight, times the learning rate, that an update subtracts.");
    o->table[n + 1] = option("clipnorm", at + offsetof(common, clipnorm), 0,
                             "Maximum norm of each variable's gradient.");
    o->table[n + 2] = option("global_clipnorm", at + offsetof(common, global_clipnorm), 0,
                             "Maximum norm of all gradients together.");
    o->table[n + 3] = option("clipvalue", at + offsetof(common, clipvalue), 0,
                             "Maximum absolute value of each value of a gradient.");
    o->params_size = at + sizeof(common);
    return MR_OK;
}

static mr_param_table table_of(const mr_optimizer *o)
{
    return (mr_param_table){o->desc->is.name, o->table, o->params_size};
}

static mr_code read_params(mr_optimizer *o, const mr_expr *e, mr_status *st)
{
    const mr_component *c;
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL && e->kind != MR_EX_STRING)
        return mr_expr_fail_at(
            st, e, "expected the name of an optimizer, with or without arguments in brackets");
    MR_TRY(mr__registry_find(&mr__optimizers, e, &c, st));
    o->desc = (const mr_optimizer_desc *)c;
    MR_TRY(extend_table(o, st));
    const mr_param_table t = table_of(o);
    MR_TRY(mr_params_parse(&t, e, &o->params, st));
    o->common = (common *)((char *)o->params + o->params_size - sizeof(common));
    const common *k = o->common;
    if ((k->clipnorm > 0) + (k->global_clipnorm > 0) + (k->clipvalue > 0) > 1)
        return mr_expr_fail_at(st, e,
                               "only one of clipnorm, global_clipnorm and clipvalue can be given");
    return MR_OK;
}

mr_code mr_optimizer_parse(mr_optimizer **out, const char *text, mr_status *st)
{
    const mr_expr *e;
    MR_TRY(mr_expr_parse(text, text ? strlen(text) : 0, &e, st));
    mr_optimizer *o = mr_calloc(1, sizeof *o);
    mr_code rc = o ? MR_OK : mr_fail_memory(st, sizeof *o, "an optimizer");
    if (o) {
        o->serial = mr__next_serial();
        o->strategy = UINT64_MAX;
        pthread_mutex_init(&o->lock, NULL);
        o->text = mr_strdup(text);
        rc = o->text ? read_params(o, e, st) : mr_fail_memory(st, strlen(text), "an optimizer");
    }
    mr_expr_unref(e);
    if (rc != MR_OK) {
        mr_optimizer_free(o);
        return rc;
    }
    if (o->common->rate.kind == MR__RATE_UNSET)
        mr_optimizer_set_learning_rate(o, o->desc->is.params[0].def.f);
    *(double *)o->params = mr_optimizer_learning_rate(o);
    o->n_slots = o->desc->slots(o->params);
    *out = o;
    return MR_OK;
}

mr_code mr_optimizer_register(const mr_optimizer_desc *d, mr_status *st)
{
    bool complete = d && d->slots && d->update && d->is.params && d->is.params[0].at == 0 &&
                    d->is.params[0].type == MR_PT_F64;
    return mr__registry_add(&mr__optimizers, (const mr_component *)d, complete, st);
}

static void memory_free(const mr_optimizer *o, memory *m)
{
    size_t n = o->n_slots * mr_strategy_num_local_replicas(m->s);
    for (size_t i = 0; m->slots && i < n; i++)
        mr_stream_release(mr_replica_stream(mr_strategy_replica(m->s, i / o->n_slots)),
                          m->slots[i]);
    mr_free(m->slots);
}

void mr_optimizer_free(mr_optimizer *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_memories; i++) {
        mr__variable_unkeep(o->memories[i].v, o);
        memory_free(o, &o->memories[i]);
    }
    pthread_mutex_destroy(&o->lock);
    mr_free(o->memories);
    mr_free(o->text);
    if (o->desc) {
        const mr_param_table t = table_of(o);
        mr_params_free(&t, o->params);
    }
    mr_free(o);
}

const char *mr_optimizer_text(const mr_optimizer *o)
{
    return o->text;
}

const char *mr_optimizer_name(const mr_optimizer *o)
{
    return o->desc->is.name;
}

double mr_optimizer_learning_rate(const mr_optimizer *o)
{
    return mr__schedule_at(&o->common->rate, o->iterations[0]);
}

void mr_optimizer_set_learning_rate(mr_optimizer *o, double learning_rate)
{
    mr__schedule *s = &o->common->rate;
    mr__param_schedule.clear(s);
    *s = (mr__schedule){.kind = MR__RATE_CONSTANT, .initial_learning_rate = learning_rate};
}

int64_t mr_optimizer_iterations(const mr_optimizer *o)
{
    return o->iterations[0];
}

/* Call with the lock held. n_memories: not found. */
static size_t find(const mr_optimizer *o, const mr_variable *v)
{
    size_t i = 0;
    while (i < o->n_memories && o->memories[i].v != v)
        i++;
    return i;
}

/* The variable is being freed. */
static void forget(void *optimizer, mr_variable *v)
{
    mr_optimizer *o = optimizer;
    pthread_mutex_lock(&o->lock);
    size_t i = find(o, v);
    if (i < o->n_memories) {
        memory_free(o, &o->memories[i]);
        o->memories[i] = o->memories[--o->n_memories];
    }
    pthread_mutex_unlock(&o->lock);
}

/* Call with the lock held: adds the state of a variable, for all replicas. */
static mr_code remember(mr_optimizer *o, const mr_replica *r, mr_variable *v, mr_status *st)
{
    memory m = {.v = v, .s = mr_replica_strategy(r), .from = o->iterations[mr_replica_id(r)]};
    size_t n = o->n_slots * mr_strategy_num_local_replicas(m.s);
    MR_TRY(MR_GROW(o->memories, o->capacity, o->n_memories + 1, MAX_VARIABLES,
                   "an optimizer's variables", st));
    m.slots = mr_calloc(n, sizeof *m.slots);
    if (!m.slots)
        return mr_fail_memory(st, n * sizeof *m.slots, "an optimizer's variables");
    mr_code rc = mr__variable_keep(v, forget, o, st);
    if (rc == MR_OK)
        o->memories[o->n_memories++] = m;
    else
        mr_free(m.slots);
    return rc;
}

/* The replica's slots of a variable; each replica allocates and zeroes its own. *from: as in its
 * memory. */
static mr_code slots_of(mr_optimizer *o, mr_replica *r, mr_variable *v, float ***slots,
                        int64_t *from, mr_status *st)
{
    pthread_mutex_lock(&o->lock);
    size_t i = find(o, v);
    mr_code rc = i == o->n_memories ? remember(o, r, v, st) : MR_OK;
    if (rc == MR_OK) {
        *slots = o->memories[i].slots + mr_replica_id(r) * o->n_slots;
        *from = o->memories[i].from;
    }
    pthread_mutex_unlock(&o->lock);
    return rc;
}

static float first_value(const mr_optimizer *o, size_t slot)
{
    return o->desc->slot_value ? o->desc->slot_value(o->params, slot) : 0;
}

static mr_code make_slots(mr_optimizer *o, mr_replica *r, mr_variable *v, mr_status *st)
{
    float **slots;
    int64_t from;
    size_t n = mr_variable_size(v), bytes = n * sizeof(float);
    MR_TRY(slots_of(o, r, v, &slots, &from, st));
    for (size_t k = 0; k < o->n_slots; k++) {
        void *p;
        if (slots[k])
            continue;
        MR_TRY(mr_device_alloc(mr_replica_device(r), MR_MEMORY_DEVICE, bytes, &p, st));
        mr_code rc = mr_replica_math(r)->fill(mr_replica_stream(r),
                                              &(mr_math_fill){n, first_value(o, k), p}, st);
        if (rc != MR_OK) {
            mr_device_free(mr_replica_device(r), MR_MEMORY_DEVICE, p);
            return rc;
        }
        slots[k] = p;
    }
    return MR_OK;
}

/* Another strategy may have more replicas than have counted so far. */
static void enter_strategy(mr_optimizer *o, const mr_strategy *s)
{
    pthread_mutex_lock(&o->lock);
    if (o->strategy != mr__strategy_serial(s)) {
        o->strategy = mr__strategy_serial(s);
        mr__optimizer_set_iterations(o, o->iterations[0]);
    }
    pthread_mutex_unlock(&o->lock);
}

mr_code mr__optimizer_prepare(mr_optimizer *o, mr_replica *r, mr_variable *const *variables,
                              size_t n, mr_status *st)
{
    if (mr_replica_id(r) == 0)
        MR_TRY(mr__strategy_reserve_undo(mr_replica_strategy(r), st));
    enter_strategy(o, mr_replica_strategy(r));
    /* With central storage only the first replica updates and has slots. */
    bool updates = mr_replica_id(r) == 0 || !mr__strategy_is_central(mr_replica_strategy(r));
    for (size_t i = 0; i < n && o->n_slots > 0 && updates; i++)
        MR_TRY(make_slots(o, r, variables[i], st));
    return MR_OK;
}

/* Variables that only these updates changed start again: their slots were filled in a step that may
 * have been dropped. */
static void take_back(void *optimizer, uint64_t updates)
{
    mr_optimizer *o = optimizer;
    for (size_t i = 0; i < MR_MAX_REPLICAS; i++)
        o->iterations[i] -= (int64_t)updates;
    for (size_t i = o->n_memories; i-- > 0;)
        if (o->memories[i].from >= o->iterations[0])
            mr__optimizer_forget(o, o->memories[i].v);
}

mr_code mr__optimizer_begin(mr_optimizer *o, const mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r);
    if (id == 0)
        mr__strategy_on_undo(mr_replica_strategy(r), take_back, o, 1);
    o->iterations[id]++;
    if (!mr__optimizer_needs_all(o))
        return MR_OK;
    return mr_stream_set(mr_replica_stream(r), mr__replica_squares(r), 0, sizeof(double), st);
}

bool mr__optimizer_clips_each(const mr_optimizer *o)
{
    return o->common->clipnorm > 0;
}

bool mr__optimizer_needs_all(const mr_optimizer *o)
{
    return o->common->global_clipnorm > 0;
}

mr_code mr__optimizer_measure(mr_replica *r, size_t n, const float *gradient, mr_status *st)
{
    const mr_math_penalty squares = {n, 0, 1, gradient, mr__replica_squares(r)};
    return mr_replica_math(r)->penalty(mr_replica_stream(r), &squares, st);
}

static mr_code clip(mr_optimizer *o, mr_replica *r, size_t n, float *gradient, mr_status *st)
{
    const common *c = o->common;
    double *norm = mr__replica_squares(r);
    mr_math_clip k = {.n = n,
                      .value = (float)c->clipvalue,
                      .norm = (float)(c->clipnorm > 0 ? c->clipnorm : c->global_clipnorm),
                      .squares = norm,
                      .g = gradient};
    if (k.value == 0 && k.norm == 0)
        return MR_OK;
    if (c->clipnorm > 0) {
        MR_TRY(mr_stream_set(mr_replica_stream(r), norm, 0, sizeof *norm, st));
        MR_TRY(mr__optimizer_measure(r, n, gradient, st));
    }
    return mr_replica_math(r)->clip(mr_replica_stream(r), &k, st);
}

mr_code mr__optimizer_update(mr_optimizer *o, mr_replica *r, mr_variable *v, float *gradient,
                             const float *skip, mr_status *st)
{
    size_t id = mr_replica_id(r), n = mr_variable_size(v);
    float **slots = NULL;
    mr_optimizer_step u = {.params = o->params,
                           .stream = mr_replica_stream(r),
                           .math = mr_replica_math(r),
                           .learning_rate =
                               mr__schedule_at(&o->common->rate, o->iterations[id] - 1),
                           .iteration = o->iterations[id],
                           .n = n,
                           .gradient = gradient,
                           .w = mr_variable_copy(v, id),
                           .skip = skip};
    const mr_math_decay decay = {n, (float)(1 - o->common->weight_decay * u.learning_rate), u.w,
                                 skip};
    int64_t from = 0;
    if (o->n_slots > 0)
        MR_TRY(slots_of(o, r, v, &slots, &from, st));
    if (from < u.iteration)
        u.iteration -= from;
    for (size_t k = 0; k < o->n_slots; k++)
        u.slots[k] = slots[k];
    MR_TRY(clip(o, r, n, gradient, st));
    if (o->common->weight_decay > 0)
        MR_TRY(u.math->decay(u.stream, &decay, st));
    return o->desc->update(&u, st);
}

/* A gradient that the model summed would be summed again. */
static mr_code check_unsummed(const mr_replica *r, mr_variable *const *variables, size_t n,
                              mr_status *st)
{
    for (size_t i = 0; i < n; i++)
        if (mr__variable_is_summed(variables[i], mr_replica_id(r)))
            return mr_fail(
                st, MR_FAILED_PRECONDITION,
                "the gradient of %s was summed over the replicas already "
                "(mr_model_gradient): apply it with mr_optimizer_apply_summed_gradients, "
                "or take that of this replica alone (mr_backward_opts.local, "
                "mr_model_local_gradient)",
                mr_variable_name(variables[i]));
    return MR_OK;
}

/* summed: the gradients are the same on every replica. */
static mr_code apply(mr_optimizer *o, mr_replica *r, mr_variable *const *variables,
                     float *const *gradients, size_t n, bool summed, mr_status *st)
{
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *s = mr_replica_stream(r);
    size_t id = mr_replica_id(r);
    bool central = mr__strategy_is_central(mr_replica_strategy(r));
    uint64_t ticket;
    void *flag;
    MR_TRY(mr__optimizer_prepare(o, r, variables, n, st));
    MR_TRY(mr_replica_scratch(r, sizeof(float), &flag, st));
    MR_TRY(mr_replica_math(r)->flag(s, &(mr_math_flag){mr__replica_fault(r), flag}, st));
    MR_TRY(mr_collective_start(c, id, s, flag, 1, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    for (size_t i = 0; i < n && !summed; i++) {
        MR_TRY(mr_collective_start(c, id, s, gradients[i], mr_variable_size(variables[i]), &ticket,
                                   st));
        MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    }
    MR_TRY(mr__collective_commit(c, id, s, st));
    MR_TRY(mr__optimizer_begin(o, r, st));
    for (size_t i = 0; i < n && mr__optimizer_needs_all(o); i++)
        MR_TRY(mr__optimizer_measure(r, mr_variable_size(variables[i]), gradients[i], st));
    for (size_t i = 0; i < n && !(central && id > 0); i++)
        MR_TRY(mr__optimizer_update(o, r, variables[i], gradients[i], flag, st));
    for (size_t i = 0; i < n; i++)
        mr__variable_set_summed(variables[i], id, false);
    return central ? mr__variables_publish(variables, n, r, flag, st) : MR_OK;
}

mr_code mr_optimizer_apply_gradients(mr_optimizer *o, mr_replica *r, mr_variable *const *variables,
                                     float *const *gradients, size_t n, mr_status *st)
{
    MR_TRY(check_unsummed(r, variables, n, st));
    return apply(o, r, variables, gradients, n, false, st);
}

mr_code mr_optimizer_apply_summed_gradients(mr_optimizer *o, mr_replica *r,
                                            mr_variable *const *variables, float *const *gradients,
                                            size_t n, mr_status *st)
{
    return apply(o, r, variables, gradients, n, true, st);
}

bool mr__optimizer_knows(const mr_optimizer *o, const mr_variable *v)
{
    return find(o, v) < o->n_memories;
}

void mr__optimizer_forget(mr_optimizer *o, mr_variable *v)
{
    mr__variable_unkeep(v, o);
    forget(o, v);
}

uint64_t mr__optimizer_serial(const mr_optimizer *o)
{
    return o->serial;
}

size_t mr__optimizer_n_slots(const mr_optimizer *o)
{
    return o->n_slots;
}

mr_code mr__optimizer_read_slot(mr_optimizer *o, mr_variable *v, mr_strategy *s, size_t k,
                                float *out, mr_status *st)
{
    size_t n = mr_variable_size(v), i = find(o, v);
    if (i < o->n_memories && o->memories[i].slots[k])
        return mr__replica_read(mr_strategy_replica(s, 0), out, o->memories[i].slots[k],
                                n * sizeof *out, st);
    for (size_t j = 0; j < n; j++)
        out[j] = first_value(o, k);
    return MR_OK;
}

mr_code mr__optimizer_write_slot(mr_optimizer *o, mr_variable *v, mr_strategy *s, size_t k,
                                 const float *values, mr_status *st)
{
    size_t n = mr__strategy_is_central(s) ? 1 : mr_strategy_num_local_replicas(s);
    for (size_t i = 0; i < n; i++) {
        mr_replica *r = mr_strategy_replica(s, i);
        float **slots;
        int64_t from;
        MR_TRY(make_slots(o, r, v, st));
        MR_TRY(slots_of(o, r, v, &slots, &from, st));
        MR_TRY(mr__replica_write(r, slots[k], values, mr_variable_size(v) * sizeof *values, st));
    }
    return MR_OK;
}

void mr__optimizer_set_iterations(mr_optimizer *o, int64_t n)
{
    for (size_t i = 0; i < MR_MAX_REPLICAS; i++)
        o->iterations[i] = n;
}

int64_t mr__optimizer_slots_from(const mr_optimizer *o, const mr_variable *v)
{
    size_t i = find(o, v);
    return i < o->n_memories ? o->memories[i].from : 0;
}

void mr__optimizer_set_slots_from(mr_optimizer *o, const mr_variable *v, int64_t from)
{
    size_t i = find(o, v);
    if (i < o->n_memories)
        o->memories[i].from = from;
}

bool mr__optimizer_is_scheduled(const mr_optimizer *o)
{
    return o->common->rate.kind != MR__RATE_CONSTANT;
}

mr_code mr__optimizer_settings(const mr_optimizer *o, mr__settings *out, mr_status *st)
{
    return mr__settings_add_table(out, "optimizer", o->desc->is.name, o->table, o->params, st);
}
