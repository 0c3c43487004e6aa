/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/status_render.h"

#include <inttypes.h>
#include <string.h>

/* ---- the page ---- */

static void put_figures(mr__text *t, const mr__status_table *table, const json_t *row, time_t now)
{
    mr__put(t, "<dl>\n");
    for (const mr__status_field *f = table->fields; f->key; f++) {
        if (!f->title)
            continue;
        mr__put_format(t, "<div><dt>%s</dt><dd>", f->title);
        mr__put_value(t, f, row, now, true);
        mr__put(t, "</dd></div>\n");
    }
    mr__put(t, "</dl>\n");
}

static void put_table(mr__text *t, const mr__status_table *table, const json_t *rows,
                      int64_t left_out, time_t now)
{
    size_t i;
    json_t *row;
    mr__put_format(t, "<h2>%s</h2>\n", table->title);
    if (json_array_size(rows) == 0) {
        mr__put_format(t, "<p>%s</p>\n", table->none);
        return;
    }
    mr__put(t, "<div class=\"wide\"><table>\n<thead><tr>");
    for (const mr__status_field *f = table->fields; f->key; f++)
        if (f->title)
            mr__put_format(t, "<th scope=\"col\"%s>%s</th>", mr__is_number(f) ? " class=\"n\"" : "",
                           f->title);
    mr__put(t, "</tr></thead>\n<tbody>\n");
    json_array_foreach(rows, i, row)
    {
        mr__put(t, "<tr>");
        for (const mr__status_field *f = table->fields; f->key; f++) {
            if (!f->title)
                continue;
            mr__put(t, mr__is_number(f) ? "<td class=\"n\">" : "<td>");
            mr__put_value(t, f, row, now, true);
            mr__put(t, "</td>");
        }
        mr__put(t, "</tr>\n");
    }
    mr__put(t, "</tbody></table></div>\n");
    if (left_out > 0)
        mr__put_format(t, "<p>and %" PRId64 " more that are not shown</p>\n", left_out);
}

void mr__status_html(mr__text *t, const char *title, const mr__status_table *tables,
                     const json_t *report, double silent_seconds, time_t now)
{
    const json_t *left_out = json_object_get(report, "left_out");
    mr__put(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    mr__put_html(t, title);
    mr__put(t, "</title>\n<link rel=\"icon\" href=\"data:,\">\n"
               "<link rel=\"stylesheet\" href=\"/page.css\">\n"
               "<noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n"
               "<script src=\"/page.js\" defer></script>\n</head>\n<body>\n<h1>");
    mr__put_html(t, title);
    mr__put(t, "</h1>\n<p id=\"away\" class=\"alarm\"></p>\n<main>\n");
    if (silent_seconds > 0)
        mr__put_format(
            t, "<p class=\"alarm\">It has not answered for %.0f s. This page is out of date.</p>\n",
            silent_seconds);
    const json_t *why = json_object_get(json_object_get(report, "status"), "alarm");
    if (json_is_string(why)) {
        mr__put(t, "<p class=\"alarm\">");
        mr__put_html(t, json_string_value(why));
        mr__put(t, "</p>\n");
    }
    for (const mr__status_table *x = tables; x->key; x++) {
        const json_t *rows = json_object_get(report, x->key);
        if (x->title)
            put_table(t, x, rows, json_integer_value(json_object_get(left_out, x->key)), now);
        else
            put_figures(t, x, rows, now);
    }
    mr__put(t, "</main>\n<footer>For programs: <a href=\"/status.json\">status.json</a>, "
               "<a href=\"/metrics\">metrics</a>, <a href=\"/healthz\">healthz</a></footer>\n"
               "</body>\n</html>\n");
}

/* ---- metrics ---- */

/* The value of a label of a metric. */
static void put_label(mr__text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '\n')
            mr__put(t, "\\n");
        else if (*s == '\\' || *s == '"')
            mr__put_format(t, "\\%c", *s);
        else
            mr__put_bytes(t, s, 1);
    }
}

static double metric_value(const mr__status_field *f, const json_t *row)
{
    const json_t *v = json_object_get(row, f->key);
    if (f->kind == MR__STATUS_TEXT)
        return json_is_string(v) && f->of && strcmp(json_string_value(v), f->of) == 0;
    return json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
}

/* {job="7",stream="1"; returns what follows: more labels after it, or the first. */
static const char *put_labels(mr__text *t, const mr__status_table *table, const json_t *row)
{
    const char *separator = "{";
    for (const mr__status_field *l = table->fields; l->key; l++) {
        if (!l->is_label)
            continue;
        const json_t *v = json_object_get(row, l->key);
        mr__put_format(t, "%s%s=\"", separator, l->key);
        if (json_is_integer(v))
            mr__put_format(t, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        else
            put_label(t, json_is_string(v) ? json_string_value(v) : "");
        mr__put(t, "\"");
        separator = ",";
    }
    return separator;
}

static void put_sample(mr__text *t, const mr__status_table *table, const mr__status_field *f,
                       const char *ending, const json_t *row, double value)
{
    mr__put_format(t, "%s%s", f->metric, ending);
    bool labels = *put_labels(t, table, row) == ',';
    mr__put_format(t, "%s %.17g\n", labels ? "}" : "", value);
}

static void put_histogram(mr__text *t, const mr__status_table *table, const mr__status_field *f,
                          const json_t *row)
{
    const json_t *v = json_object_get(row, f->key), *bounds = json_object_get(v, "bounds");
    const json_t *counts = json_object_get(v, "counts");
    double below = 0;
    for (size_t i = 0; i < json_array_size(counts); i++) {
        below += json_number_value(json_array_get(counts, i));
        mr__put_format(t, "%s_bucket", f->metric);
        mr__put_format(t, "%sle=\"", put_labels(t, table, row));
        if (i < json_array_size(bounds))
            mr__put_format(t, "%g", json_number_value(json_array_get(bounds, i)));
        else
            mr__put(t, "+Inf");
        mr__put_format(t, "\"} %.17g\n", below);
    }
    put_sample(t, table, f, "_sum", row, json_number_value(json_object_get(v, "sum")));
    put_sample(t, table, f, "_count", row, below);
}

static void put_metric(mr__text *t, const mr__status_table *table, const mr__status_field *f,
                       const json_t *row)
{
    if (f->kind == MR__STATUS_HISTOGRAM)
        put_histogram(t, table, f, row);
    else
        put_sample(t, table, f, "", row, metric_value(f, row));
}

void mr__status_metrics(mr__text *t, const mr__status_table *tables, const json_t *report)
{
    for (const mr__status_table *x = tables; x->key; x++) {
        const json_t *rows = json_object_get(report, x->key);
        for (const mr__status_field *f = x->fields; f->key; f++) {
            if (!f->metric)
                continue;
            size_t n = strlen(f->metric), i;
            bool counter = n > 6 && strcmp(f->metric + n - 6, "_total") == 0;
            const char *type = f->kind == MR__STATUS_HISTOGRAM ? "histogram"
                               : counter                       ? "counter"
                                                               : "gauge";
            json_t *row;
            mr__put_format(t, "# HELP %s %s\n# TYPE %s %s\n", f->metric, f->help, f->metric, type);
            if (json_is_object(rows))
                put_metric(t, x, f, rows);
            json_array_foreach(rows, i, row) put_metric(t, x, f, row);
        }
    }
}
