/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_ELASTIC_IMPL_H
#define MR_SHARD_DISTRIBUTE_ELASTIC_IMPL_H
/* Elastic jobs: a dataset is cut below its global batch into S streams, which any number of
 * replicas may share. The rows of each step are the same for all of them.
 *
 *     ds = rows.batch(G).map(f)
 *     streams   rows cut into S parts (streams/stream_cut.h), each with an iterator in the host
 *     steps     rows.elastic_rows(S).batch(G).elastic_steps().map(f)
 *
 * The graph of the steps runs once in each process. Its elastic_steps asks the host to gather the
 * rows of the next step, which elastic_rows hands to the batch; the part of each replica is cut
 * from the result. So the state of the steps and those of the streams do not depend on the number
 * of workers. Private to shard/.
 *
 * thread   one at a time per object */
#include "shard/distribute/distribute.h"
#include "shard/distribute/elastic_schedule.h"

/* ---- the graph (elastic_graph.c) ---- */

typedef struct mr__elastic {
    int64_t streams, batch;
    bool drop_remainder;
    mr_dataset *rows;   /* below the batch, as the user wrote it */
    mr_dataset *steps;  /* what a process runs */
    int64_t prefetched; /* steps that prefetches above the batch read ahead; MR_AUTO */
} mr__elastic;

/* The option elastic_streams of the graph: that nearest the sink; 0: none. */
mr_code mr__elastic_option(mr_dataset *ds, int64_t *streams, mr_status *st) MR_NODISCARD;
/* errors   MR_INVALID_ARGUMENT: streams out of range
 *          MR_FAILED_PRECONDITION: no batch; an op above it that needs the whole batch; an op that
 *          may not yield the same elements again */
mr_code mr__elastic_init(mr__elastic *x, mr_dataset *ds, int64_t streams, mr_explanation *e,
                         mr_status *st) MR_NODISCARD;
void mr__elastic_reset(mr__elastic *x);
/* *out (owned) = the graph ds, from which x was made, with another number of streams in its options
 * and another global batch size. */
mr_code mr__elastic_renumber(const mr__elastic *x, mr_dataset *ds, int64_t streams, int64_t batch,
                             mr_dataset **out, mr_status *st) MR_NODISCARD;

/* The files that the patterns of one job matched. Zeroed: none yet. */
typedef struct mr__matched {
    const char *directory; /* borrowed; NULL: the process's */
    struct mr__matched_pattern *v;
    size_t n, capacity;
} mr__matched;
void mr__matched_reset(mr__matched *m);
/* What cannot be cut, in the order in which streams count it; owned. */
typedef struct mr__elastic_wholes {
    struct mr__elastic_whole {
        mr_dataset *ds;
        int64_t place; /* by which the streams refer to it: the same in another mixture */
    } * v;
    size_t n, room;
} mr__elastic_wholes;
void mr__elastic_wholes_reset(mr__elastic_wholes *w);
/* *out (owned) = the graph of one stream, to be run with *run_seed. Adds to *wholes what it does
 * not have yet. e may be NULL. */
mr_code mr__elastic_stream(const mr__elastic *x, mr__matched *m, int64_t stream, uint64_t seed,
                           mr__elastic_wholes *wholes, mr_dataset **out, uint64_t *run_seed,
                           mr_explanation *e, mr_status *st) MR_NODISCARD;

/* ---- the ops (elastic_ops.c) ---- */

mr_dataset *mr__elastic_rows(mr_dataset *rows, int64_t streams); /* takes rows over */
mr_dataset *mr__elastic_steps(mr_dataset *batches);              /* takes batches over */
/* The path of an error has only ops of the user's graph from now on. */
void mr__elastic_hide_ops(mr_status *st);

/* ---- what cannot be cut (elastic_deal.c) ---- */

/* Where a hub, or a stream in what it gets of one, is: at a row of an epoch, after `errors` errors
 * before that row. */
typedef struct mr__elastic_place {
    uint64_t epoch, row, errors;
} mr__elastic_place;
/* A position of a hub. */
typedef struct mr__elastic_anchor {
    mr__elastic_place at;
    mr_buffer *position;
} mr__elastic_anchor;
typedef struct mr__elastic_anchors {
    mr__elastic_anchor *v; /* each with a reference */
    size_t n, room;
} mr__elastic_anchors;
mr_code mr__elastic_anchors_add(mr__elastic_anchors *to, const mr__elastic_anchor *a,
                                mr_status *st) MR_NODISCARD;
void mr__elastic_anchors_reset(mr__elastic_anchors *a);

typedef struct mr__elastic_hub mr__elastic_hub;
/* whole: owned by the hub too. run: of the streams; borrowed until close. */
mr_code mr__elastic_hub_open(mr__elastic_hub **out, mr_dataset *whole, int64_t streams,
                             const mr_iterator_opts *run, mr_status *st) MR_NODISCARD;
