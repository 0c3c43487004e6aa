/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of a meeting. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "trainer/collective/processes/rendezvous_state.h"
#include "transport/net/shared_memory.h"

enum { BACKLOG = 1024, LAST_WORDS_MS = 500 };

/* ---- listening ---- */

static int bind_at(const struct sockaddr *at, socklen_t size, int *err)
{
    int one = 1, fd = mr__sys->socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *err = errno;
        return -1;
    }
    if (at->sa_family != AF_UNIX)
        mr__sys->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (mr__sys->bind(fd, at, size) == 0 && mr__sys->listen(fd, BACKLOG) == 0)
        return fd;
    *err = errno;
    mr__sys->close(fd);
    return -1;
}

/* The same port of every address of this host. */
static mr__address any_address(const mr__address *like, uint16_t port)
{
    mr__address a = {0};
    if (like->to.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
        mr__address_of((struct sockaddr *)&v6, sizeof v6, &a);
    } else {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
        mr__address_of((struct sockaddr *)&v4, sizeof v4, &a);
    }
    return a;
}

static uint16_t net_port(const mr__address *a)
{
    return a->to.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a->to)->sin6_port
                                       : ((const struct sockaddr_in *)&a->to)->sin_port;
}

/* Processes that have the same host_id can share memory: one boot of one kernel, one namespace of
 * abstract sockets, one user. */
static void find_host_id(mr__meeting *m)
{
    struct stat net;
    char boot[64] = "";
    int fd = mr__sys->open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1 : mr__sys->read(fd, boot, sizeof boot - 1);
    if (fd >= 0)
        mr__sys->close(fd);
    if (n < 36 || mr__sys->stat("/proc/self/ns/net", &net) != 0)
        return;
    boot[36] = '\0';
    snprintf(m->host_id, sizeof m->host_id, "%s/%llu/%lu", boot, (unsigned long long)net.st_ino,
             (unsigned long)geteuid());
}

static void listen_locally(mr__meeting *m)
{
    mr__address a;
    char name[64] = "@millrace-";
    int err;
    find_host_id(m);
    if (m->o->sockets_only || !m->host_id[0])
        return;
    for (size_t i = 0; i < MR__NONCE; i++)
        snprintf(name + 10 + 2 * i, 3, "%02x", m->hello.nonce[i] ^ 0x5a);
    if (mr__address_resolve(name, &a, NULL) != MR_OK)
        return;
    m->local_listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    if (m->local_listener >= 0) /* else: sockets do it too */
        memcpy(m->local_name, name, sizeof m->local_name);
}

mr_code mr__meeting_listen(mr__meeting *m, mr_status *st)
{
    bool given = m->all_addresses || m->rank == 0;
    mr__known *at = &m->known[m->all_addresses ? m->rank : 0];
    MR_TRY(mr__address_resolve(at->address, &at->to, st));
    mr__address a = given ? at->to : any_address(&at->to, 0);
    int err;
    m->listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    if (m->listener < 0 && err == EADDRNOTAVAIL && given) {
        /* The address of a gateway that leads here: containers, services. */
        a = any_address(&at->to, net_port(&at->to));
        m->listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    }
    if (m->listener < 0) {
        mr_code rc = mr_fail_errno(st, err, "rank %u cannot listen on %s", m->rank,
                                   given ? at->address : a.text);
        if (err != EADDRINUSE)
            return rc;
        return mr_fail(st, MR_ALREADY_EXISTS,
                       "rank %u cannot listen on %s: the address is in use; is a second process "
                       "started as rank %u?",
                       m->rank, at->address, m->rank);
    }
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (mr__sys->getsockname(m->listener, (struct sockaddr *)&bound, &size) != 0)
        return mr_fail_errno(st, errno, "no address of the listener");
    mr__address_of((struct sockaddr *)&bound, size, &a);
    m->hello.port = ntohs(net_port(&a));
    listen_locally(m);
    return MR_OK;
}

/* ---- connections ---- */

