/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/settings.h"
#include <string.h>
#include "pipeline/memory/alloc.h"

enum { MAX_SETTINGS = 1 << 22 };

mr_code mr__settings_add(mr__settings *s, const char *name, const char *value, mr_status *st)
{
    MR_TRY(MR_GROW(s->v, s->capacity, s->n + 1, MAX_SETTINGS, "settings", st));
    mr__setting made = {mr_strdup(name), mr_strdup(value)};
    if (!made.name || !made.value) {
        mr_free(made.name);
        mr_free(made.value);
        return mr_fail_memory(st, strlen(value), "a setting");
    }
    s->v[s->n++] = made;
    return MR_OK;
}

mr_code mr__settings_add_table(mr__settings *s, const char *name, const char *kind,
                               const mr_param *params, const void *values, mr_status *st)
{
    MR_TRY(mr__settings_add(s, name, kind, st));
    for (const mr_param *p = params; p && p->name; p++) {
        char *value;
        MR_TRY(mr_param_text(p, values, &value, st));
        char *full = value ? mr_strf("%s/%s", name, p->name) : NULL;
        mr_code rc = MR_OK;
        if (full)
            rc = mr__settings_add(s, full, value, st);
        else if (value)
            rc = mr_fail_memory(st, strlen(name), "a setting");
        mr_free(full);
        mr_free(value);
        MR_TRY(rc);
    }
    return MR_OK;
}

void mr__settings_drop(mr__settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mr_free(s->v[i].name);
        mr_free(s->v[i].value);
    }
    mr_free(s->v);
    *s = (mr__settings){0};
}

/* The first setting from *from on, then from the beginning, that has this name and is not taken;
 * n: none. *from moves past it. */
static size_t find(const mr__settings *s, const bool *taken, const char *name, size_t *from)
{
    for (size_t k = 0; k < s->n; k++) {
        size_t i = (*from + k) % s->n;
        if (!taken[i] && strcmp(s->v[i].name, name) == 0) {
            *from = i + 1;
            return i;
        }
    }
    return s->n;
}

static const char *value_of(const mr__settings *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++)
        if (strlen(s->v[i].name) == n && memcmp(s->v[i].name, name, n) == 0)
            return s->v[i].value;
    return NULL;
}

/* Whether both lists have the same of what a parameter belongs to. */
static bool has_owner(const mr__settings *a, const mr__settings *b, const char *name)
{
    const char *slash = strrchr(name, '/');
    if (!slash)
        return true;
    const char *x = value_of(a, name, (size_t)(slash - name)),
               *y = value_of(b, name, (size_t)(slash - name));
    return (!x && !y) || (x && y && strcmp(x, y) == 0);
}

mr_code mr__settings_compare(const mr__settings *now, const mr__settings *before,
                             void (*fn)(void *ctx, const char *name, const char *now,
                                        const char *before),
                             void *ctx, mr_status *st)
{
    bool *taken = mr_calloc(before->n + 1, sizeof *taken);
    size_t from = 0;
    if (!taken)
        return mr_fail_memory(st, before->n, "settings");
    for (size_t i = 0; i < now->n; i++) {
        const mr__setting *v = &now->v[i];
        size_t k = find(before, taken, v->name, &from);
        const char *old = k < before->n ? before->v[k].value : NULL;
        if (old)
            taken[k] = true;
        if ((!old || strcmp(old, v->value) != 0) && has_owner(now, before, v->name))
            fn(ctx, v->name, v->value, old);
    }
    for (size_t i = 0; i < before->n; i++)
        if (!taken[i] && has_owner(now, before, before->v[i].name))
            fn(ctx, before->v[i].name, NULL, before->v[i].value);
    mr_free(taken);
    return MR_OK;
}
