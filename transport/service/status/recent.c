/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/recent.h"

#include <stdio.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/status.h"

const mr__status_field mr__recent_fields[] = {
    {.key = "seconds_ago", .title = "Time", .kind = MR__STATUS_AGO},
    {.key = "level", .title = "Level", .kind = MR__STATUS_TEXT},
    {.key = "event", .title = "Event", .kind = MR__STATUS_TEXT},
    {0}};

void mr__rate_measure(mr__rate *r, uint64_t n, int64_t now)
{
    double seconds = (double)(now - r->at) * 1e-9, known = (double)(now - r->since) * 1e-9;
    if (!r->at) {
        r->since = now;
    } else if (seconds < 1) {
        return;
    } else {
        /* Fewer than before: a position was restored. Values older than about 5 s have little
         * weight. */
        double more = n > r->measured ? (double)(n - r->measured) : 0,
               memory = known < 5 ? known : 5;
        r->per_second +=
            (more / seconds - r->per_second) * (seconds < memory ? seconds / memory : 1);
    }
    r->measured = n;
    r->at = now;
}

void mr__recent_add(mr__recent_lines *r, mr_log_level level, const char *line, int64_t now)
{
    size_t i = r->n++ % MR__RECENT_LINES;
    r->v[i].at = now;
    r->v[i].level = level;
    mr_text_visible(line, false, r->v[i].line, sizeof r->v[i].line);
}

json_t *mr__recent_json(const mr__recent_lines *r, int64_t now)
{
    static const char *const levels[] = {"debug", "info", "warning", "error"};
    json_t *list = json_array();
    for (size_t i = r->n; i > 0 && r->n - i < MR__RECENT_LINES; i--) {
        size_t k = (i - 1) % MR__RECENT_LINES;
        json_array_append_new(
            list, json_pack("{s:f, s:s, s:o}", "seconds_ago", (double)(now - r->v[k].at) * 1e-9,
                            "level", levels[r->v[k].level], "event", mr__json_text(r->v[k].line)));
    }
    return list;
}

json_t *mr__json_text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char visible[512];
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p && n + 5 < sizeof visible; p++)
        n += (size_t)snprintf(visible + n, 5, *p < 0x20 || *p > 0x7e ? "\\x%02x" : "%c", *p);
    return json_string(visible);
}

char *mr__json_print(json_t *j)
{
    char *text = j ? json_dumps(j, 0) : NULL;
    json_decref(j);
    char *own = text ? mr_strdup(text) : NULL;
    json_free_t give = NULL;
    json_get_alloc_funcs(NULL, &give);
    if (text)
        give(text);
    return own;
}