static mr__talk *add_talk(mr__meeting *m, int fd, mr_status *st)
{
    mr__talk *t = mr_calloc(1, sizeof *t);
    if (!t) {
        mr__sys->close(fd);
        mr_fail_memory(st, sizeof *t, "a connection");
        return NULL;
    }
    int one = 1;
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    t->fd = fd;
    t->passed = -1;
    t->since_ns = m->now_ns;
    t->next = m->talks;
    m->talks = t;
    m->n_talks++;
    return t;
}

mr_code mr__meeting_dial(mr__meeting *m, uint32_t rank, mr__role role, const char *local,
                         mr__talk **out, mr_status *st)
{
    mr__known *k = &m->known[rank];
    mr_status why;
    mr__address a;
    *out = NULL;
    /* Looked up each time: the name of a host may appear later than we do. */
    mr_code rc = mr__address_resolve(local ? local : k->address, local ? &a : &k->to, &why);
    if (rc == MR_INVALID_ARGUMENT || rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    if (rc != MR_OK) {
        snprintf(k->error, sizeof k->error, "%.150s", why.message);
        return MR_OK;
    }
    if (!local)
        a = k->to;
    int fd = mr__sys->socket(a.to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return mr_fail_errno(st, errno, "no socket for %s", a.text);
    bool now = mr__sys->connect(fd, (struct sockaddr *)&a.to, a.size) == 0;
    if (!now && errno != EINPROGRESS && errno != EINTR) {
        snprintf(k->error, sizeof k->error, "%.150s", strerror(errno));
        mr__sys->close(fd);
        return MR_OK;
    }
    mr__talk *t = add_talk(m, fd, st);
    if (!t)
        return MR_RESOURCE_EXHAUSTED;
    t->connecting = !now;
    t->rank = rank;
    t->role = role;
    t->local = local != NULL;
    *out = t;
    return MR_OK;
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return mr__sys->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           who.uid == geteuid();
}

mr_code mr__meeting_accept(mr__meeting *m, int listener, bool local, mr__talk **out, mr_status *st)
{
    *out = NULL;
    int fd = mr__sys->accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return mr_fail_errno(st, errno, "no connection can be accepted");
        return MR_OK;
    }
    /* Strangers may knock, but must not use up what we have. */
    if ((local && !same_user(fd)) || m->n_talks > (size_t)m->world * 3 + 64) {
        mr__sys->close(fd);
        return MR_OK;
    }
    mr__talk *t = add_talk(m, fd, st);
    if (!t)
        return MR_RESOURCE_EXHAUSTED;
    t->incoming = true;
    t->local = local;
    *out = t;
    return MR_OK;
}

bool mr__talk_send(mr__talk *t, mr_status *why)
{
    while (t->out.sent < t->out.size) {
        struct iovec v = {t->out.data + t->out.sent, t->out.size - t->out.sent};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
        ssize_t n = mr__sys->sendmsg(t->fd, &h, MSG_NOSIGNAL);
        if (n >= 0)
            t->out.sent += (size_t)n;
        else if (errno == EAGAIN)
            return true;
        else if (errno != EINTR) {
            mr_fail_errno(why, errno, "cannot send");
            return false;
        }
    }
    t->out.sent = t->out.size = 0;
    return true;
}

/* A descriptor may come along on a unix socket. */
static ssize_t receive_some(mr__talk *t, void *to, size_t n)
{
    if (!t->local)
        return mr__sys->recv(t->fd, to, n, 0);
    mr__passing room;
    struct iovec v = {to, n};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    mr__expect_descriptor(&h, &room);
    ssize_t got = mr__sys->recvmsg(t->fd, &h, MSG_CMSG_CLOEXEC);
    int passed = got > 0 ? mr__passed_descriptor(&h) : -1;
    if (passed >= 0) {
        if (t->passed >= 0)
            mr__sys->close(t->passed);
        t->passed = passed;
    }
    return got;
}

static bool head_came(mr__talk *t, mr_status *why)
{
    if (mr__read_head(t->head, &t->version, &t->word, &t->bytes, why) != MR_OK)
        return false;
    t->has_head = true;
    t->got = 0;
    t->payload = t->bytes ? mr_malloc(t->bytes) : NULL;
    if (t->bytes && !t->payload) {
        mr_fail_memory(why, t->bytes, "a message of a peer");
        return false;
    }
    return true;
}

bool mr__talk_receive(mr__talk *t, bool *whole, mr_status *why)
{
    *whole = t->has_head && t->got == t->bytes;
    while (!*whole) {
        unsigned char *to = t->has_head ? t->payload : t->head;
        size_t want = t->has_head ? t->bytes : MR__HEAD_BYTES;
        ssize_t n = receive_some(t, to + t->got, want - t->got);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            mr_fail(why, MR_UNAVAILABLE, "%s",
                    n == 0 ? "it closed the connection" : strerror(errno));
            return false;
        }
        t->got += (size_t)n;
        if (t->got == want && !t->has_head && !head_came(t, why))
            return false;
        *whole = t->has_head && t->got == t->bytes;
    }
    return true;
}

