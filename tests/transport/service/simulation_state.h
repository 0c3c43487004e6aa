/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRANSPORT_SERVICE_SIMULATION_STATE_H
#define MR_TESTS_TRANSPORT_SERVICE_SIMULATION_STATE_H
/* Inside of the simulation: simulation.c is the clock and the network, simulation_faults.c what
 * goes wrong, simulation_parts.c the dispatcher and the clients, simulation_workers.c the workers,
 * simulation_shared.c the consumers of shared modes. */
#include "tests/transport/service/simulation.h"
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/service/worker/worker_streams.h"
#include "transport/service/client/job_reader.h"

enum {
    MOST_WORKERS = 6,
    MOST_STREAMS = 8, /* exactly_once */
    MOST_INTAKES = 96,
    MOST_CLIENTS = 3,
    MOST_ELEMENTS = 60, /* of a stream whose length is fixed */
    MOST_REPETITIONS = 3,
    MOST_SPLITS = 20,
    MOST_SPLIT_ELEMENTS = 8,
    MOST_TICKETS = MOST_REPETITIONS * MOST_SPLITS,
    MOST_JOBS = 64,                                 /* of one name, as it is rebuilt */
    MOST_GIVEN = MOST_TICKETS * MOST_SPLIT_ELEMENTS /* elements of any stream */
};
#define MS     ((int64_t)1000000)
#define SECOND (1000 * MS)

typedef enum node_kind { DISPATCHER, WORKER, CLIENT } node_kind;

/* A connection between two parts; both learn of its end, if it is not silent. */
typedef struct link {
    struct link *next;
    uint64_t id;
    node_kind kind[2]; /* 0: who connected */
    int node[2];
    int epoch[2];       /* which life of the part this end belongs to */
    bool pending, open; /* pending: it is not known yet whether anybody is there */
    bool silent[2];     /* what this end says is lost */
    int64_t last[2];    /* when the last message in a direction arrives: they keep their order */
} link;

typedef struct element_block {
    uint32_t stream;
    uint64_t repetition;
    uint64_t first, rows;
} element_block;

typedef enum event_kind {
    TICK,
    CONNECTED,
    MESSAGE,
    BLOCK,
    CLOSED,
    COMMIT,
    PRODUCE,
    CONSUME,
    FAULT,
    START,
    DISK_FREE
} event_kind;

typedef struct event {
    int64_t at;
    uint64_t order; /* of events at one time */
    event_kind kind;
    node_kind node_kind;
    int node, epoch;
    link *link;
    int to; /* which end of the link hears */
    void *bytes;
    size_t size;
    mr_status why;
    Mr__Wire__BlockHead head;
    char *position;
    uint64_t number; /* producer, records */
} event;

typedef struct producer {
    struct producer *next;
    uint64_t id;
    int worker;
    uint32_t stream;
    uint64_t job_id, generation;
    uint64_t repetition;
    uint64_t at;
    int64_t asked_at;
    bool busy, blind;
    /* dynamic: the splits it has, and which pass over the source it is in */
    uint64_t splits[MOST_TICKETS];
    size_t n_splits;
    uint64_t pass;
    bool ended;
} producer;

typedef struct held {
    struct held *next;
    uint64_t connection, after;
    void *bytes;
    size_t size;
} held;

typedef struct arrival {
    struct arrival *next;
    int kind;
    uint64_t first, rows, taken;
    size_t bytes;
    char position[24];
} arrival;

/* A consumer's account of one stream. */
typedef struct intake {
    arrival *first, *last;
    bool ended;
    uint64_t handed;   /* elements handed out */
    uint64_t base;     /* element number of `position` */
    size_t let_go;     /* bytes, not yet named to the reader */
    char position[24]; /* "" the beginning */
    char home[8];
    uint64_t splits[MOST_TICKETS]; /* dynamic: as far as it knows */
    size_t n_splits;
} intake;

