/* SPDX-License-Identifier: Apache-2.0 */
/* TCP or TLS, or a ring of bytes in shared memory together with a unix socket. On that socket each
 * side sends a byte to wake the other one, if that has marked itself asleep; its end shows that the
 * peer is gone. */
#include "trainer/collective/ring/ring_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "pipeline/system/spin_once.h"
#include "pipeline/system/system.h"

enum {
    RING = MR__SHM_RING_BYTES,
    SPINS = 400,
    LINE = 64,
    MEASURED = 16 << 10, /* minimum size of a copy that is timed */
    TRY_EVERY = 64,      /* copies */
    PAST_COSTS = 3       /* cost for both sides, relative to the writer's */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void break_writer(mr__link_writer *w, int err)
{
    snprintf(w->text, sizeof w->text, "%s", err ? strerror(err) : "the peer closed it");
    w->broken = w->text;
}

static void break_reader(mr__link_reader *r, int err)
{
    snprintf(r->text, sizeof r->text, "%s", err ? strerror(err) : "the peer closed it");
    r->broken = r->text;
}

/* A full socket already has bytes that wake the peer. */
static int ring_bell(int fd)
{
    char one = 1;
    struct iovec v = {&one, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    while (mr__sys->sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        if (errno != EINTR)
            return errno == EAGAIN ? 0 : errno;
    return 0;
}

/* Consumes wake-ups. -1: the peer is gone. */
static int drain(int fd)
{
    char bytes[64];
    for (;;) {
        ssize_t n = mr__sys->recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0)
            return -1;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN ? 0 : errno;
    }
}

/* ---- copying ---- */

/* A store through the caches first fetches the line it replaces, a third of a copy's traffic. */
static void copy_past_caches(unsigned char *to, const unsigned char *p, size_t n)
{
#if defined(__SSE2__)
    size_t head = smaller(n, (size_t)(-(uintptr_t)to % LINE));
    memcpy(to, p, head);
    for (to += head, p += head, n -= head; n >= LINE; to += LINE, p += LINE, n -= LINE) {
        __m128i v[LINE / sizeof(__m128i)];
        memcpy(v, p, LINE);
        for (size_t i = 0; i < LINE / sizeof *v; i++)
            _mm_stream_si128((__m128i *)to + i, v[i]);
    }
    _mm_sfence(); /* only these stores are not ordered with others */
#endif
    memcpy(to, p, n);
}

/* Copies through the caches or bypassing them, depending on recent timings. The former is better if
 * the two processes share a cache, even if the latter takes the writer less time: the reader then
 * reads from memory. If they share none, each store fetches its line from the reader's cache, which
 * takes several times as long. Only timing can tell: threads migrate, and so do the CPUs of virtual
 * machines. */
static void copy_to_peer(mr__link_writer *w, unsigned char *to, const unsigned char *p, size_t n)
{
    if (n < MEASURED) {
        memcpy(to, p, n);
        return;
    }
    bool past = PAST_COSTS * w->cost[1] < w->cost[0];
    if (w->measured++ % TRY_EVERY == 0)
        past = !past;
    int64_t began = mr__clock_ns(CLOCK_MONOTONIC);
    if (past)
        copy_past_caches(to, p, n);
    else
        memcpy(to, p, n);
    double cost = (double)(mr__clock_ns(CLOCK_MONOTONIC) - began) / (double)n,
           *usual = &w->cost[past];
    /* Limits outliers: a copy may have lost its core in between. */
    if (*usual == 0)
        *usual = cost;
    else
        *usual += ((cost < 2 * *usual ? cost : 2 * *usual) - *usual) / 4;
}

/* ---- writing ---- */

static size_t put_shared(mr__link_writer *w, const void *p, size_t n)
{
    mr__shm_ring *s = w->link.shm;
    uint64_t written = atomic_load_explicit(&s->written, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&s->read, memory_order_acquire);
    uint64_t used = written - read;
    if (used > RING) { /* the peer's memory is untrusted */
        break_writer(w, EPROTO);
        return 0;
    }
    n = smaller(n, RING - (size_t)used);
    if (n == 0)
        return 0;
    size_t at = (size_t)(written % RING), first = smaller(n, RING - at);
    copy_to_peer(w, s->ring + at, p, first);
    copy_to_peer(w, s->ring, (const unsigned char *)p + first, n - first);
    atomic_store_explicit(&s->written, written + n, memory_order_seq_cst);
    if (atomic_load_explicit(&s->reader_sleeps, memory_order_seq_cst) &&
        atomic_exchange(&s->reader_sleeps, 0)) {
        int err = ring_bell(w->link.fd);
        if (err)
            break_writer(w, err);
    }
    return n;
}

static size_t put_secure(mr__link_writer *w, const void *p, size_t n)
{
    int err;
    size_t sent = mr__tls_socket_send(w->link.tls, w->link.fd, p, n, &err);
    if (err && err != EAGAIN)
        break_writer(w, err);
    return sent;
}

bool mr__link_flush(mr__link_writer *w)
{
    mr__tls_session *s = w->link.tls;
    size_t before = s->out.from;
    int err = w->broken ? EAGAIN : mr__tls_socket_flush(s, w->link.fd);
    if (err && err != EAGAIN)
        break_writer(w, err);
    return !err || s->out.from > before;
}

size_t mr__link_put(mr__link_writer *w, const void *p, size_t n)
{
    if (w->broken || n == 0)
        return 0;
    if (w->link.shm)
        return put_shared(w, p, n);
    if (w->link.tls)
        return put_secure(w, p, n);
    struct iovec v = {(void *)(uintptr_t)p, n};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    ssize_t sent = mr__sys->sendmsg(w->link.fd, &h, MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (errno != EAGAIN && errno != EINTR)
        break_writer(w, errno);
    return 0;
}

/* ---- reading ---- */

static size_t available(mr__link_reader *r)
{
    mr__shm_ring *s = r->link.shm;
    uint64_t n = atomic_load_explicit(&s->written, memory_order_acquire) -
                 atomic_load_explicit(&s->read, memory_order_relaxed);
    if (n <= RING)
        return (size_t)n;
    break_reader(r, EPROTO);
    return 0;
}

static void consume_shared(mr__link_reader *r, size_t n)
{
    mr__shm_ring *s = r->link.shm;
    uint64_t read = atomic_load_explicit(&s->read, memory_order_relaxed);
    atomic_store_explicit(&s->read, read + n, memory_order_seq_cst);
    if (atomic_load_explicit(&s->writer_sleeps, memory_order_seq_cst) &&
        atomic_exchange(&s->writer_sleeps, 0)) {
        int err = ring_bell(r->link.fd);
        /* A writer that is gone has written everything it had to. */
        if (err && err != EPIPE && err != ECONNRESET)
            break_reader(r, err);
    }
}

/* All that has come, up to n bytes: the socket does not wake a waiter for what the session has. */
static size_t receive_secure(mr__link_reader *r, void *to, size_t n)
{
    size_t got;
    mr_status why;
    if (mr__tls_socket_receive(r->link.tls, r->link.fd, to, n, &got, &why) != MR_OK) {
        snprintf(r->text, sizeof r->text, "%.90s",
                 why.code == MR_END ? "the peer closed it" : why.message);
        r->broken = r->text;
    }
    return got;
}

/* The number of bytes received; 0: none yet. */
static size_t receive(mr__link_reader *r, void *to, size_t n)
{
    if (r->link.tls)
        return receive_secure(r, to, n);
    ssize_t got = mr__sys->recv(r->link.fd, to, n, 0);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        break_reader(r, 0);
    else if (errno != EAGAIN && errno != EINTR)
        break_reader(r, errno);
    return 0;
}

size_t mr__link_peek(mr__link_reader *r, size_t least, size_t want, const void **p)
{
    *p = NULL;
    if (r->broken)
        return 0;
    if (r->link.shm) {
        /* Everything sent is a multiple of the distance to the end of the ring. */
        mr__shm_ring *s = r->link.shm;
        size_t at = (size_t)(atomic_load_explicit(&s->read, memory_order_relaxed) % RING);
        *p = s->ring + at;
        return smaller(smaller(available(r), RING - at), want);
    }
    if (r->end - r->at < least) {
        memmove(r->scratch, r->scratch + r->at, r->end - r->at);
        r->end -= r->at;
        r->at = 0;
        size_t have = r->end;
        r->end += receive(r, r->scratch + have, smaller(want, MR__SCRATCH) - have);
    }
    *p = r->scratch + r->at;
    return smaller(r->end - r->at, want);
}

void mr__link_consume(mr__link_reader *r, size_t n)
{
    if (r->link.shm)
        consume_shared(r, n);
    else
        r->at += n;
}

size_t mr__link_get(mr__link_reader *r, void *to, size_t n, bool read_soon)
{
    const void *p;
    if (r->broken || n == 0)
        return 0;
    if (!r->link.shm && r->at == r->end)
        return receive(r, to, n);
    n = mr__link_peek(r, 1, n, &p);
    if (n) {
        if (read_soon)
            memcpy(to, p, n);
        else
            copy_past_caches(to, p, n);
        mr__link_consume(r, n);
    }
    return n;
}

/* ---- waiting ---- */

static bool has_room(mr__link_writer *w)
{
    mr__shm_ring *s = w->link.shm;
    return atomic_load_explicit(&s->written, memory_order_relaxed) -
               atomic_load_explicit(&s->read, memory_order_seq_cst) <
           RING;
}

static bool has_bytes(mr__link_reader *r, size_t least)
{
    mr__shm_ring *s = r->link.shm;
    return atomic_load_explicit(&s->written, memory_order_seq_cst) -
               atomic_load_explicit(&s->read, memory_order_relaxed) >=
           least;
}

static bool shared_is_ready(mr__link_writer *w, bool wants_write, mr__link_reader *r,
                            bool wants_read, size_t least)
{
    return (wants_write && w->link.shm && has_room(w)) ||
           (wants_read && r->link.shm && has_bytes(r, least));
}

void mr__links_wait(mr__link_writer *w, bool wants_write, mr__link_reader *r, bool wants_read,
                    size_t least)
{
    bool writes_shared = wants_write && w->link.shm, reads_shared = wants_read && r->link.shm;
    if (writes_shared || reads_shared)
        for (int i = 0; i < SPINS; i++) {
            if (shared_is_ready(w, wants_write, r, wants_read, least))
                return;
            mr__spin_once();
        }
    if (writes_shared)
        atomic_store_explicit(&w->link.shm->writer_sleeps, 1, memory_order_seq_cst);
    if (reads_shared)
        atomic_store_explicit(&r->link.shm->reader_sleeps, 1, memory_order_seq_cst);
    if (!shared_is_ready(w, wants_write, r, wants_read, least)) {
        struct pollfd p[2] = {
            {.fd = wants_write ? w->link.fd : -1, .events = w->link.shm ? POLLIN : POLLOUT},
            {.fd = wants_read ? r->link.fd : -1, .events = POLLIN}};
        mr__sys->poll(p, 2, -1);
        if (writes_shared && p[0].revents) {
            int err = drain(w->link.fd);
            if (err)
                break_writer(w, err < 0 ? 0 : err);
        }
        if (reads_shared && p[1].revents) {
            int err = drain(r->link.fd);
            if (err && !has_bytes(r, least))
                break_reader(r, err < 0 ? 0 : err);
        }
    }
    if (writes_shared)
        atomic_store_explicit(&w->link.shm->writer_sleeps, 0, memory_order_relaxed);
    if (reads_shared)
        atomic_store_explicit(&r->link.shm->reader_sleeps, 0, memory_order_relaxed);
}

void mr__link_cut(const mr__ring_link *link)
{
    mr__sys->shutdown(link->fd, SHUT_RDWR);
}
