/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_STATE_H
#define MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_STATE_H
/* The data of a client's reader. Private to job_reader.c and the simulation, which prints it. */
#include "pipeline/memory/id_map.h"
#include "transport/service/client/job_reader.h"

typedef enum mr__r_link { MR__DOWN, MR__CONNECTING, MR__UP } mr__r_link;

typedef struct mr__r_usage {
    uint64_t bytes, wait_ns, own_ns;
} mr__r_usage;

/* A worker that at least one stream is read from. */
typedef struct mr__r_worker {
    struct mr__r_worker *next;
    char *address;
    mr__r_link state;
    int64_t heard; /* time of the last message; valid if UP */
} mr__r_worker;

/* The worker that a stream moves to: it is opened there while the old worker serves. Blocks that
 * the old worker has sent already are dropped, until one goes beyond them. That one is kept until
 * the dispatcher has put the change on record. */
typedef struct mr__r_next {
    mr__r_worker *worker;
    uint64_t generation;
    bool opened, is_said; /* is_said: Prepared was sent */
    int64_t open_at;      /* it did not know the stream yet: when Open is sent again */
    int64_t backoff;
    int64_t come_at;           /* when something of it arrived first; 0: nothing did */
    uint64_t granted, got;     /* bytes of credit, and those that arrived */
    mr__message *said;         /* what arrived last: StreamError or StreamEnd; NULL: */
    Mr__Wire__BlockHead *head; /* a block; NULL: nothing */
    size_t bytes;
    void *block;
} mr__r_next;

typedef struct mr__r_stream {
    uint32_t index;
    uint64_t generation;
    mr__r_worker *worker; /* NULL: no worker hosts it at present */
    mr__r_next *next;     /* NULL: it does not move */
    bool begun;           /* Open was sent to some worker */
    bool has_come;        /* something of it has arrived */
    bool opened;          /* Open was sent to `worker`, on its current connection */
    bool lost;            /* Lost is due or was sent for this generation */
    int64_t lost_at;      /* when Lost is due; INT64_MAX: it was sent */
    int64_t backoff;      /* for the next Lost */
    int64_t lost_since;   /* since when nothing has arrived; 0: the stream is not lost */
    uint64_t received;    /* elements that arrived, or precede the stream's first place */
    bool ended;           /* the end has arrived */
    bool gone;            /* shared: another client reads it now */
    bool seen;            /* the last Joined listed it */
    char *home;           /* the only worker that may host it; "": any */
    uint64_t consumed;    /* elements that the consumer is done with */
    uint64_t acknowledged;
    uint8_t *position; /* element `consumed` is `skip` elements after it */
    size_t position_bytes;
    uint64_t skip;
    uint64_t *splits; /* dynamic: those assigned to it, as far as this client knows */
    size_t n_splits, splits_capacity;
    bool anew;     /* reopened: until its splits are sent again, arrivals are from before */
    bool end_said; /* the end was acknowledged */
    uint8_t *end_position;
    size_t end_position_bytes;
    bool elsewhere;    /* local_workers: its worker is on another host */
    uint32_t refused;  /* consecutive connections to its worker that did not satisfy the options */
    uint32_t damaged;  /* consecutive connections that ended with a block that cannot be decoded */
    uint32_t misses;   /* moves because of a missing file, since the last arrival */
    uint64_t window;   /* bytes that may be outstanding */
    uint64_t held;     /* bytes received and not released by the consumer */
    uint64_t returned; /* bytes released and not yet granted again as credit */
} mr__r_stream;

struct mr__job_reader {
    mr__job_reader_opts opts;
    mr__job_reader_out out;
    void *ctx;
    uint64_t random;
    mr__r_link dispatcher;
    int64_t retry_at, backoff, heard, give_up_at;
    char why[256];    /* why the last connection attempt failed; "": unknown */
    char warned[512]; /* the last Warning of the dispatcher */
    bool ever_connected, said_absent, is_joined, is_over;
    bool admitted;         /* Joined arrived on the current connection */
    int64_t refused_since; /* since when rejoining is refused; 0: it is not */
    uint64_t job_id, client_id, request;
    uint8_t key[MR__JOB_KEY_BYTES]; /* key_bytes of it; 0: the job has none */
    size_t key_bytes;
    mr__r_stream *streams; /* those of this client */
    size_t n_streams, streams_capacity;
    mr__id_map by_index; /* stream index + 1 -> position in `streams` + 1 */
    bool shared;         /* clients share the job; streams are added and removed */
    bool finished;       /* shared: all streams of the job have ended */
    mr__r_worker *workers;
    int64_t tell_at;  /* next acknowledgement or pulse */
    int64_t pulse_at; /* next pulse to the workers */
    bool flushing, leaving, has_left;
    uint64_t flush_request;      /* 0: not sent yet */
    mr__r_usage usage, reported; /* since the start; the part of it that the dispatcher has */
    bool waits, said_waits;
    int64_t waits_since;
};

#endif
