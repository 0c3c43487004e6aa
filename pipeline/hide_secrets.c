/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/hide_secrets.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "pipeline/fnv.h"
#include "pipeline/status.h"

/* Parameters of URLs that are not shown: of Amazon, Google, Azure, Alibaba, Tencent and others. */
static const struct {
    const char *name;
    enum { SECRET, SIGNS, MAY_IDENTIFY } use; /* SIGNS: only signed URLs have it */
} secrets[] = {{"X-Amz-Signature", SIGNS},
               {"X-Goog-Signature", SIGNS},
               {"x-oss-signature", SIGNS},
               {"q-signature", SIGNS},
               {"Signature", SIGNS},
               {"sig", SIGNS},
               {"X-Amz-Credential", SECRET},
               {"X-Amz-Security-Token", SECRET},
               {"X-Goog-Credential", SECRET},
               {"x-oss-credential", SECRET},
               {"x-oss-security-token", SECRET},
               {"x-cos-security-token", SECRET},
               {"AWSAccessKeyId", SECRET},
               {"GoogleAccessId", SECRET},
               {"OSSAccessKeyId", SECRET},
               {"security-token", SECRET},
               {"q-ak", SECRET},
               {"Policy", SECRET},
               {"Key-Pair-Id", SECRET},
               {"token", SECRET},
               {"access_token", SECRET},
               {"api_key", SECRET},
               {"apikey", SECRET},
               {"client_secret", SECRET},
               {"secret", SECRET},
               {"password", SECRET},
               {"authorization", SECRET},
               {"key", MAY_IDENTIFY}};
enum { NONE = -1, N_SECRETS = sizeof secrets / sizeof *secrets };

static int use_of(const char *name, size_t n)
{
    for (size_t i = 0; i < N_SECRETS; i++)
        if (strlen(secrets[i].name) == n && strncasecmp(name, secrets[i].name, n) == 0)
            return (int)secrets[i].use;
    return NONE;
}

/* Replaces text[from, to) by "..." and returns the place after it. room 0: by as many dots. */
static size_t replace(char *text, size_t room, size_t from, size_t to)
{
    if (room == 0) {
        memset(text + from, '.', to - from);
        return to;
    }
    size_t rest = strlen(text + to), left = room - 1 - from;
    size_t dots = left < 3 ? left : 3;
    if (rest > left - dots)
        rest = left - dots;
    memmove(text + from + dots, text + to, rest);
    memcpy(text + from, "...", dots);
    text[from + dots + rest] = '\0';
    return from + dots;
}

/* The bytes of a URL's rest. An apostrophe and a comma may be part of it, or of the sentence. */
static size_t url_size(const char *at)
{
    size_t n = 0;
    while (at[n] && !strchr(" \t\n\"<>", at[n]) &&
           !(at[n] == '\'' && strchr(" \t\n:,;.)]", at[n + 1])))
        n++;
    while (n && strchr(",;", at[n - 1]))
        n--;
    return n;
}

static void hide_query(char *text, size_t room, size_t at, size_t end)
{
    for (; at < end; at++) { /* over '&' or '#' */
        size_t n = strcspn(text + at, "&#"), name;
        n = n < end - at ? n : end - at;
        name = strcspn(text + at, "=");
        if (name + 1 < n && use_of(text + at, name) != NONE) {
            size_t rest = end - (at + n), left;
            at = replace(text, room, at + name + 1, at + n);
            left = strlen(text + at);
            end = at + (rest < left ? rest : left);
        } else
            at += n;
    }
}

void mr__hide_secrets(char *text, size_t room)
{
    size_t at = 0;
    for (const char *found; (found = strstr(text + at, "://"));) {
        at = (size_t)(found - text) + 3;
        size_t authority = strcspn(text + at, "/?#"), user = 0, whole = url_size(text + at);
        authority = authority < whole ? authority : whole;
        for (size_t i = 0; i < authority; i++)
            if (text[at + i] == '@')
                user = i;
        if (user) {
            at = replace(text, room, at, at + user);
            authority -= user;
        }
        size_t n = url_size(text + at);
        const char *query = memchr(text + at, '?', n);
        if (query)
            hide_query(text, room, (size_t)(query - text) + 1, at + n);
        /* A query may have another URL. */
        n = strlen(text + at);
        at += authority < n ? authority : n;
    }
}

/* ---- what is stored ---- */

