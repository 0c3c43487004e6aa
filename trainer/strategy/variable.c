/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy/variable.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"
#include "trainer/strategy/variable_impl.h"

/* One that keeps something for the variable. */
typedef struct keeper {
    struct keeper *next;
    void (*forget)(void *ctx, mr_variable *v);
    void *ctx;
} keeper;

/* Guards the keepers of all variables: replicas of a step may add them at the same time. */
static mr__lock keepers_lock = MR__LOCK_FREE;

enum { SHOWN = 8, LINE = 256 }; /* for mr_variable_to_text: values and bytes per copy */

struct mr_variable {
    mr_strategy *s;
    char name[96];
    int rank;
    int64_t shape[MR_MAX_RANK];
    size_t size;
    mr_regularizer regularizer;
    mr_variable_role role;
    size_t n_copies;
    float **copies; /* one per replica; central storage: the first's, if accessible */
    float *central; /* central storage: host memory, for replicas with separate copies */
    bool *summed;   /* one per replica: see mr__variable_set_summed */
    keeper *keepers;
};

static mr_code count_values(int rank, const int64_t *shape, size_t *n, mr_status *st)
{
    *n = 1;
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a variable has a rank from 0 to %d, found %d",
                       MR_MAX_RANK, rank);
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*n, (size_t)shape[i], n) || *n > SIZE_MAX / 8)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "dimension %d of a variable is %" PRId64
                           ", which is not a possible size",
                           i, shape[i]);
    return MR_OK;
}

static mr_code set_first_values(mr_variable *v, const mr_variable_opts *o, mr_status *st)
{
    float *values = mr_malloc(v->size * sizeof *values);
    if (!values)
        return mr_fail_memory(st, v->size * sizeof *values, "the first values of a variable");
    mr_initialize(&o->initializer, o->seed, o->stream, o->fan_in, o->fan_out, values, v->size);
    mr_code rc = mr_variable_assign(v, values, st);
    mr_free(values);
    return rc;
}

/* Whether this device shares memory with the first replica's. */
static bool shares_memory(const mr_strategy *s, mr_device *first, mr_device *d)
{
    mr_device_properties a, b;
    if (!mr__strategy_is_central(s))
        return false;
    mr_device_describe(first, &a);
    mr_device_describe(d, &b);
    return (a.unified && b.unified) || strcmp(mr_device_name(first), mr_device_name(d)) == 0;
}

static mr_code make_copy(mr_variable *v, size_t i, mr_status *st)
{
    mr_device *first = mr_replica_device(mr_strategy_replica(v->s, 0));
    mr_device *d = mr_replica_device(mr_strategy_replica(v->s, i));
    size_t bytes = v->size * sizeof(float);
    void *p;
    if (i > 0 && shares_memory(v->s, first, d)) {
        v->copies[i] = v->copies[0];
        return MR_OK;
    }
    if (i > 0 && mr__strategy_is_central(v->s) && !v->central) {
        MR_TRY(mr_device_alloc(first, MR_MEMORY_PINNED, bytes, &p, st));
        v->central = p;
    }
    MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, bytes, &p, st));
    v->copies[i] = p;
    return MR_OK;
}

mr_code mr_variable_new(mr_variable **out, mr_strategy *s, int rank, const int64_t *shape,
                        const mr_variable_opts *opts, mr_status *st)
{
    mr_variable_opts none = {0};
    const mr_variable_opts *o = opts ? opts : &none;
    size_t n;
    MR_TRY(count_values(rank, shape, &n, st));
    MR_TRY(mr__strategy_ready(s, st));
    mr_variable *v = mr_calloc(1, sizeof *v);
    if (!v)
        return mr_fail_memory(st, sizeof *v, "a variable");
    v->s = s;
    snprintf(v->name, sizeof v->name, "%s", o->name ? o->name : "variable");
    v->rank = rank;
    v->size = n;
    v->regularizer = o->regularizer;
    v->role = o->role;
    if (rank > 0)
        memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    v->n_copies = mr_strategy_num_local_replicas(s);
    v->copies = mr_calloc(v->n_copies, sizeof *v->copies);
    v->summed = mr_calloc(v->n_copies, sizeof *v->summed);
    mr_code rc = v->copies && v->summed
                     ? MR_OK
                     : mr_fail_memory(st, v->n_copies * sizeof *v->copies, "a variable");
    for (size_t i = 0; i < v->n_copies && rc == MR_OK; i++)
        rc = make_copy(v, i, st);
    if (rc == MR_OK)
        rc = set_first_values(v, o, st);
    if (rc != MR_OK) {
        mr_variable_free(v);
        return rc;
    }
    *out = v;
    return MR_OK;
}

void mr_variable_free(mr_variable *v)
{
    if (!v)
        return;
    while (v->keepers) {
        keeper *k = v->keepers;
        v->keepers = k->next;
        k->forget(k->ctx, v);
        mr_free(k);
    }
    for (size_t i = v->n_copies; v->copies && i-- > 0;)
        if (i == 0 || v->copies[i] != v->copies[0])
            mr_device_free(mr_replica_device(mr_strategy_replica(v->s, i)), MR_MEMORY_DEVICE,
                           v->copies[i]);
    if (v->central)
        mr_device_free(mr_replica_device(mr_strategy_replica(v->s, 0)), MR_MEMORY_PINNED,
                       v->central);
    mr_free(v->copies);
    mr_free(v->summed);
    mr_free(v);
}

