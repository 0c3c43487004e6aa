/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STREAM_SOURCE_H
#define MR_TRANSPORT_SERVICE_STREAM_SOURCE_H
/* Where the streams of a job come from: the op `distribute` interleaves them, and knows no more of
 * them than this.
 *
 *     op distribute --next, place--> mr__stream_source
 *                                      |- local:  an iterator a stream, in this process
 *                                      `- remote: client_run.c, from the workers of a service
 *
 * thread   one at a time per object */
#include "pipeline/memory/block.h"
#include "transport/wire/messages.h"

typedef struct mr__stream_source mr__stream_source;
typedef struct mr__stream_source_class {
    /* Next rows of stream s, 1 to want of them, into *b (cleared first). Waits; a cancel ends it
     * with MR_CANCELLED.
     * returns  MR_OK, MR_END (sticky), or an error, once */
    mr_code (*next)(mr__stream_source *src, uint32_t s, size_t want, mr_block *b, mr_status *st);
    /* *out = where stream s stands after what next gave (less what `stands` said): elements,
     * position, skip, end. The position is borrowed until the next call. */
    mr_code (*place)(mr__stream_source *src, uint32_t s, Mr__Wire__Place *out, mr_status *st);
    /* The consumer still has the last `back` rows of what next gave of s: place, flush and close go
     * by that until it is called for s again. NULL: nothing is kept of who consumed what. */
    void (*stands)(mr__stream_source *src, uint32_t s, size_t back);
    /* What `stands` said is acknowledged now, not within a second; does not wait for it. NULL:
     * there is nobody to tell. */
    void (*flush)(mr__stream_source *src);
    /* *s = a stream of which next has something at once, waiting for one. NULL: next of any. */
    mr_code (*any)(mr__stream_source *src, uint32_t *s, mr_status *st);
    /* Of a job whose streams come and go, instead of next, place and any; else NULL. next_of_all:
     * the next rows of whichever stream has some; those before count as consumed. MR_END: of all
     * streams, whoever read them. */
    mr_code (*next_of_all)(mr__stream_source *src, size_t want, mr_block *b, mr_status *st);
    /* *out = where each stream of this client stands; both owned, each by mr__wire_free, also on
     * failure. */
    mr_code (*places)(mr__stream_source *src, Mr__Wire__Place ***out, size_t *n, mr_status *st);
    /* What next gave (less what `stands` said) counts as consumed. */
    void (*close)(mr__stream_source *src);
} mr__stream_source_class;

struct mr__stream_source {
    const mr__stream_source_class *class_;
    Mr__Wire__Job *job; /* final: graph, streams, seed, lists, directory; the source's */
};
#endif
