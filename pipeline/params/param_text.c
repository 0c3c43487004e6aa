/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter's value as text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/params/params.h"

enum { NUMBER = 40 };

/* With as many digits as needed to read v: 0.01, 100. */
static void print_number(double v, char out[NUMBER])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, NUMBER, "%.*g", digits, v);
        if (!(strtod(out, NULL) < v || strtod(out, NULL) > v))
            return;
    }
}

static char *quote(const char *s)
{
    return mr_strf("\"%s\"", s);
}

static char *list_of_numbers(const mr_param *p, const void *field)
{
    bool integers = p->type == MR_PT_INTS;
    const mr_ints *i = field;
    const mr_floats *f = field;
    size_t n = integers ? i->n : f->n, size = n * NUMBER + 3, at = 0;
    char *out = mr_malloc(size);
    if (!out)
        return NULL;
    out[at++] = '[';
    for (size_t k = 0; k < n; k++) {
        char number[NUMBER];
        if (integers)
            snprintf(number, sizeof number, "%" PRId64, i->v[k]);
        else
            print_number(f->v[k], number);
        at += (size_t)snprintf(out + at, size - at, "%s%s", k ? ", " : "", number);
    }
    snprintf(out + at, size - at, "]");
    return out;
}

static char *list_of_strings(const mr_strs *s)
{
    size_t size = 3, at = 0;
    for (size_t k = 0; k < s->n; k++)
        size += s->v[k].size + 4;
    char *out = mr_malloc(size);
    if (!out)
        return NULL;
    out[at++] = '[';
    for (size_t k = 0; k < s->n; k++)
        at += (size_t)snprintf(out + at, size - at, "%s\"%s\"", k ? ", " : "", s->v[k].data);
    snprintf(out + at, size - at, "]");
    return out;
}

mr_code mr_param_text(const mr_param *p, const void *params, char **out, mr_status *st)
{
    static const char *const tri[] = {[MR_DEFAULT] = "none", [MR_YES] = "true", [MR_NO] = "false"};
    const void *f = mr__param_field(p, params);
    const bool *has = mr__param_has(p, params);
    char number[NUMBER];
    *out = NULL;
    if (p->type == MR_PT_FN || p->type == MR_PT_VALUE || (p->type == MR_PT_OWN && !p->kind->print))
        return MR_OK;
    if ((has && !*has) || (p->type == MR_PT_STR && !*(char *const *)f))
        *out = mr_strdup("none");
    else if (p->type == MR_PT_OWN)
        *out = p->kind->print(f);
    else if (p->type == MR_PT_I64) {
        int64_t v = *(const int64_t *)f;
        *out = v == MR_AUTO ? mr_strdup("auto") : mr_strf("%" PRId64, v);
    } else if (p->type == MR_PT_F64) {
        print_number(*(const double *)f, number);
        *out = mr_strdup(number);
    } else if (p->type == MR_PT_BOOL)
        *out = mr_strdup(*(const bool *)f ? "true" : "false");
    else if (p->type == MR_PT_TRI)
        *out = mr_strdup(tri[*(const mr_tri *)f]);
    else if (p->type == MR_PT_STR)
        *out = quote(*(char *const *)f);
    else if (p->type == MR_PT_STRS)
        *out = list_of_strings(f);
    else
        *out = list_of_numbers(p, f);
    return *out ? MR_OK : mr_fail_memory(st, strlen(p->name), "a parameter's text");
}
