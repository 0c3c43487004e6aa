/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/parameters.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/files/json_file.h"
#include "trainer/objectives/optimizer_impl.h"

mr_code mr__parameters_open(mr__parameters *p, mr_status *st)
{
    return mr_strategy_one_device(&p->s, "cpu:0", st);
}

static void drop(mr__parameters *p)
{
    for (size_t i = 0; i < p->n; i++)
        mr_variable_free(p->variables[i]);
    mr_optimizer_free(p->o);
    mr_free(p->variables);
    mr_free(p->learned);
    mr_free(p->gradients);
    mr_free(p->values);
    mr_free(p->pushed);
    *p = (mr__parameters){.s = p->s};
}

void mr__parameters_close(mr__parameters *p)
{
    drop(p);
    mr_strategy_free(p->s);
    p->s = NULL;
}

/* ---- PREPARE ---- */

/* {"name": "dense/kernel", "role": 0, "shape": [4, 3]} */
static mr_code make_variable(mr__parameters *p, const json_t *what, mr_status *st)
{
    const char *name = json_string_value(json_object_get(what, "name"));
    const json_t *role = json_object_get(what, "role");
    int64_t shape[MR_MAX_RANK];
    json_int_t kind = json_integer_value(role);
    int rank;
    if (!name || !json_is_integer(role) || kind < MR_LEARNED || kind > MR_FIXED)
        return mr_fail(st, MR_DATA_LOSS, "variable %zu is not described", p->n);
    MR_TRY(mr__call_lengths(json_object_get(what, "shape"), &rank, shape, st));
    const mr_variable_opts opts = {.name = name, .role = (mr_variable_role)kind};
    MR_TRY(mr_variable_new(&p->variables[p->n], p->s, rank, shape, &opts, st));
    mr_variable *v = p->variables[p->n++];
    p->n_values += mr_variable_size(v);
    if (kind == MR_LEARNED)
        p->learned[p->n_learned++] = v;
    return MR_OK;
}

static mr_code make_variables(mr__parameters *p, const mr__call *call, mr_status *st)
{
    json_t *list;
    MR_TRY(mr__call_list(call, "variables", &list, st));
    size_t n = json_array_size(list);
    p->variables = mr_calloc(n + 1, sizeof(mr_variable *));
    p->learned = mr_calloc(n + 1, sizeof(mr_variable *));
    p->gradients = mr_calloc(n + 1, sizeof(float *));
    if (!p->variables || !p->learned || !p->gradients)
        return mr_fail_memory(st, n * sizeof(mr_variable *), "variables");
    for (size_t i = 0; i < n; i++)
        MR_TRY(make_variable(p, json_array_get(list, i), st));
    return MR_OK;
}

static size_t learned_values(const mr__parameters *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_learned; i++)
        n += mr_variable_size(p->learned[i]);
    return n;
}

/* All values, and the optimizer's slots if it made updates before. */
static mr_code take_state(mr__parameters *p, const mr__call *call, int64_t iterations,
                          mr_status *st)
{
    size_t slots = mr__optimizer_n_slots(p->o), all = p->n_values + slots * learned_values(p);
    const float *from = call->values;
    if (call->n != (iterations > 0 ? all : p->n_values))
        return mr_fail(st, MR_DATA_LOSS, "received %zu values for variables and slots of %zu",
                       call->n, iterations > 0 ? all : p->n_values);
    p->values = mr_malloc((all + 1) * sizeof *p->values);
    p->pushed = mr_malloc((p->n_values + 1) * sizeof *p->pushed);
    if (!p->values || !p->pushed)
        return mr_fail_memory(st, all * sizeof *p->values, "variables");
    for (size_t i = 0; i < p->n; from += mr_variable_size(p->variables[i++]))
        MR_TRY(mr_variable_assign(p->variables[i], from, st));
    for (size_t k = 0; k < slots && iterations > 0; k++)
        for (size_t i = 0; i < p->n_learned; from += mr_variable_size(p->learned[i++]))
            MR_TRY(mr__optimizer_write_slot(p->o, p->learned[i], p->s, k, from, st));
    mr__optimizer_set_iterations(p->o, iterations);
    return MR_OK;
}

static mr_code prepare(mr__parameters *p, const mr__call *call, mr_status *st)
{
    const char *optimizer;
    int64_t iterations;
    double rate;
    drop(p);
    MR_TRY(mr__call_text(call, "optimizer", &optimizer, st));
    MR_TRY(mr__call_integer(call, "iterations", &iterations, st));
    if (iterations < 0)
        return mr_fail(st, MR_DATA_LOSS, "the number of updates is %" PRId64, iterations);
    MR_TRY(mr_optimizer_parse(&p->o, optimizer, st));
    MR_TRY(make_variables(p, call, st));
    MR_TRY(take_state(p, call, iterations, st));
    if (json_object_get(call->text, "after"))
        MR_TRY(mr__call_integer(call, "after", &p->after, st));
    if (json_object_get(call->text, "learning_rate")) { /* otherwise the schedule sets it */
        MR_TRY(mr__call_number(call, "learning_rate", &rate, st));
        mr_optimizer_set_learning_rate(p->o, rate);
    }
    p->job = call->job;
    return MR_OK;
}