bool mr__is_signed_query(const char *query)
{
    for (const char *at = query; *at; at += *at == '&') {
        size_t name = strcspn(at, "=&");
        if (at[name] == '=' && use_of(at, name) == SIGNS)
            return true;
        at += strcspn(at, "&");
    }
    return false;
}

static bool is_of_signature(const char *name, size_t n)
{
    static const char *const prefixes[] = {"X-Amz-", "X-Goog-", "x-oss-", "q-"};
    static const char *const names[] = {"Expires", "sv",    "sr",    "se",  "st",  "sp",  "spr",
                                        "sip",     "skoid", "sktid", "skt", "ske", "sks", "skv"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (n > strlen(prefixes[i]) && strncasecmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncasecmp(name, names[i], n) == 0)
            return true;
    return false;
}

uint64_t mr__query_hash(const char *query)
{
    bool is_signed = mr__is_signed_query(query);
    uint64_t h = MR__FNV_BASIS;
    for (const char *at = query; *at; at += *at == '&') {
        size_t n = strcspn(at, "&"), name = strcspn(at, "=&");
        int use = use_of(at, name);
        if ((use == NONE || use == MAY_IDENTIFY) && !(is_signed && is_of_signature(at, name)))
            h = mr__fnv1a(mr__fnv1a(h, at, n), "&", 1);
        at += n;
    }
    return h == MR__FNV_BASIS ? 0 : h;
}

/* A hash in up to 8 digits, cut to n bytes. Returns the place after them. */
static char *put_hash(char *to, uint64_t hash, size_t n)
{
    char digits[9];
    snprintf(digits, sizeof digits, "%08" PRIx32, (uint32_t)hash);
    n = n < 8 ? n : 8;
    memcpy(to, digits + 8 - n, n);
    return to + n;
}

enum { SHORTEST_KEY = 8 }; /* shorter values are numbers and names, and stay apart */

/* "key=value" of n bytes: what is kept of it, at `to`. Returns the place after it. */
static char *keep_parameter(char *to, const char *from, size_t n)
{
    size_t name = 0;
    while (name < n && from[name] != '=')
        name++;
    size_t value = name < n ? n - name - 1 : 0;
    int use = name < n ? use_of(from, name) : NONE;
    if (use == NONE) { /* it may have another URL */
        memmove(to, from, n);
        char after = to[n];
        to[n] = '\0';
        mr_text_drop_secrets(to);
        size_t kept = strlen(to);
        to[n] = after;
        return to + kept;
    }
    if (use == MAY_IDENTIFY && value < SHORTEST_KEY) {
        memmove(to, from, n);
        return to + n;
    }
    uint64_t hash = mr__fnv1a(MR__FNV_BASIS, from + name + 1, value);
    memmove(to, from, name + 1);
    to += name + 1;
    return use == MAY_IDENTIFY ? put_hash(to, hash, value) : to;
}

/* The URL's part after "://", from `at` to `end`: what is kept of it, at `to`. */
static char *keep_url(char *to, char *at, char *end, bool web)
{
    size_t authority = 0;
    while (at + authority < end && !strchr("/?#", at[authority]))
        authority++;
    for (size_t i = authority; i > 0; i--)
        if (at[i - 1] == '@') {
            at += i;
            break;
        }
    char *query = memchr(at, '?', (size_t)(end - at));
    if (!query || !web)
        query = end;
    memmove(to, at, (size_t)(query - at));
    to += query - at;
    if (query == end)
        return to;
    char after = *end;
    *end = '\0';
    bool is_signed = mr__is_signed_query(query + 1);
    uint64_t hash = mr__query_hash(query + 1);
    *end = after;
    if (is_signed && hash)
        *to++ = '?';
    if (is_signed)
        return hash ? put_hash(to, hash, (size_t)(end - query - 1)) : to;
    for (at = query; at < end;) { /* at '?', '&' or '#' */
        size_t n = 1;
        while (at + n < end && at[n] != '&' && at[n] != '#')
            n++;
        *to = *at;
        to = keep_parameter(to + 1, at + 1, n - 1);
        at += n;
    }
    return to;
}

void mr_text_drop_secrets(char *text)
{
    char *to = text, *from = text;
    for (char *at; (at = strstr(from, "://"));) {
        bool web = (at - text >= 4 && memcmp(at - 4, "http", 4) == 0) ||
                   (at - text >= 5 && memcmp(at - 5, "https", 5) == 0);
        at += 3;
        memmove(to, from, (size_t)(at - from));
        to += at - from;
        from = at + url_size(at);
        to = keep_url(to, at, from, web);
    }
    memmove(to, from, strlen(from) + 1);
}
