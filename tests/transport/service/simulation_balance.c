/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that come and go, and what holds of the moves of streams. */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "transport/service/dispatcher/dispatcher_state.h"

enum { SHORT_MS = 300, LONG_MS = 3000, EVEN_S = 10, STALL_MS = 1500 };

void mr__simulation_draw_balance(uint64_t seed, mr__simulation_opts *o)
{
    uint64_t r = seed * 0x9e3779b97f4a7c15u + 3;
    bool is_calm = mr_test_random(&r) % 2;
    *o = (mr__simulation_opts){.seed = seed,
                               .mode = mr_test_random(&r) % 4 ? MR__WIRE__MODE__EXACTLY_ONCE
                                                              : MR__WIRE__MODE__DYNAMIC,
                               .workers = 2 + (int)(mr_test_random(&r) % 5),
                               .streams = 2 + (int)(mr_test_random(&r) % (MOST_STREAMS - 1)),
                               .block_length = 1,
                               .consumers = 1,
                               .repetitions = 1,
                               .splits = MOST_SPLITS,
                               .passes = MOST_REPETITIONS,
                               .restores = mr_test_random(&r) % 2,
                               .balance = true,
                               .calm = is_calm,
                               .restore_ms = mr_test_random(&r) % 2 ? SHORT_MS : LONG_MS};
    o->faults = (int)(mr_test_random(&r) % (is_calm ? 5 : 12));
    if (!is_calm && o->streams >= MOST_CLIENTS)
        o->consumers = 1 + (int)(mr_test_random(&r) % MOST_CLIENTS);
    if (o->mode == MR__WIRE__MODE__DYNAMIC && o->consumers > 1)
        o->restores = false;
    else if (!is_calm && mr_test_random(&r) % 5 == 0)
        o->memory = o->restores = true;
    o->tool = !is_calm && mr_test_random(&r) % 2;
}

enum { SCALE_S = 5, RIGHT_S = 60, MOST_S = 600 };

void mr__simulation_draw_load(uint64_t seed, mr__simulation_opts *o)
{
    uint64_t r = seed * 0x9e3779b97f4a7c15u + 4;
    *o = (mr__simulation_opts){.seed = seed,
                               .mode = MR__WIRE__MODE__EXACTLY_ONCE,
                               .workers = MOST_WORKERS,
                               .streams = MOST_STREAMS,
                               .block_length = 1,
                               .consumers = 1,
                               .repetitions = 1,
                               .calm = true,
                               .balance = true,
                               .own_ms = 20 + (int)(mr_test_random(&r) % 60)};
    /* between 0.2 and 5.2 workers */
    o->cost_ms = (int)((uint64_t)o->own_ms * (2 + mr_test_random(&r) % 50) / 10);
    o->right = (o->cost_ms + o->own_ms - 1) / o->own_ms;
}

void sim_note_pace(int i, bool waits)
{
    int64_t passed = S->pace_at ? S->now - S->pace_at : 0;
    if (!S->o.own_ms)
        return;
    S->wait_ns += S->pace_waits ? passed : 0;
    S->own_ns += S->pace_waits ? 0 : passed;
    S->pace_at = S->now;
    S->pace_waits = waits;
    mr__job_reader_pace(S->c[i].reader, S->wait_ns, S->own_ns);
}

int64_t sim_made_at(int worker, uint64_t rows)
{
    int64_t begins = S->w_free_at[worker] > S->now ? S->w_free_at[worker] : S->now;
    return S->w_free_at[worker] = begins + (int64_t)rows * S->o.cost_ms * MS;
}

/* Starts or drains one worker every five seconds; ends the run when the dispatcher was within one
 * of the right number for a minute. */
void sim_scale(void)
{
    const mr__dispatcher *d = S->d;
    int serving = 0;
    if (!S->o.own_ms || !d || S->now - S->scaled_at < SCALE_S * SECOND)
        return;
    S->scaled_at = S->now;
    for (int i = 0; i < S->o.workers; i++)
        serving += S->w[i] != NULL && !mr__worker_streams_draining(S->w[i]);
    int target = (int)d->target;
    target = target > S->o.workers ? S->o.workers : target;
    sim_say("%d workers, the target is %d (%s)", serving, target, d->jobs ? d->jobs->why : "");
    bool is_right = abs(target - S->o.right) <= 1 && abs(serving - S->o.right) <= 1;
    if (!is_right || !S->right_at)
        S->right_at = is_right ? S->now : 0;
    S->settled = S->right_at && S->now - S->right_at >= RIGHT_S * SECOND;
    if (S->now > MOST_S * SECOND)
        sim_broken("the target is %d (%s), where %d would be right", target,
                   d->jobs ? d->jobs->why : "", S->o.right);
    for (int i = 0; i < S->o.workers && serving != target; i++) {
        bool is_there = S->w[i] != NULL;
        if (is_there == (serving < target) || (is_there && mr__worker_streams_draining(S->w[i])))
            continue;
        if (!is_there)
            sim_push((event){.at = S->now,
                             .kind = START,
                             .node_kind = WORKER,
                             .node = i,
                             .epoch = S->w_epoch[i]});
        else
            sim_drain_worker(i);
        break;
    }
}