mr_code mr__variable_keep(mr_variable *v, void (*forget)(void *ctx, mr_variable *v), void *ctx,
                          mr_status *st)
{
    keeper *k = mr_malloc(sizeof *k);
    if (!k)
        return mr_fail_memory(st, sizeof *k, "a variable's keepers");
    mr__lock_take(&keepers_lock);
    *k = (keeper){v->keepers, forget, ctx};
    v->keepers = k;
    mr__lock_release(&keepers_lock);
    return MR_OK;
}

void mr__variable_unkeep(mr_variable *v, const void *ctx)
{
    mr__lock_take(&keepers_lock);
    keeper **at = &v->keepers;
    while (*at && (*at)->ctx != ctx)
        at = &(*at)->next;
    keeper *k = *at;
    if (k)
        *at = k->next;
    mr__lock_release(&keepers_lock);
    mr_free(k);
}

void mr__variable_set_summed(mr_variable *v, size_t replica, bool summed)
{
    v->summed[replica] = summed;
}

bool mr__variable_is_summed(const mr_variable *v, size_t replica)
{
    return v->summed[replica];
}

const char *mr_variable_name(const mr_variable *v)
{
    return v->name;
}

int mr_variable_rank(const mr_variable *v)
{
    return v->rank;
}

const int64_t *mr_variable_shape(const mr_variable *v)
{
    return v->shape;
}

size_t mr_variable_size(const mr_variable *v)
{
    return v->size;
}

const mr_regularizer *mr_variable_regularizer(const mr_variable *v)
{
    return &v->regularizer;
}

mr_variable_role mr_variable_role_of(const mr_variable *v)
{
    return v->role;
}

float *mr_variable_copy(mr_variable *v, size_t replica)
{
    return v->copies[replica];
}

mr_code mr_variable_assign(mr_variable *v, const float *values, mr_status *st)
{
    for (size_t i = 0; i < v->n_copies; i++)
        MR_TRY(mr__replica_write(mr_strategy_replica(v->s, i), v->copies[i], values,
                                 v->size * sizeof(float), st));
    return MR_OK;
}

static mr_code store(mr_variable *v, mr_replica *r, mr_status *st)
{
    if (!v->central)
        return MR_OK;
    return mr_stream_copy(mr_replica_stream(r), v->central, v->copies[0], v->size * sizeof(float),
                          st);
}

static mr_code fetch(mr_variable *v, mr_replica *r, mr_status *st)
{
    float *copy = v->copies[mr_replica_id(r)];
    if (!v->central || copy == v->copies[0])
        return MR_OK;
    return mr_stream_copy(mr_replica_stream(r), copy, v->central, v->size * sizeof(float), st);
}

mr_code mr__variables_publish(mr_variable *const *variables, size_t n, mr_replica *r, float *word,
                              mr_status *st)
{
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *s = mr_replica_stream(r);
    size_t id = mr_replica_id(r);
    uint64_t ticket;
    for (size_t i = 0; i < n && id == 0; i++)
        MR_TRY(store(variables[i], r, st));
    /* A sum of one value: work that the others submit from now on follows the first one's. */
    MR_TRY(mr_collective_start(c, id, s, word, 1, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    for (size_t i = 0; i < n && id > 0; i++)
        MR_TRY(fetch(variables[i], r, st));
    return MR_OK;
}

/* Prints the location of copy i, and its first values. Returns bytes written. */
static mr_code print_copy(const mr_variable *v, size_t i, char *to, size_t size, size_t *n,
                          mr_status *st)
{
    float values[SHOWN];
    size_t shown = v->size < SHOWN ? v->size : SHOWN;
    mr_replica *r = mr_strategy_replica(v->s, i);
    int at = snprintf(to, size, "\n  %zu: %s  %s", mr_strategy_first_replica_id(v->s) + i,
                      mr_device_name(mr_replica_device(r)), v->rank > 0 ? "[" : "");
    MR_TRY(mr__replica_read(r, values, v->copies[i], shown * sizeof *values, st));
    for (size_t k = 0; k < shown; k++)
        at += snprintf(to + at, size - (size_t)at, "%s%.9g", k ? ", " : "", (double)values[k]);
    at += snprintf(to + at, size - (size_t)at, "%s%s", shown < v->size ? ", ..." : "",
                   v->rank > 0 ? "]" : "");
    *n = (size_t)at;
    return MR_OK;
}

mr_code mr_variable_read(const mr_variable *v, float *out, mr_status *st)
{
    return mr__replica_read(mr_strategy_replica(v->s, 0), out, v->copies[0],
                            v->size * sizeof(float), st);
}

mr_code mr_variable_to_text(const mr_variable *v, char **out, mr_status *st)
{
    const char *name = mr_strategy_name(v->s), *kind = strstr(name, "mirrored") ? "mirrored " : "";
    bool central = mr__strategy_is_central(v->s);
    size_t lines = central ? 1 : v->n_copies, n, at;
    char shape[128], *text = mr_malloc((lines + 1) * LINE);
    *out = NULL;
    if (!text)
        return mr_fail_memory(st, (lines + 1) * LINE, "the text of a variable");
    mr__shape_text(v->rank, v->shape, shape, sizeof shape);
    at = (size_t)snprintf(text, LINE, "%svariable '%s', float32 %s", central ? "central " : kind,
                          v->name, shape);
    for (size_t i = 0; i < lines; i++, at += n) {
        mr_code rc = print_copy(v, i, text + at, (lines + 1) * LINE - at, &n, st);
        if (rc != MR_OK) {
            mr_free(text);
            return rc;
        }
    }
    *out = text;
    return MR_OK;
}