typedef struct client {
    mr__job_reader *reader;
    int epoch, number;
    int repetition;
    bool joined, done, leaving, refused, over;
    bool next_repetition, begins; /* the next one is due; this one was not yet joined */
    intake in[MOST_INTAKES];
    uint32_t mine[MOST_INTAKES];
    int n_mine, slot, turn;
    uint64_t total; /* handed out so far, over all lives */
    /* what a saved position holds */
    bool saved;
    intake saved_in[MOST_INTAKES];
    uint32_t saved_mine[MOST_INTAKES];
    int n_saved, saved_slot, saved_turn;
    uint64_t asked[MOST_INTAKES];   /* handed out when the consumer last asked */
    uint64_t flushed[MOST_INTAKES]; /* asked when it last flushed */
    Mr__Wire__Join join;
    Mr__Wire__Job job;
    Mr__Wire__Place places[MOST_INTAKES], *place_list[MOST_INTAKES];
} client;

typedef struct simulation {
    mr__simulation_opts o;
    uint64_t random, order;
    int64_t now;
    event *heap;
    size_t n_events, capacity;
    link *links;
    uint64_t last_link;
    mr__dispatcher *d;
    int d_epoch;
    held *held_first, *held_last;
    /* the disk: serialized records, of which the first `durable` survive */
    struct {
        mr__record_kind kind;
        uint64_t job_id;
        char *name;
        void *bytes;
        size_t size;
        uint32_t stream;
        uint64_t split, instance;
    } * records;
    size_t n_records, records_capacity, durable, committing;
    bool disk_full, account_lost;
    mr__worker_streams *w[MOST_WORKERS];
    int w_epoch[MOST_WORKERS];
    bool w_slow[MOST_WORKERS];
    /* which life of it is to end by the account, and by which record; 0: none */
    uint64_t drained[MOST_WORKERS], drained_by[MOST_WORKERS];
    producer *producers;
    client c[MOST_CLIENTS];
    uint64_t length[MOST_STREAMS];
    uint64_t split_length[MOST_SPLITS];
    /* durably, as was sent to the clients or the disk has */
    uint64_t acknowledged[MOST_REPETITIONS][MOST_INTAKES];
    /* shared modes: how often each element of each stream was handed out, now and when the only
     * consumer last saved; the splits that streams were given, and whose each is (+ 1) */
    uint8_t given[MOST_INTAKES][MOST_GIVEN], given_saved[MOST_INTAKES][MOST_GIVEN];
    uint64_t tickets[MOST_INTAKES][MOST_TICKETS];
    size_t n_tickets[MOST_INTAKES];
    uint64_t generation[MOST_INTAKES]; /* that was given a split last */
    uint64_t job_ids[MOST_JOBS];       /* in the order in which hosts learned of them */
    size_t n_job_ids;
    uint32_t owner[MOST_TICKETS];
    char home[MOST_INTAKES][8];
    uint32_t n_streams; /* seen */
    int losses;         /* of clients: crashes, and those that were taken for dead */
    int unsaved;        /* of these, those that continue after what was acknowledged */
    bool not_alone;     /* a former life of the only client counts as another one: see below */
    /* newcomers: how often each element of each split was handed out; how many were twice; clients
     * that heard of it, and how often it had to be since some had left */
    uint8_t given_split[MOST_TICKETS][MOST_SPLIT_ELEMENTS];
    int twice, refused, repeats;
    int begun; /* how many had left when a job last began, until it is known whether it restarts */
    /* the dispatcher said that elements come again, and did not crash since; a client heard it */
    bool warns, warned;
    uint64_t heard[3][MOST_WORKERS];  /* order of the latest message that came */
    int64_t tick_at[3][MOST_WORKERS]; /* the one TICK that counts for each part; 0: none */
    /* balance: the last change, how many streams moved and may move, those of this dispatcher */
    uint64_t balance_key, n_moved, moves_seen, moves_allowed;
    int64_t changed_at, uneven_at, stalled_at;
    /* load: when each worker has made what it was asked for, what the consumer does, and since when
     * the number of workers is right */
    int64_t w_free_at[MOST_WORKERS], pace_at, wait_ns, own_ns, right_at, scaled_at;
    bool pace_waits, settled;
    const char *broken;
    char text[256];
} simulation;

