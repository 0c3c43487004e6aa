/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/optimizer.h"
#include <pthread.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/call_text.h"
#include "trainer/optimizer_desc.h"

/* What is remembered of one variable, for every replica: slots[replica * n_slots + slot]. */
typedef struct memory {
    mr_variable *v;
    mr_strategy *s;
    size_t n;
    float **slots;
} memory;

struct mr_optimizer {
    const mr__optimizer_desc *desc;
    void *params;
    double learning_rate;
    size_t n_slots;
    int64_t iterations[MR_MAX_REPLICAS]; /* each replica counts its own updates */
    pthread_mutex_t lock;                /* guards the list, which the first update fills */
    memory *memories;
    size_t n_memories, capacity;
};

static const mr__optimizer_desc *const optimizers[] = {
#define MR_OPTIMIZER(name) &mr__optimizer_##name,
#include "trainer/optimizers.def"
#undef MR_OPTIMIZER
};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };
enum { MAX_VARIABLES = 1 << 20 };

static mr_code make(mr_optimizer **out, const mr__call_text *c, mr_status *st)
{
    const mr__optimizer_desc *d = NULL;
    for (size_t i = 0; i < N_OPTIMIZERS && !d; i++)
        if (mr__call_text_is(c, optimizers[i]->name))
            d = optimizers[i];
    if (!d)
        return mr__args_fail(&c->src, c->e, st,
                             "there is no optimizer '%s'; there are sgd and adam", c->e->text);
    mr_optimizer *o = mr_calloc(1, sizeof *o);
    if (!o)
        return mr_fail_memory(st, sizeof *o, "an optimizer");
    o->desc = d;
    mr_code rc = mr__call_text_bind(c, d->args, d->params_size, &o->params, st);
    if (rc != MR_OK) {
        mr_free(o);
        return rc;
    }
    o->learning_rate = *(const double *)o->params;
    o->n_slots = d->slots(o->params);
    pthread_mutex_init(&o->lock, NULL);
    *out = o;
    return MR_OK;
}

mr_code mr_optimizer_parse(mr_optimizer **out, const char *text, mr_status *st)
{
    mr__call_text c;
    MR_TRY(mr__call_text_parse(&c, text, "an optimizer", st));
    mr_code rc = make(out, &c, st);
    mr_expr_unref(c.e);
    return rc;
}

static void memory_free(const mr_optimizer *o, memory *m)
{
    size_t n = o->n_slots * mr_strategy_num_replicas_in_sync(m->s);
    for (size_t i = 0; m->slots && i < n; i++)
        mr_device_free(mr_replica_device(mr_strategy_replica(m->s, i / o->n_slots)),
                       MR_MEMORY_DEVICE, m->slots[i]);
    mr_free(m->slots);
}

void mr_optimizer_free(mr_optimizer *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_memories; i++)
        memory_free(o, &o->memories[i]);
    pthread_mutex_destroy(&o->lock);
    mr_free(o->memories);
    mr_free(o->params);
    mr_free(o);
}

const char *mr_optimizer_name(const mr_optimizer *o)
{
    return o->desc->name;
}

double mr_optimizer_learning_rate(const mr_optimizer *o)
{
    return o->learning_rate;
}

void mr_optimizer_set_learning_rate(mr_optimizer *o, double learning_rate)
{
    o->learning_rate = learning_rate;
}

int64_t mr_optimizer_iterations(const mr_optimizer *o)
{
    return o->iterations[0];
}

/* Under the lock. */
static mr_code remember(mr_optimizer *o, const mr_replica *r, mr_variable *v, mr_status *st)
{
    memory m = {.v = v, .s = mr_replica_strategy(r), .n = mr_variable_size(v)};
    size_t n = o->n_slots * mr_strategy_num_replicas_in_sync(m.s);
    void *list = o->memories;
    mr_code rc = mr_grow(&list, &o->capacity, o->n_memories + 1, sizeof m, MAX_VARIABLES,
                         "an optimizer's variables", st);
    o->memories = list;
    if (rc != MR_OK)
        return rc;
    m.slots = mr_calloc(n, sizeof *m.slots);
    if (!m.slots)
        return mr_fail_memory(st, n * sizeof *m.slots, "an optimizer's variables");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        void *p;
        rc = mr_device_alloc(mr_replica_device(mr_strategy_replica(m.s, i / o->n_slots)),
                             MR_MEMORY_DEVICE, m.n * sizeof(float), &p, st);
        if (rc == MR_OK) {
            memset(p, 0, m.n * sizeof(float));
            m.slots[i] = p;
        }
    }
    if (rc != MR_OK) {
        memory_free(o, &m);
        return rc;
    }
    o->memories[o->n_memories++] = m;
    return MR_OK;
}

static mr_code find_slots(mr_optimizer *o, const mr_replica *r, mr_variable *v, float **slots,
                          mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&o->lock);
    size_t i = 0;
    while (i < o->n_memories && o->memories[i].v != v)
        i++;
    if (i == o->n_memories)
        rc = remember(o, r, v, st);
    for (size_t k = 0; rc == MR_OK && k < o->n_slots; k++)
        slots[k] = o->memories[i].slots[mr_replica_id(r) * o->n_slots + k];
    pthread_mutex_unlock(&o->lock);
    return rc;
}

void mr__optimizer_begin(mr_optimizer *o, const mr_replica *r)
{
    o->iterations[mr_replica_id(r)]++;
}

mr_code mr__optimizer_update(mr_optimizer *o, const mr_replica *r, mr_variable *v,
                             const float *gradient, mr_status *st)
{
    mr__update u = {.params = o->params,
                    .learning_rate = o->learning_rate,
                    .iteration = o->iterations[mr_replica_id(r)],
                    .n = mr_variable_size(v),
                    .gradient = gradient,
                    .w = mr_variable_copy(v, mr_replica_id(r))};
    if (o->n_slots > 0)
        MR_TRY(find_slots(o, r, v, u.slots, st));
    o->desc->update(&u);
    return MR_OK;
}

mr_code mr_optimizer_apply_gradients(mr_optimizer *o, mr_replica *r, mr_variable *const *variables,
                                     float *const *gradients, size_t n, mr_status *st)
{
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    size_t id = mr_replica_id(r);
    mr__optimizer_begin(o, r);
    for (size_t i = 0; i < n; i++) {
        uint64_t ticket;
        MR_TRY(
            mr_collective_start(c, id, gradients[i], mr_variable_size(variables[i]), &ticket, st));
        MR_TRY(mr_collective_wait(c, id, ticket, st));
        MR_TRY(mr__optimizer_update(o, r, variables[i], gradients[i], st));
    }
    return MR_OK;
}
