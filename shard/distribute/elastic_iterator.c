/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a distributed iterator that an elastic job does in another way: the rows of each
 * replica, and positions. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/columns/cut_rows_internal.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/dist_impl.h"
#include "shard/distribute/elastic_impl.h"

/* ---- replicas ---- */

mr_code mr__elastic_cut(mr_block *out, const mr_block *b, size_t from, size_t n, mr_status *st)
{
    MR_TRY(mr_block_prepare(out, b->n_columns, st));
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        mr_array *to = &out->columns[c];
        if (a->rank == 0) /* the number of the step */
            mr_array_slice(to, a, 0, 1);
        else if (a->storage == MR_RAGGED)
            MR_TRY(mr__cut_ragged(to, a, 0, from, n, st));
        else
            mr__cut_dense(to, a, 0, from, n, 1);
    }
    out->rows = 1;
    out->names = b->names;
    return MR_OK;
}

/* The records that rows [from, from + n) of `rows` are made of; all of them, if there is not one
 * for each row and the part is the first. */
static mr_code cut_identities(mr_block *out, const mr_identities *ids, size_t from, size_t n,
                              size_t rows, mr_status *st)
{
    if (!ids->ids)
        return MR_OK;
    size_t first = ids->offsets ? ids->offsets[0] : 0;
    size_t all = ids->offsets ? ids->offsets[1] - first : 1;
    const mr_identities flat = {.ids = ids->ids + first + (all == rows ? from : 0),
                                .owner = ids->owner};
    const mr_identities none = {.ids = ids->ids, .offsets = (const uint64_t[]){0, 0}};
    if (all == rows && n)
        return mr_identities_group(&out->ids, &flat, n, n, st);
    if (all != rows && from == 0 && n)
        return mr_identities_group(&out->ids, &flat, all, all, st);
    return mr_identities_ungroup(&out->ids, &none, 0, 1, st);
}

mr_code mr__elastic_deal(const mr__elastic_host *h, int64_t first_replica, int64_t all_replicas,
                         const mr_block *b, mr_block *replicas, bool *has_data, size_t n,
                         mr_status *st)
{
    size_t at = 0, all = 0;
    for (int64_t s = h->first; s < h->last; s++)
        all += h->v[s].given;
    for (size_t r = 0; r < n; r++) {
        int64_t id = first_replica + (int64_t)r, streams = h->schedule.streams;
        size_t rows = 0;
        for (int64_t s = mr__schedule_first_stream(streams, id, all_replicas);
             s < mr__schedule_first_stream(streams, id + 1, all_replicas); s++)
            rows += h->v[s].given;
        MR_TRY(mr__elastic_cut(&replicas[r], b, at, rows, st));
        MR_TRY(cut_identities(&replicas[r], &b->ids, at, rows, all, st));
        has_data[r] = rows > 0;
        at += rows;
    }
    return MR_OK;
}

/* ---- positions ---- */

/* Rows and an error that were looked at but not taken come after the position. */
static mr_code save_stream(mr__elastic_stream_host *x, struct mr__stream_position *p, mr_status *st)
{
    MR_TRY(mr__elastic_rows_left(x)
               ? mr_iterator_save_at(x->it, &x->block, x->used, &p->bytes, &p->size, st)
               : mr_iterator_save(x->it, &p->bytes, &p->size, st));
    return x->has_error ? mr__status_to_bytes(&x->error, &p->error, st) : MR_OK;
}

static mr_code restore_stream(mr__elastic_stream_host *x, const struct mr__stream_position *p,
                              mr_status *st)
{
    mr__elastic_forget(x);
    x->has_error = p->error != NULL;
    if (x->has_error)
        MR_TRY(mr__status_from_bytes(p->error, &x->error, st));
    return mr_iterator_restore(x->it, p->bytes, p->size, st);
}

/* Presigned URLs may have another signature later. */
static mr_code graph_text(const mr_dist_dataset *dd, char **out, mr_status *st)
{
    MR_TRY(mr_dataset_to_text(dd->original, out, st));
    mr_text_drop_secrets(*out);
    return MR_OK;
}

