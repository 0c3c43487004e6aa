/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed iterators: distribute each worker's stream to its replicas, step by step.
 *
 * A position (little-endian):
 *   offset  size  meaning
 *        0     4  "MRD2"
 *        4     4  CRC32C of everything after it
 *        8     8  steps taken in this pass
 *       16     8  number of earlier passes
 *       24     8  workers of the job
 *       32     8  first local worker
 *       40     8  local workers
 *       48     8  replicas of a worker
 *       56     8  1: the job has a seed
 *       64     8  the seed
 *       72     1  for each local worker: 1 if its stream has ended
 *        .     8  for each local worker: size of its position, then
 *        .     .  that position, from mr_iterator_save
 *
 * "MRD1" of version 0.1 has no seed: the texts in the streams' positions have those of random
 * ops. */
#include "shard/distribute/distribute.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/wait/cancel_internal.h"
#include "shard/distribute/dist_impl.h"
#include "shard/distribute/position_bytes.h"
#include "shard/passes/shard_passes.h"

#include <inttypes.h>
#include <string.h>

typedef struct stream {
    mr_iterator *it;
    size_t filled; /* replicas of the next step that have their element */
    bool ended;
} stream;

struct mr_dist_iterator {
    const mr_dist_dataset *dd;
    mr_iterator_opts run;
    mr_agree_fn agree;
    void *agree_ctx;
    mr_executor *executor; /* owned; NULL: the caller's is used */
    mr_cancel *cancel;     /* owned, in `run`: ends the pipelines and those of peers */
    stream *streams;       /* dd->local of them */
    size_t n_replicas;     /* local ones */
    mr_block *replicas;
    bool *has_data;
    bool *starts; /* slots at which a new run of placed bytes begins */
    bool sliced;  /* this library cuts the batches: all slices of a step are from one batch */
    mr_block pulled, zero;
    mr_segment *segments; /* the rest of the caller's slots, for one call */
    size_t segments_capacity;
    int64_t step, pass;
    unsigned forks;     /* mr__forks() of the process that it belongs to */
    mr_identity *entry; /* of the ledger */
    size_t entry_room;
    bool done;
    mr__peers peers;
    mr__elastic_host host; /* of an elastic job, whose steps are those of streams[0] */
};

/* ---- opening ---- */

/* One executor for all workers and peers, instead of a pool of threads for each. */
static mr_code share_executor(mr_dist_iterator *it, mr_status *st)
{
    bool several =
        it->dd->elastic.streams || (it->dd->workers > 1 && !(it->dd->local == 1 && it->agree));
    if (it->run.executor || !several)
        return MR_OK;
    int threads = it->run.has_threads ? (int)it->run.threads : mr_usable_cpus();
    MR_TRY(mr_executor_new(threads, &it->executor, st));
    it->run.executor = it->executor;
    return MR_OK;
}

/* Pipelines in this process. */
static size_t n_streams(const mr_dist_iterator *it)
{
    return it->dd->elastic.streams ? 1 : (size_t)it->dd->local;
}

static mr_code open_elastic(mr_dist_iterator *it, mr_status *st)
{
    const mr_dist_iterator_opts opts = {it->run, it->agree, it->agree_ctx};
    MR_TRY(mr__elastic_host_open(&it->host, it->dd, &opts, st));
    mr_iterator_opts run = mr__dist_run_opts(it->dd, &it->run);
    mr__iterator_internal internal = *mr__iterator_internal_of(&run);
    internal.elastic = &it->host;
    run.internal = &internal;
    return mr_iterator_open(&it->streams[0].it, it->dd->graphs[0], &run, st);
}

static mr_code open_streams(mr_dist_iterator *it, mr_status *st)
{
    const mr_dist_dataset *dd = it->dd;
    it->n_replicas = (size_t)(dd->local * dd->replicas);
    it->streams = mr_calloc((size_t)dd->local, sizeof *it->streams);
    it->replicas = mr_calloc(it->n_replicas, sizeof *it->replicas);
    it->has_data = mr_calloc(it->n_replicas, sizeof *it->has_data);
    it->starts = mr_calloc(it->n_replicas, sizeof *it->starts);
    it->sliced = dd->original && dd->workers * dd->replicas > 1;
    if (!it->streams || !it->replicas || !it->has_data || !it->starts)
        return mr_fail_memory(st, it->n_replicas * sizeof *it->replicas, "a distributed iterator");
    MR_TRY(share_executor(it, st));
    if (dd->elastic.streams)
        return open_elastic(it, st);
    mr_iterator_opts run = mr__dist_run_opts(dd, &it->run);
    for (int64_t i = 0; i < dd->local; i++)
        MR_TRY(mr_iterator_open(&it->streams[i].it, dd->graphs[i], &run, st));
    return MR_OK;
}

