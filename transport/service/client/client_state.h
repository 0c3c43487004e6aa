/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_STATE_H
#define MR_TRANSPORT_SERVICE_CLIENT_STATE_H
/* Inside of a client: client_run.c is what the consumer's thread does, client_shared.c the same for
 * the streams of a shared job, client_loop.c what the loop's does. Private to service/. */
#include <pthread.h>

#include "transport/service/client/client_run.h"
#include "transport/service/client_connections.h"
#include "transport/service/client/job_reader.h"

/* What came in of a stream. The first of a queue may be given in part; the end stays. */
typedef struct mr__c_arrived {
    struct mr__c_arrived *next;
    int kind; /* MR__ARRIVED_... */
    mr_block block;
    size_t at;    /* rows given or left out */
    uint64_t end; /* number of the element after it */
    size_t bytes;
    mr_buffer *position; /* after it */
    mr_status status;
} mr__c_arrived;

/* Where a stream stands: `position` is of element number `element`. */
typedef struct mr__c_mark {
    mr_buffer *position; /* NULL: the beginning */
    uint64_t element;
} mr__c_mark;

typedef struct mr__c_stream {
    uint32_t index;
    bool is_cut; /* the loop's: an arrival was lost, the client has failed */
    char *home;  /* shared: the worker that alone may host it; NULL: any */
    /* guarded by the lock */
    uint64_t *splits; /* dynamic: that it was given, as far as is known */
    size_t n_splits;
    bool gone; /* shared: it is another client's, and in the list of those */
    struct mr__c_stream *next_gone;
    mr__c_arrived *first, *last;
    struct mr__c_stream *next_news;
    bool has_news;
    uint64_t consumed; /* elements, as the reader is to know */
    mr__c_mark consumed_at;
    size_t released;
    /* the consumer's */
    uint64_t given;           /* elements */
    size_t back;              /* rows given that it still has */
    mr__c_mark before, after; /* what was given last; after: where all of it was given */
    size_t to_release;        /* bytes of it */
    bool ended;
    mr_buffer *end_position;
} mr__c_stream;

typedef struct mr__remote {
    mr__stream_source base;
    mr__remote_opts o;
    Mr__Wire__Job *job; /* final once joined */
    Mr__Wire__Join join;
    char *service;
    mr__token token;
    mr_cancel *cancel;
    const mr_spec *spec;
    pthread_t thread;
    bool has_thread;
    int event; /* an eventfd: something came for the consumer */
    pthread_mutex_t lock;
    /* guarded by the lock */
    mr__c_stream **streams; /* by index, NULL: not ours; only the loop changes them */
    size_t n_streams;
    mr__c_stream *gone;
    bool joined, is_failed, flushed, over;
    bool all_ended; /* shared: all streams have, whoever read them */
    mr_status failed;
    bool sleeps; /* the consumer waits for the event */
    mr__c_stream *news_first, *news_last;
    size_t news_bytes; /* released, and the loop does not know it */
    bool news_posted, wants_flush, wants_leave, wants_stop, waits;
    /* the consumer's */
    bool failure_said;
    void *place;        /* what place gave last */
    mr__c_stream *last; /* shared: whose rows were given last */
    size_t turn;        /* shared: whose turn it is */
    /* the loop's */
    mr__posted news;
    mr__loop *loop;
    mr__job_reader *reader;
    mr__dials dials;
    mr__timer tick, finish;
    bool stops, is_late;
    bool has_for_consumer; /* it is woken at the end of this turn */
} mr__remote;

void mr__c_set_mark(mr__c_mark *m, mr_buffer *position, uint64_t element);
void mr__c_free_arrived(mr__c_arrived *a);
void mr__c_free_stream(mr__c_stream *s);
bool mr__c_is_shared(const mr__remote *r); /* clients share the job; it is known once joined */
/* The consumer waits for the event, or until it is cancelled; if that is long, the loop learns it.
 * The lock is held.
 * returns  MR_OK, MR_CANCELLED */
mr_code mr__c_sleep(mr__remote *r, mr_status *st) MR_NODISCARD;
/* Sets whether it waits; the lock is held. */
void mr__c_set_waits(mr__remote *r, bool waits);
/* What is first in the queue of s goes to b; without the lock. */
mr_code mr__c_give(mr__remote *r, mr__c_stream *s, size_t want, mr_block *b,
                   mr_status *st) MR_NODISCARD;
/* The failure, once, then MR_END. */
mr_code mr__c_say_failure(mr__remote *r, mr_status *st) MR_NODISCARD;
/* *out = where s stands less what the consumer still has; borrows from s. */
void mr__c_place(const mr__c_stream *s, Mr__Wire__Place *out);
/* What is released of s is news, which the loop takes with some more; the lock is held. */
void mr__c_release(mr__remote *r, mr__c_stream *s);
/* All that was given of s less what the consumer still has counts as consumed; the lock is held. */
void mr__c_consume(mr__remote *r, mr__c_stream *s);

/* As of mr__stream_source_class. */
void mr__c_flush(mr__stream_source *src);
void mr__c_close(mr__stream_source *src);

/* ---- client_shared.c ---- */
extern const mr__stream_source_class mr__c_shared_class;
/* Of the loop: a stream comes or goes, or all have ended. */
void mr__c_shared_arrived(mr__remote *r, const mr__arrival *a);

/* ---- client_loop.c ---- */
/* A stream of this client stands at p; the loop's. */
mr_code mr__c_add_stream(mr__remote *r, const Mr__Wire__Place *p, mr_status *st) MR_NODISCARD;
/* Makes the loop and what runs on it. */
mr_code mr__c_make_reader(mr__remote *r, mr_status *st) MR_NODISCARD;
/* The thread. */
void *mr__c_run_loop(void *remote);
void mr__c_fail(mr__remote *r, const mr_status *why);
/* The lock is held. The consumer has news of s; the loop takes them when they are
 * posted, or within a second. */
void mr__c_add_news(mr__remote *r, mr__c_stream *s);
void mr__c_post_news(mr__remote *r);
#endif