extern simulation *S; /* for callbacks that have no context */

/* ---- simulation.c ---- */
uint64_t sim_draw(uint64_t n);
void sim_happened(int kind);
void sim_say(const char *fmt, ...) MR_PRINTF(1, 2);
void sim_broken(const char *fmt, ...) MR_PRINTF(1, 2);
void sim_push(event e);
int sim_epoch_of(node_kind kind, int node);
void sim_tick(node_kind kind, int node);
link *sim_find_link(uint64_t id);
link *sim_link_between(node_kind a, int i, node_kind b, int j);
void sim_connect_to(node_kind a, int i, node_kind b, int j);
void sim_end_link(link *l, int by);
void sim_deliver_bytes(link *l, int from, event e);
void sim_send_message(link *l, int from, const mr__message *m);

/* False if a stream only moves to the worker of that generation, and another one serves it. */
bool sim_has_moved(uint64_t job_id, uint32_t stream, uint64_t generation);

/* One end learns that the connection is over. */
void sim_hear_end(link *l, int end, mr_code code);

/* ---- simulation_faults.c ---- */
void sim_fault(void);
void sim_cut_links(node_kind kind, int node, bool quietly);
void sim_drop_all(client *c);
void sim_crash_client(int i);
void sim_drain_worker(int i);
void sim_end_worker(int i); /* it has drained */

/* ---- simulation_parts.c ---- */
void sim_d_deliver(uint64_t to, void *bytes, size_t size);
void sim_start_dispatcher(void);
void sim_drop_held(void);
void sim_start_client(int i);
void sim_consume(const event *e);
void sim_report_consumed(int i);
void sim_hand_out(client *c, intake *in);
void sim_flush(client *c, bool leave);
void sim_drop_intake(intake *in);

/* ---- simulation_workers.c ---- */
void sim_start_worker(int i);
void sim_w_close_dispatcher(void *ctx);
void sim_produce(const event *e);
bool sim_is_error(uint32_t stream, uint64_t i);

/* ---- simulation_balance.c ---- */
void sim_count_join(void); /* a worker starts */
void sim_watch_balance(void);
/* load: the dispatcher ticked; the consumer got an element, or waits. */
void sim_scale(void);
void sim_note_pace(int i, bool waits);
/* When a worker that begins now has made rows elements. */
int64_t sim_made_at(int worker, uint64_t rows);
/* has_begun: an element of the stream that is read was handed out; waits: none is there now */
void sim_watch_stall(bool has_begun, bool waits);

/* ---- simulation_shared.c ---- */
bool sim_shared(void);
void sim_draw_shared(void); /* what the run needs */
/* The split number k of a stream is said to be this, to a host of that job and generation; the
 * elements that its splits have so far. */
void sim_told_split(uint64_t job_id, uint32_t stream, uint64_t generation, size_t k,
                    uint64_t split);
uint64_t sim_elements_of(const uint64_t *splits, size_t n);
void sim_told_home(uint32_t stream, const char *home);
/* A client has a stream from `first` on; and no more. */
void sim_add_stream(client *c, const Mr__Wire__Place *p);
void sim_add_splits(client *c, uint32_t stream, const uint64_t *splits, size_t n);
/* A client that crashed has what its position says, of which streams go back there too. */
void sim_go_back(const client *c);
void sim_remove_stream(client *c, uint32_t stream);
void sim_consume_shared(const event *e);
void sim_check_shared(void); /* at the end of a run */
#endif
