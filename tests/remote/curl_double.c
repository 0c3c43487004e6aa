/* SPDX-License-Identifier: Apache-2.0 */
/* A double of libcurl, for faults.py: every function is the real library's, except for the one call
 * that is to fail. It is found by its name, libcurl.so.4, in LD_LIBRARY_PATH; preloaded, it also
 * takes the place of the system's resolver, which then never answers.
 *
 *     MR_CURL_REAL    path of the real library
 *     MR_CURL_FAILS   NAME:N  the N-th call of that function fails; NAME:N+ and all later ones
 *     MR_CURL_FAILED  a file that is made when a call failed */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt
#define SEEN __attribute__((visibility("default")))

static void *real(const char *name)
{
    static void *library;
    if (!library && !(library = dlopen(getenv("MR_CURL_REAL"), RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "curl_double: %s\n", dlerror());
        abort();
    }
    return dlsym(library, name);
}

static bool fails(const char *name)
{
    static atomic_long calls;
    const char *plan = getenv("MR_CURL_FAILS");
    size_t n = strlen(name);
    if (!plan || strncmp(plan, name, n) != 0 || plan[n] != ':')
        return false;
    char *end;
    long call = atomic_fetch_add(&calls, 1) + 1, wanted = strtol(plan + n + 1, &end, 10);
    if (call != wanted && !(*end == '+' && call > wanted))
        return false;
    close(open(getenv("MR_CURL_FAILED"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return true;
}

/* A function with fixed parameters; `bad` is what it returns when it fails. */
#define DOUBLE(type, name, parameters, arguments, bad)                                             \
    SEEN type name parameters                                                                      \
    {                                                                                              \
        static type(*f) parameters;                                                                \
        if (!f)                                                                                    \
            *(void **)&f = real(#name);                                                            \
        if (fails(#name))                                                                          \
            return bad;                                                                            \
        return f arguments;                                                                        \
    }
/* A function with two parameters and a third of any type, all of which a register holds. */
#define DOUBLE_ANY(type, name, handle, option, bad)                                                \
    SEEN type name(handle *h, option o, ...)                                                       \
    {                                                                                              \
        static type (*f)(handle *, option, ...);                                                   \
        va_list list;                                                                              \
        va_start(list, o);                                                                         \
        void *v = va_arg(list, void *);                                                            \
        va_end(list);                                                                              \
        if (!f)                                                                                    \
            *(void **)&f = real(#name);                                                            \
        if (fails(#name))                                                                          \
            return bad;                                                                            \
        return f(h, o, v);                                                                         \
    }

DOUBLE(CURLcode, curl_global_init, (long flags), (flags), CURLE_OUT_OF_MEMORY)
DOUBLE(CURLM *, curl_multi_init, (void), (), NULL)
DOUBLE_ANY(CURLMcode, curl_multi_setopt, CURLM, CURLMoption, CURLM_UNKNOWN_OPTION)
DOUBLE(CURLMcode, curl_multi_add_handle, (CURLM * m, CURL *e), (m, e), CURLM_OUT_OF_MEMORY)
DOUBLE(CURLMcode, curl_multi_remove_handle, (CURLM * m, CURL *e), (m, e), CURLM_BAD_EASY_HANDLE)
DOUBLE(CURLMcode, curl_multi_perform, (CURLM * m, int *running), (m, running), CURLM_OUT_OF_MEMORY)
DOUBLE(CURLMcode, curl_multi_poll,
       (CURLM * m, struct curl_waitfd *v, unsigned n, int ms, int *ready), (m, v, n, ms, ready),
       CURLM_OUT_OF_MEMORY)
DOUBLE(CURLMcode, curl_multi_wakeup, (CURLM * m), (m), CURLM_WAKEUP_FAILURE)
DOUBLE(CURLMsg *, curl_multi_info_read, (CURLM * m, int *left), (m, left), NULL)
DOUBLE(const char *, curl_multi_strerror, (CURLMcode rc), (rc), "")
DOUBLE(CURLMcode, curl_multi_cleanup, (CURLM * m), (m), CURLM_BAD_HANDLE)
DOUBLE(CURL *, curl_easy_init, (void), (), NULL)
DOUBLE_ANY(CURLcode, curl_easy_setopt, CURL, CURLoption, CURLE_OUT_OF_MEMORY)
DOUBLE_ANY(CURLcode, curl_easy_getinfo, CURL, CURLINFO, CURLE_UNKNOWN_OPTION)
DOUBLE(CURLcode, curl_easy_pause, (CURL * e, int mask), (e, mask), CURLE_OUT_OF_MEMORY)
DOUBLE(const char *, curl_easy_strerror, (CURLcode rc), (rc), "")
DOUBLE(struct curl_slist *, curl_slist_append, (struct curl_slist * l, const char *s), (l, s), NULL)

SEEN void curl_easy_cleanup(CURL *e)
{
    static void (*f)(CURL *);
    if (!f)
        *(void **)&f = real("curl_easy_cleanup");
    f(e);
}

SEEN void curl_slist_free_all(struct curl_slist *l)
{
    static void (*f)(struct curl_slist *);
    if (!f)
        *(void **)&f = real("curl_slist_free_all");
    f(l);
}

SEEN int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                     struct addrinfo **out)
{
    (void)host, (void)port, (void)hints, (void)out;
    for (;;)
        pause();
}
