/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/feed.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/strategy/strategy_impl.h"

/* The first exchange of a step, for shards that may end at different steps: whether any worker has
 * data. */
static mr_code agree(void *ctx, int64_t n_local, int64_t *n_global, mr_status *st)
{
    mr__feed *f = ctx;
    const double mine = (double)n_local;
    *n_global = 0;
    MR_TRY(mr__world_exchange(mr__strategy_world(f->s), MR__CHANNEL_DATA, &mine, 1, f->of_all, st));
    for (size_t i = 0; i < mr_strategy_num_workers(f->s); i++)
        *n_global += (int64_t)f->of_all[i];
    return MR_OK;
}

mr_code mr__fit_data(const mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                     mr_dataset **out, mr_status *st)
{
    const mr_input_context c = {(int64_t)mr_strategy_num_workers(s), (int64_t)mr_strategy_worker(s),
                                (int64_t)mr_strategy_num_replicas_in_sync(s)};
    *out = NULL;
    if (!ds && (!opts || !opts->input))
        return mr_fail(st, MR_INVALID_ARGUMENT, "no data: pass a dataset or an input function");
    if (!ds)
        MR_TRY(opts->input(opts->input_ctx, &c, out, st));
    else
        *out = mr_dataset_ref(ds);
    return *out ? MR_OK
                : mr_fail(st, MR_FAILED_PRECONDITION, "the input function returned no dataset");
}

mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                      bool positions, mr_status *st)
{
    static const mr_iterator_opts none;
    int64_t workers = (int64_t)mr_strategy_num_workers(s);
    int64_t n = (int64_t)mr_strategy_num_local_replicas(s);
    size_t depth = opts ? opts->staging_depth : 0;
    memset(f, 0, sizeof *f);
    f->s = s;
    /* With one worker and replica nothing is sliced, and a final prefetch op of the graph stays as
     * it is. */
    mr_distribute_opts how = {.num_workers = workers,
                              .worker = (int64_t)mr_strategy_worker(s),
                              .replicas = n,
                              .owns_slots = n > 1 || workers > 1};
    if (opts && opts->has_auto_shard) {
        how.has_policy = true;
        how.policy = opts->auto_shard;
    }
    if (opts && opts->iterator && opts->iterator->has_seed) {
        how.has_seed = true;
        how.seed = opts->iterator->seed;
    }
    if (ds)
        MR_TRY(mr_distribute_dataset(ds, &how, &f->dd, st));
    else
        MR_TRY(mr_distribute_from_function(opts->input, opts->input_ctx, &how, &f->dd, st));
    mr_dist_iterator_opts run = {.run = opts && opts->iterator ? *opts->iterator : none};
    run.run.positions = run.run.positions || positions;
    if (workers > 1) {
        size_t all = (size_t)workers * (size_t)n;
        f->of_all = mr_calloc(all + (size_t)workers, 2 * sizeof *f->of_all);
        f->rows = mr_calloc(all, 2 * sizeof *f->rows);
        if (!f->of_all || !f->rows)
            return mr_fail_memory(st, all * sizeof *f->of_all, "numbers of workers");
        f->first = f->rows + all;
        run.agree = agree;
        run.agree_ctx = f;
    }
    /* One to fill, in addition to those of the two steps that may be in flight. A memory limit must
     * have room for them, and determines the number of additional ones. */
    size_t least = mr__staging_is_direct(s) ? MR_STAGED_BATCHES : MR_STAGED_BATCHES - 1;
    int64_t parts = mr_dist_dataset_parts(f->dd);
    run.run.memory_slots = ((int64_t)least + parts - 1) / parts;
    MR_TRY(mr_dist_iterator_open(&f->it, f->dd, &run, st));
    if (depth > least) {
        int64_t more = (int64_t)(depth - least), whole = (more + parts - 1) / parts;
        int64_t got = mr_iterator_take_slots(mr_dist_iterator_worker(f->it, 0), whole) * parts;
        depth = least + (size_t)(got < more ? got : more);
    }
    return mr__staging_new(&f->ring, s, depth > least ? depth : least, st);
}

void mr__feed_close(mr__feed *f)
{
    mr__staging_free(f->ring);
    mr_dist_iterator_close(f->it);
    mr_dist_dataset_free(f->dd);
    mr_free(f->of_all);
    mr_free(f->rows);
    memset(f, 0, sizeof *f);
}

