/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_LOOP_H
#define MR_TRANSPORT_NET_LOOP_H
/* The event loop: timers, stream sockets, and work posted by other threads. One interface with
 * several engines: io_uring, epoll where the kernel or a container's policy refuses io_uring, and
 * a simulated network on a virtual clock in the tests.
 *
 *     other threads --post--> +------+ <--timers
 *                             | loop | --accepted--> mr__listener
 *       kernel or simulation  +------+ --opened, room, received, closed--> mr__socket
 *
 * Listeners, sockets, timers and posted work are embedded in their owners; the loop allocates no
 * memory for them. All callbacks run in the loop's thread, one at a time, never from within a
 * function of this header. A callback may call any function of this header.
 *
 * thread   mr__loop_post from any; the rest in the loop's thread only */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "pipeline/status.h"
#include "transport/net/address.h"
#include "transport/net/stranger_log.h"

typedef struct mr__loop mr__loop;

typedef enum mr__loop_kind {
    MR__LOOP_AUTO, /* io_uring, else epoll, which is logged */
    MR__LOOP_URING,
    MR__LOOP_EPOLL
} mr__loop_kind;

/* errors   MR_RESOURCE_EXHAUSTED; URING: the kernel's error */
mr_code mr__loop_open(mr__loop_kind kind, mr__loop **out, mr_status *st) MR_NODISCARD;
/* All listeners and sockets must be closed (`closed` was called). NULL: nothing. */
void mr__loop_close(mr__loop *l);
const char *mr__loop_name(const mr__loop *l); /* "io_uring", "epoll" */

/* Monotonic time in nanoseconds, read once per turn: equal for all callbacks of one turn. */
int64_t mr__loop_now(const mr__loop *l);

/* One turn: waits until an event occurs, the first timer is due or `until_ns` is reached
 * (INT64_MAX: no limit), then runs the callbacks that are due.
 * errors   the engine failed; the loop can still be closed */
mr_code mr__loop_turn(mr__loop *l, int64_t until_ns, mr_status *st) MR_NODISCARD;

/* ---- timers ---- */

typedef struct mr__timer mr__timer;
struct mr__timer {
    void (*fire)(mr__timer *t); /* set by the owner */
    int64_t at_ns;
    size_t place; /* in the heap, from 1; 0: not set */
};
/* Sets t to fire once at at_ns, also if it was set already; clears it. Setting fails only if the
 * heap cannot grow. */
mr_code mr__timer_set(mr__loop *l, mr__timer *t, int64_t at_ns, mr_status *st) MR_NODISCARD;
void mr__timer_clear(mr__loop *l, mr__timer *t);

/* ---- work from other threads ---- */

typedef struct mr__posted mr__posted;
struct mr__posted {
    mr__posted *next;
    void (*run)(mr__posted *p); /* in the loop's thread; p may be posted again from here on */
};
/* p must not be posted already. Posted work runs in order. */
void mr__loop_post(mr__loop *l, mr__posted *p);
/* Adds 1 to an eventfd, and retries if that fails: a lost wake-up would be a hang.
 * thread   any */
void mr__event_raise(int fd);

/* ---- sockets ---- */

/* Bytes to send, borrowed until `done`: sent is false if the socket closed first. lends: pages of
 * the pieces from this one on (0: of none) may be passed to the kernel without a copy (see
 * send.c). The peer then reads their content at the time it receives them, even after `done`. */
typedef struct mr__send mr__send;
struct mr__send {
    mr__send *next;
    const struct iovec *v;
    size_t n;
    const int *pass; /* a descriptor to send with the first byte, on a local socket; NULL: none */
    size_t lends;
    size_t at, offset; /* set by the loop: the position in v up to which bytes were sent */
    void (*done)(mr__send *s, bool sent);
};

typedef struct mr__socket mr__socket;
typedef struct mr__socket_class {
    /* Connected, or adopted: bytes may be sent. */
    void (*opened)(mr__socket *s);
    /* Returns a buffer of *n bytes for the next bytes, valid until `received` or `closed`. NULL:
     * receiving pauses until mr__socket_receive. */
    void *(*room)(mr__socket *s, size_t *n);
    /* n bytes (at least 1) were received into it. */
    void (*received)(mr__socket *s, size_t n);
    /* The last call, once for every socket that was connected or adopted: the kernel no longer uses
     * any of its memory. why->code is MR_END if the peer closed the stream properly, MR_OK after
     * mr__socket_close. */
    void (*closed)(mr__socket *s, const mr_status *why);
} mr__socket_class;

struct mr__socket {
    const mr__socket_class *class_; /* set by the owner, the rest by the loop */
    mr__loop *loop;
    mr__socket *next, *prev; /* the loop's list */
    mr__socket *next_ready;
    mr__send *first, *last;
    size_t queued_bytes; /* not yet taken by the kernel */
    int fd;              /* -1: none */
    int passed;          /* local: a descriptor that was received with the bytes; -1: none */
    bool is_local;       /* a unix socket */
    uint8_t state, flags;
    uint8_t in_flight; /* operations of io_uring */
    uint32_t low;      /* bytes that must arrive before the loop is woken */
    mr_status why;
    void *op; /* for the engine */
};

/* Connects; `opened` or `closed` follows. local: the abstract name of a unix socket, see
 * address.h.
 * errors   MR_RESOURCE_EXHAUSTED, ...: neither is called */
mr_code mr__socket_connect(mr__loop *l, mr__socket *s, const mr__address *to,
                           mr_status *st) MR_NODISCARD;
/* Takes over a descriptor that a listener accepted, or a connected stream socket; `opened`
 * follows. */
mr_code mr__socket_adopt(mr__loop *l, mr__socket *s, int fd, mr_status *st) MR_NODISCARD;
/* Queues `send`. On a socket that has closed, `done` is called with sent = false in the next
 * turn. */
void mr__socket_send(mr__socket *s, mr__send *send);
/* The descriptor received last with the bytes so far; it now belongs to the caller. -1: none. */
int mr__socket_take_passed(mr__socket *s);
/* Announces that at least n more bytes will arrive (default 1): if n is large, the loop wakes for a
 * larger part of them, not for each packet. Call it in `room`. */
void mr__socket_expect(mr__socket *s, size_t n);
/* Resumes receiving: `room` may return a buffer again. */
void mr__socket_receive(mr__socket *s);
/* Starts closing: drops what is queued; `closed` follows. Further calls do nothing. */
void mr__socket_close(mr__socket *s);
/* The same, after everything queued has been sent. */
void mr__socket_finish(mr__socket *s);

typedef struct mr__listener mr__listener;
struct mr__listener {
    void (*accepted)(mr__listener *l, int fd); /* set by the owner, which takes over fd */
    void (*closed)(mr__listener *l);           /* the last call */
    mr__loop *loop;
    int fd;
    uint8_t in_flight;
    bool closing;
    mr__stranger_log full; /* accepting is paused */
    mr__timer retry;       /* set while accepting is paused */
    mr__listener *next;
    mr__address address; /* as bound, with the port that replaced port 0 */
};
/* errors   MR_ALREADY_EXISTS: the address is in use; MR_PERMISSION_DENIED; MR_UNAVAILABLE */
mr_code mr__listen(mr__loop *loop, mr__listener *l, const mr__address *at,
                   mr_status *st) MR_NODISCARD;
void mr__listener_close(mr__listener *l);
#endif