void mr__elastic_hub_close(mr__elastic_hub *h); /* after all streams; NULL: nothing */
/* Some of the places where the hub was, from which it may read on after a restore. The streams are
 * to be restored after it. */
mr_code mr__elastic_hub_save(mr__elastic_hub *h, mr__elastic_anchors *out,
                             mr_status *st) MR_NODISCARD;
void mr__elastic_hub_restore(mr__elastic_hub *h, mr__elastic_anchors *anchors); /* taken over */
/* A stream of this process will be restored, or was: what is read for one is kept for the
 * others. */
void mr__elastic_hub_expect(mr__elastic_hub *h, int64_t stream, bool restored);
/* What streams read of it ends with MR_CANCELLED until it rests, unless it writes a file, to which
 * rows would be missing. thread any */
void mr__elastic_hub_stop(mr__elastic_hub *h);
/* Closes its files. It begins again when a stream asks. */
void mr__elastic_hub_rest(mr__elastic_hub *h);
/* The op: the rows of `stream` of the hub of the place `at`. Takes whole over. */
mr_dataset *mr__elastic_dealt(mr_dataset *whole, int64_t at, int64_t streams, int64_t stream);

/* ---- the host (elastic_host.c) ---- */

typedef struct mr__elastic_stream_host {
    mr_iterator *it; /* NULL: another process runs it */
    mr_block block;  /* the last one pulled */
    size_t used;     /* rows taken of it */
    mr_status error; /* with has_error: after the rows of block */
    bool has_error, ended;
    bool begun;           /* the next pass, which others have not begun yet */
    int64_t share, taken; /* of the current step; errors count as taken */
    size_t rows;          /* gathered for the current step */
    size_t given;         /* to the last step that was delivered */
} mr__elastic_stream_host;

/* What is next for the next step. */
typedef enum mr__elastic_phase {
    MR__LOOK,   /* look one row ahead in each stream */
    MR__AGREE,  /* which streams have ended */
    MR__SHARE,  /* the rows of each stream */
    MR__GATHER, /* take them */
    MR__COUNT,  /* the rows of all processes, where that matters */
    MR__READY   /* deliver them */
} mr__elastic_phase;

typedef struct mr__elastic_host {
    const mr__elastic *graph;
    mr__schedule schedule;
    int64_t first, last; /* own streams: [first, last) */
    bool hosts_all;      /* the others run here too, to know when they end */
    bool restoring;
    int64_t block_rows; /* to pull from a stream at once, at least */
    bool by_name;       /* positions may be of other mixtures; the streams see what differs */
    bool touched;       /* something was taken in this pass */
    int64_t epochs;     /* of the streams, before this one */
    mr__elastic_stream_host *v; /* streams of them */
    struct mr__elastic_hub_at {
        mr__elastic_hub *hub;
        int64_t place;
        const char *mixed; /* the name of its op; NULL: no mixture is below it */
    } * hubs;
    size_t n_hubs;
    mr_iterator_opts hub_run;
    mr_agree_fn agree;
    void *agree_ctx;

    mr__elastic_phase phase; /* of the next step */
    int64_t at;              /* the stream to continue with */
    mr_status failure;       /* with failed: the first error of the step */
    bool failed;
    mr_block *pieces; /* rows of own streams, in their order */
    size_t n_pieces, pieces_room, piece;
    size_t piece_used;
    size_t room;     /* rows that may be appended to the last piece */
    mr_block sample; /* a row of an own stream: the shape of rows in steps without any */
} mr__elastic_host;

/* place: of a node of a stream, for which a hub was opened. */
static inline mr__elastic_hub *mr__elastic_hub_of(const mr__elastic_host *h, int64_t place)
{
    size_t i = 0;
    while (h->hubs[i].place != place)
        i++;
    return h->hubs[i].hub;
}
/* Opens the iterators. opts: those of the run; borrowed until close. */
mr_code mr__elastic_host_open(mr__elastic_host *h, const mr_dist_dataset *dd,
                              const mr_dist_iterator_opts *opts, mr_status *st) MR_NODISCARD;
void mr__elastic_host_close(mr__elastic_host *h);
/* Before the streams rest or are closed: none waits for a hub. */
void mr__elastic_stop(mr__elastic_host *h);
/* Gathers the rows of the next step; *rows: how many of them are own.
 * returns  MR_OK, MR_END, MR_CANCELLED (call again), the error of a row, which ends the step, or an
 *          error of no element */
mr_code mr__elastic_gather(mr__elastic_host *h, size_t *rows, mr_status *st) MR_NODISCARD;
/* The gathered rows, at most `want`; MR_END after the last. */
mr_code mr__elastic_take(mr__elastic_host *h, size_t want, mr_block *out,
                         mr_status *st) MR_NODISCARD;