mr_code mr_dist_iterator_open(mr_dist_iterator **out, const mr_dist_dataset *dd,
                              const mr_dist_iterator_opts *opts, mr_status *st)
{
    static const mr_dist_iterator_opts defaults;
    if (!opts)
        opts = &defaults;
    mr_dist_iterator *it = mr_calloc(1, sizeof *it);
    if (!it)
        return mr_fail_memory(st, sizeof *it, "a distributed iterator");
    it->dd = dd;
    it->forks = mr__forks();
    it->run = opts->run;
    it->agree = opts->agree;
    it->agree_ctx = opts->agree_ctx;
    it->peers = (mr__peers){.dd = dd, .run = &it->run};
    mr_code rc = mr_cancel_new(opts->run.cancel, &it->cancel, st);
    it->run.cancel = it->cancel;
    if (rc == MR_OK)
        rc = open_streams(it, st);
    if (rc == MR_OK)
        *out = it;
    else
        mr_dist_iterator_close(it);
    return rc;
}

void mr_dist_iterator_close(mr_dist_iterator *it)
{
    if (!it)
        return;
    for (size_t i = 0; it->replicas && i < it->n_replicas; i++)
        mr_block_reset(&it->replicas[i]);
    mr_block_reset(&it->pulled);
    mr_block_reset(&it->zero);
    mr__peers_close(&it->peers);
    for (size_t i = 0; it->streams && i < n_streams(it); i++)
        mr_iterator_close(it->streams[i].it);
    mr__elastic_host_close(&it->host);
    mr_executor_free(it->executor);
    mr_cancel_unref(it->cancel);
    mr_free(it->streams);
    mr_free(it->replicas);
    mr_free(it->has_data);
    mr_free(it->starts);
    mr_free(it->segments);
    mr_free(it->entry);
    mr_free(it);
}

/* ---- resting ---- */

mr_code mr_dist_iterator_rest(mr_dist_iterator *it, mr_status *st)
{
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    mr__peers_close(&it->peers);
    mr__cancel_forget(it->cancel); /* before those of the streams, which it triggered */
    for (size_t i = 0; i < n_streams(it); i++)
        MR_TRY(mr_iterator_rest(it->streams[i].it, st));
    MR_TRY(mr__elastic_rest(&it->host, st));
    if (it->executor) {
        mr_executor_free(it->executor);
        it->executor = NULL;
        it->run.executor = NULL;
    }
    return MR_OK;
}

/* Makes an iterator that may rest ready for a pass: with an executor again. */
static mr_code wake(mr_dist_iterator *it, mr_status *st)
{
    if (it->run.executor)
        return MR_OK;
    MR_TRY(share_executor(it, st));
    for (size_t i = 0; i < n_streams(it) && it->executor; i++)
        mr__iterator_set_executor(it->streams[i].it, it->executor);
    for (int64_t s = 0; s < it->dd->elastic.streams && it->executor; s++)
        if (it->host.v[s].it)
            mr__iterator_set_executor(it->host.v[s].it, it->executor);
    return MR_OK;
}

/* Where a worker's pipeline was when its wait was cancelled. */
typedef struct place {
    void *position;
    size_t size;
} place;

mr_code mr_dist_iterator_resume(mr_dist_iterator *it, mr_status *st)
{
    size_t n = n_streams(it);
    mr_code rc = MR_OK;
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    place *places = mr_calloc(n, sizeof *places);
    if (!places)
        return mr_fail_memory(st, n * sizeof *places, "positions");
    it->host.restoring = true;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = mr_iterator_save(it->streams[i].it, &places[i].position, &places[i].size, st);
    if (rc == MR_OK) {
        mr__peers_close(&it->peers);
        mr__cancel_forget(it->cancel);
    }
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        rc = mr_iterator_rest(it->streams[i].it, st);
        if (rc == MR_OK)
            rc = mr_iterator_restore(it->streams[i].it, places[i].position, places[i].size, st);
    }
    for (size_t i = 0; i < n; i++)
        mr_free(places[i].position);
    mr_free(places);
    it->host.restoring = false;
    return rc == MR_OK ? mr__elastic_resume(&it->host, st) : rc;
}

