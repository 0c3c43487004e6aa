/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "pipeline/system/system.h"

enum { BACKLOG = 1024 };

static mr_code resolve_local(const char *name, mr__address *out, mr_status *st)
{
    struct sockaddr_un *u = (struct sockaddr_un *)&out->to;
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof u->sun_path)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the name of a local socket has 1 to %zu characters, not %zu",
                       sizeof u->sun_path - 1, n);
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path + 1, name, n); /* an abstract name begins with a zero byte */
    out->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    snprintf(out->text, sizeof out->text, "@%s", name);
    return MR_OK;
}

/* Splits "host:port" at the last colon; removes brackets around an IPv6 address. */
static mr_code split(const char *text, char *host, size_t size, const char **port, mr_status *st)
{
    *port = "";
    const char *colon = strrchr(text, ':'), *from = text, *slashes = strstr(text, "://");
    size_t n = colon ? (size_t)(colon - text) : 0;
    char *end = NULL;
    long number = colon && colon[1] ? strtol(colon + 1, &end, 10) : -1;
    if (n && text[0] == '[' && text[n - 1] == ']') {
        from++;
        n -= 2;
    } else if (n && memchr(text, ':', n)) {
        n = 0; /* an IPv6 address without brackets */
    }
    if (n == 0 || n >= size || number < 0 || number > 65535 || *end || colon[1] < '0' ||
        colon[1] > '9')
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an address is host:port or [IPv6]:port with a port from 0 to 65535, not "
                       "\"%.100s\"%s%.*s",
                       text, slashes ? "; leave out " : "", slashes ? (int)(slashes + 3 - text) : 0,
                       text);
    memcpy(host, from, n);
    host[n] = '\0';
    *port = colon + 1;
    return MR_OK;
}

/* An address in figures. getaddrinfo has locks, and a process that was forked while another thread
 * held them waits for them without end. */
static bool read_figures(const char *host, const char *port, mr__address *out)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    v4.sin_port = v6.sin6_port = htons((uint16_t)strtol(port, NULL, 10));
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        mr__address_of((const struct sockaddr *)&v4, sizeof v4, out);
    else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1)
        mr__address_of((const struct sockaddr *)&v6, sizeof v6, out);
    else
        return false;
    memcpy(out->host, host, strlen(host) + 1);
    return true;
}

mr_code mr__address_resolve(const char *text, mr__address *out, mr_status *st)
{
    char host[256];
    const char *port;
    mr__address a = {0};
    if (text[0] == '@') {
        MR_TRY(resolve_local(text + 1, &a, st));
        *out = a;
        return MR_OK;
    }
    MR_TRY(split(text, host, sizeof host, &port, st));
    if (read_figures(host, port, out))
        return MR_OK;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc == EAI_NONAME || rc == EAI_ADDRFAMILY) { /* a numeric address needs no interface */
        hints.ai_flags = AI_NUMERICHOST;
        rc = getaddrinfo(host, port, &hints, &list);
    }
    if (rc != 0) {
        mr_code code = rc == EAI_MEMORY                      ? MR_RESOURCE_EXHAUSTED
                       : rc == EAI_AGAIN || rc == EAI_SYSTEM ? MR_UNAVAILABLE
                                                             : MR_NOT_FOUND;
        return mr_fail(st, code, "cannot look up the host \"%.100s\": %s", host, gai_strerror(rc));
    }
    mr__address_of(list->ai_addr, list->ai_addrlen, out);
    memcpy(out->host, host, sizeof out->host);
    freeaddrinfo(list);
    return MR_OK;
}

mr_code mr__address_check_form(const char *text, mr_status *st)
{
    char host[256];
    const char *port;
    mr__address a;
    if (text[0] == '@')
        return resolve_local(text + 1, &a, st);
    return split(text, host, sizeof host, &port, st);
}

mr_code mr__address_check(const char *text, mr_status *st)
{
    MR_TRY(mr__address_check_form(text, st));
    if (text[0] != '@' && strtol(strrchr(text, ':') + 1, NULL, 10) == 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "cannot connect to port 0 of \"%.100s\"; use the port in the service's \"ready\" line",
            text);
    return MR_OK;
}

