/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer's side of a shared job: streams come and go while it is read, and rows come of
 * whichever has some. */
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/client/client_state.h"

/* ---- the loop's ---- */

static mr_code take_stream(mr__remote *r, const mr__arrival *a, mr_status *st)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = a->stream;
    p.elements = a->first;
    p.skip = a->skip;
    p.position = (ProtobufCBinaryData){a->position_bytes, (uint8_t *)(uintptr_t)a->position};
    p.home = (char *)(uintptr_t)a->home;
    p.splits = (uint64_t *)(uintptr_t)a->splits;
    p.n_splits = a->n_splits;
    return mr__c_add_stream(r, &p, st);
}

static mr_code take_splits(mr__remote *r, const mr__arrival *a, mr_status *st)
{
    mr__c_stream *s = a->stream < r->n_streams ? r->streams[a->stream] : NULL;
    if (!s)
        return MR_OK;
    uint64_t *copy = mr_memdup(a->splits, a->n_splits * sizeof *copy);
    if (!copy)
        return mr_fail_memory(st, a->n_splits * sizeof *copy, "a stream's splits");
    pthread_mutex_lock(&r->lock);
    mr_free(s->splits);
    s->splits = copy;
    s->n_splits = a->n_splits;
    pthread_mutex_unlock(&r->lock);
    return MR_OK;
}

void mr__c_shared_arrived(mr__remote *r, const mr__arrival *a)
{
    mr_status st;
    mr__c_stream *s = NULL;
    mr_code rc = a->kind == MR__ARRIVED_STREAM   ? take_stream(r, a, &st)
                 : a->kind == MR__ARRIVED_SPLITS ? take_splits(r, a, &st)
                                                 : MR_OK;
    if (rc != MR_OK) {
        mr__c_fail(r, &st);
        return;
    }
    pthread_mutex_lock(&r->lock);
    if (a->kind == MR__ARRIVED_OVER)
        r->all_ended = true;
    else if (a->kind == MR__ARRIVED_GONE && a->stream < r->n_streams)
        s = r->streams[a->stream];
    if (s) { /* the consumer may be looking at it: it stays until this is closed */
        s->gone = true;
        s->next_gone = r->gone;
        r->gone = s;
        r->streams[a->stream] = NULL;
    }
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
}

/* ---- the consumer's; the lock is held ---- */

/* What was given last counts as consumed. */
static void consume_last(mr__remote *r)
{
    mr__c_stream *s = r->last;
    if (!s || s->gone)
        return;
    mr__c_release(r, s);
    mr__c_consume(r, s);
}

/* Blocks of streams that went to others. */
static void drop_gone(mr__remote *r)
{
    for (mr__c_stream *s = r->gone; s; s = s->next_gone)
        while (s->first) {
            mr__c_arrived *a = s->first;
            s->first = a->next;
            mr__c_free_arrived(a);
        }
}

/* The next stream, in turn, of which something is there; NULL: none. */
static mr__c_stream *find(mr__remote *r)
{
    for (size_t k = 0; k < r->n_streams; k++) {
        size_t i = (r->turn + k) % r->n_streams;
        mr__c_stream *s = r->streams[i];
        if (!s || s->ended || !s->first)
            continue;
        if (s->first->kind == MR__ARRIVED_END) {
            mr_buffer_unref(s->end_position);
            s->end_position = s->first->position ? mr_buffer_ref(s->first->position) : NULL;
            s->ended = true;
            continue;
        }
        r->turn = i + 1;
        return s;
    }
    return NULL;
}

/* ---- the source ---- */

static mr_code next_of_all(mr__stream_source *src, size_t want, mr_block *b, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    mr__c_stream *s = NULL;
    mr_code rc = MR_OK;
    mr_block_clear(b);
    pthread_mutex_lock(&r->lock);
    consume_last(r);
    drop_gone(r);
    while (rc == MR_OK && !(s = find(r)) && !r->is_failed && !r->all_ended) {
        rc = mr__c_sleep(r, st);
        drop_gone(r);
    }
    mr__c_set_waits(r, false);
    bool failed = !s && r->is_failed;
    pthread_mutex_unlock(&r->lock);
    if (rc != MR_OK)
        return rc;
    if (!s)
        return failed ? mr__c_say_failure(r, st) : MR_END;
    r->last = s;
    return mr__c_give(r, s, want, b, st);
}

static void stands(mr__stream_source *src, uint32_t stream, size_t back)
{
    mr__remote *r = (mr__remote *)src;
    (void)stream;
    (void)back;
    pthread_mutex_lock(&r->lock);
    consume_last(r);
    pthread_mutex_unlock(&r->lock);
}

static mr_code places(mr__stream_source *src, Mr__Wire__Place ***out, size_t *n, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    Mr__Wire__Place place;
    mr_code rc = MR_OK;
    *n = 0;
    pthread_mutex_lock(&r->lock);
    *out = mr_calloc(r->n_streams + 1, sizeof **out);
    if (!*out)
        rc = mr_fail_memory(st, r->n_streams * sizeof **out, "a position");
    for (size_t i = 0; rc == MR_OK && i < r->n_streams; i++) {
        if (!r->streams[i])
            continue;
        mr__c_place(r->streams[i], &place);
        rc = mr__wire_copy(&place.base, &(*out)[*n], st);
        *n += rc == MR_OK;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

const mr__stream_source_class mr__c_shared_class = {.next_of_all = next_of_all,
                                                    .places = places,
                                                    .stands = stands,
                                                    .flush = mr__c_flush,
                                                    .close = mr__c_close};
