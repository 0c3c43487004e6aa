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
