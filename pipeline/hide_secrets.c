/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/hide_secrets.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Parameters of signed URLs of Amazon, Google, Azure and CloudFront. */
static const char *const secrets[] = {"X-Amz-Signature",
                                      "X-Amz-Credential",
                                      "X-Amz-Security-Token",
                                      "X-Goog-Signature",
                                      "X-Goog-Credential",
                                      "Signature",
                                      "AWSAccessKeyId",
                                      "GoogleAccessId",
                                      "Policy",
                                      "Key-Pair-Id",
                                      "sig",
                                      "token",
                                      "access_token",
                                      "api_key",
                                      "key",
                                      "password"};

static bool is_secret(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        if (strlen(secrets[i]) == n && strncasecmp(name, secrets[i], n) == 0)
            return true;
    return false;
}

/* Replaces text[from, to) by "..." and returns the place after it. */
static size_t replace(char *text, size_t room, size_t from, size_t to)
{
    size_t rest = strlen(text + to), left = room - 1 - from;
    size_t dots = left < 3 ? left : 3;
    if (rest > left - dots)
        rest = left - dots;
    memmove(text + from + dots, text + to, rest);
    memcpy(text + from, "...", dots);
    text[from + dots + rest] = '\0';
    return from + dots;
}

static size_t url_size(const char *at)
{
    return strcspn(at, " \t\n\"'<>,;");
}

static size_t hide_query(char *text, size_t room, size_t at)
{
    for (;;) {
        size_t name = strcspn(text + at, "=&# \t\n\"'<>,;");
        if (text[at + name] == '=') {
            size_t value = at + name + 1, n = strcspn(text + value, "&# \t\n\"'<>,;");
            bool hide = n > 0 && is_secret(text + at, name);
            at = hide ? replace(text, room, value, value + n) : value + n;
        } else
            at += name;
        if (text[at] != '&')
            return at;
        at++;
    }
}

void mr__hide_secrets(char *text, size_t room)
{
    size_t at = 0;
    for (const char *found; (found = strstr(text + at, "://"));) {
        at = (size_t)(found - text) + 3;
        size_t authority = strcspn(text + at, "/?# \t\n\"'<>,;"), user = 0;
        for (size_t i = 0; i < authority; i++)
            if (text[at + i] == '@')
                user = i;
        if (user)
            at = replace(text, room, at, at + user);
        size_t n = url_size(text + at);
        const char *query = memchr(text + at, '?', n);
        at = query ? hide_query(text, room, (size_t)(query - text) + 1) : at + n;
    }
}

static bool is_signed(const char *query, size_t n)
{
    static const char *const names[] = {
        "X-Amz-Signature=", "X-Goog-Signature=", "Signature=", "sig="};
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncasecmp(query + at, names[i], strlen(names[i])) == 0)
                return true;
        while (at < n && query[at] != '&')
            at++;
    }
    return false;
}

bool mr__is_signed_query(const char *query)
{
    return is_signed(query, strlen(query));
}

void mr__drop_signed_queries(char *text)
{
    for (char *at = text; (at = strstr(at, "://"));) {
        bool web = (at - text >= 4 && memcmp(at - 4, "http", 4) == 0) ||
                   (at - text >= 5 && memcmp(at - 5, "https", 5) == 0);
        at += 3;
        size_t n = strcspn(at, " \t\n\"'<>");
        char *query = web ? memchr(at, '?', n) : NULL;
        if (query && is_signed(query + 1, (size_t)(at + n - query - 1))) {
            memmove(query, at + n, strlen(at + n) + 1);
            at = query;
        } else
            at += n;
    }
}