/* Something about the workers or the number of streams has changed. */
static bool is_new(const mr__dispatcher *d)
{
    uint64_t key = (uint64_t)S->d_epoch;
    for (const mr__d_worker *w = d->workers; w; w = w->next)
        key = key * 31 + (mr__d_serves(w) ? w->connection : 0);
    for (const mr__d_job *j = d->jobs; j; j = j->next)
        key = key * 31 + j->n_streams * 100 + j->n_ended;
    bool changed = key != S->balance_key;
    S->balance_key = key;
    return changed;
}

static uint64_t streams_of(const mr__dispatcher *d, uint64_t *ended)
{
    uint64_t n = 0;
    *ended = 0;
    for (const mr__d_job *j = d->jobs; j; j = j->next) {
        n += j->n_streams;
        *ended += j->n_ended;
    }
    return n;
}

/* A stream that took long to restore may have to stay where it is. */
static bool may_be_uneven(const mr__dispatcher *d)
{
    for (const mr__d_job *j = d->jobs; j; j = j->next)
        for (uint32_t i = 0; i < j->n_streams; i++)
            if (j->streams[i]->restore_ns > SECOND || j->streams[i]->barred_until > S->now)
                return true;
    return false;
}

void sim_count_join(void)
{
    uint64_t ended, n = S->d ? streams_of(S->d, &ended) : 0;
    n = n > (uint64_t)S->o.streams ? n : (uint64_t)S->o.streams;
    uint64_t workers = S->d ? S->d->n_heap + 1 : 1;
    S->moves_allowed += (n + workers - 1) / workers;
}

void sim_watch_balance(void)
{
    const mr__dispatcher *d = S->d;
    if (!S->o.balance || !d)
        return;
    if (is_new(d))
        S->changed_at = S->now;
    bool settled = S->o.calm && S->now - S->changed_at > EVEN_S * SECOND;
    if (d->n_moved > S->moves_seen) {
        mr__simulation_happened[MR__SIM_MOVED] += d->n_moved - S->moves_seen;
        S->n_moved += d->n_moved - S->moves_seen;
        if (settled && !may_be_uneven(d))
            sim_broken("a stream moves although nothing has changed");
    }
    S->moves_seen = d->n_moved;
    uint64_t ended, n = streams_of(d, &ended);
    uint64_t made = S->o.mode == MR__WIRE__MODE__DYNAMIC ? n : 0;
    if (S->o.calm && S->n_moved > S->moves_allowed + ended + made)
        sim_broken("%" PRIu64 " moves, where %" PRIu64 " are enough", S->n_moved,
                   S->moves_allowed + ended + made);
    bool even = may_be_uneven(d);
    const mr__d_worker *most = NULL, *least = NULL;
    for (const mr__d_worker *w = d->workers; w; w = w->next) {
        if (!mr__d_serves(w))
            continue;
        most = !most || w->n_streams > most->n_streams ? w : most;
        least = !least || w->n_streams < least->n_streams ? w : least;
    }
    if (even || !most || most->n_streams < least->n_streams + 2)
        S->uneven_at = S->now;
    if (settled && S->now - S->uneven_at > EVEN_S * SECOND)
        sim_broken("worker %s has %zu streams, worker %s %zu, and nothing moves", most->address,
                   most->n_streams, least->address, least->n_streams);
}

void sim_watch_stall(bool has_begun, bool waits)
{
    if (!waits || !has_begun) {
        S->stalled_at = 0;
        return;
    }
    if (!S->stalled_at)
        S->stalled_at = S->now;
    if (S->o.calm && !S->o.faults && S->now - S->stalled_at > STALL_MS * MS)
        sim_broken("nothing comes for %d ms, although no worker is lost", STALL_MS);
}