/* The parts of a position but for the streams. */
static mr_code begin_position(const mr_dist_dataset *dd, const mr__elastic_host *h,
                              mr__job_position *p, mr_status *st)
{
    const mr__schedule *s = &h->schedule;
    *p = (mr__job_position){.streams = s->streams,
                            .batch = s->batch,
                            .step = s->step,
                            .epochs = h->epochs,
                            .has_seed = dd->has_seed,
                            .seed = dd->seed};
    p->v = mr_calloc((size_t)s->streams, sizeof *p->v);
    p->live = mr_malloc((size_t)s->streams * sizeof *p->live);
    if (!p->v || !p->live)
        return mr_fail_memory(st, (size_t)s->streams * sizeof *p->v, "a position");
    memcpy(p->live, s->live, (size_t)s->streams * sizeof *p->live);
    MR_TRY(mr__graph_outline(dd->original, &p->outline, st));
    return graph_text(dd, &p->graph, st);
}

mr_code mr__elastic_save(const mr_dist_dataset *dd, mr__elastic_host *h, mr_iterator *steps,
                         int64_t delivered, int64_t pass, bool ended, void **bytes, size_t *size,
                         mr_status *st)
{
    mr__job_position p;
    if (h->phase != MR__LOOK && h->phase != MR__SHARE)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a step failed half way; take the step after the error before saving");
    mr_code rc = begin_position(dd, h, &p, st);
    p.delivered = delivered;
    p.pass = pass;
    for (int64_t s = 0; s < h->schedule.streams && ended && rc == MR_OK; s++)
        p.live[s] = false; /* a take above the batch ends the pass before the streams end */
    if (rc == MR_OK)
        rc = mr_iterator_save(steps, &p.steps, &p.steps_size, st);
    for (int64_t s = h->first; s < h->last && rc == MR_OK; s++)
        rc = save_stream(&h->v[s], &p.v[s], st);
    for (size_t i = 0; i < h->n_hubs && rc == MR_OK; i++) {
        mr__elastic_anchors *to;
        rc = mr__job_position_hub(&p, h->hubs[i].place, &to, st);
        if (rc == MR_OK)
            rc = mr__elastic_hub_save(h->hubs[i].hub, to, st);
    }
    if (rc == MR_OK)
        rc = mr__job_position_write(&p, bytes, size, st);
    mr__job_position_reset(&p);
    return rc;
}

/* `graph` is the text of this job's, which is another one. */
static mr_code check_other_graph(const mr_dist_dataset *dd, const mr__elastic_host *h,
                                 const mr__job_position *p, const char *graph, mr_status *st)
{
    const mr__graph_texts theirs = {p->graph, p->outline, strlen(p->graph),
                                    p->outline ? strlen(p->outline) : 0};
    char *outline = NULL;
    MR_TRY(mr__graph_outline(dd->original, &outline, st));
    mr_code rc = mr__graphs_differ(graph, outline, &theirs,
                                   h->by_name ? MR_RESTORE_BY_NAME : MR_REFUSE_MISMATCH, st);
    mr_free(outline);
    if (rc == MR_INVALID_ARGUMENT && st)
        st->code = MR_FAILED_PRECONDITION;
    return rc == MR_INVALID_ARGUMENT ? MR_FAILED_PRECONDITION : rc;
}

/* *other: the graph is another one than in the position, which a restore by name may take.
 * between: epochs, where the numbers of streams and rows may be others. */
