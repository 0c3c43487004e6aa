/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_RING_LINK_H
#define MR_TRAINER_RING_LINK_H
/* The two directions of a ring at one rank: bytes to the next one, bytes from the one before.
 * Nothing here waits but mr__links_wait. A function that finds its connection broken says so in
 * `broken`.
 *
 * thread   one at a time; mr__link_cut from any */
#include <stdbool.h>
#include <stddef.h>
#include "trainer/collective/processes/rendezvous.h"

enum { MR__SCRATCH = 256 << 10 };

typedef struct mr__link_writer {
    mr__ring_link link;
    const char *broken; /* why; NULL: it is not. Static text, or text below */
    char text[96];
    unsigned measured; /* copies to shared memory so far that were timed */
    double cost[2];    /* ns a byte: through the caches, past them; 0: not known */
} mr__link_writer;

typedef struct mr__link_reader {
    mr__ring_link link;
    unsigned char *scratch; /* TCP: MR__SCRATCH bytes that were received and not taken */
    size_t at, end;
    const char *broken;
    char text[96];
} mr__link_reader;

/* Sends up to n bytes and returns how many. */
size_t mr__link_put(mr__link_writer *w, const void *p, size_t n);
/* Returns how much has come, at most `want` bytes, and at least `least` once that much has; *p is
 * valid until mr__link_consume, which takes n of them. */
size_t mr__link_peek(mr__link_reader *r, size_t least, size_t want, const void **p);
void mr__link_consume(mr__link_reader *r, size_t n);
/* Receives up to n bytes to `to` and returns how many. read_soon: they are to be in the caches. */
size_t mr__link_get(mr__link_reader *r, void *to, size_t n, bool read_soon);
/* Waits until there is more to read (wants_read: `least` bytes) or room to write, or a connection
 * broke. */
void mr__links_wait(mr__link_writer *w, bool wants_write, mr__link_reader *r, bool wants_read,
                    size_t least);
/* Breaks the connection, so that a wait for it ends. */
void mr__link_cut(const mr__ring_link *link);
#endif
