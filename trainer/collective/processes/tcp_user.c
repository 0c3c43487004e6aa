/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/processes/tcp_user.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

enum { ESTABLISHED = 1, MOST_TABLE = 64 << 20, ADDRESS = 33 };

/* One end of a connection; an IPv4 address that is mapped into IPv6 is an IPv4 address. */
typedef struct end {
    int family;
    unsigned char bytes[16];
    uint32_t scope; /* the interface of a link-local address */
    in_port_t port; /* in network order */
} end;

static bool end_of(const struct sockaddr_storage *from, end *out)
{
    *out = (end){.family = from->ss_family};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        memcpy(out->bytes, &v4->sin_addr, 4);
        out->port = v4->sin_port;
        return true;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    if (from->ss_family != AF_INET6)
        return false;
    out->port = v6->sin6_port;
    out->scope = v6->sin6_scope_id;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    if (mapped)
        out->family = AF_INET;
    memcpy(out->bytes, (const char *)&v6->sin6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    return true;
}

/* Only an address of this host can be bound. In doubt it is one, and the peer's user must be
 * found. */
static bool is_here(const end *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_scope_id = e->scope};
    bool four = e->family == AF_INET;
    memcpy(&v4.sin_addr, e->bytes, 4);
    memcpy(&v6.sin6_addr, e->bytes, 16);
    int fd = mr__sys->socket(e->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool here = fd < 0 ||
                mr__sys->bind(fd, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                              four ? sizeof v4 : sizeof v6) == 0 ||
                errno != EADDRNOTAVAIL;
    if (fd >= 0)
        mr__sys->close(fd);
    return here;
}

/* The end as the table writes it: words of 4 bytes as numbers of this machine. mapped: in the form
 * of IPv6. */
static void text_of(const end *e, bool mapped, char address[ADDRESS])
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
    unsigned char bytes[16];
    size_t n = e->family == AF_INET ? 4 : 16;
    if (mapped)
        memcpy(bytes, prefix, sizeof prefix);
    memcpy(bytes + (mapped ? 12 : 0), e->bytes, n);
    n += mapped ? 12 : 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word;
        memcpy(&word, bytes + i, 4);
        snprintf(address + 2 * i, 9, "%08X", word);
    }
}

/* *user = the owner of the connected socket between the two ends. */
static bool find(const char *table, const end *own, const end *other, bool mapped, int64_t *user)
{
    char *text = NULL, from[ADDRESS] = "", to[ADDRESS] = "";
    size_t size;
    bool found = false;
    if (mr_file_read(table, &(mr_file_read_opts){.most = MOST_TABLE}, (void **)&text, &size,
                     NULL) != MR_OK)
        return false;
    text_of(own, mapped, from);
    text_of(other, mapped, to);
    for (const char *line = text; line && !found; line = strchr(line, '\n')) {
        char a[ADDRESS], b[ADDRESS];
        unsigned a_port, b_port, state;
        long long uid;
        line += *line == '\n';
        found = sscanf(line, "%*u: %32[0-9A-F]:%X %32[0-9A-F]:%X %X %*s %*s %*s %lld", a, &a_port,
                       b, &b_port, &state, &uid) == 6 &&
                strcmp(a, from) == 0 && strcmp(b, to) == 0 && a_port == ntohs(own->port) &&
                b_port == ntohs(other->port);
        if (found && state == ESTABLISHED) /* one that is closing has no owner any more */
            *user = uid;
    }
    mr_free(text);
    return found;
}

bool mr__tcp_peer_is_admitted(int fd, int64_t *user)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    end here, there;
    *user = -1;
    if (mr__sys->getsockname(fd, (struct sockaddr *)&own, &own_size) != 0 ||
        mr__sys->getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 ||
        !end_of(&own, &here) || !end_of(&peer, &there))
        return false;
    if (!is_here(&there))
        return true;
    /* The peer's socket: its own end is `there`. */
    if (there.family == AF_INET)
        (void)(find("/proc/net/tcp", &there, &here, false, user) ||
               find("/proc/net/tcp6", &there, &here, true, user));
    else
        (void)find("/proc/net/tcp6", &there, &here, false, user);
    return *user == (int64_t)geteuid() || *user == 0;
}
