/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_LOOP_ENGINE_H
#define MR_TRANSPORT_NET_LOOP_ENGINE_H
/* The interface that an engine of the loop implements, and the functions of the loop that it may
 * use. Private to net/.
 *
 * A socket's life:   CONNECTING --> OPEN --> CLOSING --> CLOSED (`closed` was called)
 * An engine closes the descriptor once nothing is in flight, then calls mr__socket_is_gone. */
#include <pthread.h>
#include "transport/net/loop.h"
#include "transport/net/shared_memory.h"

enum { MR__SOCKET_CONNECTING = 1, MR__SOCKET_OPEN, MR__SOCKET_CLOSING, MR__SOCKET_CLOSED };
enum {
    MR__SOCKET_READABLE = 1, /* epoll: more may be read, written */
    MR__SOCKET_WRITABLE = 2,
    MR__SOCKET_STARTED = 4,   /* `opened` was called */
    MR__SOCKET_FINISHING = 8, /* closes when its queue is empty */
    MR__SOCKET_QUEUED = 16,   /* on the list of sockets to serve */
    MR__SOCKET_PAUSED = 32,   /* `room` returned NULL */
    MR__SOCKET_MUTE = 64      /* the peer takes no more; `why` is set */
};
/* Maximum number of pieces of memory in one send, and of bytes that one socket may move before the
 * others' turn. */
enum { MR__SEND_PIECES = 64, MR__TURN_BYTES = 4 << 20 };

typedef struct mr__loop_engine {
    const char *name;
    /* Fills l->engine. */
    mr_code (*open)(mr__loop *l, mr_status *st);
    void (*close)(mr__loop *l);
    /* Waits for events until until_ns at most (does not wait if that is past), and records them:
     * sockets to serve by mr__socket_serve_later, accepted descriptors by callbacks. */
    mr_code (*wait)(mr__loop *l, int64_t until_ns, mr_status *st);
    /* Ends a wait; any thread. */
    void (*wake)(mr__loop *l);
    /* Adds a socket in state CONNECTING (to `to`) or OPEN. */
    mr_code (*add)(mr__loop *l, mr__socket *s, const mr__address *to, mr_status *st);
    /* s has bytes to send, can receive, or is closing: does everything that is possible now. */
    void (*serve)(mr__loop *l, mr__socket *s);
    mr_code (*listen)(mr__loop *l, mr__listener *x, mr_status *st);
    void (*accept_again)(mr__loop *l, mr__listener *x); /* after mr__listener_pause */
    void (*unlisten)(mr__loop *l, mr__listener *x);
} mr__loop_engine;

/* The pipe through which pages get into sockets. It contains the next bytes of one socket's
 * queue. */
typedef struct mr__page_pipe {
    int in, out; /* with room > 0 */
    size_t room; /* bytes; 0: not created yet */
    mr__socket *of;
    size_t left;     /* bytes in it, of `of` */
    bool is_refused; /* pages are copied, like all other bytes */
} mr__page_pipe;

struct mr__loop {
    const mr__loop_engine *engine_class;
    void *engine;
    int64_t now_ns;
    mr__timer **timers; /* a heap, the first due first */
    size_t n_timers, timers_capacity;
    mr__socket *sockets;
    mr__socket *serve_first, *serve_last;
    mr__listener *listeners_closed; /* `closed` must be called */
    mr__page_pipe pages;
    pthread_mutex_t lock; /* guards the fields below */
    mr__posted *posted_first, *posted_last;
    bool waiting; /* the engine may be asleep */
};

extern const mr__loop_engine mr__loop_uring, mr__loop_epoll;

/* Called by `wait` after waiting, before any callback. */
void mr__loop_woke(mr__loop *l);
/* Serves s in this turn or the next. */
void mr__socket_serve_later(mr__socket *s);
/* Calls `opened`. */
void mr__socket_is_open(mr__socket *s);
/* The kernel took n bytes of the queue: notifies their owners. */
void mr__socket_sent(mr__socket *s, size_t n);
/* Gathers the queue into at most `most` pieces of m->msg_iov, with the descriptor to send with them
 * in `room` (NULL: the socket is not local). Stops at lent pages: *lent bytes at *pages follow the
 * pieces (they are the socket's next bytes if it gathered no pieces); 0: none follow. */
void mr__socket_gather(const mr__socket *s, struct msghdr *m, size_t most, mr__passing *room,
                       const void **pages, size_t *lent);
/* True if the next bytes of s include lent pages, for mr__socket_send_now. */
bool mr__socket_lends(const mr__socket *s);
/* Sends from the queue until the kernel takes no more for now (false), the queue is empty, s fails
 * or *budget bytes are sent; subtracts the bytes sent from *budget. blocks: the descriptor is in
 * blocking mode. */
bool mr__socket_send_now(mr__socket *s, size_t *budget, bool blocks);
/* s is closed; NULL: the loop is closed. */
void mr__page_pipe_end(mr__loop *l, const mr__socket *s);
/* Keeps the descriptor received with m. */
void mr__socket_keep_passed(mr__socket *s, const struct msghdr *m);
/* Sending failed with err. If the peer has closed the connection, s only ends once all that has
 * arrived from it is received: it may have said why. */
void mr__socket_cannot_send(mr__socket *s, int err);
/* `room` returned NULL. */
void mr__socket_pause(mr__socket *s);
/* Records why the socket ends (the first reason counts) and starts closing. */
void mr__socket_fail_errno(mr__socket *s, int err, const char *what);
void mr__socket_at_end(mr__socket *s); /* the peer sends no more */
/* Its descriptor is closed and nothing is in flight: calls `closed`. */
void mr__socket_is_gone(mr__socket *s);
/* Accepting failed with err: logs it, and accepts again after a while. false: the timer could not
 * be set; accept again at once. */
bool mr__listener_pause(mr__listener *x, int err);
/* A listener's descriptor is closed and nothing is in flight. */
void mr__listener_is_gone(mr__listener *x);
#endif
