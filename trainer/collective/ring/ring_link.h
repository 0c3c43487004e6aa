/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_RING_RING_LINK_H
#define MR_TRAINER_COLLECTIVE_RING_RING_LINK_H
/* The two directions of a ring at one rank: bytes to the next rank, bytes from the previous one.
 * Only mr__links_wait waits. A function that finds its connection broken sets `broken`.
 *
 * thread   one at a time; mr__link_cut from any */
#include <stdbool.h>
#include <stddef.h>
#include "trainer/collective/processes/rendezvous.h"
#include "transport/wire/tls_socket.h"

enum { MR__SCRATCH = 256 << 10 };

typedef struct mr__link_writer {
    mr__ring_link link;
    const char *broken; /* why, static or in `text`; NULL: not broken */
    char text[96];
    unsigned measured; /* timed copies to shared memory so far */
    double cost[2];    /* ns per byte: through the caches, bypassing them; 0: unknown */
} mr__link_writer;

typedef struct mr__link_reader {
    mr__ring_link link;
    unsigned char *scratch; /* TCP: MR__SCRATCH bytes, received and not yet consumed */
    size_t at, end;
    const char *broken;
    char text[96];
} mr__link_reader;

/* Sends up to n bytes and returns how many. By TLS some of them may wait for mr__link_flush. */
size_t mr__link_put(mr__link_writer *w, const void *p, size_t n);
/* Whether bytes wait, and sends what the socket accepts of them; returns whether any were sent. */
static inline bool mr__link_owes(const mr__link_writer *w)
{
    return w->link.tls && mr__tls_socket_owes(w->link.tls);
}
bool mr__link_flush(mr__link_writer *w);
/* Returns the number of available bytes, at most `want`, and at least `least` once that many have
 * arrived. *p is valid until mr__link_consume, which consumes n of them. */
size_t mr__link_peek(mr__link_reader *r, size_t least, size_t want, const void **p);
void mr__link_consume(mr__link_reader *r, size_t n);
/* Receives up to n bytes to `to` and returns how many. read_soon: keep them in the caches. */
size_t mr__link_get(mr__link_reader *r, void *to, size_t n, bool read_soon);
/* Waits until the reader has data (wants_read: `least` bytes) or the writer has room, or a
 * connection broke. */
void mr__links_wait(mr__link_writer *w, bool wants_write, mr__link_reader *r, bool wants_read,
                    size_t least);
/* Breaks the connection, which ends waits for it. */
void mr__link_cut(const mr__ring_link *link);
#endif
