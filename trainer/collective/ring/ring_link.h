/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_RING_WAY_H
#define MR_TRAINER_RING_WAY_H
/* The two directions of a ring at one rank: bytes to the next one, bytes from the one before.
 * Nothing here waits but mr__ways_wait. A function that finds its connection broken says so in
 * `broken`.
 *
 * thread   one at a time; mr__way_cut from any */
#include <stdbool.h>
#include <stddef.h>
#include "trainer/collective/processes/rendezvous.h"

enum { MR__SCRATCH = 256 << 10 };

typedef struct mr__writer {
    mr__way way;
    const char *broken; /* why; NULL: it is not. Static text, or text below */
    char text[96];
    unsigned measured; /* copies to shared memory so far that were timed */
    double cost[2];    /* ns a byte: through the caches, past them; 0: not known */
} mr__writer;

typedef struct mr__reader {
    mr__way way;
    unsigned char *scratch; /* TCP: MR__SCRATCH bytes that were received and not taken */
    size_t at, end;
    const char *broken;
    char text[96];
} mr__reader;

/* Sends up to n bytes and returns how many. */
size_t mr__way_put(mr__writer *w, const void *p, size_t n);
/* What has come, at most `want` bytes: *p is valid until mr__way_consume, which takes n of them. At
 * least `least` where so much has come. */
size_t mr__way_peek(mr__reader *r, size_t least, size_t want, const void **p);
void mr__way_consume(mr__reader *r, size_t n);
/* Receives up to n bytes to `to` and returns how many. read_soon: they are to be in the caches. */
size_t mr__way_get(mr__reader *r, void *to, size_t n, bool read_soon);
/* Waits until there is more to read (wants_read: `least` bytes) or room to write, or a connection
 * broke. */
void mr__ways_wait(mr__writer *w, bool wants_write, mr__reader *r, bool wants_read, size_t least);
/* Breaks the connection, so that whoever waits goes on. */
void mr__way_cut(const mr__way *way);
#endif
