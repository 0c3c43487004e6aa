/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that come and go, and what holds of the moves of streams. */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>

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
