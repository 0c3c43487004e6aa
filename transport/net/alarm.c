/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/alarm.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

#include "pipeline/system/system.h"

static void opened(mr__socket *s)
{
    (void)s;
}

static void *room(mr__socket *s, size_t *n)
{
    mr__alarm *a = (mr__alarm *)s;
    *n = sizeof a->room;
    return a->room;
}

static void received(mr__socket *s, size_t n)
{
    (void)n;
    mr__socket_close(s);
}

static void closed(mr__socket *s, const mr_status *why)
{
    mr__alarm *a = (mr__alarm *)s;
    (void)why;
    a->is_set = false;
    if (!a->is_cleared)
        a->rings(a);
}

static const mr__socket_class sockets = {opened, room, received, closed};

static void wake(mr_cancel_waiter *w)
{
    const mr__alarm *a = (mr__alarm *)((char *)w - offsetof(mr__alarm, waiter));
    struct iovec v = {.iov_base = (char[1]){0}, .iov_len = 1};
    const struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (mr__sys->shutdown(a->fd, SHUT_RDWR) != 0)
        mr__sys->sendmsg(a->fd, &m, MSG_NOSIGNAL);
}

mr_code mr__alarm_set(mr__alarm *a, mr__loop *l, mr_cancel *cancel, mr_status *st)
{
    int fds[2];
    a->fd = -1;
    a->is_set = a->is_cleared = false;
    if (!cancel)
        return MR_OK;
    if (mr__sys->socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return mr_fail_errno(st, errno, "a pair of sockets");
    a->socket.class_ = &sockets;
    mr_code rc = mr__socket_adopt(l, &a->socket, fds[0], st);
    if (rc != MR_OK) {
        mr__sys->close(fds[1]);
        return rc;
    }
    a->fd = fds[1];
    a->is_set = true;
    a->cancel = cancel;
    a->waiter.wake = wake;
    mr_cancel_register(cancel, &a->waiter);
    return MR_OK;
}

void mr__alarm_clear(mr__alarm *a)
{
    a->is_cleared = true;
    if (a->waiter.wake)
        mr_cancel_unregister(a->cancel, &a->waiter);
    a->waiter.wake = NULL;
    if (a->is_set)
        mr__socket_close(&a->socket);
    if (a->fd > 0)
        mr__sys->close(a->fd);
    a->fd = -1;
}
