/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the streams of a process, and gathers the rows of each step from them.
 *
 * Before step 0 nothing is known of the streams, so all are live. Before every later step each
 * process looks one row ahead in its streams, and all agree which have ended. The row looked at
 * stays in the block that was pulled for it; it is part of no position, since a position is saved
 * between two steps, before the look. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/dist_impl.h"
#include "shard/distribute/elastic_impl.h"

enum {
    BLOCK_ROWS = 256, /* pulled from a stream at once; more if a step needs more. Of a mixture only
                         what it needs: positions would hold the rest */
    BITS = 32,        /* of ended streams in one exchange */
    FEW_BYTES = 4096, /* rows of a stream, for a step, that are copied to those of the others */
    GATHERED_BYTES = 1 << 20
};

/* ---- opening ---- */

static bool is_own(const mr__elastic_host *h, int64_t s)
{
    return s >= h->first && s < h->last;
}

/* Opens hubs of what the first stream of this process found that cannot be cut. */
static mr_code open_hubs(mr__elastic_host *h, const mr__elastic_wholes *wholes,
                         const mr_dist_dataset *dd, const mr_dist_iterator_opts *opts,
                         mr_status *st)
{
    if (h->hubs || !wholes->n)
        return MR_OK;
    h->hub_run = opts->run;
    h->hub_run.has_seed = true;
    h->hub_run.seed = dd->seed;
    h->hubs = mr_calloc(wholes->n, sizeof *h->hubs);
    if (!h->hubs)
        return mr_fail_memory(st, wholes->n * sizeof *h->hubs, "the streams of a job");
    for (; h->n_hubs < wholes->n; h->n_hubs++) {
        struct mr__elastic_hub_at *x = &h->hubs[h->n_hubs];
        const struct mr__elastic_whole *whole = &wholes->v[h->n_hubs];
        x->place = whole->place;
        x->mixed = mr__graph_is_mixed(whole->ds) ? mr_dataset_op(whole->ds)->name : NULL;
        MR_TRY(mr__elastic_hub_open(&x->hub, whole->ds, dd->elastic.streams, &h->hub_run, st));
    }
    return MR_OK;
}

static mr_code open_stream(mr__elastic_host *h, const mr_dist_dataset *dd, mr__matched *m,
                           mr__elastic_wholes *wholes, int64_t s, const mr_dist_iterator_opts *opts,
                           mr_status *st)
{
    mr__elastic_stream_host *x = &h->v[s];
    mr_dataset *ds = NULL;
    mr_iterator_opts run = opts->run;
    mr__iterator_internal internal = *mr__iterator_internal_of(&opts->run);
    internal.shares_memory = true;
    internal.seed_made_up = internal.seed_made_up || !dd->seed_given;
    internal.elastic = h;
    internal.restores_silently = s > h->first;
    run.internal = &internal;
    run.has_seed = true;
    run.watch = false;
    MR_TRY(mr__elastic_stream(h->graph, m, s, dd->seed, wholes, &ds, &run.seed, NULL, st));
    mr_code rc = open_hubs(h, wholes, dd, opts, st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&x->it, ds, &run, st);
    mr_dataset_unref(ds);
    return rc;
}

mr_code mr__elastic_host_open(mr__elastic_host *h, const mr_dist_dataset *dd,
                              const mr_dist_iterator_opts *opts, mr_status *st)
{
    const int64_t streams = dd->elastic.streams, replicas = dd->workers * dd->replicas;
    mr__matched matched = {.directory = opts->run.directory};
    mr__elastic_wholes wholes = {0};
    *h = (mr__elastic_host){
        .graph = &dd->elastic, .agree = opts->agree, .agree_ctx = opts->agree_ctx};
    h->schedule = (mr__schedule){.streams = streams, .batch = dd->elastic.batch, .n_live = streams};
    h->first = mr__schedule_first_stream(streams, dd->worker * dd->replicas, replicas);
    h->last = mr__schedule_first_stream(streams, (dd->worker + dd->local) * dd->replicas, replicas);
    h->block_rows = mr__graph_is_mixed(dd->elastic.rows) ? 1 : BLOCK_ROWS;
    h->by_name = opts->run.on_mismatch == MR_RESTORE_BY_NAME;
    h->hosts_all = dd->local == dd->workers || !opts->agree;
    h->schedule.live = mr_calloc((size_t)streams, sizeof *h->schedule.live);
    h->v = mr_calloc((size_t)streams, sizeof *h->v);
    if (!h->v || !h->schedule.live)
        return mr_fail_memory(st, (size_t)streams * sizeof *h->v, "the streams of a job");
    memset(h->schedule.live, true, (size_t)streams * sizeof *h->schedule.live);
    mr_code rc = MR_OK;
    for (int64_t s = 0; s < streams && rc == MR_OK; s++)
        if (h->hosts_all || is_own(h, s))
            rc = open_stream(h, dd, &matched, &wholes, s, opts, st);
    mr__elastic_wholes_reset(&wholes);
    mr__matched_reset(&matched);
    h->phase = MR__SHARE;
    return rc;
}