void mr__address_of(const struct sockaddr *from, socklen_t size, mr__address *out)
{
    memset(out, 0, sizeof *out);
    if (size > sizeof out->to)
        size = sizeof out->to;
    memcpy(&out->to, from, size);
    out->size = size;
    char host[INET6_ADDRSTRLEN] = "?";
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&out->to;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out->text, sizeof out->text, "%s:%u", host, ntohs(v4->sin_port));
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&out->to;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out->text, sizeof out->text, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        snprintf(out->text, sizeof out->text, "a local socket");
    }
}

static mr_code bind_and_listen(int fd, const mr__address *at, mr__address *bound, mr_status *st)
{
    int one = 1;
    mr__sys->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    socklen_t size = sizeof(struct sockaddr_storage);
    struct sockaddr_storage name;
    if (mr__sys->bind(fd, (const struct sockaddr *)&at->to, at->size) != 0 ||
        mr__sys->listen(fd, BACKLOG) != 0) {
        int err = errno;
        mr_code rc = mr_fail_errno(st, err, "cannot listen on %s", at->text);
        if (err != EADDRINUSE)
            return rc;
        if (st)
            st->code = MR_ALREADY_EXISTS;
        return MR_ALREADY_EXISTS;
    }
    if (mr__sys->getsockname(fd, (struct sockaddr *)&name, &size) != 0)
        return mr_fail_errno(st, errno, "cannot read the address of the listener on %s", at->text);
    *bound = *at;
    if (name.ss_family != AF_UNIX)
        mr__address_of((struct sockaddr *)&name, size, bound);
    return MR_OK;
}

mr_code mr__address_listen(const mr__address *at, int *out, mr__address *bound, mr_status *st)
{
    int fd = mr__sys->socket(at->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return mr_fail_errno(st, errno, "cannot create a socket for %s", at->text);
    mr_code rc = bind_and_listen(fd, at, bound, st);
    if (rc != MR_OK)
        mr__sys->close(fd);
    else
        *out = fd;
    return rc;
}

mr_code mr__address_new_local(mr__address *out, mr_status *st)
{
    uint64_t random[2];
    char name[64];
    if (mr__sys->getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes for the name of a local socket");
    snprintf(name, sizeof name, "@millrace-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return mr__address_resolve(name, out, st);
}

bool mr__address_is_own_user(int fd, int64_t *user)
{
    struct ucred who;
    socklen_t size = sizeof who;
    *user = -1;
    if (mr__sys->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return false;
    *user = (int64_t)who.uid;
    return who.uid == geteuid() || who.uid == 0;
}

bool mr__address_is_loopback(const mr__address *a)
{
    if (a->to.ss_family == AF_UNIX)
        return true;
    if (a->to.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->to;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->to;
    return a->to.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static bool is_any_address(const mr__address *a)
{
    static const struct in6_addr any = IN6ADDR_ANY_INIT;
    if (a->to.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&a->to)->sin_addr.s_addr == 0;
    return a->to.ss_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)&a->to)->sin6_addr, &any, sizeof any) == 0;
}

mr_code mr__address_reached(const mr__address *bound, const char *peer, char text[128],
                            mr_status *st)
{
    mr__address to, own;
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    memcpy(text, bound->text, sizeof bound->text);
    if (!is_any_address(bound))
        return MR_OK;
    MR_TRY(mr__address_resolve(peer, &to, st));
    int fd = mr__sys->socket(to.to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && mr__sys->connect(fd, (struct sockaddr *)&to.to, to.size) == 0 &&
                 mr__sys->getsockname(fd, (struct sockaddr *)&from, &size) == 0;
    if (fd >= 0)
        mr__sys->close(fd);
    if (!found)
        return mr_fail(st, MR_UNAVAILABLE,
                       "no route to %s: cannot determine this host's address; listen on the "
                       "address that other hosts use",
                       peer);
    in_port_t port = bound->to.ss_family == AF_INET6
                         ? ((const struct sockaddr_in6 *)&bound->to)->sin6_port
                         : ((const struct sockaddr_in *)&bound->to)->sin_port;
    if (from.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&from)->sin6_port = port;
    else
        ((struct sockaddr_in *)&from)->sin_port = port;
    mr__address_of((struct sockaddr *)&from, size, &own);
    memcpy(text, own.text, sizeof own.text);
    return MR_OK;
}