/* ---- stepping ---- */

/* The slots of replicas [first, first + n) as a separate destination. */
static mr_code slots_of(mr_dist_iterator *it, const mr_destination *destination, size_t first,
                        size_t n, mr_destination *out, mr_status *st)
{
    MR_TRY(MR_GROW(it->segments, it->segments_capacity, n * destination->n_columns,
                   SIZE_MAX / sizeof *it->segments, "the slots of replicas", st));
    for (size_t c = 0; c < destination->n_columns; c++)
        memcpy(&it->segments[c * n], &destination->segments[c * destination->n_segments + first],
               n * sizeof *it->segments);
    *out = (mr_destination){destination->n_columns, n, it->segments};
    return MR_OK;
}

/* Moves bytes [at, at + n) of the sequence of slots to `to`, from the last to the first, so that a
 * move forward does not overwrite bytes that are still needed. */
static void move_bytes(const mr_segment *slots, size_t n_slots, size_t at, size_t n, char *to)
{
    size_t i = n_slots, begin = 0;
    for (size_t k = 0; k < n_slots; k++)
        begin += slots[k].bytes;
    while (n > 0 && i-- > 0) {
        begin -= slots[i].bytes;
        if (begin >= at + n)
            continue;
        size_t from = at > begin ? at - begin : 0, part = at + n - begin - from;
        memmove(to + n - part, (char *)slots[i].data + from, part);
        n -= part;
    }
}

/* Placed bytes are packed: the rows of one call (or, if this library cuts the batches, all slices
 * of a batch) follow each other from the first slot on. Moves each to the start of its slot. */
static mr_code spread_run(mr_dist_iterator *it, size_t c, size_t first, size_t n,
                          const mr_segment *slots, mr_status *st)
{
    size_t at = 0;
    for (size_t r = 0; r < n; r++) {
        const mr_array *a = &it->replicas[first + r].columns[c];
        if (a->storage != MR_PLACED)
            return MR_OK;
        size_t bytes = mr_array_row_bytes(a);
        if (bytes > slots[r].bytes)
            return mr_fail(st, MR_INTERNAL,
                           "a replica's batch of %zu bytes was placed in a slot of %zu", bytes,
                           slots[r].bytes);
        at += bytes;
    }
    for (size_t r = n; r-- > 1;) {
        size_t bytes = mr_array_row_bytes(&it->replicas[first + r].columns[c]);
        at -= bytes;
        move_bytes(slots, n, at, bytes, slots[r].data);
    }
    return MR_OK;
}

static mr_code spread(mr_dist_iterator *it, size_t worker, const mr_destination *destination,
                      mr_status *st)
{
    size_t first = worker * (size_t)it->dd->replicas, n = it->streams[worker].filled;
    for (size_t c = 0; n && c < destination->n_columns && c < it->replicas[first].n_columns; c++)
        for (size_t end = n, r = n; r-- > 0;)
            if (it->starts[first + r]) {
                MR_TRY(spread_run(it, c, first + r, end - r,
                                  &destination->segments[c * destination->n_segments + first + r],
                                  st));
                end = r;
            }
    return MR_OK;
}

/* Distributes the rows of it->pulled to replicas from `first` on. */
static mr_code deal(mr_dist_iterator *it, size_t first, mr_status *st)
{
    size_t rows = it->pulled.rows;
    if (rows == 1) {
        mr_block_move(&it->replicas[first], &it->pulled);
        return MR_OK; /* the names moved with it */
    }
    for (size_t r = 0; r < rows; r++) {
        MR_TRY(mr_block_slice(&it->replicas[first + r], &it->pulled, r, 1, st));
        it->replicas[first + r].names = it->pulled.names;
    }
    return MR_OK;
}

