/* SPDX-License-Identifier: Apache-2.0 */
/* Sending by system calls: all that is queued, including pages without a copy.
 *
 *     queue   [ head | a column of 1 MiB ................ | end ]
 *               |       |                           |        |
 *            sendmsg    vmsplice --> pipe --> splice     sendmsg
 *                       whole pages, in the pipe and in the socket by reference
 *
 * Each loop has one pipe. Bytes that the socket does not take at once stay in the pipe until
 * another socket needs it: then the pipe is created again, and the same pages enter it again in
 * their turn. If the system does not support these calls, everything is copied. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pipeline/memory/buffer.h"
#include "pipeline/system/system.h"
#include "transport/net/loop_engine.h"

enum { PIPE_BYTES = 1 << 20 }; /* the limit for unprivileged users */

/* ---- the queue ---- */

/* The number of the n bytes at p, of piece i, to copy before lent pages begin; n: all. */
static size_t before_pages(const mr__socket *s, const mr__send *send, size_t i, const void *p,
                           size_t n)
{
    size_t edge = -(uintptr_t)p & (MR__PAGE - 1);
    bool lends = send->lends && i >= send->lends && !s->is_local && !s->loop->pages.is_refused;
    return lends && n >= edge + MR__LENT_LEAST ? edge : n;
}

void mr__socket_gather(const mr__socket *s, struct msghdr *m, size_t most, mr__passing *room,
                       const void **pages, size_t *lent)
{
    size_t n = 0;
    *lent = 0;
    for (const mr__send *send = s->first; send && n < most && !*lent; send = send->next) {
        size_t offset = send->offset;
        if (send->pass && s->is_local && send->at == 0 && offset == 0) {
            if (n) /* a descriptor is sent with its own bytes */
                break;
            mr__pass_descriptor(m, room, *send->pass);
        }
        for (size_t i = send->at; i < send->n && n < most && !*lent; i++, offset = 0) {
            char *p = (char *)send->v[i].iov_base + offset;
            size_t left = send->v[i].iov_len - offset, some = before_pages(s, send, i, p, left);
            if (some) {
                m->msg_iov[n].iov_base = p;
                m->msg_iov[n++].iov_len = some;
            }
            *lent = (left - some) / MR__PAGE * MR__PAGE;
            *pages = p + some;
        }
    }
    m->msg_iovlen = n;
}

bool mr__socket_lends(const mr__socket *s)
{
    return s->first && s->first->lends && !s->is_local && !s->loop->pages.is_refused;
}

/* ---- the pipe ---- */

static void close_pipe(mr__page_pipe *x)
{
    if (x->room) {
        mr__sys->close(x->in);
        mr__sys->close(x->out);
    }
    x->room = x->left = 0;
    x->of = NULL;
}

void mr__page_pipe_end(mr__loop *l, const mr__socket *s)
{
    if (!s || l->pages.of == s)
        close_pipe(&l->pages);
}

static void refuse(mr__page_pipe *x)
{
    close_pipe(x);
    x->is_refused = true;
}

/* A user may have 64 MiB of large pipes; further ones are small. */
static void open_pipe(mr__page_pipe *x)
{
    int ends[2];
    if (sysconf(_SC_PAGESIZE) != MR__PAGE || mr__sys->pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        x->is_refused = true;
        return;
    }
    mr__sys->fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    int room = mr__sys->fcntl(ends[1], F_GETPIPE_SZ, 0);
    *x = (mr__page_pipe){.in = ends[1], .out = ends[0], .room = room > 0 ? (size_t)room : 1};
    if (x->room < MR__LENT_LEAST)
        refuse(x);
}

/* Puts pages of s into the pipe, which is empty or contains those of another socket; false: they
 * are copied from now on. */
static bool fill_pipe(mr__page_pipe *x, mr__socket *s, const void *pages, size_t n)
{
    const struct iovec v = {(void *)(uintptr_t)pages, n < PIPE_BYTES ? n : PIPE_BYTES};
    if (x->left)
        close_pipe(x);
    if (!x->room)
        open_pipe(x);
    ssize_t rc = x->is_refused ? -1 : mr__sys->vmsplice(x->in, &v, 1, SPLICE_F_NONBLOCK);
    if (rc <= 0) {
        if (rc == 0 || errno != EINTR || x->is_refused)
            refuse(x);
        return false;
    }
    x->of = s;
    x->left = (size_t)rc;
    return true;
}

/* splice without SIGPIPE: it has no flag for that, and it sends several times: the first may
 * succeed and a later one find the peer gone. */
static ssize_t splice_quietly(int from, int to, size_t n, unsigned flags)
{
    static const struct timespec now = {0, 0};
    sigset_t pipe, old, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    ssize_t rc = mr__sys->splice(from, to, n, flags);
    int err = errno;
    if ((rc < 0 ? err == EPIPE : (size_t)rc < n) && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = err;
    return rc;
}

/* returns  bytes of the pipe that the socket took; -1 and errno */
static ssize_t empty_pipe(mr__page_pipe *x, const mr__socket *s, bool more, bool blocks)
{
    int flags = blocks ? mr__sys->fcntl(s->fd, F_GETFL, 0) : 0;
    if (flags < 0 || (blocks && mr__sys->fcntl(s->fd, F_SETFL, flags | O_NONBLOCK) != 0))
        return -1;
    ssize_t rc = splice_quietly(x->out, s->fd, x->left,
                                SPLICE_F_MOVE | SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0));
    int err = errno;
    if (blocks)
        mr__sys->fcntl(s->fd, F_SETFL, flags);
    errno = err;
    if (rc > 0)
        x->left -= (size_t)rc;
    return rc;
}

static bool is_unknown(int err)
{
    return err == EPERM || err == EACCES || err == ENOSYS || err == EINVAL || err == EOPNOTSUPP;
}

/* Sends the next bytes of s, which are `lent` bytes of lent pages.
 * returns  bytes sent; 0: none, try again; -1 and errno */
static ssize_t send_pages(mr__socket *s, const void *pages, size_t lent, bool blocks)
{
    mr__page_pipe *x = &s->loop->pages;
    if ((x->of != s || !x->left) && !fill_pipe(x, s, pages, lent))
        return 0;
    ssize_t rc = empty_pipe(x, s, s->queued_bytes > x->left, blocks);
    if (rc == 0 || (rc < 0 && is_unknown(errno))) {
        refuse(x);
        return 0;
    }
    return rc;
}

bool mr__socket_send_now(mr__socket *s, size_t *budget, bool blocks)
{
    while (s->state == MR__SOCKET_OPEN && !(s->flags & MR__SOCKET_MUTE) && s->first && *budget) {
        struct iovec v[MR__SEND_PIECES];
        struct msghdr m = {.msg_iov = v};
        mr__passing room;
        const void *pages = NULL;
        size_t lent = 0;
        ssize_t n = 0;
        if (s->loop->pages.of != s || !s->loop->pages.left)
            mr__socket_gather(s, &m, MR__SEND_PIECES, &room, &pages, &lent);
        if (m.msg_iovlen)
            n = mr__sys->sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | (lent ? MSG_MORE : 0));
        else if (lent || s->loop->pages.of == s)
            n = send_pages(s, pages, lent, blocks);
        if (n >= 0) {
            *budget -= (size_t)n < *budget ? (size_t)n : *budget;
            mr__socket_sent(s, (size_t)n);
        } else if (errno == EAGAIN) {
            return false;
        } else if (errno != EINTR) {
            mr__socket_cannot_send(s, errno);
        }
    }
    return true;
}