/* ---- other calls ---- */

static mr_code read_values(mr__parameters *p, mr_status *st)
{
    float *to = p->values;
    for (size_t i = 0; i < p->n; to += mr_variable_size(p->variables[i++]))
        MR_TRY(mr_variable_read(p->variables[i], to, st));
    return MR_OK;
}

/* Writes a variable's values to *to: all, or those of `some` rows (-1: all), whose numbers are at
 * *from, where `left` values remain. Advances both. */
static mr_code read_rows(mr__parameters *p, const mr_variable *v, int64_t some, const float **from,
                         size_t left, float **to, mr_status *st)
{
    size_t n = mr_variable_size(v);
    size_t all = mr_variable_rank(v) > 0 ? (size_t)mr_variable_shape(v)[0] : 1;
    size_t width = all ? n / all : 0;
    if (some < 0) {
        MR_TRY(mr_variable_read(v, *to, st));
        *to += n;
        return some == -1 ? MR_OK : mr_fail(st, MR_DATA_LOSS, "the number of rows is below -1");
    }
    if ((uint64_t)some > all || (uint64_t)some > left)
        return mr_fail(st, MR_DATA_LOSS, "%" PRId64 " rows of %s are requested, but it has %zu",
                       some, mr_variable_name(v), all);
    MR_TRY(mr_variable_read(v, p->pushed, st)); /* scratch memory between pushes */
    for (int64_t i = 0; i < some; i++, *to += width, ++*from) {
        uint32_t row;
        memcpy(&row, *from, sizeof row);
        if (row >= all)
            return mr_fail(st, MR_DATA_LOSS, "%s has no row %" PRIu32, mr_variable_name(v), row);
        memcpy(*to, p->pushed + row * width, width * sizeof **to);
    }
    return MR_OK;
}

/* Answers with all values, or for each variable the rows requested in `rows`. */
static mr_code answer_values(mr__parameters *p, mr__connection *c, const mr__call *call,
                             mr_status *st)
{
    json_t *rows = NULL;
    const float *from = call->values;
    float *to = p->values;
    if (json_object_get(call->text, "rows"))
        MR_TRY(mr__call_list(call, "rows", &rows, st));
    if (rows && json_array_size(rows) != p->n)
        return mr_fail(st, MR_DATA_LOSS, "rows of %zu variables are requested, but there are %zu",
                       json_array_size(rows), p->n);
    for (size_t i = 0; i < p->n; i++) {
        const json_t *some = json_array_get(rows, i);
        size_t left = call->n - (size_t)(from - call->values);
        if (rows && !json_is_integer(some))
            return mr_fail(st, MR_DATA_LOSS, "the number of rows of variable %zu is not an integer",
                           i);
        MR_TRY(read_rows(p, p->variables[i], rows ? json_integer_value(some) : -1, &from, left, &to,
                         st));
    }
    return mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, NULL, p->values,
                         (size_t)(to - p->values), st);
}

static mr_code answer_state(mr__parameters *p, mr__connection *c, const mr__call *call,
                            mr_status *st)
{
    float *to = p->values + p->n_values;
    int64_t iterations = mr_optimizer_iterations(p->o);
    MR_TRY(read_values(p, st));
    for (size_t k = 0; k < mr__optimizer_n_slots(p->o) && iterations > 0; k++)
        for (size_t i = 0; i < p->n_learned; to += mr_variable_size(p->learned[i++]))
            MR_TRY(mr__optimizer_read_slot(p->o, p->learned[i], p->s, k, to, st));
    json_t *text = json_pack("{s:I}", "iterations", (json_int_t)iterations);
    if (!text)
        return mr_fail_memory(st, 0, "an answer");
    mr_code rc = mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, text, p->values,
                               (size_t)(to - p->values), st);
    json_decref(text);
    return rc;
}

/* The step of the only replica. A running mean's pushed values are added to it. */
static mr_code apply(mr_replica *r, void *ctx, mr_status *st)
{
    mr__parameters *p = ctx;
    const float *from = p->pushed;
    size_t k = 0;
    for (size_t i = 0; i < p->n; i++) {
        const mr_variable *v = p->variables[i];
        size_t bytes = mr_variable_size(v) * sizeof *from;
        void *to;
        if (mr_variable_role_of(v) == MR_FIXED)
            continue;
        if (mr_variable_role_of(v) == MR_LEARNED) {
            MR_TRY(mr_replica_scratch(r, bytes, &to, st));
            MR_TRY(mr_stream_copy(mr_replica_stream(r), to, from, bytes, st));
            p->gradients[k++] = to;
        }
        from += mr_variable_size(v);
    }
    return mr_optimizer_apply_gradients(p->o, r, p->learned, p->gradients, p->n_learned, st);
}

