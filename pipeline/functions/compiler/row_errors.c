/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of rows while an expression runs: the row, the place in the expression, and the file and
 * record that the bytes came from. Also helpers of functions for rows that failed. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

void mr__sink_free(mr_row_sink *sink)
{
    mr_row_errors_reset(&sink->errors);
    mr_free(sink->bad);
    sink->bad = NULL;
}

void mr__row_failed(mr_row_sink *sink, size_t row, const mr_status *e)
{
    if (!sink->n_rows)
        return;
    size_t at = sink->rows ? sink->rows[sink->base + row] : sink->base + row;
    if (!sink->bad && !(sink->bad = mr_calloc(sink->n_rows, sizeof *sink->bad))) {
        sink->out_of_memory = true;
        return;
    }
    if (sink->bad[at])
        return;
    sink->bad[at] = true;
    if (mr_row_errors_add(&sink->errors, at, e, NULL) != MR_OK)
        sink->out_of_memory = true;
}

/* Advances over s[*at], in strings and comments too. Returns the character to show, a space for
 * any white space, or \0 for characters not shown. */
static char next_shown(const char *s, size_t *at, signed char *quote)
{
    char c = s[(*at)++];
    if (*quote < 0) { /* after a backslash */
        *quote = (signed char)-*quote;
        return c;
    }
    if (*quote) {
        *quote = c == *quote ? 0 : c == '\\' ? (signed char)-*quote : *quote;
        return c;
    }
    if (c == '#') {
        while (s[*at] && s[*at] != '\n')
            ++*at;
        return '\0';
    }
    if (c == '"' || c == '\'')
        *quote = (signed char)c;
    return c == '\n' || c == '\t' || c == '\r' ? ' ' : c;
}

/* e's text from its source. Brackets around the left operand begin before it, and are searched
 * for. Allocates nothing, so that messages do not depend on the available memory. */
static void show_expr(const mr_expr *e, char *out, size_t size)
{
    size_t all, begin = e->begin, n = 0, closed = 0, open = 0;
    const char *s = mr_expr_source(e, &all);
    signed char quote = 0;
    for (size_t at = begin; at < e->end;) {
        bool outside = !quote;
        char c = next_shown(s, &at, &quote);
        if (outside && strchr("([{", c) && c)
            open++;
        else if (outside && c && strchr(")]}", c) && open)
            open--;
        else if (outside && c && strchr(")]}", c))
            closed++;
    }
    for (; closed && begin > 0; closed--)
        for (begin--; begin > 0 && s[begin] != '(';)
            begin--;
    quote = 0;
    for (size_t at = begin; at < e->end && n + 4 < size;) {
        char c = next_shown(s, &at, &quote);
        if (c && !(c == ' ' && !quote && n && out[n - 1] == ' '))
            out[n++] = c;
        if (n + 4 == size && at < e->end) {
            memcpy(out + n, "...", 3);
            n += 3;
        }
    }
    out[n] = '\0';
}

/* " in 10 // x": the text of the expression being evaluated, kept for the next row that fails
 * there. */
static const char *place_of(mr_row_sink *sink)
{
    if (sink->e && sink->e != sink->shown) {
        memcpy(sink->place, " in ", 4);
        show_expr(sink->e, sink->place + 4, sizeof sink->place - 4);
        sink->shown = sink->e;
    }
    return sink->place;
}

static void fail_row(const mr_rows *r, size_t row, const mr_bytes *cause, const mr_buffer *owner,
                     mr_code code, const char *fmt, va_list ap)
{
    char text[512];
    mr_status e;
    vsnprintf(text, sizeof text, fmt, ap);
    mr_fail(&e, code, "%s%s", text, place_of(r->errors));
    if (cause)
        mr_buffer_locate(owner, cause->data, &e);
    mr__row_failed(r->errors, row, &e);
}

void mr_row_fail(const mr_rows *r, size_t row, mr_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_row(r, row, NULL, NULL, code, fmt, ap);
    va_end(ap);
}

void mr_row_fail_at(const mr_rows *r, size_t row, size_t i, size_t value, mr_code code,
                    const char *fmt, ...)
{
    const mr_array *a = &r->in[i];
    const mr_bytes *v = mr_array_at(a, r->constant[i] ? 0 : row);
    va_list ap;
    va_start(ap, fmt);
    fail_row(r, row, a->dtype == MR_STRING ? v + value : NULL, a->owner, code, fmt, ap);
    va_end(ap);
}

void mr__rows_name_place(const mr_rows *r, mr_status *st)
{
    size_t n = strlen(st->message);
    snprintf(st->message + n, sizeof st->message - n, "%s", place_of(r->errors));
}

void mr__fail_all(const mr_rows *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t row = 0; row < r->rows; row++)
        mr_row_fail(r, row, MR_INVALID_ARGUMENT, "%s", text);
}

/* ---- rows that are lost, or repeated ---- */

mr_code mr__any_value(mr_dtype t, size_t rows, mr_array *out, mr_status *st)
{
    MR_TRY(mr_array_alloc(out, t, 0, NULL, rows, st));
    memset(out->data, 0, rows * mr_dtype_size(t));
    return MR_OK;
}

mr_code mr__repeat_row(mr_array *a, size_t rows, mr_status *st)
{
    uint32_t zeros[256] = {0};
    mr_array wide;
    MR_TRY(mr_array_start(&wide, a, rows, st));
    mr_code rc = MR_OK;
    for (size_t done = 0; done < rows && rc == MR_OK; done += 256)
        rc = mr_array_append_rows(&wide, a, zeros, rows - done < 256 ? rows - done : 256, st);
    if (rc != MR_OK) {
        mr_array_reset(&wide);
        return rc;
    }
    mr_array_reset(a);
    *a = wide;
    return MR_OK;
}

bool mr__rows_shape(const mr_rows *r, size_t i, bool one_free, int *rank, int64_t *shape)
{
    const mr_array *a = &r->in[i];
    size_t n = mr_array_row_values(a);
    int n_free = 0;
    if (n > MR_MAX_RANK) {
        mr__fail_all(r, "a shape has %zu axes; at most %d are possible", n, MR_MAX_RANK);
        return false;
    }
    *rank = (int)n;
    for (size_t d = 0; d < n; d++) {
        shape[d] = mr__int_at(a, d);
        n_free += shape[d] == -1;
        if (shape[d] >= 0 || (one_free && shape[d] == -1 && n_free == 1))
            continue;
        mr__fail_all(r, "axis %zu of a shape is %" PRId64 "; %s", d, shape[d],
                     one_free ? "only one may be negative, as -1" : "none may be negative");
        return false;
    }
    return true;
}