/* Fills the replicas of one worker until its stream ends. */
static mr_code fill(mr_dist_iterator *it, size_t worker, const mr_destination *destination,
                    mr_status *st)
{
    stream *s = &it->streams[worker];
    size_t n = (size_t)it->dd->replicas;
    mr_destination slots;
    while (s->filled < n && !s->ended) {
        size_t first = worker * n + s->filled, left = n - s->filled;
        it->pulled.destination = NULL;
        if (destination) {
            MR_TRY(slots_of(it, destination, first, left, &slots, st));
            it->pulled.destination = &slots;
        }
        mr_code rc = mr_iterator_next(s->it, left, &it->pulled, st);
        it->pulled.destination = NULL;
        if (rc == MR_END) {
            s->ended = true;
            break;
        }
        MR_TRY(rc);
        size_t rows = it->pulled.rows;
        for (size_t r = 0; r < rows; r++)
            it->starts[first + r] = r == 0 && (s->filled == 0 || !it->sliced);
        MR_TRY(deal(it, first, st));
        s->filled += rows;
    }
    return destination ? spread(it, worker, destination, st) : MR_OK;
}

/* *any = true if a replica of the job has data in this step; n_local of this process do. */
static mr_code agree(mr_dist_iterator *it, int64_t n_local, bool *any, mr_status *st)
{
    const mr_dist_dataset *dd = it->dd;
    bool same_everywhere =
        dd->original && (dd->policy == MR_SHARD_DATA || dd->policy == MR_SHARD_OFF);
    *any = n_local > 0;
    if (dd->local == dd->workers || same_everywhere)
        return MR_OK;
    if (it->agree) {
        int64_t n = 0;
        MR_TRY(it->agree(it->agree_ctx, n_local, &n, st));
        *any = n > 0;
        return MR_OK;
    }
    if (*any)
        return MR_OK;
    return mr__peers_have_data(&it->peers, it->pass, it->step, any, st);
}

/* Assigns a zero-size batch to each local replica that has no element in this step. */
static mr_code fill_with_zero_size(mr_dist_iterator *it, mr_status *st)
{
    size_t n = (size_t)it->dd->replicas;
    for (size_t w = 0; w < (size_t)it->dd->local; w++)
        for (size_t r = 0; r < n; r++) {
            size_t i = w * n + r;
            it->has_data[i] = r < it->streams[w].filled;
            if (it->has_data[i])
                continue;
            const mr_iterator *of = it->streams[w].it;
            if (!it->zero.n_columns)
                MR_TRY(mr__zero_size_batch(mr_iterator_spec(of), &it->zero, st));
            it->zero.names = mr_spec_leaf_names(mr_iterator_spec(of));
            MR_TRY(mr_block_slice(&it->replicas[i], &it->zero, 0, 1, st));
        }
    return MR_OK;
}

/* The origins of all local replicas' batches, replica by replica. */
static mr_code enter_step(mr_dist_iterator *it, mr_status *st)
{
    size_t n = 0;
    for (size_t r = 0; r < it->n_replicas; r++) {
        const mr_block *b = &it->replicas[r];
        if (!it->has_data[r] || !b->ids.ids)
            continue;
        size_t from = b->ids.offsets ? b->ids.offsets[0] : 0;
        size_t k = b->ids.offsets ? b->ids.offsets[1] - from : 1;
        MR_TRY(MR_GROW(it->entry, it->entry_room, n + k, SIZE_MAX / sizeof *it->entry,
                       "the records of a step", st));
        memcpy(it->entry + n, b->ids.ids + from, k * sizeof *it->entry);
        n += k;
    }
    return mr_ledger_add(it->run.ledger, it->entry, n, st);
}

/* The step of an elastic job: one element of the pipeline has the rows of all local replicas. */
static mr_code next_elastic(mr_dist_iterator *it, mr_step *out, mr_status *st)
{
    const mr_dist_dataset *dd = it->dd;
    if (!it->pulled.rows) { /* else there was no memory to deal it */
        mr_code rc = mr_iterator_next(it->streams[0].it, 1, &it->pulled, st);
        it->done = rc == MR_END;
        if (rc < 0 && st)
            mr__elastic_hide_ops(st);
        MR_TRY(rc);
    }
    MR_TRY(mr__elastic_deal(&it->host, dd->worker * dd->replicas, dd->workers * dd->replicas,
                            &it->pulled, it->replicas, it->has_data, it->n_replicas, st));
    if (it->run.ledger && mr_ledger_takes_steps(it->run.ledger))
        MR_TRY(enter_step(it, st));
    mr_block_clear(&it->pulled);
    *out = (mr_step){it->step++, it->n_replicas, it->replicas, it->has_data};
    return MR_OK;
}