static void drop_pieces(mr__elastic_host *h)
{
    while (h->n_pieces)
        mr_block_clear(&h->pieces[--h->n_pieces]);
    h->piece = h->piece_used = h->room = 0;
}

void mr__elastic_stop(mr__elastic_host *h)
{
    for (int64_t s = 0; s < h->schedule.streams && h->n_hubs; s++)
        if (h->v[s].it)
            mr__iterator_settle(h->v[s].it);
    for (size_t i = 0; i < h->n_hubs; i++)
        mr__elastic_hub_stop(h->hubs[i].hub);
}

void mr__elastic_host_close(mr__elastic_host *h)
{
    mr__elastic_stop(h);
    for (int64_t s = 0; h->v && s < h->schedule.streams; s++) {
        mr_iterator_close(h->v[s].it);
        mr_block_reset(&h->v[s].block);
    }
    for (size_t i = 0; i < h->n_hubs; i++)
        mr__elastic_hub_close(h->hubs[i].hub);
    mr_free(h->hubs);
    for (size_t i = 0; i < h->pieces_room; i++)
        mr_block_reset(&h->pieces[i]);
    mr_block_reset(&h->sample);
    mr_free(h->pieces);
    mr_free(h->v);
    mr_free(h->schedule.live);
    *h = (mr__elastic_host){0};
}

/* ---- passes ---- */

/* Nothing of the step in progress is kept. */
static void begin_step(mr__elastic_host *h, mr__elastic_phase phase)
{
    drop_pieces(h);
    h->phase = phase;
    h->at = 0;
    h->failed = false;
    for (int64_t s = 0; s < h->schedule.streams; s++)
        h->v[s].share = h->v[s].taken = 0, h->v[s].rows = 0, h->v[s].begun = false;
}

void mr__elastic_started(mr__elastic_host *h)
{
    for (int64_t s = 0; s < h->schedule.streams; s++)
        h->schedule.live[s] = true;
    h->schedule.step = 0;
    h->schedule.n_live = h->schedule.streams;
    begin_step(h, MR__SHARE);
    h->touched = false;
}

mr_code mr__elastic_begin_pass(mr__elastic_host *h, mr_status *st)
{
    if (!h->touched || h->restoring)
        return MR_OK;
    for (int64_t s = 0; s < h->schedule.streams; s++) {
        mr__elastic_stream_host *x = &h->v[s];
        mr__elastic_forget(x);
        if (!x->it || x->begun)
            continue;
        MR_TRY(mr_iterator_rewind(x->it, st));
        x->begun = true; /* should the next one fail, it is not begun twice */
    }
    h->epochs++;
    mr__elastic_started(h);
    return MR_OK;
}

/* ---- rows of a stream ---- */

void mr__elastic_forget(mr__elastic_stream_host *x)
{
    mr_block_clear(&x->block);
    x->used = 0;
    x->has_error = x->ended = false;
}

/* Pulls until the stream has a row, an error in place of one, or its end. */
static mr_code look(const mr__elastic_host *h, mr__elastic_stream_host *x, int64_t want,
                    mr_status *st)
{
    if (mr__elastic_rows_left(x) || x->has_error || x->ended)
        return MR_OK;
    mr_status why;
    mr_status_init(&why);
    x->used = 0;
    mr_code rc = mr_iterator_next(x->it, (size_t)(want > h->block_rows ? want : h->block_rows),
                                  &x->block, &why);
    if (rc == MR_END)
        x->ended = true;
    else if (rc == MR_CANCELLED || (rc < MR_OK && mr_status_is_of_no_element(&why))) {
        if (st)
            *st = why;
        return rc;
    } else if (rc < MR_OK) {
        x->has_error = true;
        x->error = why;
    }
    return MR_OK;
}

