/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/objectives/optimizer.h"
#include "trainer/builtins.h"
#include "trainer/exchange/saved_model.h"

enum { MAX_PAIRS = 1 << 20 };

/* Precedes the state. */
typedef union made {
    struct {
        const mr_callback_desc *desc;
        void *params;
    } of;
    max_align_t align;
} made;

static void free_made(void *ctx)
{
    made *m = (made *)ctx - 1;
    if (m->of.desc->calls.free)
        m->of.desc->calls.free(ctx);
    mr__component_free_params(&m->of.desc->is, m->of.params);
    mr_free(m);
}

mr_code mr_callback_parse(mr_callback *out, const char *text, mr_status *st)
{
    const mr_component *c;
    void *params;
    MR_TRY(mr__registry_parse(&mr__callbacks, text, &c, &params, st));
    const mr_callback_desc *d = (const mr_callback_desc *)c;
    mr_code rc = d->check ? d->check(params, st) : MR_OK;
    made *m = rc == MR_OK ? mr_calloc(1, sizeof *m + d->state_size) : NULL;
    if (!m) {
        mr__component_free_params(c, params);
        return rc != MR_OK ? rc : mr_fail_memory(st, d->state_size, "a callback");
    }
    m->of.desc = d;
    m->of.params = params;
    *(const void **)(void *)(m + 1) = params;
    *out = d->calls;
    out->ctx = m + 1;
    out->name = d->is.name;
    out->free = free_made;
    return MR_OK;
}

mr_code mr__callback_settings(const mr_callback *c, mr__settings *out, mr_status *st)
{
    if (c->free != free_made)
        return MR_OK;
    const made *m = (const made *)c->ctx - 1;
    const mr_component *is = &m->of.desc->is;
    return mr__settings_add_table(out, is->name, is->name, is->params, m->of.params, st);
}

mr_code mr_callback_register(const mr_callback_desc *d, mr_status *st)
{
    bool complete = d && d->state_size >= sizeof(void *);
    return mr__registry_add(&mr__callbacks, (const mr_component *)d, complete, st);
}

void mr_callback_reset(mr_callback *c)
{
    if (c->free)
        c->free(c->ctx);
    *c = (mr_callback){0};
}

/* ---- arguments ---- */

static bool is_word(const mr_expr *e, const char *word)
{
    return (e->kind == MR_EX_STRING || e->kind == MR_EX_NAME) && strcmp(e->text, word) == 0;
}

static mr_code parse_freq(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    int64_t *n = field;
    if (is_word(e, "epoch"))
        *n = 0;
    else if (is_word(e, "batch"))
        *n = 1;
    else if (e->kind == MR_EX_INT && e->i > 0)
        *n = e->i;
    else
        return mr_expr_fail_at(st, e, "%s must be \"epoch\" or a number of steps", p->name);
    return MR_OK;
}

static mr_code parse_keep(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    int64_t *n = field;
    if (is_word(e, "all") || e->kind == MR_EX_NONE)
        *n = 0;
    else if (e->kind == MR_EX_INT && e->i > 0)
        *n = e->i;
    else
        return mr_expr_fail_at(st, e, "%s must be \"all\" or a number of checkpoints", p->name);
    return MR_OK;
}

static bool read_number(const mr_expr *e, double *v)
{
    *v = e->kind == MR_EX_INT ? (double)e->i : e->f;
    return e->kind == MR_EX_INT || e->kind == MR_EX_FLOAT;
}

static mr_code parse_pairs(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    mr__pairs *out = field;
    static const char form[] = "%s must be a list of pairs, as in [[0, 0.001], [3, 0.0001]], with "
                               "epochs that start at 0 or later and increase";
    if (e->kind != MR_EX_LIST || e->n == 0 || e->n > MAX_PAIRS)
        return mr_expr_fail_at(st, e, form, p->name);
    double *v = mr_calloc(2 * e->n, sizeof *v);
    if (!v)
        return mr_fail_memory(st, 2 * e->n * sizeof *v, "a schedule");
    for (size_t i = 0; i < e->n; i++) {
        const mr_expr *pair = e->children[i];
        bool good = (pair->kind == MR_EX_LIST || pair->kind == MR_EX_TUPLE) && pair->n == 2 &&
                    pair->children[0]->kind == MR_EX_INT &&
                    read_number(pair->children[0], v + 2 * i) &&
                    read_number(pair->children[1], v + 2 * i + 1) &&
                    v[2 * i] >= (i ? v[2 * i - 2] + 1 : 0) && v[2 * i + 1] >= 0;
        if (!good) {
            mr_free(v);
            return mr_expr_fail_at(st, pair, form, p->name);
        }
    }
    *out = (mr__pairs){v, e->n};
    return MR_OK;
}

static void clear_pairs(void *field)
{
    mr_free(((mr__pairs *)field)->v);
}

