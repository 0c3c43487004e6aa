/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_STATE_H
#define MR_TRANSPORT_SERVICE_CLIENT_JOB_READER_STATE_H
/* The data of a client's reader. Private to job_reader.c and the simulation, which prints it. */
#include "pipeline/memory/id_map.h"
#include "transport/service/client/job_reader.h"

typedef enum mr__r_link { MR__DOWN, MR__CONNECTING, MR__UP } mr__r_link;

/* A worker that some stream is read from. */
typedef struct mr__r_worker {
    struct mr__r_worker *next;
    char *address;
    mr__r_link state;
    int64_t heard; /* UP */
} mr__r_worker;

typedef struct mr__r_stream {
    uint32_t index;
    uint64_t generation;
    mr__r_worker *worker; /* NULL: no worker hosts it now */
    bool begun;           /* Open was sent to a worker */
    bool opened;          /* to this one, on its present connection */
    bool lost;            /* Lost is due, or was said, for this generation */
    int64_t lost_at;      /* when it is to be said */
    int64_t backoff;      /* of Lost */
    int64_t lost_since;   /* nothing came since it was lost, or moved; 0: it was not */
    uint64_t received;    /* elements that came in, or are known to come before */
    bool ended;           /* the end came in */
    bool gone;            /* shared: it is another client's now */
    bool seen;            /* Joined named it */
    char *home;           /* the worker that alone may host it; "" any */
    uint64_t consumed;    /* elements */
    uint64_t acknowledged;
    uint8_t *position; /* place of `consumed`: skip elements after it */
    size_t position_bytes;
    uint64_t skip;
    uint64_t *splits; /* dynamic: what it was given, as far as this client knows */
    size_t n_splits, splits_capacity;
    bool anew;     /* opened again: till its splits come again, what comes was sent before */
    bool end_said; /* the end is acknowledged */
    uint8_t *end_position;
    size_t end_position_bytes;
    bool elsewhere;    /* local_workers: its worker is not of this host */
    uint32_t refused;  /* times in a row that its worker could not be read as the user wants it */
    uint32_t misses;   /* moves for a file that was not there, since something came in */
    uint64_t window;   /* bytes that may be outstanding */
    uint64_t held;     /* bytes received and not released by the consumer */
    uint64_t returned; /* of those released, not yet given again as credit */
} mr__r_stream;

struct mr__job_reader {
    mr__job_reader_opts opts;
    mr__job_reader_out out;
    void *ctx;
    uint64_t random;
    mr__r_link dispatcher;
    int64_t retry_at, backoff, heard, give_up_at;
    char why[256];    /* it was not reached last */
    char warned[512]; /* what it warned of last */
    bool ever_connected, said_absent, is_joined, is_over;
    bool admitted;         /* Joined came on the present connection */
    int64_t refused_since; /* when joining again was first refused; 0: it was not */
    uint64_t job_id, client_id, request;
    mr__r_stream *streams; /* this client's */
    size_t n_streams, streams_capacity;
    mr__id_map by_index; /* of a stream's index + 1: its place in streams, + 1 */
    bool shared;         /* clients share the job; streams come and go */
    bool finished;       /* shared: so it is */
    mr__r_worker *workers;
    int64_t tell_at;  /* next acknowledgement or pulse */
    int64_t pulse_at; /* next pulse to the workers */
    bool flushing, leaving, has_left;
    uint64_t flush_request; /* 0: to be sent */
    bool waits, said_waits;
    int64_t waits_since;
};

#endif