/* SIZE_MAX: they differ, or are kept as views. */
static size_t row_bytes(const mr_block *b)
{
    size_t bytes = 0;
    for (size_t c = 0; c < b->n_columns; c++) {
        if (b->columns[c].storage != MR_DENSE && b->columns[c].storage != MR_BYTES)
            return SIZE_MAX;
        bytes += mr_array_row_bytes(&b->columns[c]);
    }
    return bytes;
}

/* Starts a piece of rows like those of b, for the own rows of the step: at least n. */
static mr_code start_gathering(mr__elastic_host *h, const mr_block *b, size_t bytes, size_t n,
                               mr_status *st)
{
    size_t rows = 0, most = GATHERED_BYTES / (bytes ? bytes : 1);
    for (int64_t s = h->first; s < h->last; s++)
        rows += (size_t)h->v[s].share;
    rows = rows < most ? rows : most;
    rows = rows > n ? rows : n;
    MR_TRY(mr_block_start(&h->pieces[h->n_pieces], b, rows, st));
    h->n_pieces++;
    h->room = rows;
    return MR_OK;
}

/* Rows [from, from + n) of b are part of the step. It has few rows of each of many streams: small
 * ones are gathered, and the batch takes them at once. */
static mr_code add_piece(mr__elastic_host *h, const mr_block *b, size_t from, size_t n,
                         mr_status *st)
{
    size_t before = h->pieces_room, bytes = row_bytes(b);
    MR_TRY(MR_GROW(h->pieces, h->pieces_room, h->n_pieces + 1, SIZE_MAX / sizeof *h->pieces,
                   "the rows of a step", st));
    if (h->pieces_room > before)
        memset(h->pieces + before, 0, (h->pieces_room - before) * sizeof *h->pieces);
    if (bytes > FEW_BYTES / n) {
        MR_TRY(mr_block_slice(&h->pieces[h->n_pieces], b, from, n, st));
        h->n_pieces++;
        h->room = 0;
        return MR_OK;
    }
    if (n > h->room || !mr_block_fits(&h->pieces[h->n_pieces - 1], b))
        MR_TRY(start_gathering(h, b, bytes, n, st));
    MR_TRY(mr_block_append(&h->pieces[h->n_pieces - 1], b, from, n, st));
    h->room -= n;
    return MR_OK;
}

static mr_code take_share(mr__elastic_host *h, int64_t s, mr_status *st)
{
    mr__elastic_stream_host *x = &h->v[s];
    while (x->taken < x->share) {
        int64_t left = x->share - x->taken;
        MR_TRY(look(h, x, left, st));
        if (mr__elastic_rows_left(x)) {
            size_t n =
                mr__elastic_rows_left(x) < (size_t)left ? mr__elastic_rows_left(x) : (size_t)left;
            if (is_own(h, s))
                MR_TRY(add_piece(h, &x->block, x->used, n, st));
            x->rows += n;
            x->used += n;
            x->taken += (int64_t)n;
        } else if (x->has_error) {
            if (!h->failed) {
                h->failed = true;
                h->failure = x->error;
                mr_status_prefix(&h->failure, "step %" PRId64 ", stream %" PRId64, h->schedule.step,
                                 s);
            }
            x->has_error = false;
            x->taken++;
        } else
            break; /* it ended: its step is short */
    }
    return MR_OK;
}

/* ---- what all processes must know ---- */

static void end_stream(mr__elastic_host *h, int64_t s)
{
    h->schedule.live[s] = false;
    h->schedule.n_live--;
}

/* Bit s of *bits: stream `from + s`, which runs here, has ended since the last step. Returns their
 * number. */
static int64_t newly_ended(const mr__elastic_host *h, int64_t from, int64_t n, int64_t *bits)
{
    int64_t ended = 0;
    *bits = 0;
    for (int64_t s = from; s < from + n; s++)
        if (h->schedule.live[s] && h->v[s].ended) {
            ended++;
            *bits |= (int64_t)1 << ((s - from) % BITS);
        }
    return ended;
}

static mr_code agree_on_ends(mr__elastic_host *h, mr_status *st)
{
    int64_t bits, streams = h->schedule.streams, n = newly_ended(h, 0, streams, &bits);
    if (!h->hosts_all)
        MR_TRY(h->agree(h->agree_ctx, n, &n, st));
    for (int64_t from = 0; n && from < streams; from += BITS) {
        int64_t some = streams - from < BITS ? streams - from : BITS;
        newly_ended(h, from, some, &bits);
        if (!h->hosts_all)
            MR_TRY(h->agree(h->agree_ctx, bits, &bits, st));
        for (int64_t i = 0; i < some; i++)
            if (bits >> i & 1)
                end_stream(h, from + i);
    }
    return MR_OK;
}

