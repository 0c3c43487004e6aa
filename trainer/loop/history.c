/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/history.h"
#include <math.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

enum { MAX_EPOCHS = 1 << 28, MAX_SERIES = 4096 };

/* One name: values, with capacity for as many as epochs. */
typedef struct series {
    char *name;
    double *values;
    size_t capacity;
} series;

struct mr_history {
    int64_t *epochs;
    size_t n, capacity;
    series *all;
    size_t n_series, series_capacity;
};

mr_code mr_history_new(mr_history **out, mr_status *st)
{
    mr_history *h = mr_calloc(1, sizeof *h);
    if (!h)
        return mr_fail_memory(st, sizeof *h, "a history");
    *out = h;
    return MR_OK;
}

void mr_history_free(mr_history *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_series; i++) {
        mr_free(h->all[i].name);
        mr_free(h->all[i].values);
    }
    mr_free(h->all);
    mr_free(h->epochs);
    mr_free(h);
}

size_t mr_history_epochs(const mr_history *h)
{
    return h->n;
}

const int64_t *mr_history_epoch_numbers(const mr_history *h)
{
    return h->epochs;
}

size_t mr_history_n_names(const mr_history *h)
{
    return h->n_series;
}

const char *mr_history_name(const mr_history *h, size_t i)
{
    return h->all[i].name;
}

static series *find(const mr_history *h, const char *name)
{
    for (size_t i = 0; i < h->n_series; i++)
        if (strcmp(h->all[i].name, name) == 0)
            return &h->all[i];
    return NULL;
}

const double *mr_history_values(const mr_history *h, const char *name)
{
    const series *s = find(h, name);
    return s ? s->values : NULL;
}

/* Extends it to n values; new ones are NaN. */
static mr_code extend(series *s, size_t n, mr_status *st)
{
    size_t before = s->capacity;
    mr_code rc = MR_GROW(s->values, s->capacity, n, MAX_EPOCHS, "a history", st);
    for (size_t i = before; i < s->capacity; i++)
        s->values[i] = (double)NAN;
    return rc;
}

mr_code mr_history_add_epoch(mr_history *h, int64_t epoch, mr_status *st)
{
    MR_TRY(MR_GROW(h->epochs, h->capacity, h->n + 1, MAX_EPOCHS, "a history", st));
    for (size_t i = 0; i < h->n_series; i++)
        MR_TRY(extend(&h->all[i], h->n + 1, st));
    h->epochs[h->n++] = epoch;
    return MR_OK;
}

mr_code mr_history_add(mr_history *h, const char *name, double value, mr_status *st)
{
    series *s = find(h, name);
    if (h->n == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the history has no epoch to add a value to");
    if (!s) {
        MR_TRY(MR_GROW(h->all, h->series_capacity, h->n_series + 1, MAX_SERIES, "a history", st));
        series new = {.name = mr_strdup(name)};
        if (!new.name)
            return mr_fail_memory(st, strlen(name), "a history");
        mr_code rc = extend(&new, h->n, st);
        if (rc != MR_OK) {
            mr_free(new.name);
            return rc;
        }
        s = &h->all[h->n_series++];
        *s = new;
    }
    s->values[h->n - 1] = value;
    return MR_OK;
}
