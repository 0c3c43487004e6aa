/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/events.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text. */
struct text {
    char *p;
    size_t n, room;
};

static void *need(void *p)
{
    if (!p) {
        fputs("the test itself has no memory\n", stderr);
        abort();
    }
    return p;
}

static void put(struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * t->room + n + 64;
        t->p = need(realloc(t->p, t->room));
    }
    if (n)
        memcpy(t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void say(struct text *t, const char *fmt, ...) MR_PRINTF(2, 3);
static void say(struct text *t, const char *fmt, ...)
{
    char piece[64];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(piece, sizeof piece, fmt, ap);
    va_end(ap);
    put(t, piece, (size_t)n);
}

static void put_string(struct text *t, const mr_bytes *b)
{
    put(t, "\"", 1);
    for (size_t i = 0; i < b->size; i++) {
        if (b->data[i] == '"' || b->data[i] == '\\')
            put(t, "\\", 1);
        put(t, b->data + i, 1);
    }
    put(t, "\"", 1);
}

static void put_dataset(struct text *t, mr_dataset *ds)
{
    mr_iterator *it = NULL;
    mr_events inner = {0};
    mr_status st;
    mr_code rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st);
    if (rc == MR_OK)
        mr_events_run(&inner, it, 2, SIZE_MAX);
    else
        mr_events_add(&inner, "!", 1);
    mr_iterator_close(it);
    put(t, "{", 1);
    for (size_t i = 0; i < inner.n; i++) {
        put(t, ",", i > 0);
        put(t, inner.v[i].text, inner.v[i].text[0] == '!' ? 1 : strlen(inner.v[i].text));
    }
    put(t, "}", 1);
    mr_events_reset(&inner, 0);
}

static void put_value(struct text *t, mr_dtype type, const void *values, size_t i)
{
    const char *at = (const char *)values + i * mr_dtype_size(type);
    switch (type) {
    case MR_INT64:
        say(t, "%" PRId64, *(const int64_t *)at);
        break;
    case MR_UINT8:
        say(t, "%d", *(const uint8_t *)at);
        break;
    case MR_FLOAT32:
        say(t, "%.9g", (double)*(const float *)at);
        break;
    case MR_FLOAT64:
        say(t, "%.17g", *(const double *)at);
        break;
    case MR_BOOL:
        say(t, "%s", *(const bool *)at ? "true" : "false");
        break;
    case MR_STRING:
        put_string(t, (const mr_bytes *)at);
        break;
    case MR_DATASET:
        put_dataset(t, *(mr_dataset *const *)at);
        break;
    default:
        say(t, "?%s", mr_dtype_name(type));
    }
}

/* Values from *at on, in nested brackets. splits: of axis 1, if it is ragged. */
static void put_tensor(struct text *t, mr_dtype type, const void *values, int rank,
                       const int64_t *shape, const int64_t *splits, size_t *at)
{
    if (rank == 0) {
        put_value(t, type, values, (*at)++);
        return;
    }
    put(t, "[", 1);
    for (int64_t i = 0; i < shape[0]; i++) {
        int64_t inner[MR_MAX_RANK];
        memcpy(inner, shape + 1, (size_t)(rank - 1) * sizeof *inner);
        if (splits)
            inner[0] = splits[i + 1] - splits[i];
        put(t, ",", i > 0);
        put_tensor(t, type, values, rank - 1, inner, NULL, at);
    }
    put(t, "]", 1);
}

static void put_row(struct text *t, const mr_block *b, size_t r)
{
    put(t, "(", b->n_columns != 1);
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *col = &b->columns[c];
        size_t at = 0;
        put(t, ",", c > 0);
        if (col->rows != b->rows)
            say(t, "?%zu rows in a block of %zu", col->rows, b->rows);
        else if (col->storage == MR_RAGGED) {
            const mr_row *row = (const mr_row *)col->data + r;
            put_tensor(t, col->dtype, row->data, col->rank, row->shape, row->splits, &at);
        } else
            put_tensor(t, col->dtype, mr_array_at(col, r), col->rank, col->shape, NULL, &at);
    }
    put(t, ")", b->n_columns != 1);
}

static mr_event *add(mr_events *e, char *text)
{
    if (e->n == e->room) {
        e->room = 2 * e->room + 16;
        e->v = need(realloc(e->v, e->room * sizeof *e->v));
    }
    e->v[e->n] = (mr_event){text, NULL, 0};
    return &e->v[e->n++];
}

void mr_events_add(mr_events *e, const char *text, size_t size)
{
    struct text t = {0};
    put(&t, text, size);
    add(e, t.p);
}

static void add_row(mr_events *e, const mr_block *b, size_t r)
{
    struct text t = {0};
    put_row(&t, b, r);
    mr_event *event = add(e, t.p);
    if (!b->ids.ids)
        return;
    uint64_t from = b->ids.offsets ? b->ids.offsets[r] : r;
    uint64_t to = b->ids.offsets ? b->ids.offsets[r + 1] : r + 1;
    event->n_ids = (size_t)(to - from);
    event->ids = need(malloc(event->n_ids * sizeof *event->ids + 1));
    if (event->n_ids)
        memcpy(event->ids, b->ids.ids + from, event->n_ids * sizeof *event->ids);
}

