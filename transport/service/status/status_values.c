/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a report in human-readable form. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/status/status_render.h"

enum { MOST_PAGE = 64 << 20 };

/* ---- texts that grow ---- */

void mr__put_bytes(mr__text *t, const char *s, size_t n)
{
    mr_status st;
    if (t->failed ||
        MR_GROW(t->data, t->capacity, t->n + n + 1, MOST_PAGE, "a status page", &st) != MR_OK) {
        t->failed = true;
        return;
    }
    memcpy(t->data + t->n, s, n);
    t->n += n;
    t->data[t->n] = '\0';
}

void mr__put(mr__text *t, const char *s)
{
    mr__put_bytes(t, s, strlen(s));
}

void mr__put_format(mr__text *t, const char *fmt, ...)
{
    char s[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    mr__put_bytes(t, s, n < 0 ? 0 : (size_t)n < sizeof s ? (size_t)n : sizeof s - 1);
}

/* The bytes of a UTF-8 character at p that changes the text direction, and so could disguise text;
 * 0: none. U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. */
static size_t turns_text(const unsigned char *p)
{
    if (p[0] == 0xd8)
        return p[1] == 0x9c ? 2 : 0;
    if (p[0] != 0xe2)
        return 0;
    bool marks = p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae));
    return marks || (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9) ? 3 : 0;
}

void mr__put_html(mr__text *t, const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        size_t turns = turns_text(p);
        if (turns) {
            mr__put(t, "\xef\xbf\xbd"); /* U+FFFD */
            p += turns - 1;
        } else if (strchr("&<>\"'", *p)) {
            mr__put_format(t, "&#%d;", *p);
        } else if (*p < 0x20 || *p == 0x7f) {
            mr__put_format(t, "\\x%02x", *p);
        } else {
            mr__put_bytes(t, (const char *)p, 1);
        }
    }
}

/* ---- values for people ---- */

/* 12,345,678 */
static void put_grouped(mr__text *t, double v)
{
    char digits[64];
    if (!(fabs(v) < 1e18)) {
        mr__put_format(t, "%g", v);
        return;
    }
    snprintf(digits, sizeof digits, "%.0f", fabs(v));
    size_t n = strlen(digits);
    if (v <= -0.5)
        mr__put(t, "-");
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            mr__put(t, ",");
        mr__put_bytes(t, &digits[i], 1);
    }
}

static void put_bytes_value(mr__text *t, double v)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;
    while (fabs(v) >= 1024 && u < 5) {
        v /= 1024;
        u++;
    }
    mr__put_format(t, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

static void put_duration(mr__text *t, double v)
{
    int64_t s = v > 0 && v < 1e15 ? (int64_t)v : 0;
    if (s < 60)
        mr__put_format(t, "%" PRId64 " s", s);
    else if (s < 3600)
        mr__put_format(t, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
    else if (s < 86400)
        mr__put_format(t, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
    else
        mr__put_format(t, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
}

static void put_time(mr__text *t, double seconds_ago, time_t now)
{
    char s[32] = "?";
    struct tm tm;
    time_t at = now - (time_t)(seconds_ago > 0 && seconds_ago < 1e9 ? seconds_ago : 0);
    if (gmtime_r(&at, &tm))
        strftime(s, sizeof s, seconds_ago < 43200 ? "%H:%M:%S UTC" : "%F %H:%M UTC", &tm);
    mr__put(t, s);
}

static void put_text(mr__text *t, const char *s, bool html)
{
    char visible[1024];
    if (html) {
        mr__put_html(t, s);
        return;
    }
    mr_text_visible(s, false, visible, sizeof visible);
    mr__put(t, visible);
}

void mr__put_value(mr__text *t, const mr__status_field *f, const json_t *row, time_t now, bool html)
{
    const json_t *v = json_object_get(row, f->key);
    double n = json_number_value(v);
    switch (f->kind) {
    case MR__STATUS_TEXT:
        put_text(t, json_is_string(v) && json_string_value(v)[0] ? json_string_value(v) : "-",
                 html);
        break;
    case MR__STATUS_NUMBER:
        put_grouped(t, n);
        break;
    case MR__STATUS_RATE:
        if (n < 9.95 && n >= 0.05)
            mr__put_format(t, "%.1f", n);
        else
            put_grouped(t, n);
        mr__put(t, "/s");
        break;
    case MR__STATUS_RATIO:
        mr__put_format(t, "%.0f %%", n * 100);
        break;
    case MR__STATUS_BYTES:
        put_bytes_value(t, n);
        break;
    case MR__STATUS_DURATION:
        put_duration(t, n);
        break;
    case MR__STATUS_AGO:
        put_time(t, n, now);
        break;
    case MR__STATUS_YES:
        mr__put(t, json_is_true(v) ? "yes" : "no");
        break;
    case MR__STATUS_PROGRESS: {
        double of = json_number_value(json_object_get(row, f->of));
        put_grouped(t, n);
        mr__put(t, " of ");
        put_grouped(t, of);
        if (html && of > 0)
            mr__put_format(t, "<progress max=\"%.0f\" value=\"%.0f\"></progress>", of, n);
        break;
    }
    case MR__STATUS_HISTOGRAM:
        break;
    }
}

bool mr__is_number(const mr__status_field *f)
{
    return f->kind != MR__STATUS_TEXT && f->kind != MR__STATUS_YES && f->kind != MR__STATUS_AGO;
}
