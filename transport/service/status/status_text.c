/* SPDX-License-Identifier: Apache-2.0 */
/* A report as text for a terminal. */
#include <ctype.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/status/status_render.h"

enum { MOST_FIELDS = 16 };

/* Columns of a terminal that s takes: characters of UTF-8. */
static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* A line, cut to its columns. */
static void put_line(mr__text *t, const char *s, size_t columns)
{
    size_t n = 0, end = 0;
    while (s[end] && (!columns || (s[end] & 0xc0) == 0x80 || n < columns))
        n += (s[end++] & 0xc0) != 0x80;
    while (end > 0 && s[end - 1] == ' ')
        end--;
    mr__put_bytes(t, s, end);
    mr__put(t, "\n");
}

static void put_cell(mr__text *line, const char *s, size_t width, bool at_end)
{
    size_t n = width_of(s);
    for (; at_end && n < width; n++)
        mr__put(line, " ");
    mr__put(line, s);
    for (; n < width; n++)
        mr__put(line, " ");
    mr__put(line, "  ");
}

/* The value of f in row (NULL: its title in capitals) in out. */
static const char *cell(mr__text *out, const mr__status_field *f, const json_t *row, time_t now)
{
    out->n = 0;
    if (row)
        mr__put_value(out, f, row, now, false);
    for (const char *s = row ? "" : f->title; *s; s++)
        mr__put_bytes(out, &(char){(char)toupper((unsigned char)*s)}, 1);
    return out->n && !out->failed ? out->data : "";
}

static void put_rows(mr__text *t, const mr__status_table *table, const json_t *rows, size_t most,
                     size_t columns, time_t now)
{
    size_t width[MOST_FIELDS] = {0},
           n = json_array_size(rows) < most ? json_array_size(rows) : most;
    mr__text text = {0}, line = {0};
    /* Twice: the widths, then the rows; -1 is the title. */
    for (int print = 0; print < 2; print++)
        for (size_t i = 0; i <= n; i++) {
            const json_t *row = i ? json_array_get(rows, i - 1) : NULL;
            size_t c = 0;
            line.n = 0;
            for (const mr__status_field *f = table->fields; f->key && c < MOST_FIELDS; f++) {
                if (!f->title)
                    continue;
                const char *s = cell(&text, f, row, now);
                if (print)
                    put_cell(&line, s, width[c], mr__is_number(f));
                else if (width_of(s) > width[c])
                    width[c] = width_of(s);
                c++;
            }
            if (print && line.n && !line.failed)
                put_line(t, line.data, columns);
        }
    t->failed = t->failed || text.failed || line.failed;
    mr_free(text.data);
    mr_free(line.data);
}

void mr__status_text(mr__text *t, const mr__status_table *tables, const json_t *report,
                     size_t lines, size_t columns, time_t now)
{
    const json_t *left_out = json_object_get(report, "left_out");
    size_t left = 0;
    for (const mr__status_table *x = tables; x->key; x++)
        left += x->title != NULL;
    /* Of each table: an empty line, the titles, and how many are left out. */
    size_t room = lines > 4 * left ? lines - 3 * left : left;
    for (const mr__status_table *x = tables; x->key; x++) {
        if (!x->title)
            continue;
        const json_t *rows = json_object_get(report, x->key);
        size_t n = json_array_size(rows), most = lines ? room / left-- : n;
        size_t more = (size_t)json_integer_value(json_object_get(left_out, x->key));
        mr__put(t, "\n");
        if (n == 0) {
            put_line(t, x->none, columns);
            continue;
        }
        put_rows(t, x, rows, most, columns, now);
        more += n > most ? n - most : 0;
        room -= n < most ? n : most;
        if (more)
            mr__put_format(t, "and %zu more\n", more);
    }
}
