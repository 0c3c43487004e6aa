/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda_double/nccl_processes.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 20 };

/* What an id has. */
typedef struct name {
    uint64_t pid, number, time;
} name;

/* What a process says when it comes. */
typedef struct hello {
    uint32_t ranks, n;
} hello;

struct cd_peers {
    name name;
    int n;
    uint32_t local;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* one sum at a time */
    atomic_bool ready, lost, aborted;
    size_t n_fds; /* of the process that listens: one a process; else one */
    int fds[CD_RANKS];
    uint32_t ranks[CD_RANKS]; /* of the process at the other end of each */
};

void cd_peers_make_id(ncclUniqueId *id)
{
    static atomic_ulong n;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const name x = {(uint64_t)getpid(), atomic_fetch_add(&n, 1) + 1,
                    (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec};
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &x, sizeof x);
}

cd_peers *cd_peers_new(const ncclUniqueId *id, int n)
{
    cd_peers *p = calloc(1, sizeof *p);
    if (!p)
        cd_misuse("no memory of the host");
    memcpy(&p->name, id->internal, sizeof p->name);
    p->n = n;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static bool gives_up(const cd_peers *p)
{
    return atomic_load(&p->aborted) || cd_any_device_error();
}

/* Sends or receives all of it; false: given up. A lost peer is waited for until then. */
static bool move(cd_peers *p, int fd, void *data, size_t bytes, bool sends)
{
    char *at = data;
    while (bytes > 0 && !gives_up(p)) {
        struct pollfd f = {.fd = fd, .events = sends ? POLLOUT : POLLIN};
        if (atomic_load(&p->lost) || poll(&f, 1, TURN_MS) <= 0) {
            poll(NULL, 0, atomic_load(&p->lost) ? TURN_MS : 0);
            continue;
        }
        ssize_t n = sends ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                          : recv(fd, at, bytes, MSG_DONTWAIT);
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            atomic_store(&p->lost, true);
    }
    return bytes == 0;
}

static bool sends(cd_peers *p, int fd, const void *data, size_t bytes)
{
    return move(p, fd, (void *)(uintptr_t)data, bytes, true);
}

static bool receives(cd_peers *p, int fd, void *data, size_t bytes)
{
    return move(p, fd, data, bytes, false);
}

static bool listens(const cd_peers *p)
{
    return p->name.pid == (uint64_t)getpid();
}

/* A name outside the file system, so that no file remains. */
static socklen_t address_of(const cd_peers *p, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "cuda-double-%llu-%llu-%llu",
                     (unsigned long long)p->name.pid, (unsigned long long)p->name.number,
                     (unsigned long long)p->name.time);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void take_one(cd_peers *p, int listener, uint32_t *there)
{
    struct pollfd f = {.fd = listener, .events = POLLIN};
    hello h;
    if (poll(&f, 1, TURN_MS) <= 0)
        return;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        return;
    if (!receives(p, fd, &h, sizeof h)) {
        close(fd);
        return;
    }
    if (h.n != (uint32_t)p->n || (h.ranks & *there) || p->n_fds == CD_RANKS)
        cd_misuse("ncclCommInitRankConfig: ranks %x of %u come where %x of %d are there", h.ranks,
                  h.n, *there, p->n);
    *there |= h.ranks;
    p->ranks[p->n_fds] = h.ranks;
    p->fds[p->n_fds++] = fd;
}

static bool gather_all(cd_peers *p)
{
    struct sockaddr_un a;
    socklen_t size = address_of(p, &a);
    uint32_t there = p->local, all = (1u << p->n) - 1;
    bool well = true;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, size) != 0 ||
        listen(listener, CD_RANKS) != 0)
        cd_misuse("ncclCommInitRankConfig: no socket: %s", strerror(errno));
    while (there != all && !gives_up(p))
        take_one(p, listener, &there);
    close(listener);
    for (size_t i = 0; i < p->n_fds && well; i++)
        well = there == all && sends(p, p->fds[i], "g", 1);
    return well && there == all;
}