mr_code mr_dist_iterator_next(mr_dist_iterator *it, const mr_destination *destination, mr_step *out,
                              mr_status *st)
{
    int64_t n_local = 0;
    bool any;
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    if (it->done)
        return MR_END;
    if (it->dd->elastic.streams)
        return next_elastic(it, out, st);
    for (size_t w = 0; w < (size_t)it->dd->local; w++) {
        MR_TRY(fill(it, w, destination, st));
        n_local += (int64_t)it->streams[w].filled;
    }
    MR_TRY(agree(it, n_local, &any, st));
    if (!any) {
        it->done = true;
        return MR_END;
    }
    MR_TRY(fill_with_zero_size(it, st));
    if (it->run.ledger && mr_ledger_takes_steps(it->run.ledger))
        MR_TRY(enter_step(it, st));
    *out = (mr_step){it->step++, it->n_replicas, it->replicas, it->has_data};
    for (size_t w = 0; w < (size_t)it->dd->local; w++)
        it->streams[w].filled = 0;
    return MR_OK;
}

mr_code mr_dist_iterator_get_next_as_optional(mr_dist_iterator *it,
                                              const mr_destination *destination,
                                              mr_optional_step *out, mr_status *st)
{
    mr_step step = {0};
    mr_code rc = mr_dist_iterator_next(it, destination, &step, st);
    if (rc < 0)
        return rc;
    *out = (mr_optional_step){rc == MR_OK, step};
    return MR_OK;
}

mr_code mr_optional_step_value(mr_optional_step *o, mr_step **out, mr_status *st)
{
    if (!o->has_value)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the optional is empty: the data ended; check has_value before reading the value");
    *out = &o->value;
    return MR_OK;
}

mr_code mr_dist_iterator_rewind(mr_dist_iterator *it, mr_status *st)
{
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    MR_TRY(wake(it, st));
    mr_block_clear(&it->pulled);
    it->host.touched = true; /* the streams begin another pass, also after one without a step */
    for (size_t w = 0; w < n_streams(it); w++) {
        MR_TRY(mr_iterator_rewind(it->streams[w].it, st));
        it->streams[w].filled = 0;
        it->streams[w].ended = false;
    }
    /* If this pass was cut short, so was the peers'; they start over when needed. */
    if (it->done)
        MR_TRY(mr__peers_rewind(&it->peers, st));
    else
        mr__peers_close(&it->peers);
    it->step = 0;
    it->pass++;
    it->done = false;
    return MR_OK;
}

/* ---- positions ---- */

static const char magic[4] = {'M', 'R', 'D', '2'}, magic_of_0_1[4] = {'M', 'R', 'D', '1'};
enum { CRC_AT = 4, FIELDS_AT = 8, N_FIELDS_OF_0_1 = 6, N_FIELDS = 8 };

static mr_code put_stream(mr__bytes *b, stream *s, mr_status *st)
{
    void *state = NULL;
    size_t size = 0;
    if (s->filled)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a step failed half way; take the step after the error before saving");
    unsigned char ended = s->ended;
    MR_TRY(mr__bytes_put(b, &ended, 1, st));
    MR_TRY(mr_iterator_save(s->it, &state, &size, st));
    mr_code rc = mr__bytes_put_u64(b, size, st);
    if (rc == MR_OK)
        rc = mr__bytes_put(b, state, size, st);
    mr_free(state);
    return rc;
}

static void fields_of(const mr_dist_iterator *it, int64_t *f)
{
    f[0] = it->step;
    f[1] = it->pass;
    f[2] = it->dd->workers;
    f[3] = it->dd->worker;
    f[4] = it->dd->local;
    f[5] = it->dd->replicas;
    f[6] = it->dd->has_seed;
    f[7] = (int64_t)it->dd->seed;
}