const mr_param_kind mr__param_freq = {.size = sizeof(int64_t), .parse = parse_freq};
const mr_param_kind mr__param_keep = {.size = sizeof(int64_t), .parse = parse_keep};
/* "[[0, 0.001], [3, 0.0001]]" */
static char *print_pairs(const void *field)
{
    const mr__pairs *p = field;
    size_t size = p->n * (2 * MR__NUMBER_TEXT + 6) + 3, at = 0;
    char *text = mr_malloc(size), value[MR__NUMBER_TEXT];
    if (!text)
        return NULL;
    for (size_t i = 0; i < p->n; i++) {
        mr__number_text(p->v[2 * i + 1], value, sizeof value);
        at += (size_t)snprintf(text + at, size - at, "%s[%.0f, %s]", i ? ", " : "[", p->v[2 * i],
                               value);
    }
    snprintf(text + at, size - at, "]");
    return text;
}

const mr_param_kind mr__param_pairs = {
    .size = sizeof(mr__pairs), .parse = parse_pairs, .clear = clear_pairs, .print = print_pairs};

/* ---- monitored values ---- */

const char *const mr__modes[] = {"auto", "min", "max", NULL};

bool mr__prefers_more(const char *monitor, const char *mode)
{
    static const char *const larger[] = {"acc", "auc", "precision", "recall", "top_k", "fmeasure"};
    if (strcmp(mode, "auto") != 0)
        return strcmp(mode, "max") == 0;
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++)
        if (strstr(monitor, larger[i]))
            return true;
    return false;
}

static bool is_never_there(const mr_train_event *e, const char *monitor)
{
    return strncmp(monitor, "val_", 4) == 0 && !e->opts->validation;
}

void mr__check_watched(const mr_train_event *e, const char *callback, const char *monitor)
{
    if (is_never_there(e, monitor))
        mr_log(MR_LOG_WARNING,
               "%s watches %s, but there are no validation data, so it does nothing; pass some, or "
               "watch another value, such as monitor=\"%s\"",
               callback, monitor, monitor + 4);
}

bool mr__watched(const mr_train_event *e, const char *callback, const char *monitor, double *v)
{
    char known[512] = "", name[128];
    if (mr_train_value(e, monitor, v))
        return true;
    if (is_never_there(e, monitor))
        return false;
    for (size_t i = 0; mr_train_value_name(e, i, name, sizeof name); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", name);
    mr_log(MR_LOG_WARNING, "%s watches %s, which epoch %" PRId64 " does not have; it has %s",
           callback, monitor, e->epoch, known);
    return false;
}

int64_t mr__remembered_count(double v)
{
    return v > 0 && v < 0x1p53 ? (int64_t)v : 0;
}

mr_code mr__check_directory(const char *callback, const char *directory, mr_status *st)
{
    if (*directory)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: the name of the directory is empty", callback);
}

bool mr__writes_files(const mr_train_event *e)
{
    return mr_strategy_worker(e->strategy) == 0;
}

const char *const mr__reactions[] = {"fail", "warn", NULL};

static bool only_warns(const char *on_error)
{
    return strcmp(on_error, mr__reactions[1]) == 0;
}

mr_code mr__check_place(const mr_train_event *e, const char *path, const char *on_error,
                        mr_status *st)
{
    return only_warns(on_error) || !mr__writes_files(e) ? MR_OK : mr_check_save_path(path, st);
}

mr_code mr__save_ended(const mr_train_event *e, const char *on_error, mr_code rc,
                       const mr_status *own, mr_status *st)
{
    if (rc != MR_OK && only_warns(on_error)) {
        char message[1024];
        mr_status_format(own, message, sizeof message);
        mr_log(MR_LOG_WARNING, "checkpoint of step %" PRId64 ": %s", e->step, message);
        return MR_OK;
    }
    if (rc != MR_OK && st) {
        *st = *own;
        mr_status_prefix(st, "checkpoint of step %" PRId64, e->step);
    }
    return rc;
}

void mr__print_line(const mr_train_event *e, const char *text, const char *json)
{
    if (e->opts->print)
        e->opts->print(e->opts->print_ctx, text, json);
    else
        mr_log(MR_LOG_INFO, "%s", text);
}

void mr__number_text(double v, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, v);
        if (!(strtod(text, NULL) < v || strtod(text, NULL) > v))
            return;
    }
}

mr_code mr__fill_path(const char *pattern, int64_t epoch, int64_t step, char **out, mr_status *st)
{
    size_t size = 24 * strlen(pattern) + 1, n = 0;
    char *text = mr_malloc(size);
    if (!text)
        return mr_fail_memory(st, size, "a file name");
    for (const char *at = pattern; *at;) {
        if (*at != '{')
            text[n++] = *at++;
        else if (strncmp(at, "{epoch}", 7) == 0 || strncmp(at, "{step}", 6) == 0) {
            n += (size_t)snprintf(text + n, size - n, "%" PRId64, at[1] == 'e' ? epoch : step);
            at = strchr(at, '}') + 1;
        } else {
            mr_free(text);
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "'%s' has something other than {epoch} and {step} in braces", pattern);
        }
    }
    text[n] = '\0';
    *out = text;
    return MR_OK;
}