static mr_code check_same(const mr_dist_dataset *dd, const mr__elastic_host *h,
                          const mr__job_position *p, bool between, bool *other, mr_status *st)
{
    char *graph = NULL;
    MR_TRY(graph_text(dd, &graph, st));
    mr_text_drop_secrets(p->graph); /* earlier versions kept them */
    *other = strcmp(p->graph, graph) != 0;
    bool same = p->streams == dd->elastic.streams && p->batch == dd->elastic.batch;
    mr_code rc = MR_OK;
    if (!between && p->streams != dd->elastic.streams)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the position is inside an epoch of %" PRId64
                     " elastic streams, this job has %" PRId64
                     "; continue the epoch with the same number, or change it at the start of one",
                     p->streams, dd->elastic.streams);
    else if (!between && p->batch != dd->elastic.batch)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the position is inside an epoch with the global batch size %" PRId64
                     ", this job has %" PRId64
                     "; continue the epoch with the same one, or change it at the start of one",
                     p->batch, dd->elastic.batch);
    else if (same && *other)
        rc = check_other_graph(dd, h, p, graph, st);
    if (rc == MR_OK && (p->has_seed != dd->has_seed || p->seed != dd->seed))
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the position is of a job with the seed %" PRIu64 ", this one has %" PRIu64
                     "; give it the same seed",
                     p->seed, dd->seed);
    mr_free(graph);
    return rc;
}

/* All streams have ended, and the processes know it. */
static bool has_ended(const mr__job_position *p)
{
    bool any = false;
    for (int64_t s = 0; s < p->streams; s++)
        any = any || p->live[s];
    return !any;
}

/* As newly opened. */
static mr_code start_over(mr__elastic_host *h, mr_iterator *steps, mr_status *st)
{
    MR_TRY(mr__elastic_rest(h, st));
    for (size_t i = 0; i < h->n_hubs; i++)
        mr__elastic_hub_restore(h->hubs[i].hub, &(mr__elastic_anchors){0});
    for (int64_t s = 0; s < h->schedule.streams; s++) {
        mr__elastic_forget(&h->v[s]);
        if (h->v[s].it)
            MR_TRY(mr__iterator_start_over(h->v[s].it, st));
    }
    h->restoring = true;
    mr_code rc = mr__iterator_start_over(steps, st);
    h->restoring = false;
    h->epochs = 0;
    mr__elastic_started(h);
    return rc;
}

/* The start of the pass of p, whose streams were cut in another way: after as many epochs of the
 * streams, of which a repeat above the batch makes several in a pass. */
static mr_code restore_start(mr__elastic_host *h, mr_iterator *steps, const mr__job_position *p,
                             mr_status *st)
{
    MR_TRY(start_over(h, steps, st));
    while (h->epochs < p->epochs) {
        h->touched = true;
        MR_TRY(mr__elastic_begin_pass(h, st));
    }
    h->restoring = true; /* the streams are where they must be */
    mr_code rc = MR_OK;
    for (int64_t i = 0; i < p->pass && rc == MR_OK; i++)
        rc = mr_iterator_rewind(steps, st);
    h->restoring = false;
    return rc;
}

static void expect_streams(const mr__elastic_host *h, bool restored)
{
    for (size_t i = 0; i < h->n_hubs; i++)
        for (int64_t s = 0; s < h->schedule.streams; s++)
            if (h->v[s].it)
                mr__elastic_hub_expect(h->hubs[i].hub, s, restored);
}

/* The graphs are the same but for their mixtures; so are those of a stream, unless a mixture that
 * differs is in what is dealt. */
static mr_code check_dealt(const mr__elastic_host *h, mr_iterator *it,
                           const struct mr__stream_position *p, mr_status *st)
{
    bool other;
    mr_code rc = mr__iterator_is_of_other_mixture(it, p->bytes, p->size, &other, st);
    for (size_t i = 0; i < h->n_hubs && rc == MR_INVALID_ARGUMENT; i++)
        if (h->hubs[i].mixed)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the position has another mixture below %s, which an elastic job cannot "
                           "cut; give it the sources and weights that it was saved with",
                           h->hubs[i].mixed);
    return rc;
}