mr_code mr_dist_iterator_save(mr_dist_iterator *it, void **out, size_t *size, mr_status *st)
{
    mr__bytes b = {0};
    int64_t fields[N_FIELDS];
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    if (it->dd->elastic.streams && it->pulled.rows)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a step failed half way; take the step after the error before saving");
    if (it->dd->elastic.streams)
        return mr__elastic_save(it->dd, &it->host, it->streams[0].it, it->step, it->pass, it->done,
                                out, size, st);
    fields_of(it, fields);
    mr_code rc = mr__bytes_put(&b, magic, sizeof magic, st);
    if (rc == MR_OK)
        rc = mr__bytes_put(&b, "\0\0\0", 4, st);
    for (size_t i = 0; i < N_FIELDS && rc == MR_OK; i++)
        rc = mr__bytes_put_u64(&b, (uint64_t)fields[i], st);
    for (int64_t i = 0; i < it->dd->local && rc == MR_OK; i++)
        rc = put_stream(&b, &it->streams[i], st);
    if (rc != MR_OK) {
        mr_free(b.v);
        return rc;
    }
    mr__store_le(b.v + CRC_AT, mr_crc32c(b.v + FIELDS_AT, b.n - FIELDS_AT), 4);
    *out = b.v;
    *size = b.n;
    return MR_OK;
}

/* Under DATA every worker runs the whole mixture, and keeps its part of the elements. Each has read
 * ahead as far as it came, so all would change the mixture at different elements. */
static mr_code check_mixture(const mr_dist_iterator *it, stream *s, const void *bytes, size_t size,
                             mr_status *st)
{
    const mr_dist_dataset *dd = it->dd;
    bool other = false;
    if (it->run.on_mismatch != MR_RESTORE_BY_NAME || dd->workers == 1 || !dd->original ||
        dd->policy != MR_SHARD_DATA)
        return MR_OK;
    MR_TRY(mr__iterator_is_of_other_mixture(s->it, bytes, size, &other, st));
    if (!other)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "the position is of another mixture: under the policy DATA each of the %" PRId64
                   " workers runs all of it and has read ahead differently far, so that they would "
                   "not change it at the same element; give the job elastic streams (--elastic, "
                   "elastic_streams), each of which one worker reads",
                   dd->workers);
}

static mr_code restore_stream(const mr_dist_iterator *it, stream *s, const unsigned char **at,
                              const unsigned char *end, mr_status *st)
{
    if (end - *at < 9)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: it ends early");
    s->ended = **at != 0;
    uint64_t n = mr__load_le(*at + 1, 8);
    *at += 9;
    if (n > (uint64_t)(end - *at))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: it ends early");
    MR_TRY(check_mixture(it, s, *at, (size_t)n, st));
    MR_TRY(mr_iterator_restore(s->it, *at, (size_t)n, st));
    s->filled = 0;
    *at += n;
    return MR_OK;
}

static mr_code check_fields(const mr_dist_iterator *it, const int64_t *theirs, mr_status *st)
{
    static const char *const names[N_FIELDS_OF_0_1] = {NULL,
                                                       NULL,
                                                       "workers",
                                                       "as its first worker",
                                                       "workers in this process",
                                                       "replicas per worker"};
    int64_t ours[N_FIELDS];
    fields_of(it, ours);
    for (size_t i = 2; i < N_FIELDS_OF_0_1; i++)
        if (ours[i] != theirs[i])
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the position is from another distribution: it has %" PRId64
                           " %s, this one has %" PRId64,
                           theirs[i], names[i], ours[i]);
    if (theirs[0] < 0 || theirs[1] < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: a negative number of steps");
    return MR_OK;
}

/* Random ops continue with the seeds in their streams' positions, but those that are opened later,
 * in functions, would draw from ours. */
static mr_code check_seed(const mr_dist_dataset *dd, const int64_t *theirs, mr_status *st)
{
    bool has = theirs[6] != 0;
    uint64_t seed = (uint64_t)theirs[7];
    if ((has == dd->has_seed && (!has || seed == dd->seed)) || !dd->original ||
        !mr__any_wants_seed(dd->original))
        return MR_OK;
    return has ? mr_fail(st, MR_INVALID_ARGUMENT,
                         "the position is of a job with the seed %" PRIu64
                         ", which this one does not have; give it the same seed",
                         seed)
               : mr_fail(st, MR_INVALID_ARGUMENT,
                         "the position is of a job without a seed; leave out the seed");
}

static mr_code alone(void *ctx, int64_t mine, int64_t *sum, mr_status *st)
{
    (void)ctx;
    (void)st;
    *sum = mine;
    return MR_OK;
}

/* The position of an elastic job with other numbers of streams or rows restores in the job that it
 * is of: this one, but for these numbers. Of that job one stream is opened here. */