static void add_error(mr_events *e)
{
    char line[1400] = "!";
    mr_status_format(&e->error, line + 1, sizeof line - 1);
    for (char *p = line; *p; p++)
        if (*p == ' ')
            *p = '_';
    if (!e->error.message[0])
        snprintf(line, sizeof line, "?an error without a message");
    mr_events_add(e, line, strlen(line));
}

void mr_events_block(mr_events *e, const mr_block *b)
{
    for (size_t r = 0; r < b->rows; r++)
        add_row(e, b, r);
}

mr_code mr_events_pull(mr_events *e, mr_iterator *it, size_t want, mr_block *b)
{
    mr_code rc = mr_iterator_next(it, want, b, &e->error);
    if (rc == MR_OK && (b->rows < 1 || b->rows > want))
        mr_events_add(e, "?more rows than wanted, or none", 31);
    else if (rc == MR_OK)
        mr_events_block(e, b);
    else if (rc < 0)
        add_error(e);
    e->no_memory = rc == MR_RESOURCE_EXHAUSTED;
    return rc;
}

mr_code mr_events_at(mr_events *e, mr_random_access *ra, const int64_t *index, size_t n,
                     mr_block *b)
{
    mr_code rc = mr_random_access_at(ra, index, n, b, &e->error);
    if (rc == MR_OK && (b->rows < 1 || b->rows > n))
        mr_events_add(e, "?more rows than wanted, or none", 31);
    else if (rc == MR_OK)
        mr_events_block(e, b);
    else if (rc < 0)
        add_error(e);
    return rc;
}

void mr_events_run(mr_events *e, mr_iterator *it, size_t want, size_t most)
{
    mr_block b = MR_BLOCK_EMPTY;
    while (e->n < most)
        if (mr_events_pull(e, it, most - e->n < want ? most - e->n : want, &b) == MR_END)
            break;
    mr_block_reset(&b);
}

void mr_events_copy(mr_events *e, const mr_events *from, size_t n)
{
    for (size_t i = 0; i < n && i < from->n; i++)
        mr_events_add(e, from->v[i].text, strlen(from->v[i].text));
}

void mr_events_split(mr_events *e, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, " ");
        if (n)
            mr_events_add(e, list, n);
        list += n + (list[n] == ' ');
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const mr_event *)a)->text, ((const mr_event *)b)->text);
}

void mr_events_sort(mr_events *e)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->v[i].text[0] == '!')
            e->v[i].text[1] = '\0';
    if (e->n)
        qsort(e->v, e->n, sizeof *e->v, by_text);
}

char *mr_events_join(const mr_events *e)
{
    struct text t = {0};
    put(&t, "", 0);
    for (size_t i = 0; i < e->n; i++) {
        put(&t, " ", i > 0);
        put(&t, e->v[i].text, strlen(e->v[i].text));
    }
    return t.p;
}

void mr_events_reset(mr_events *e, size_t from)
{
    while (e->n > from) {
        e->n--;
        free(e->v[e->n].text);
        free(e->v[e->n].ids);
    }
    if (from)
        return;
    free(e->v);
    e->v = NULL;
    e->room = 0;
}

/* Does a number with a point or an exponent (or inf, nan) begin here? Its length, or 0. */
static size_t real_at(const char *s, double *value)
{
    char *end;
    *value = strtod(s, &end);
    size_t n = (size_t)(end - s);
    return n && (s[strcspn(s, ".eEni")] != '\0') && strcspn(s, ".eEni") < n ? n : 0;
}

bool mr_event_is(const char *got, const char *wanted)
{
    if (wanted[0] == '!')
        return got[0] == '!' && strstr(got + 1, wanted + 1) != NULL;
    if (strcmp(got, wanted) == 0)
        return true;
    bool quoted = false, fresh = true;
    while (*got && *wanted) {
        double a, b;
        size_t n = 0, m = 0;
        if (!quoted && fresh) {
            n = real_at(got, &a);
            m = real_at(wanted, &b);
            /* One of them may have been printed without a point. */
            if (n && !m)
                m = strspn(wanted, "-0123456789"), b = strtod(wanted, NULL);
            else if (m && !n)
                n = strspn(got, "-0123456789"), a = strtod(got, NULL);
        }
        if (n && m) {
            double d = fabs(a - b);
            if (!(a == b || d <= 1e-6 || d <= 1e-6 * fabs(b) || (isnan(a) && isnan(b))))
                return false;
            got += n;
            wanted += m;
            fresh = false;
            continue;
        }
        if (*got != *wanted)
            return false;
        if (quoted && *got == '\\' && got[1] && got[1] == wanted[1]) {
            got += 2;
            wanted += 2;
            continue;
        }
        quoted = *got == '"' ? !quoted : quoted;
        fresh = strchr("[(,{", *got) != NULL;
        got++;
        wanted++;
    }
    return *got == *wanted;
}
