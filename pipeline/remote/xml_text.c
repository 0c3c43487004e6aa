/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/xml_text.h"

#include <stdlib.h>
#include <string.h>

/* Decodes an entity at `at`; returns its length; 0: another text. */
static size_t entity(const char *at, const char *end, char *out)
{
    static const struct {
        const char *text;
        char c;
    } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].text);
        if ((size_t)(end - at) >= n && memcmp(at, names[i].text, n) == 0) {
            *out = names[i].c;
            return n;
        }
    }
    const char *stop = memchr(at, ';', (size_t)(end - at));
    if (end - at < 4 || at[1] != '#' || !stop || stop - at > 8)
        return 0;
    long v = at[2] == 'x' ? strtol(at + 3, NULL, 16) : strtol(at + 2, NULL, 10);
    if (v <= 0 || v > 127) /* keys are percent-encoded in listings; the rest is text for people */
        return 0;
    *out = (char)v;
    return (size_t)(stop - at) + 1;
}

bool mr__xml_text(const char **at, const char *end, const char *name, char *out, size_t room)
{
    size_t n = strlen(name), used = 0;
    for (const char *p = *at; p && p < end; p++) {
        p = memchr(p, '<', (size_t)(end - p));
        if (!p || (size_t)(end - p) < n + 2)
            return false;
        if (memcmp(p + 1, name, n) != 0 || p[n + 1] != '>')
            continue;
        for (p += n + 2; p < end && *p != '<' && used + 1 < room;) {
            size_t coded = *p == '&' ? entity(p, end, &out[used]) : 0;
            if (!coded)
                out[used] = *p;
            used++;
            p += coded ? coded : 1;
        }
        out[used] = '\0';
        *at = p;
        return p < end;
    }
    return false;
}
