/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/callback_memory.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/callback_code.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/files/json_file.h"

static const char weights_name[] = "callbacks.safetensors";

enum { PLACE = 24 /* for a number as text */ };

size_t mr__model_values(const mr_model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < mr_model_n_variables(m); i++)
        n += mr_variable_size(mr_model_variable(m, i));
    return n;
}

/* ---- saving ---- */

static json_t *memory_json(const char *name, const mr_callback_memory *m)
{
    json_t *numbers = json_array();
    for (size_t i = 0; i < m->n; i++)
        if (json_array_append_new(numbers, mr__json_number(m->numbers[i])) != 0) {
            json_decref(numbers);
            return NULL; /* the caller's append rejects it */
        }
    return json_pack("{s:s, s:s, s:o, s:b, s:s*}", "name", name, "of", m->of ? m->of : "",
                     "numbers", numbers, "weights", (int)(m->weights != NULL), "text", m->text);
}

static mr_code save_weights(const mr_named_tensor *t, size_t n, const char *directory,
                            mr_status *st)
{
    return n > 0 ? mr__save_tensors(directory, weights_name, t, n, st) : MR_OK;
}

mr_code mr__remember(const mr_fit_opts *o, const mr_model *m, const char *directory, json_t **list,
                     mr_status *st)
{
    size_t n = 0, bytes = o->n_callbacks * (sizeof(mr_named_tensor) + PLACE);
    mr_named_tensor *t = mr_calloc(o->n_callbacks, sizeof *t);
    char(*names)[PLACE] = mr_calloc(o->n_callbacks, sizeof *names);
    *list = json_array();
    mr_code rc = t && names && *list ? MR_OK : mr_fail_memory(st, bytes, "states of callbacks");
    for (size_t i = 0; i < o->n_callbacks && rc == MR_OK; i++) {
        const mr_callback *c = &o->callbacks[i];
        mr_callback_memory memory = {0};
        if (!c->name || !c->remember)
            continue;
        c->remember(c->ctx, &memory);
        snprintf(names[n], PLACE, "%zu", json_array_size(*list));
        if (memory.weights)
            t[n] = (mr_named_tensor){.name = names[n],
                                     .dtype = MR_FLOAT32,
                                     .rank = 1,
                                     .shape = {(int64_t)mr__model_values(m)},
                                     .data = memory.weights};
        n += memory.weights != NULL;
        if (json_array_append_new(*list, memory_json(c->name, &memory)) != 0)
            rc = mr_fail_memory(st, bytes, "states of callbacks");
    }
    if (rc == MR_OK)
        rc = save_weights(t, n, directory, st);
    if (rc != MR_OK) {
        json_decref(*list);
        *list = NULL;
    }
    mr_free(names);
    mr_free(t);
    return rc;
}

/* ---- restoring ---- */

static const char *text_at(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static bool is_memory(const json_t *v)
{
    const json_t *numbers = json_object_get(v, "numbers"), *text = json_object_get(v, "text");
    double number;
    if ((text && !json_is_string(text)) || !text_at(v, "name") || !text_at(v, "of") ||
        !json_is_array(numbers) || json_array_size(numbers) > MR_MAX_REMEMBERED ||
        !json_is_boolean(json_object_get(v, "weights")))
        return false;
    for (size_t i = 0; i < json_array_size(numbers); i++)
        if (!mr__read_json_number(json_array_get(numbers, i), &number))
            return false;
    return true;
}

static mr_code check_weights(const mr__recalled *r, const mr_model *m, mr_status *st)
{
    const int64_t values = (int64_t)mr__model_values(m);
    for (size_t i = 0; i < json_array_size(r->list); i++) {
        char name[PLACE];
        snprintf(name, sizeof name, "%zu", i);
        if (json_is_true(json_object_get(json_array_get(r->list, i), "weights")))
            MR_TRY(mr__check_tensor(mr_safetensors_find(r->weights, name), name, 1, &values, st));
    }
    return MR_OK;
}

mr_code mr__recalled_load(mr__recalled *r, const char *directory, const json_t *root,
                          const mr_model *m, mr_status *st)
{
    json_t *list = json_object_get(root, "callbacks");
    bool has_weights = false;
    mr__recalled_drop(r);
    if (!list)
        return MR_OK;
    bool good = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        good = is_memory(json_array_get(list, i));
        has_weights =
            has_weights || json_is_true(json_object_get(json_array_get(list, i), "weights"));
    }
    if (!good)
        return mr_fail(st, MR_DATA_LOSS, "state.json: callbacks is invalid");
    if (has_weights)
        MR_TRY(mr__load_tensors(directory, weights_name, &r->weights, st));
    r->list = json_incref(list);
    mr_code rc = has_weights ? check_weights(r, m, st) : MR_OK;
    if (rc != MR_OK)
        mr_status_prefix(st, "%s", weights_name);
    return rc;
}