/* f->of_all[w * n + i] = value i of worker w, of which mine are this worker's. */
static mr_code exchange(mr__feed *f, const double *mine, size_t n, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(f->s);
    double *some_of_all = f->of_all + workers * n;
    for (size_t from = 0; from < n; from += MR__MAX_VALUES) {
        size_t some = n - from < MR__MAX_VALUES ? n - from : MR__MAX_VALUES;
        MR_TRY(mr__world_exchange(mr__strategy_world(f->s), MR__CHANNEL_DATA, mine + from,
                                  (uint32_t)some, some_of_all, st));
        for (size_t w = 0; w < workers; w++)
            memcpy(&f->of_all[w * n + from], &some_of_all[w * some], some * sizeof *mine);
    }
    return MR_OK;
}

/* Numbers the rows of the slot in the global batch. ended: this worker's data have ended. All
 * workers must have ended, or none. */
static mr_code agree_on_rows(mr__feed *f, bool ended, mr_status *st)
{
    size_t own = mr_strategy_worker(f->s), workers = mr_strategy_num_workers(f->s);
    size_t replicas = mr_strategy_num_local_replicas(f->s), n = replicas + 1;
    double mine[1 + MR_MAX_REPLICAS] = {f->stopping ? 1 : 0};
    for (size_t r = 0; r < replicas; r++)
        mine[1 + r] = ended ? -1 : (double)mr__staging_replica_rows(f->ring, f->slot, r);
    MR_TRY(exchange(f, mine, n, st));
    for (size_t w = 0; w < workers; w++) {
        const double *of = f->of_all + n * w;
        f->stopping = f->stopping || of[0] != 0;
        if ((of[1] < 0) != ended)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the data of worker %zu have ended, those of worker %zu have not; the "
                           "pipeline must give the same elements to all workers",
                           ended ? own : w, ended ? w : own);
        for (size_t r = 0; r < replicas; r++)
            f->rows[w * replicas + r] = (int64_t)of[1 + r];
    }
    if (ended)
        return MR_OK;
    int64_t all = mr_dist_dataset_number_rows(f->dd, f->rows, f->first);
    mr__staging_number_rows(f->ring, f->slot, f->first + own * replicas, (size_t)all);
    return MR_OK;
}

static mr_code fetch(mr__feed *f)
{
    mr_status *st = &f->st;
    mr_step step;
    const mr_destination *destination;
    f->stopping = f->stopping || (f->asks_stop && f->asks_stop(f->asks_stop_ctx));
    MR_TRY(mr__staging_reserve(f->ring, &destination, st));
    mr_code rc = mr_dist_iterator_next(f->it, destination, &step, st);
    if (rc == MR_END && f->of_all)
        MR_TRY(agree_on_rows(f, true, st));
    MR_TRY(rc);
    rc = mr__staging_put(f->ring, &step, &f->slot, st);
    for (size_t r = 0; r < step.n_replicas; r++)
        mr_block_clear(&step.replicas[r]);
    if (rc == MR_OK && f->of_all)
        rc = agree_on_rows(f, false, st);
    return rc;
}

void mr__feed_fetch(mr__feed *f)
{
    if (f->ahead)
        return;
    mr_status_init(&f->st);
    f->rc = fetch(f);
    /* The others wait for this worker's part of the step: end their wait. */
    if (f->rc < 0)
        mr_strategy_abandon(f->s, &f->st);
    f->ahead = true;
}

mr_code mr__feed_take(mr__feed *f, size_t *slot, mr_status *st)
{
    mr__feed_fetch(f);
    f->ahead = false;
    *slot = f->slot;
    if (f->rc != MR_OK && f->rc != MR_END && st)
        *st = f->st;
    return f->rc;
}

mr_code mr__feed_save(mr__feed *f, void **bytes, size_t *size, mr_status *st)
{
    if (f->ahead)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the next batch was fetched already: the position is available only where "
                       "the callback's `saves` requested it, and at the end of an epoch");
    return mr_dist_iterator_save(f->it, bytes, size, st);
}

mr_code mr__feed_restore(mr__feed *f, const void *bytes, size_t size, mr_status *st)
{
    return mr_dist_iterator_restore(f->it, bytes, size, st);
}

mr_code mr__feed_skip(mr__feed *f, int64_t n, mr_status *st)
{
    size_t slot;
    for (int64_t i = 0; i < n; i++)
        MR_TRY(mr__feed_take(f, &slot, st));
    return MR_OK;
}

mr_code mr__feed_rewind(mr__feed *f, mr_status *st)
{
    f->ahead = false;
    return mr_dist_iterator_rewind(f->it, st);
}
