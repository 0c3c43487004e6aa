/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/feed.h"
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/loop/step_records.h"
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

/* Opens what `how` and `run` say. */
static mr_code open_data(mr__feed *f, mr_status *st)
{
    if (f->ds)
        MR_TRY(mr_distribute_dataset(f->ds, &f->how, &f->dd, st));
    else
        MR_TRY(mr_distribute_from_function(f->input, f->input_ctx, &f->how, &f->dd, st));
    /* One to fill, in addition to those of the two steps that may be in flight. A memory limit must
     * have room for them, and determines the number of additional ones. */
    int64_t least = mr__staging_is_direct(f->s) ? MR_STAGED_BATCHES : MR_STAGED_BATCHES - 1;
    int64_t parts = mr_dist_dataset_parts(f->dd);
    f->run.run.memory_slots = (least + parts - 1) / parts;
    return mr_dist_iterator_open(&f->it, f->dd, &f->run, st);
}

static void close_data(mr__feed *f)
{
    mr_dist_iterator_close(f->it);
    mr_dist_dataset_free(f->dd);
    f->it = NULL;
    f->dd = NULL;
}

static const mr__iterator_internal made_up = {.seed_made_up = true};

/* given: random functions draw from it too. */
static void set_seed(mr__feed *f, const uint64_t *seed, bool given)
{
    f->how.has_seed = f->run.run.has_seed = seed != NULL;
    f->how.seed = f->run.run.seed = seed ? *seed : 0;
    f->run.run.internal = seed && !given ? &made_up : NULL;
}

static uint64_t fresh_seed(void)
{
    uint64_t v;
    struct timespec t;
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) == (ssize_t)sizeof v)
        return v;
    mr__sys->clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec;
}

static void set_opts(mr__feed *f, const mr_fit_opts *opts, bool positions)
{
    int64_t workers = (int64_t)mr_strategy_num_workers(f->s);
    int64_t n = (int64_t)mr_strategy_num_local_replicas(f->s);
    /* With one worker and replica nothing is sliced, and a final prefetch op of the graph stays as
     * it is. */
    f->how = (mr_distribute_opts){.num_workers = workers,
                                  .worker = (int64_t)mr_strategy_worker(f->s),
                                  .replicas = n,
                                  .owns_slots = n > 1 || workers > 1};
    if (opts && opts->has_auto_shard) {
        f->how.has_policy = true;
        f->how.policy = opts->auto_shard;
    }
    if (opts)
        f->how.elastic_streams = opts->elastic_streams;
    if (opts) {
        f->input = opts->input;
        f->input_ctx = opts->input_ctx;
    }
    if (opts && opts->iterator)
        f->run.run = *opts->iterator;
    f->run.run.positions = f->run.run.positions || positions;
    f->seed_given = f->run.run.has_seed;
    uint64_t seed = f->seed_given ? f->run.run.seed : fresh_seed();
    if (f->seed_given || (positions && workers == 1))
        set_seed(f, &seed, f->seed_given);
}

mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                      bool positions, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(s), n = mr_strategy_num_local_replicas(s);
    size_t depth = opts ? opts->staging_depth : 0;
    memset(f, 0, sizeof *f);
    f->s = s;
    f->ds = ds ? mr_dataset_ref(ds) : NULL;
    set_opts(f, opts, positions);
    if (workers > 1) {
        size_t all = workers * n;
        f->of_all = mr_calloc(all + workers, 2 * sizeof *f->of_all);
        f->rows = mr_calloc(all, 2 * sizeof *f->rows);
        if (!f->of_all || !f->rows)
            return mr_fail_memory(st, all * sizeof *f->of_all, "numbers of workers");
        f->first = f->rows + all;
        f->run.agree = agree;
        f->run.agree_ctx = f;
    }
    MR_TRY(open_data(f, st));
    if (positions)
        MR_TRY(mr__dist_data_of(f->dd, &f->data, st));
    size_t least = mr__staging_is_direct(s) ? MR_STAGED_BATCHES : MR_STAGED_BATCHES - 1;
    if (depth > least) {
        int64_t parts = mr_dist_dataset_parts(f->dd), more = (int64_t)(depth - least);
        f->slots =
            mr_iterator_take_slots(mr_dist_iterator_worker(f->it, 0), (more + parts - 1) / parts);
        depth = least + (size_t)(f->slots * parts < more ? f->slots * parts : more);
    }
    return mr__staging_new(&f->ring, s, depth > least ? depth : least, st);
}

mr_code mr__feed_reseed(mr__feed *f, const uint64_t *seed, bool given, mr_status *st)
{
    close_data(f);
    set_seed(f, seed, given);
    MR_TRY(open_data(f, st));
    f->data.has_seed = seed != NULL;
    f->data.seed = f->how.seed;
    int64_t got = mr_iterator_take_slots(mr_dist_iterator_worker(f->it, 0), f->slots);
    return got == f->slots ? MR_OK : mr_fail(st, MR_INTERNAL, "the memory of slots is gone");
}

void mr__feed_close(mr__feed *f)
{
    mr__staging_free(f->ring);
    close_data(f);
    mr__dist_data_reset(&f->data);
    mr_dataset_unref(f->ds);
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
    mr_code rc = f->next ? f->next(f->next_ctx, &step, st)
                         : mr_dist_iterator_next(f->it, destination, &step, st);
    if (rc == MR_END && f->of_all)
        MR_TRY(agree_on_rows(f, true, st));
    MR_TRY(rc);
    if (f->records)
        rc = mr__step_records_note(f->records, &step, st);
    if (rc == MR_OK)
        rc = mr__staging_put(f->ring, &step, &f->slot, st);
    for (size_t r = 0; r < step.n_replicas; r++)
        mr_block_clear(&step.replicas[r]);
    if (rc == MR_OK && f->of_all)
        rc = agree_on_rows(f, false, st);
    if (rc == MR_OK && f->records)
        rc = mr__step_records_gather(f->records, f->first, st);
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
    if (f->rc == MR_OK) {
        f->at.step++;
        f->at.rows += f->at.rows < 0 ? 0 : (int64_t)mr__staging_rows(f->ring, f->slot);
    }
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

bool mr__feed_is_of_one_batch(const mr__feed *f)
{
    return f->ds && (mr_dist_dataset_num_workers(f->dd) == 1 ||
                     mr_dist_dataset_policy(f->dd) == MR_SHARD_DATA);
}

mr_code mr__feed_skip(mr__feed *f, int64_t n, mr_status *st)
{
    size_t slot;
    for (int64_t i = 0; i < n; i++) {
        MR_TRY(mr__feed_take(f, &slot, st));
        if (f->records)
            mr__step_records_drop(f->records);
    }
    return MR_OK;
}

mr_code mr__feed_rewind(mr__feed *f, mr_status *st)
{
    f->ahead = false;
    f->at = (mr__feed_place){.pass = f->at.pass + 1};
    return mr_dist_iterator_rewind(f->it, st);
}