static mr_code add_means(mr__parameters *p, mr_status *st)
{
    const float *from = p->pushed;
    for (size_t i = 0; i < p->n; i++) {
        mr_variable *v = p->variables[i];
        if (mr_variable_role_of(v) == MR_AVERAGE) {
            MR_TRY(mr_variable_read(v, p->values, st));
            for (size_t k = 0; k < mr_variable_size(v); k++)
                p->values[k] += from[k];
            MR_TRY(mr_variable_assign(v, p->values, st));
        }
        from += mr_variable_role_of(v) == MR_FIXED ? 0 : mr_variable_size(v);
    }
    return MR_OK;
}

/* Expands the pushed values of one variable to `to`: its values (rows -1), or `rows` row numbers
 * followed by the values of those rows, with zeros elsewhere. *used = the number of values
 * consumed. */
static mr_code unfold(const mr_variable *v, int64_t rows, const float *from, size_t left, float *to,
                      size_t *used, mr_status *st)
{
    size_t n = mr_variable_size(v);
    size_t all = mr_variable_rank(v) > 0 ? (size_t)mr_variable_shape(v)[0] : 1;
    size_t width = all ? n / all : 0, some = rows < 0 ? 0 : (size_t)rows;
    *used = rows < 0 ? n : some * (1 + width);
    if (rows < -1 || some > all || *used > left)
        return mr_fail(st, MR_DATA_LOSS, "the gradient of %s has the wrong size",
                       mr_variable_name(v));
    if (rows < 0) {
        memcpy(to, from, n * sizeof *to);
        return MR_OK;
    }
    memset(to, 0, n * sizeof *to);
    for (size_t i = 0; i < some; i++) {
        uint32_t row;
        memcpy(&row, from + i, sizeof row);
        if (row >= all)
            return mr_fail(st, MR_DATA_LOSS, "%s has no row %" PRIu32, mr_variable_name(v), row);
        memcpy(to + row * width, from + some + i * width, width * sizeof *to);
    }
    return MR_OK;
}

static bool is_applied(const mr__parameters *p, int64_t step)
{
    size_t n = p->n_applied < MR__APPLIED_STEPS ? p->n_applied : MR__APPLIED_STEPS;
    bool found = step <= p->after;
    for (size_t i = 0; i < n && !found; i++)
        found = p->applied[i] == step;
    return found;
}

static mr_code push(mr__parameters *p, const mr__call *call, mr_status *st)
{
    json_t *rows;
    size_t at = 0, k = 0, used;
    int64_t step;
    float *to = p->pushed;
    MR_TRY(mr__call_list(call, "rows", &rows, st));
    MR_TRY(mr__call_integer(call, "step", &step, st));
    if (is_applied(p, step)) /* by a worker that was lost before it answered */
        return MR_OK;
    for (size_t i = 0; i < p->n; i++) {
        const mr_variable *v = p->variables[i];
        if (mr_variable_role_of(v) == MR_FIXED)
            continue;
        const json_t *some = json_array_get(rows, k++);
        if (!json_is_integer(some))
            return mr_fail(st, MR_DATA_LOSS,
                           "received gradients of %zu variables, but there are more",
                           json_array_size(rows));
        MR_TRY(unfold(v, json_integer_value(some), call->values + at, call->n - at, to, &used, st));
        at += used;
        to += mr_variable_size(v);
    }
    if (at != call->n || k != json_array_size(rows))
        return mr_fail(st, MR_DATA_LOSS, "received gradients of %zu values for %zu", call->n, at);
    if (p->n_learned > 0)
        MR_TRY(mr_strategy_run(p->s, apply, p, st));
    MR_TRY(add_means(p, st));
    p->applied[p->n_applied++ % MR__APPLIED_STEPS] = step;
    if (step - MR__APPLIED_STEPS > p->after)
        p->after = step - MR__APPLIED_STEPS; /* fewer are in progress */
    return MR_OK;
}

static mr_code set_rate(mr__parameters *p, const mr__call *call, mr_status *st)
{
    double rate;
    MR_TRY(mr__call_number(call, "learning_rate", &rate, st));
    mr_optimizer_set_learning_rate(p->o, rate);
    return MR_OK;
}

mr_code mr__parameters_take(mr__parameters *p, mr__connection *c, const mr__call *call,
                            mr_status *st)
{
    if (call->kind != MR__CALL_PREPARE && (p->job == 0 || p->job != call->job))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "this parameter server has no variables of this job: it was restarted, or "
                       "another job replaced this one");
    switch (call->kind) {
    case MR__CALL_PREPARE:
        MR_TRY(prepare(p, call, st));
        break;
    case MR__CALL_PULL:
        return answer_values(p, c, call, st);
    case MR__CALL_READ:
        return answer_state(p, c, call, st);
    case MR__CALL_PUSH:
        MR_TRY(push(p, call, st));
        break;
    case MR__CALL_RATE:
        MR_TRY(set_rate(p, call, st));
        break;
    default:
        return mr_fail(st, MR_INVALID_ARGUMENT, "a parameter server does not accept call %d",
                       (int)call->kind);
    }
    return mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, NULL, NULL, 0, st);
}
