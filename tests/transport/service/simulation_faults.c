/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in a simulation. */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"

void sim_cut_links(node_kind kind, int node, bool quietly)
{
    for (link *l = S->links; l; l = l->next)
        for (int end = 0; end < 2; end++)
            if (l->open && l->kind[end] == kind && l->node[end] == node) {
                if (quietly) {
                    l->silent[0] = l->silent[1] = true;
                    sim_happened(MR__SIM_LINK_SILENT);
                } else
                    sim_end_link(l, end);
            }
}

static void start_later(node_kind kind, int node)
{
    sim_push((event){.at = S->now + (int64_t)(1 + sim_draw(sim_draw(3) ? 100 : 8000)) * MS,
                     .kind = START,
                     .node_kind = kind,
                     .node = node,
                     .epoch = sim_epoch_of(kind, node)});
}

static void crash_worker(int i)
{
    if (!S->w[i])
        return;
    sim_say("worker %d crashes", i);
    sim_happened(MR__SIM_WORKER_CRASH);
    sim_cut_links(WORKER, i, sim_draw(4) == 0);
    mr__worker_streams_free(S->w[i]);
    S->w[i] = NULL;
    S->w_epoch[i]++;
    start_later(WORKER, i);
}

/* The worker returns its streams and ends, as on SIGTERM. */
void sim_drain_worker(int i)
{
    if (!S->w[i])
        return;
    sim_say("worker %d drains", i);
    sim_happened(MR__SIM_WORKER_DRAINS);
    if (mr__worker_streams_drain(S->w[i], S->now)) /* what it said is still on its way */
        sim_push((event){.at = S->now + (int64_t)(1 + sim_draw(200)) * MS,
                         .kind = START,
                         .node_kind = WORKER,
                         .node = i,
                         .epoch = S->w_epoch[i]});
}

void sim_end_worker(int i)
{
    sim_cut_links(WORKER, i, false);
    mr__worker_streams_free(S->w[i]);
    S->w[i] = NULL;
    S->w_epoch[i]++;
    if (!S->o.own_ms)
        start_later(WORKER, i);
}

static void break_link(link *l)
{
    sim_happened(MR__SIM_LINK_BREAKS);
    l->open = false;
    sim_hear_end(l, 0, MR_UNAVAILABLE);
    sim_hear_end(l, 1, MR_UNAVAILABLE);
}

/* `millrace service drain`, which does not wait for the answer; the worker may not hear of it. */
static void ask_to_drain(int i)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    char address[8];
    uint64_t tool = ++S->last_link;
    if (!S->d)
        return;
    sim_say("a tool drains worker %d", i);
    sim_happened(MR__SIM_DRAIN_ASKED);
    snprintf(address, sizeof address, "w%d", i);
    ask.what = (char *)(uintptr_t) "drain";
    ask.name = address;
    m.body_case = MR__WIRE__MESSAGE__BODY_ASK;
    m.ask = &ask;
    mr__dispatcher_opened(S->d, tool, MR__WIRE__ROLE__TOOL, "tool", 1, S->now);
    mr__dispatcher_message(S->d, tool, &m, S->now);
    mr__dispatcher_closed(S->d, tool, S->now);
    link *l = sim_link_between(WORKER, i, DISPATCHER, 0);
    if (l && l->open && sim_draw(2))
        break_link(l);
}

static void crash_dispatcher(void)
{
    if (!S->d)
        return;
    sim_say("dispatcher crashes");
    sim_happened(MR__SIM_DISPATCHER_CRASH);
    sim_cut_links(DISPATCHER, 0, sim_draw(4) == 0);
    mr__dispatcher_free(S->d);
    S->moves_seen = 0;
    S->d = NULL;
    S->d_epoch++;
    S->warns = false;
    sim_drop_held();
    if (S->committing && !S->disk_full && sim_draw(2)) {
        S->durable = S->committing; /* the last transaction was whole after all */
        sim_happened(MR__SIM_TRANSACTION_WHOLE);
    } else if (S->committing) {
        sim_happened(MR__SIM_TRANSACTION_LOST);
    }
    S->committing = 0;
    if (S->o.loses && !S->account_lost) {
        sim_say("its account is lost");
        S->account_lost = true;
        S->durable = 0;
    }
    for (size_t i = S->durable; i < S->n_records; i++) {
        free(S->records[i].name);
        free(S->records[i].bytes);
    }
    S->n_records = S->durable;
    start_later(DISPATCHER, 0);
}

