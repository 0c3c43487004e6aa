/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_STREAM_SOURCE_H
#define MR_TRANSPORT_SERVICE_CLIENT_STREAM_SOURCE_H
/* The streams of a job, as the op `distribute` reads and interleaves them.
 *
 *     op distribute --next, place--> mr__stream_source
 *                                      |- local:  one iterator per stream, in this process
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
    /* true: next for s may wait for an outside producer or for a worker, so that available rows are
     * delivered first. A local stream knows of its producer from its first pull on. */
    bool (*waits)(mr__stream_source *src, uint32_t s);
    /* *out = the place of stream s after the rows that next returned (without those of `stands`):
     * elements, position, skip, end. The position is borrowed until the next call. */
    mr_code (*place)(mr__stream_source *src, uint32_t s, Mr__Wire__Place *out, mr_status *st);
    /* The consumer has not delivered the last `back` rows that next returned of s: place, flush and
     * close count them as not consumed, until the next call for s. NULL: consumption is not
     * tracked. */
    void (*stands)(mr__stream_source *src, uint32_t s, size_t back);
    /* Acknowledges consumed rows now instead of within a second; does not wait. NULL: there is no
     * service to acknowledge to. */
    void (*flush)(mr__stream_source *src);
    /* *s = a stream for which next does not wait; waits until there is one. NULL: any stream
     * will do. */
    mr_code (*any)(mr__stream_source *src, uint32_t *s, mr_status *st);
    /* For a job whose streams are added and removed, instead of next, waits, place and any; else
     * NULL.
     * next_of_all: the next rows of any stream that has some; earlier ones count as consumed.
     * MR_END: all streams have ended, including those of other clients. */
    mr_code (*next_of_all)(mr__stream_source *src, size_t want, mr_block *b, mr_status *st);
    /* *out = the places of this client's streams; array and places are owned (mr__wire_free), also
     * on failure. */
    mr_code (*places)(mr__stream_source *src, Mr__Wire__Place ***out, size_t *n, mr_status *st);
    /* Rows that next returned (without those of `stands`) count as consumed. */
    void (*close)(mr__stream_source *src);
} mr__stream_source_class;

struct mr__stream_source {
    const mr__stream_source_class *class_;
    Mr__Wire__Job *job; /* final (graph, streams, seed, lists, directory); owned by the source */
};
#endif
