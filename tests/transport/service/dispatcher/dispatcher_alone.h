/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_ALONE_H
#define MR_TESTS_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_ALONE_H
/* The dispatcher alone: tests say what peers say, and see what it says, and after which record. */
#include <stdbool.h>
#include "transport/service/dispatcher/dispatcher.h"

/* What it said last, and what it recorded. */
typedef struct dispatcher_alone {
    mr__dispatcher *d;
    uint64_t records, after;
    uint64_t hosted;         /* generation in which stream 0 was given to a worker last */
    uint64_t second;         /* the same of stream 1 */
    uint64_t host;           /* the last one that was given a stream */
    uint64_t job;            /* the last one that a client joined */
    uint64_t elements;       /* of the first place that this client heard of then */
    size_t joined;           /* streams that it heard of */
    int finished;            /* how often clients heard so */
    bool rebuilding, awaits; /* of the job that was recorded last */
    uint64_t former;
    char warning[512];
    int n_reports;         /* answers to tools */
    uint64_t report_after; /* the record that the last one waits for */
    char report[512];      /* what the last one says is wrong */
    char answer[512];      /* or else what it is, as JSON */
    int n_asked;           /* how often workers were asked to end */
    uint64_t asked;        /* which connection last */
    uint64_t matcher;      /* connection of the worker that was last asked for lists of files */
    char drained[64];      /* the worker that is on record as to be drained last */
    uint64_t drained_instance;
    int n_prepares;                /* how often a client heard that a stream moves */
    uint32_t mover;                /* which one last */
    uint64_t prepared;             /* in which generation */
    uint64_t placed, placed_first; /* generations of the last two Placed */
    uint64_t n_unhosts;
    uint64_t forgotten; /* the job that was last */
    int64_t now;
    int kind, code;
    char text[512];
    mr__record_kind last;
    int n_silent;    /* how many clients were logged as silent */
    bool no_balance; /* kept by alone_begin too */
    /* Jobs are tied to names, and this is an operator's; NULL: they are not. The name that the next
     * peers show, and the key that clients say they have. All are kept by alone_begin. */
    const char *operator_, *name;
    const uint8_t *has_key;
    char owner[64]; /* of the last job that a client joined, and its key */
    uint8_t key[MR__JOB_KEY_BYTES];
    size_t key_bytes;
    bool without_lists; /* jobs that clients join have patterns; kept by alone_begin too */
    /* What clients say that join with a place: its splits (with splits), and with is_set, what else
     * of that stream. These are kept by alone_begin. */
    bool splits;
    uint64_t split;
    uint64_t repetition; /* of the jobs that clients join */
    struct {
        bool is_set, ended;
        uint32_t stream;
        uint64_t generation, elements, seed;
        const char *home;
    } also;
} dispatcher_alone;
extern dispatcher_alone alone;

/* A new one; with the list of workers of the static modes, or how many. */
void alone_begin(const char *const *workers, size_t n_workers);
void alone_say(uint64_t from, Mr__Wire__Message__BodyCase kind, void *body);
/* A client joins. place: the position that it reports for one of its streams. */
void alone_join(uint64_t connection, const char *name, Mr__Wire__Mode mode, uint32_t consumers,
                uint64_t job_id, bool place);
/* A worker comes. hosted: what it says it hosts; NULL: nothing. */
void alone_serve_with(uint64_t connection, const char *address, Mr__Wire__Hosted *hosted);
void alone_serve(uint64_t connection, const char *address);
/* One that says which instance it is. */
void alone_serve_as(uint64_t connection, const char *address, uint64_t instance);
/* A tool asks. */
void alone_ask(uint64_t connection, const char *what, const char *name);
/* One that a former account gave a stream to. */
void alone_serve_former(uint64_t connection, const char *address, uint64_t job_id);
/* Time goes by, second after second; all that are there say so. */
void alone_wait(int64_t from, int64_t seconds);
#endif