static bool find_listener(cd_peers *p)
{
    struct sockaddr_un a;
    socklen_t size = address_of(p, &a);
    const hello h = {p->local, (uint32_t)p->n};
    char go;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        cd_misuse("ncclCommInitRankConfig: no socket: %s", strerror(errno));
    p->fds[p->n_fds++] = fd;
    while (!gives_up(p) && connect(fd, (struct sockaddr *)&a, size) != 0)
        poll(NULL, 0, TURN_MS); /* it does not listen yet */
    return sends(p, fd, &h, sizeof h) && receives(p, fd, &go, 1);
}

static void *meet_main(void *peers)
{
    cd_peers *p = peers;
    if (listens(p) ? gather_all(p) : find_listener(p))
        atomic_store(&p->ready, true);
    return NULL;
}

void cd_peers_meet(cd_peers *p, uint32_t local)
{
    p->local = local;
    if (pthread_create(&p->thread, NULL, meet_main, p) != 0)
        cd_misuse("no thread for NCCL");
    p->has_thread = true;
}

ncclResult_t cd_peers_state(cd_peers *p)
{
    return atomic_load(&p->lost)    ? ncclRemoteError
           : atomic_load(&p->ready) ? ncclSuccess
                                    : ncclInProgress;
}

static void check_same(const cd_peers *p, const cd_peers_sum *a, const cd_peers_sum *b,
                       uint32_t ranks)
{
    if (a->number != b->number || a->n != b->n || a->type != b->type || a->op != b->op)
        cd_misuse("ncclAllReduce %llu: rank %d sums %llu values of type %u by %u, rank %d in call "
                  "%llu %llu of type %u by %u",
                  (unsigned long long)a->number, __builtin_ctz(p->local), (unsigned long long)a->n,
                  a->type, a->op, __builtin_ctz(ranks), (unsigned long long)b->number,
                  (unsigned long long)b->n, b->type, b->op);
}

typedef void reduce_fn(const void *arg, const void *const *in, int n, void *out);

static bool reduce_here(cd_peers *p, const cd_peers_sum *s, const void **in, reduce_fn *reduce,
                        const void *arg, void *result)
{
    char *theirs = calloc((size_t)p->n, s->bytes ? s->bytes : 1);
    bool well = true;
    if (!theirs)
        cd_misuse("no memory of the host");
    for (size_t i = 0; i < p->n_fds && well; i++) {
        cd_peers_sum other;
        well = receives(p, p->fds[i], &other, sizeof other);
        if (well)
            check_same(p, s, &other, p->ranks[i]);
        for (int r = 0; r < p->n && well; r++)
            if (p->ranks[i] >> r & 1) {
                in[r] = theirs + (size_t)r * s->bytes;
                well = receives(p, p->fds[i], theirs + (size_t)r * s->bytes, s->bytes);
            }
    }
    if (well)
        reduce(arg, in, p->n, result);
    for (size_t i = 0; i < p->n_fds && well; i++)
        well = sends(p, p->fds[i], result, s->bytes);
    free(theirs);
    return well;
}

static bool reduce_there(cd_peers *p, const cd_peers_sum *s, const void *const *in, void *result)
{
    bool well = sends(p, p->fds[0], s, sizeof *s);
    for (int r = 0; r < p->n && well; r++)
        if (p->local >> r & 1)
            well = sends(p, p->fds[0], in[r], s->bytes);
    return well && receives(p, p->fds[0], result, s->bytes);
}

bool cd_peers_reduce(cd_peers *p, const cd_peers_sum *s, const void **in, reduce_fn *reduce,
                     const void *arg, void *result)
{
    pthread_mutex_lock(&p->lock);
    /* It may have been aborted since the last rank of this process came: its sockets are closed. */
    bool well = !gives_up(p) && (listens(p) ? reduce_here(p, s, in, reduce, arg, result)
                                            : reduce_there(p, s, in, result));
    pthread_mutex_unlock(&p->lock);
    return well;
}

void cd_peers_abort(cd_peers *p)
{
    atomic_store(&p->aborted, true);
}

void cd_peers_close(cd_peers *p)
{
    atomic_store(&p->aborted, true); /* of the meeting, where it is under way */
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    p->n_fds = 0;
    pthread_mutex_unlock(&p->lock);
}
