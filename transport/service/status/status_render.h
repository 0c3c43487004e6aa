/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_STATUS_RENDER_H
#define MR_TRANSPORT_SERVICE_STATUS_STATUS_RENDER_H
/* A report as HTML, as text, and as Prometheus metrics. */
#include <jansson.h>
#include <time.h>
#include "transport/service/status/status_page.h"

/* A growing text; if memory runs out, it no longer changes and `failed` is set. */
typedef struct mr__text {
    char *data; /* owned; NULL: empty */
    size_t n, capacity;
    bool failed;
} mr__text;

void mr__put(mr__text *t, const char *s);
void mr__put_bytes(mr__text *t, const char *s, size_t n);
/* For short trusted texts: untrusted text goes through mr__put_html or mr__put_value. */
void mr__put_format(mr__text *t, const char *fmt, ...) MR_PRINTF(2, 3);
/* Untrusted text, escaped for a page, also within quotes. */
void mr__put_html(mr__text *t, const char *s);
/* The value of f in row, as HTML or as text for a terminal. */
void mr__put_value(mr__text *t, const mr__status_field *f, const json_t *row, time_t now,
                   bool html);
/* True for a column of numbers, which are aligned at their end. */
bool mr__is_number(const mr__status_field *f);

/* The page for people. silent_seconds: how long the daemon has not answered; 0: it answers. */
void mr__status_html(mr__text *out, const char *title, const mr__status_table *tables,
                     const json_t *report, double silent_seconds, time_t now);
/* The tables of the report as text, cut to `lines` lines and `columns` columns (0: not cut). */
void mr__status_text(mr__text *out, const mr__status_table *tables, const json_t *report,
                     size_t lines, size_t columns, time_t now);
void mr__status_metrics(mr__text *out, const mr__status_table *tables, const json_t *report);

/* The page's style sheet and script. */
extern const char mr__status_css[], mr__status_js[];
#endif