static mr_code check_numbers(const mr_dist_iterator *it, const void *state, size_t size,
                             mr_status *st)
{
    const mr_dist_dataset *dd = it->dd;
    int64_t streams, batch;
    MR_TRY(mr__elastic_numbers(state, size, &streams, &batch, st));
    if (streams == dd->elastic.streams && batch == dd->elastic.batch)
        return MR_OK;
    const mr_distribute_opts opts = {.num_workers = streams,
                                     .elastic_streams = streams,
                                     .has_seed = dd->seed_given,
                                     .seed = dd->seed};
    mr_dist_iterator_opts how = {.run = it->run, .agree = alone};
    how.run.memory_limit = 0; /* a stream of the other job may hold more than one of this job */
    mr_dataset *ds = NULL;
    mr_dist_dataset *theirs = NULL;
    mr_dist_iterator *own = NULL;
    MR_TRY(mr__elastic_renumber(&dd->elastic, dd->original, streams, batch, &ds, st));
    mr_code rc = mr_distribute_dataset(ds, &opts, &theirs, st);
    if (rc == MR_OK)
        rc = mr_dist_iterator_open(&own, theirs, &how, st);
    if (rc == MR_OK)
        rc = mr_dist_iterator_restore(own, state, size, st);
    mr_dist_iterator_close(own);
    mr_dist_dataset_free(theirs);
    mr_dataset_unref(ds);
    return rc;
}

mr_code mr_dist_iterator_restore(mr_dist_iterator *it, const void *state, size_t size,
                                 mr_status *st)
{
    const unsigned char *p = state, *end = p + size;
    int64_t theirs[N_FIELDS] = {0};
    MR_TRY(mr__check_process(it->forks, "the distributed iterator", st));
    mr_block_clear(&it->pulled);
    if (it->dd->elastic.streams) {
        MR_TRY(wake(it, st));
        if (size >= sizeof magic && memcmp(p, magic, sizeof magic) == 0)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the position is of a job that is not elastic; leave out the number of "
                           "elastic streams (--elastic, elastic_streams)");
        it->done = false;
        MR_TRY(check_numbers(it, state, size, st));
        return mr__elastic_restore(it->dd, &it->host, it->streams[0].it, state, size, &it->step,
                                   &it->pass, &it->done, st);
    }
    if (mr_is_job_position(state, size))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the position is of an elastic job; give this one its number of streams");
    bool is_of_0_1 = size >= sizeof magic && memcmp(p, magic_of_0_1, sizeof magic) == 0;
    size_t n_fields = is_of_0_1 ? N_FIELDS_OF_0_1 : N_FIELDS;
    size_t streams_at = FIELDS_AT + 8 * n_fields;
    if (size < streams_at || (!is_of_0_1 && memcmp(p, magic, sizeof magic) != 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "not a position of a distributed pipeline: it does not start with MRD2");
    if (mr_crc32c(p + FIELDS_AT, size - FIELDS_AT) != mr__load_le(p + CRC_AT, 4))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: its checksum does not match");
    for (size_t i = 0; i < n_fields; i++)
        theirs[i] = (int64_t)mr__load_le(p + FIELDS_AT + 8 * i, 8);
    MR_TRY(check_fields(it, theirs, st));
    if (!is_of_0_1)
        MR_TRY(check_seed(it->dd, theirs, st));
    p += streams_at;
    MR_TRY(wake(it, st));
    for (int64_t i = 0; i < it->dd->local; i++)
        MR_TRY(restore_stream(it, &it->streams[i], &p, end, st));
    if (p != end)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: bytes after its end");
    mr__peers_close(&it->peers);
    it->step = theirs[0];
    it->pass = theirs[1];
    it->done = false;
    return MR_OK;
}

/* ---- properties ---- */

const mr_spec *mr_dist_iterator_spec(const mr_dist_iterator *it)
{
    return it->dd->spec;
}

int64_t mr_dist_iterator_step(const mr_dist_iterator *it)
{
    return it->step;
}

mr_iterator *mr_dist_iterator_worker(mr_dist_iterator *it, size_t local)
{
    return it->streams[it->dd->elastic.streams ? 0 : local].it;
}

void mr_dist_iterator_cancel(mr_dist_iterator *it)
{
    mr_cancel_trigger(it->cancel);
}
