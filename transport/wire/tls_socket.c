/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/tls_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "pipeline/system/system.h"

int mr__plain_socket_send(int fd, const void *bytes, size_t *from, size_t n)
{
    while (*from < n) {
        struct iovec v = {(char *)(uintptr_t)bytes + *from, n - *from};
        struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
        ssize_t sent = mr__sys->sendmsg(fd, &h, MSG_NOSIGNAL);
        if (sent >= 0)
            *from += (size_t)sent;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

int mr__tls_socket_flush(mr__tls_session *s, int fd)
{
    mr__tls_bytes *o = &s->out;
    int err = mr__plain_socket_send(fd, o->bytes, &o->from, o->n);
    if (!err)
        o->from = o->n = 0;
    return err;
}

size_t mr__tls_socket_send(mr__tls_session *s, int fd, const void *p, size_t n, int *err)
{
    size_t done = 0;
    *err = mr__tls_socket_flush(s, fd);
    if (*err)
        return 0;
    while (done < n && s->out.n + MR__TLS_WITH_FRAME <= MR__TLS_LARGE) {
        size_t one = n - done < MR__TLS_RECORD ? n - done : MR__TLS_RECORD;
        if (mr__tls_session_write(s, (const char *)p + done, one, NULL) != MR_OK) {
            *err = ENOMEM;
            return done;
        }
        done += one;
    }
    *err = mr__tls_socket_flush(s, fd);
    return done;
}

mr_code mr__tls_socket_receive(mr__tls_session *s, int fd, void *to, size_t n, size_t *got,
                               mr_status *st)
{
    *got = 0;
    while (*got < n) {
        size_t one, room;
        MR_TRY(mr__tls_session_read(s, (char *)to + *got, n - *got, &one, st));
        *got += one;
        if (one)
            continue;
        void *in = mr__tls_session_room(s, &room);
        if (!in)
            return mr_fail(st, MR_DATA_LOSS, "the peer sent a TLS record that is too large");
        ssize_t came = mr__sys->recv(fd, in, room, 0);
        if (came > 0)
            mr__tls_session_received(s, (size_t)came);
        else if (came == 0)
            return mr_fail(st, MR_UNAVAILABLE, "it closed the connection");
        else if (errno == EAGAIN)
            return MR_OK;
        else if (errno != EINTR)
            return mr_fail(st, MR_UNAVAILABLE, "%s", strerror(errno));
    }
    return MR_OK;
}