/* other: with another mixture, in which a stream that had ended may continue. */
static mr_code restore_streams(mr__elastic_host *h, mr__job_position *p, bool other, mr_status *st)
{
    for (size_t i = 0; i < h->n_hubs; i++) {
        mr__elastic_anchors *from;
        MR_TRY(mr__job_position_hub(p, h->hubs[i].place, &from, st));
        mr__elastic_hub_restore(h->hubs[i].hub, from);
    }
    h->schedule.n_live = 0;
    mr_code rc = MR_OK;
    expect_streams(h, false);
    for (int64_t s = 0; s < p->streams && rc == MR_OK; s++) {
        mr__elastic_stream_host *x = &h->v[s];
        h->schedule.live[s] = p->live[s] || other;
        h->schedule.n_live += h->schedule.live[s];
        if (!x->it)
            continue;
        rc = other ? check_dealt(h, x->it, &p->v[s], st) : MR_OK;
        if (rc == MR_OK)
            rc = restore_stream(x, &p->v[s], st);
        if (rc != MR_OK)
            mr_status_prefix(st, "stream %" PRId64, s);
    }
    expect_streams(h, true);
    return rc;
}

mr_code mr__elastic_numbers(const void *bytes, size_t size, int64_t *streams, int64_t *batch,
                            mr_status *st)
{
    mr__job_position p;
    MR_TRY(mr__job_position_read(&p, bytes, size, st));
    *streams = p.streams;
    *batch = p.batch;
    mr__job_position_reset(&p);
    return MR_OK;
}

mr_code mr__elastic_restore(const mr_dist_dataset *dd, mr__elastic_host *h, mr_iterator *steps,
                            const void *bytes, size_t size, int64_t *delivered, int64_t *pass,
                            bool *done, mr_status *st)
{
    mr__job_position p;
    MR_TRY(mr__job_position_read(&p, bytes, size, st));
    bool ended = has_ended(&p), between = ended || (p.step == 0 && p.delivered == 0);
    bool same = p.streams == dd->elastic.streams && p.batch == dd->elastic.batch;
    bool other;
    mr_code rc = check_same(dd, h, &p, between, &other, st);
    if (rc == MR_OK)
        rc = mr__job_position_is_whole(&p, st);
    if (rc == MR_OK && !same) {
        rc = restore_start(h, steps, &p, st);
        *done = rc == MR_OK && ended;
    } else if (rc == MR_OK) {
        h->restoring = true;
        rc = mr_iterator_restore(steps, p.steps, p.steps_size, st);
        h->restoring = false;
        if (rc == MR_OK)
            rc = restore_streams(h, &p, other && h->by_name, st);
        if (rc == MR_OK)
            mr__elastic_restored(h, p.step, p.epochs);
    }
    if (rc == MR_OK) {
        *delivered = p.delivered;
        *pass = p.pass;
    }
    mr__job_position_reset(&p);
    return rc;
}

/* ---- resting ---- */

/* The hubs rest last: streams that read ahead ask them. */
mr_code mr__elastic_rest(mr__elastic_host *h, mr_status *st)
{
    mr__elastic_stop(h);
    for (int64_t s = 0; s < h->schedule.streams; s++)
        if (h->v[s].it)
            MR_TRY(mr_iterator_rest(h->v[s].it, st));
    for (size_t i = 0; i < h->n_hubs; i++)
        mr__elastic_hub_rest(h->hubs[i].hub);
    return MR_OK;
}

mr_code mr__elastic_resume(mr__elastic_host *h, mr_status *st)
{
    const size_t streams = (size_t)h->schedule.streams;
    mr_code rc = MR_OK;
    h->piece = h->piece_used = 0; /* what the batch had collected is lost */
    if (!streams)
        return MR_OK;
    struct mr__stream_position *at = mr_calloc(streams, sizeof *at);
    if (!at)
        return mr_fail_memory(st, streams * sizeof *at, "a position");
    /* Their blocks stay: the positions are after them. */
    for (size_t s = 0; s < streams && rc == MR_OK; s++)
        if (h->v[s].it)
            rc = mr_iterator_save(h->v[s].it, &at[s].bytes, &at[s].size, st);
    if (rc == MR_OK)
        rc = mr__elastic_rest(h, st);
    for (size_t s = 0; s < streams; s++) {
        if (h->v[s].it && rc == MR_OK)
            rc = mr_iterator_restore(h->v[s].it, at[s].bytes, at[s].size, st);
        mr_free(at[s].bytes);
    }
    mr_free(at);
    return rc;
}
