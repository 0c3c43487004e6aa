/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/wanted_rows.h"
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"

enum { MOST_NUMBERS = 1 << 28 };

static int compare(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static int64_t number(mr_dtype t, const void *ids, size_t i)
{
    return t == MR_INT64   ? ((const int64_t *)ids)[i]
           : t == MR_INT32 ? ((const int32_t *)ids)[i]
                           : ((const uint8_t *)ids)[i];
}

/* Collects the rows that the ids of one input select; invalid ids fail the step later. */
static mr_code take_numbers(mr__wanted_rows *w, mr__wanted_of *of, const mr__run *x,
                            const mr_array *t, int64_t classes, mr_status *st)
{
    size_t row = mr_array_row_bytes(t), n = t->rows * (row / mr_dtype_size(t->dtype)), kept = 0;
    mr_stream *stream = mr_replica_stream(mr_strategy_replica(x->s, 0));
    MR_TRY(mr_grow(&w->ids, &w->capacity, t->rows * row + 1, 1, SIZE_MAX, "a batch", st));
    MR_TRY(MR_GROW(of->rows, of->capacity, n + 1, MOST_NUMBERS, "the rows of a step", st));
    MR_TRY(mr__staging_acquire(x->feed.ring, x->slot, 0, st));
    MR_TRY(mr_stream_copy(stream, w->ids, t->data, t->rows * row, st));
    MR_TRY(mr_stream_synchronize(stream, st));
    for (size_t i = 0; i < n; i++) {
        int64_t v = number(t->dtype, w->ids, i);
        if (v >= 0 && v < classes)
            of->rows[kept++] = (uint32_t)v;
    }
    qsort(of->rows, kept, sizeof *of->rows, compare);
    of->n = 0;
    for (size_t i = 0; i < kept; i++)
        if (i == 0 || of->rows[i] != of->rows[i - 1])
            of->rows[of->n++] = of->rows[i];
    return MR_OK;
}

/* Whether layer i is the only reader of its variable, by the ids of an input of the model. */
static bool is_read_by_rows(const mr_model *m, size_t i, size_t *input)
{
    const mr_layer *l = &m->layers[i];
    if (!l->desc->reads_rows || l->shares > 0 || l->copies > 0)
        return false;
    const mr_regularizer *penalty =
        mr_variable_regularizer(mr_model_variable(m, m->first_variable[i]));
    *input = mr__input_made(m, mr__maker_of(m, mr__source_of(l, 0)));
    return *input < m->n_inputs && penalty->l1 == 0 && penalty->l2 == 0;
}

mr_code mr__wanted_find(mr__wanted_rows *w, const mr__run *x, mr_status *st)
{
    const mr_model *m = x->m;
    if (!w->v) {
        w->v = mr_calloc(m->n_variables + 1, sizeof *w->v);
        if (!w->v)
            return mr_fail_memory(st, m->n_variables * sizeof *w->v, "the rows of a step");
        w->n = m->n_variables;
    }
    for (size_t i = 0; i < m->n_layers; i++) {
        size_t input;
        mr_array t;
        if (!is_read_by_rows(m, i, &input))
            continue;
        const mr_variable *v = m->variables[m->first_variable[i]];
        mr__wanted_of *of = &w->v[m->first_variable[i]];
        size_t classes = (size_t)mr_variable_shape(v)[0], width = mr_variable_size(v) / classes;
        mr__staging_tensor(x->feed.ring, x->slot, 0, input, &t);
        /* A named step may read any row. */
        of->is_part =
            !x->instead && (t.dtype == MR_INT64 || t.dtype == MR_INT32 || t.dtype == MR_UINT8);
        if (of->is_part)
            MR_TRY(take_numbers(w, of, x, &t, (int64_t)classes, st));
        of->is_part = of->is_part && of->n * (width + 1) < classes * width;
    }
    return MR_OK;
}

void mr__wanted_reset(mr__wanted_rows *w)
{
    for (size_t i = 0; i < w->n; i++)
        mr_free(w->v[i].rows);
    mr_free(w->v);
    mr_free(w->ids);
    *w = (mr__wanted_rows){0};
}

/* The rows of a variable that are in a piece: [*from, *to). */
static void rows_in(const mr__wanted_of *of, const mr__piece *p, size_t *from, size_t *to)
{
    *from = 0;
    while (*from < of->n && of->rows[*from] < p->first_row)
        ++*from;
    *to = *from;
    while (*to < of->n && of->rows[*to] < p->first_row + p->rows)
        ++*to;
}

mr_code mr__wanted_ask(const mr__wanted_rows *w, const mr__layout *l, size_t server, json_t *counts,
                       float *rows, size_t *n_rows, size_t *n_values, mr_status *st)
{
    size_t from, to;
    *n_rows = *n_values = 0;
    for (size_t i = 0; i < l->n; i++) {
        const mr__piece *p = &l->v[i];
        const mr__wanted_of *of = &w->v[p->variable];
        if (p->server != server)
            continue;
        rows_in(of, p, &from, &to);
        *n_values += of->is_part ? (to - from) * (p->n / p->rows) : p->n;
        if (json_array_append_new(counts,
                                  json_integer(of->is_part ? (json_int_t)(to - from) : -1)) != 0)
            return mr_fail_memory(st, 0, "a call");
        for (size_t k = from; of->is_part && k < to; k++) {
            uint32_t row = of->rows[k] - (uint32_t)p->first_row;
            memcpy(rows + (*n_rows)++, &row, sizeof row);
        }
    }
    return MR_OK;
}

void mr__wanted_place(const mr__wanted_rows *w, const mr__layout *l, size_t server, float *model,
                      const float *came)
{
    size_t from, to;
    for (size_t i = 0; i < l->n; i++) {
        const mr__piece *p = &l->v[i];
        const mr__wanted_of *of = &w->v[p->variable];
        if (p->server != server)
            continue;
        if (!of->is_part) {
            memcpy(model + p->at, came, p->n * sizeof *came);
            came += p->n;
            continue;
        }
        size_t width = p->n / p->rows;
        rows_in(of, p, &from, &to);
        for (size_t k = from; k < to; k++, came += width)
            memcpy(model + p->at + (of->rows[k] - p->first_row) * width, came,
                   width * sizeof *came);
    }
}