void mr__talk_next(mr__talk *t)
{
    mr_free(t->payload);
    t->payload = NULL;
    t->has_head = false;
    t->got = t->bytes = 0;
}

void mr__talk_address(const mr__talk *t, uint32_t port, mr__address *out)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    if (mr__sys->getpeername(t->fd, (struct sockaddr *)&from, &size) != 0)
        from.ss_family = AF_UNIX;
    if (port && from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = htons((uint16_t)port);
    if (port && from.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&from)->sin6_port = htons((uint16_t)port);
    mr__address_of((struct sockaddr *)&from, size, out);
}

void mr__talk_end(mr__talk *t)
{
    if (t->fd >= 0)
        mr__sys->close(t->fd);
    t->fd = -1;
}

static void free_talk(mr__talk *t)
{
    mr__talk_end(t);
    if (t->passed >= 0)
        mr__sys->close(t->passed);
    mr_free(t->payload);
    mr__saying_reset(&t->out);
    mr_free(t);
}

void mr__meeting_sweep(mr__meeting *m)
{
    for (mr__talk **at = &m->talks; *at;) {
        mr__talk *t = *at;
        if (t->fd >= 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        m->n_talks--;
        free_talk(t);
    }
}

mr_code mr__send_descriptor(int fd, const mr__saying *o, int descriptor, mr_status *st)
{
    mr__passing room;
    struct iovec v = {o->data, o->size};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    mr__pass_descriptor(&h, &room, descriptor);
    ssize_t n;
    MR__RETRY(n, mr__sys->sendmsg(fd, &h, MSG_NOSIGNAL));
    if (n != (ssize_t)o->size)
        return mr_fail_errno(st, n < 0 ? errno : EIO, "cannot share memory with a peer");
    return MR_OK;
}

/* Waits a moment for what is queued to leave. */
static void flush_all(mr__meeting *m)
{
    int64_t until = mr__clock_ns(CLOCK_MONOTONIC) + (int64_t)LAST_WORDS_MS * 1000000;
    for (;;) {
        mr__talk *waits = NULL;
        for (mr__talk *t = m->talks; t; t = t->next)
            if (t->fd >= 0 && !t->connecting && t->out.size) {
                if (!mr__talk_send(t, NULL))
                    mr__talk_end(t);
                else if (t->out.size)
                    waits = t;
            }
        int64_t left = until - mr__clock_ns(CLOCK_MONOTONIC);
        if (!waits || left <= 0)
            return;
        struct pollfd p = {.fd = waits->fd, .events = POLLOUT};
        mr__sys->poll(&p, 1, (int)(left / 1000000) + 1);
    }
}

void mr__meeting_close(mr__meeting *m, const mr_status *why)
{
    if (why) {
        for (mr__talk *t = m->talks; t; t = t->next)
            if (t->fd >= 0 && !t->connecting && t->role != MR__DATA)
                (void)!mr__say_abort(&t->out, why, NULL);
        flush_all(m);
    }
    for (mr__talk *t = m->talks; t; t = t->next)
        mr__talk_end(t);
    mr__meeting_sweep(m);
    for (uint32_t i = 0; m->known && i < m->world; i++)
        mr_free(m->known[i].hello_bytes);
    mr_free(m->known);
    if (m->listener >= 0)
        mr__sys->close(m->listener);
    if (m->local_listener >= 0)
        mr__sys->close(m->local_listener);
}