void mr__recalled_drop(mr__recalled *r)
{
    json_decref(r->list);
    mr_safetensors_close(r->weights);
    *r = (mr__recalled){0};
}

static bool is_of(const json_t *v, const char *name, const char *of)
{
    return strcmp(text_at(v, "name"), name) == 0 && strcmp(text_at(v, "of"), of ? of : "") == 0;
}

/* The callback's number among those with its name and monitored value. */
static size_t place_of(const mr_fit_opts *o, size_t at, const char *of)
{
    size_t place = 0;
    for (size_t i = 0; i < at; i++) {
        const mr_callback *c = &o->callbacks[i];
        mr_callback_memory memory = {0};
        if (!c->name || !c->remember || strcmp(c->name, o->callbacks[at].name) != 0)
            continue;
        c->remember(c->ctx, &memory);
        place += strcmp(memory.of ? memory.of : "", of ? of : "") == 0;
    }
    return place;
}

static mr_code give(const mr__recalled *r, size_t at, const mr_callback *c, const char *of,
                    mr_status *st)
{
    const json_t *v = json_array_get(r->list, at);
    const json_t *numbers = json_object_get(v, "numbers");
    mr_callback_memory memory = {
        .of = of, .n = json_array_size(numbers), .text = text_at(v, "text")};
    float *owned = NULL;
    for (size_t i = 0; i < memory.n; i++)
        if (!mr__read_json_number(json_array_get(numbers, i), &memory.numbers[i]))
            memory.numbers[i] = 0; /* it was checked */
    if (json_is_true(json_object_get(v, "weights"))) {
        char name[PLACE];
        snprintf(name, sizeof name, "%zu", at);
        const mr_named_tensor *t = mr_safetensors_find(r->weights, name);
        memory.n_weights = (size_t)t->shape[0];
        MR_TRY(mr__tensor_floats(t, &memory.weights, &owned, st));
    }
    mr_code rc = c->recall(c->ctx, &memory, st);
    mr_free(owned);
    return mr__callback_step(rc, "recall", st);
}

mr_code mr__recall(const mr__recalled *r, const mr_fit_opts *o, mr_status *st)
{
    bool ended = false;
    for (size_t i = 0; r->list && i < o->n_callbacks; i++) {
        const mr_callback *c = &o->callbacks[i];
        mr_callback_memory memory = {0};
        size_t at = 0, n = json_array_size(r->list);
        if (!c->name || !c->remember || !c->recall)
            continue;
        c->remember(c->ctx, &memory);
        size_t place = place_of(o, i, memory.of);
        while (at < n && !(is_of(json_array_get(r->list, at), c->name, memory.of) && place-- == 0))
            at++;
        if (at == n) {
            mr_log(MR_LOG_WARNING, "the checkpoint has no state of %s, which starts afresh",
                   c->name);
            continue;
        }
        mr_code rc = give(r, at, c, memory.of, st);
        ended = ended || rc == MR_END;
        if (rc != MR_OK && rc != MR_END)
            return rc;
    }
    return ended ? MR_END : MR_OK;
}