void sim_drop_all(client *c)
{
    for (int s = 0; s < MOST_INTAKES; s++)
        sim_drop_intake(&c->in[s]);
}

void sim_crash_client(int i)
{
    client *c = &S->c[i];
    if (!c->reader || c->done)
        return;
    sim_say("client %d crashes", i);
    sim_happened(MR__SIM_CLIENT_CRASH);
    S->losses++;
    sim_cut_links(CLIENT, i, sim_draw(6) == 0);
    mr__job_reader_free(c->reader);
    c->reader = NULL;
    c->refused = false;
    c->epoch++;
    c->leaving = false;
    sim_drop_all(c);
    memset(c->in, 0, sizeof c->in);
    if (c->saved) { /* what was received after it is gone */
        for (int s = 0; s < MOST_INTAKES; s++)
            c->saved_in[s].first = c->saved_in[s].last = NULL;
    }
    sim_go_back(c);
    start_later(CLIENT, i);
}

void sim_fault(void)
{
    size_t n = 0;
    if (S->o.calm) {
        int i = (int)sim_draw((uint64_t)S->o.workers);
        if (sim_draw(2))
            crash_worker(i);
        else
            sim_drain_worker(i);
        return;
    }
    switch (sim_draw(12)) {
    case 0:
    case 1:
        crash_worker((int)sim_draw((uint64_t)S->o.workers));
        break;
    case 2:
        crash_dispatcher();
        break;
    case 3:
        if (S->o.newcomers) {
            crash_dispatcher();
            break;
        }
        sim_crash_client((int)sim_draw((uint64_t)S->o.consumers));
        break;
    case 4:
        S->w_slow[sim_draw((uint64_t)S->o.workers)] ^= 1;
        sim_happened(MR__SIM_SLOW_WORKER);
        break;
    case 5:
        if (S->o.tool && sim_draw(2))
            ask_to_drain((int)sim_draw((uint64_t)S->o.workers));
        else
            sim_drain_worker((int)sim_draw((uint64_t)S->o.workers));
        break;
    case 6:
        if (S->o.memory || S->disk_full)
            break;
        sim_say("the disk is full");
        sim_happened(MR__SIM_FULL_DISK);
        S->disk_full = true;
        if (S->d)
            mr__dispatcher_disk(S->d, true, S->now);
        sim_push((event){.at = S->now + (int64_t)(1 + sim_draw(5000)) * MS, .kind = DISK_FREE});
        break;
    case 7:
        S->now += (int64_t)(1 + sim_draw(40000)) * MS;
        sim_say("the clock jumps");
        sim_happened(MR__SIM_CLOCK_JUMP);
        break;
    default: { /* a connection breaks, or falls silent */
        for (link *l = S->links; l; l = l->next)
            n += l->open && !l->silent[0] && !l->silent[1];
        if (!n)
            return;
        n = sim_draw(n);
        link *l = S->links;
        for (;; l = l->next)
            if (l->open && !l->silent[0] && !l->silent[1] && n-- == 0)
                break;
        bool silent = sim_draw(3) == 0;
        sim_say("connection %" PRIu64 " %s", l->id, silent ? "falls silent" : "breaks");
        if (silent && sim_draw(2)) { /* one end is still heard */
            l->silent[sim_draw(2)] = true;
            sim_happened(MR__SIM_HALF_OPEN);
        } else if (silent) {
            l->silent[0] = l->silent[1] = true;
            sim_happened(MR__SIM_LINK_SILENT);
        } else {
            break_link(l);
        }
    }
    }
}