/* In a step without own rows: *any = mr__elastic_take returns a row of another step, for its shape.
 * errors   of the streams, as mr__elastic_gather */
mr_code mr__elastic_show_sample(mr__elastic_host *h, bool *any, mr_status *st) MR_NODISCARD;
/* The step was delivered, or has failed. */
void mr__elastic_step_over(mr__elastic_host *h);
/* Its streams were restored to where `step` begins, after this many epochs. */
void mr__elastic_restored(mr__elastic_host *h, int64_t step, int64_t epochs);
/* Its streams begin an epoch. */
void mr__elastic_started(mr__elastic_host *h);
/* Drops what was pulled of a stream, which goes elsewhere. */
void mr__elastic_forget(mr__elastic_stream_host *x);
/* Rows of the block that were not taken. */
static inline size_t mr__elastic_rows_left(const mr__elastic_stream_host *x)
{
    return x->block.rows - x->used;
}
/* Starts a pass, which is the first one if nothing was taken yet. */
mr_code mr__elastic_begin_pass(mr__elastic_host *h, mr_status *st) MR_NODISCARD;

/* ---- an iterator (elastic_iterator.c) ---- */

/* out = rows [from, from + n) of the one batch in b, without identities. */
mr_code mr__elastic_cut(mr_block *out, const mr_block *b, size_t from, size_t n,
                        mr_status *st) MR_NODISCARD;
/* Cuts the last step, whose rows in this process are the one batch in b, for the n local
 * replicas. */
mr_code mr__elastic_deal(const mr__elastic_host *h, int64_t first_replica, int64_t all_replicas,
                         const mr_block *b, mr_block *replicas, bool *has_data, size_t n,
                         mr_status *st) MR_NODISCARD;
/* The part of this process; delivered, pass: steps in this pass, and passes before it; ended: so
 * has the pass. */
mr_code mr__elastic_save(const mr_dist_dataset *dd, mr__elastic_host *h, mr_iterator *steps,
                         int64_t delivered, int64_t pass, bool ended, void **bytes, size_t *size,
                         mr_status *st) MR_NODISCARD;
/* The numbers of streams and of a step's rows of the job that a position is of. */
mr_code mr__elastic_numbers(const void *bytes, size_t size, int64_t *streams, int64_t *batch,
                            mr_status *st) MR_NODISCARD;
/* From a whole position. If its numbers are others than this job's, it is known to restore in a job
 * that differs from this one in them alone. After success *delivered and *pass are as they were;
 * *done is set if the pass is known to be over. */
mr_code mr__elastic_restore(const mr_dist_dataset *dd, mr__elastic_host *h, mr_iterator *steps,
                            const void *bytes, size_t size, int64_t *delivered, int64_t *pass,
                            bool *done, mr_status *st) MR_NODISCARD;
mr_code mr__elastic_rest(mr__elastic_host *h, mr_status *st) MR_NODISCARD;
/* After a cancellation: what was gathered stays. */
mr_code mr__elastic_resume(mr__elastic_host *h, mr_status *st) MR_NODISCARD;

/* ---- positions (elastic_position.c) ---- */

typedef struct mr__job_position {
    int64_t streams, batch, step, pass,
        delivered;  /* step: of the schedule; delivered: in the pass */
    int64_t epochs; /* of the streams, before this one */
    bool has_seed;
    uint64_t seed;
    char *graph, *outline; /* texts; outline NULL: the graph has no mixture */
    bool *live;
    void *steps; /* state of the graph of the steps */
    size_t steps_size;
    struct mr__stream_position {
        void *bytes; /* NULL: not in this part */
        size_t size;
        mr_buffer *error; /* its next row failed so; NULL: not known */
    } * v;                /* streams of them */
    size_t n_hubs, hubs_room;
    struct mr__hub_position {
        int64_t place;
        mr__elastic_anchors anchors;
    } * hubs; /* of what is dealt, as far as they were read */
} mr__job_position;

/* *out = the anchors of the hub at this place, which is added if it is not there yet. */
mr_code mr__job_position_hub(mr__job_position *p, int64_t place, mr__elastic_anchors **out,
                             mr_status *st) MR_NODISCARD;
/* *bytes owned: mr_free. errors MR_RESOURCE_EXHAUSTED; zstd is not installed */
mr_code mr__job_position_write(const mr__job_position *p, void **bytes, size_t *size,
                               mr_status *st) MR_NODISCARD;
/* After an error p is empty. errors MR_INVALID_ARGUMENT: not a position of an elastic job */
mr_code mr__job_position_read(mr__job_position *p, const void *bytes, size_t size,
                              mr_status *st) MR_NODISCARD;
/* errors MR_INVALID_ARGUMENT: it is one part of several */
mr_code mr__job_position_is_whole(const mr__job_position *p, mr_status *st) MR_NODISCARD;
void mr__job_position_reset(mr__job_position *p);
#endif