/* *rows = of the step, in all processes. */
static mr_code count_rows(const mr__elastic_host *h, int64_t *rows, mr_status *st)
{
    *rows = 0;
    for (int64_t s = 0; s < h->schedule.streams; s++)
        *rows += (int64_t)h->v[s].rows;
    return h->hosts_all ? MR_OK : h->agree(h->agree_ctx, *rows, rows, st);
}

/* ---- steps ---- */

static void share_out(mr__elastic_host *h)
{
    for (int64_t s = 0, j = 0; s < h->schedule.streams; s++) {
        h->v[s].share = h->schedule.live[s] ? mr__schedule_share(&h->schedule, j++) : 0;
        if (!h->v[s].it)
            h->v[s].share = 0;
    }
}

void mr__elastic_restored(mr__elastic_host *h, int64_t step, int64_t epochs)
{
    h->schedule.step = step;
    h->epochs = epochs;
    h->touched = true;
    begin_step(h, step ? MR__LOOK : MR__SHARE);
}

void mr__elastic_step_over(mr__elastic_host *h)
{
    h->schedule.step++;
    for (int64_t s = 0; s < h->schedule.streams; s++)
        h->v[s].given = h->v[s].rows;
    begin_step(h, MR__LOOK);
}

/* Only in the first step can all streams that give rows turn out to be empty. */
static bool counts(const mr__elastic_host *h)
{
    return h->schedule.step == 0 || h->graph->drop_remainder;
}

static mr_code advance(mr__elastic_host *h, mr_status *st)
{
    int64_t rows;
    switch (h->phase) {
    case MR__LOOK:
        for (; h->at < h->schedule.streams; h->at++)
            if (h->v[h->at].it && h->schedule.live[h->at])
                MR_TRY(look(h, &h->v[h->at], 1, st));
        h->phase = MR__AGREE;
        return MR_OK;
    case MR__AGREE:
        MR_TRY(agree_on_ends(h, st));
        h->phase = MR__SHARE;
        return MR_OK;
    case MR__SHARE:
        if (h->schedule.n_live == 0)
            return MR_END;
        share_out(h);
        h->touched = true;
        h->at = 0;
        h->phase = MR__GATHER;
        return MR_OK;
    case MR__GATHER:
        for (; h->at < h->schedule.streams; h->at++)
            MR_TRY(take_share(h, h->at, st));
        h->phase = MR__COUNT;
        return MR_OK;
    case MR__COUNT:
        rows = h->schedule.batch;
        if (counts(h))
            MR_TRY(count_rows(h, &rows, st));
        if (h->failed) {
            if (st)
                *st = h->failure;
            mr_code rc = h->failure.code;
            mr__elastic_step_over(h);
            return rc;
        }
        if (rows == 0 || (h->graph->drop_remainder && rows < h->schedule.batch))
            mr__elastic_step_over(h);
        else
            h->phase = MR__READY;
        return MR_OK;
    case MR__READY:
        break;
    }
    return MR_OK;
}

mr_code mr__elastic_gather(mr__elastic_host *h, size_t *rows, mr_status *st)
{
    while (h->phase != MR__READY)
        MR_TRY(advance(h, st));
    *rows = 0;
    for (int64_t s = h->first; s < h->last; s++)
        *rows += h->v[s].rows;
    return MR_OK;
}

mr_code mr__elastic_show_sample(mr__elastic_host *h, bool *any, mr_status *st)
{
    for (int64_t s = h->first; s < h->last && !h->sample.rows; s++) {
        mr__elastic_stream_host *x = &h->v[s];
        if (h->schedule.live[s])
            MR_TRY(look(h, x, 1, st));
        if (mr__elastic_rows_left(x))
            MR_TRY(mr_block_slice(&h->sample, &x->block, x->used, 1, st));
    }
    *any = h->sample.rows > 0;
    return *any ? add_piece(h, &h->sample, 0, 1, st) : MR_OK;
}

mr_code mr__elastic_take(mr__elastic_host *h, size_t want, mr_block *out, mr_status *st)
{
    if (h->phase != MR__READY || h->piece == h->n_pieces)
        return MR_END;
    const mr_block *b = &h->pieces[h->piece];
    size_t left = b->rows - h->piece_used, n = left < want ? left : want;
    MR_TRY(mr_block_slice(out, b, h->piece_used, n, st));
    h->piece_used += n;
    if (n == left) {
        h->piece++;
        h->piece_used = 0;
    }
    return MR_OK;
}
