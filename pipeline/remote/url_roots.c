/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/url_roots_internal.h"

#include <string.h>
#include <strings.h>

#include "pipeline/remote/address_scope.h"
#include "pipeline/system/name_scope.h"

enum { MOST_ROOTS = 256, MOST_ROOT = 1024 };

static char roots[MOST_ROOTS][MOST_ROOT];
static size_t n_roots;

MR_API mr_code mr__url_roots_set(const char *const *names, size_t n, mr_status *st)
{
    n_roots = 0;
    for (size_t i = 0; i < n; i++) {
        if (!mr__is_url(names[i]))
            continue;
        const char *host = strstr(names[i], "://") + 3;
        if (n_roots == MOST_ROOTS)
            return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d URLs", MOST_ROOTS);
        if (strcspn(host, "/?#@") == 0 || strpbrk(host, "?#@"))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the root %s is not a prefix of URLs; write scheme://host/path/",
                           names[i]);
        if (strlen(names[i]) >= MOST_ROOT)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the root %.100s... is too long", names[i]);
        strcpy(roots[n_roots++], names[i]);
    }
    return MR_OK;
}

bool mr__url_roots_are_open(void)
{
    return !mr__name_scope_get().of_service;
}

MR_API bool mr__url_roots_allow_address(const struct sockaddr *a)
{
    if (mr__address_is_public(a))
        return true;
    for (size_t i = 0; i < n_roots; i++) {
        const char *host = strstr(roots[i], "://") + 3;
        size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
        if (mr__url_kind_of(roots[i]) == MR__URL_HTTP && mr__address_is_named(a, host, n))
            return true;
    }
    return false;
}

/* A server may take such a path for one outside the prefix. */
static bool leads_up(const char *url)
{
    for (const char *at = url; *at; at++)
        if ((at[0] == '.' && at[1] == '.') || strncasecmp(at, "%2e", 3) == 0 || *at == '\\')
            return true;
    return false;
}

static bool is_below(const char *url)
{
    for (size_t i = 0; i < n_roots; i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(url, roots[i], n) == 0 &&
            (roots[i][n - 1] == '/' || url[n] == '/' || url[n] == '\0'))
            return true;
    }
    return false;
}

mr_code mr__url_roots_check(const char *url, mr_status *st)
{
    if (mr__url_roots_are_open() || (is_below(url) && !leads_up(url)))
        return MR_OK;
    mr_fail(st, MR_PERMISSION_DENIED,
            "a worker of a service reads only URLs below those that its --root names, and this is "
            "not one of them");
    mr_status_at(st, url, -1, -1);
    return MR_PERMISSION_DENIED;
}
