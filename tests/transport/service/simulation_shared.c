/* SPDX-License-Identifier: Apache-2.0 */
/* Consumers of the shared modes, and what holds there. */
#include "tests/transport/service/simulation_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

bool sim_shared(void)
{
    return S->o.mode == MR__WIRE__MODE__DYNAMIC || S->o.mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

void sim_draw_shared(void)
{
    for (int i = 0; i < MOST_SPLITS; i++)
        S->split_length[i] = sim_draw(4) ? sim_draw(MOST_SPLIT_ELEMENTS) : 0;
}

/* ---- which splits streams have ---- */

/* Some client knows split number k of a stream to be what it was said to be. Others may be given to
 * others by a dispatcher that lost its account, or where a position is restored. */
static bool is_known(uint32_t stream, size_t k)
{
    for (int i = 0; i < S->o.consumers; i++) {
        const client *c = &S->c[i];
        bool saved = c->saved && !c->joined;
        for (int m = 0; m < (saved ? c->n_saved : c->n_mine); m++) {
            const intake *in = saved ? &c->saved_in[c->saved_mine[m]] : &c->in[c->mine[m]];
            if ((saved ? c->saved_mine[m] : c->mine[m]) == stream && k < in->n_splits &&
                in->splits[k] == S->tickets[stream][k])
                return true;
        }
    }
    return false;
}

/* Forgets the splits of a stream from number k on, if they may be forgotten. */
static bool forget_splits(uint32_t stream, size_t k)
{
    if ((!S->o.memory && !S->o.restores) || is_known(stream, k))
        return false;
    for (size_t i = k; i < S->n_tickets[stream]; i++)
        S->owner[S->tickets[stream][i]] = 0;
    S->n_tickets[stream] = k;
    return true;
}

/* Generations begin at 1 again in a job that is rebuilt, which has another id. */
static bool is_of_the_last_job(uint64_t job_id)
{
    size_t i = 0;
    while (i < S->n_job_ids && S->job_ids[i] != job_id)
        i++;
    if (i == S->n_job_ids) {
        if (i == MOST_JOBS) {
            sim_broken("more than %d jobs begin", MOST_JOBS);
            return false;
        }
        S->job_ids[S->n_job_ids++] = job_id;
        memset(S->generation, 0, sizeof S->generation);
    }
    return job_id == S->job_ids[S->n_job_ids - 1];
}

void sim_told_split(uint64_t job_id, uint32_t stream, uint64_t generation, size_t k, uint64_t split)
{
    if (S->o.newcomers) /* clients know, or are refused: their elements are counted */
        return;
    /* A host of a former life, which has no reader, may learn late of what is another's now, or
     * what followed a forgotten one. */
    if (S->o.restores && !S->o.memory && stream < MOST_INTAKES) {
        if (!is_of_the_last_job(job_id) || generation < S->generation[stream] ||
            k > S->n_tickets[stream])
            return;
        if (sim_has_moved(job_id, stream, generation))
            S->generation[stream] = generation;
    }
    if (stream >= MOST_INTAKES || k >= MOST_TICKETS || split >= MOST_TICKETS ||
        k > S->n_tickets[stream]) {
        sim_broken("stream %u is given split %" PRIu64 " as number %zu", stream, split, k);
        return;
    }
    if (k < S->n_tickets[stream] && S->tickets[stream][k] != split)
        forget_splits(stream, k);
    if (k < S->n_tickets[stream]) {
        if (S->tickets[stream][k] != split)
            sim_broken("split %zu of stream %u was %" PRIu64 ", now it is %" PRIu64, k, stream,
                       S->tickets[stream][k], split);
        return;
    }
    if (S->owner[split]) {
        size_t i = 0;
        while (S->tickets[S->owner[split] - 1][i] != split)
            i++;
        forget_splits(S->owner[split] - 1, i);
    }
    if (S->owner[split])
        sim_broken("split %" PRIu64 " is given to stream %u, and was to stream %u", split, stream,
                   S->owner[split] - 1);
    S->owner[split] = stream + 1;
    S->tickets[stream][S->n_tickets[stream]++] = split;
}

uint64_t sim_elements_of(const uint64_t *splits, size_t n_splits)
{
    uint64_t n = 0;
    for (size_t k = 0; k < n_splits; k++)
        n += S->split_length[splits[k] % (uint64_t)S->o.splits];
    return n;
}

void sim_told_home(uint32_t stream, const char *home)
{
    if (stream >= MOST_INTAKES)
        return;
    for (uint32_t i = 0; i < MOST_INTAKES && home[0]; i++)
        if (i != stream && strcmp(S->home[i], home) == 0)
            sim_broken("worker %s has stream %u and stream %u", home, i, stream);
    if (S->home[stream][0] && strcmp(S->home[stream], home) != 0)
        sim_broken("stream %u was of worker %s, now it is of %s", stream, S->home[stream], home);
    snprintf(S->home[stream], sizeof S->home[stream], "%s", home);
}

/* ---- what a client has ---- */

void sim_go_back(const client *c)
{
    if (c->saved)
        memcpy(S->given, S->given_saved, sizeof S->given);
    else
        S->unsaved++;
    if (!c->saved && !S->o.memory)
        return;
    /* Numbers of streams that the position does not have may be given again. */
    for (uint32_t s = S->n_streams = 0; s < MOST_INTAKES; s++) {
        bool mine = false;
        for (int k = 0; k < c->n_saved; k++)
            mine |= c->saved_mine[k] == s;
        if (mine)
            S->n_streams = s + 1;
        else
            S->home[s][0] = 0;
    }
}

void sim_add_splits(client *c, uint32_t stream, const uint64_t *splits, size_t n)
{
    intake *in = &c->in[stream];
    if (n > MOST_TICKETS || n < in->n_splits)
        sim_broken("client has %zu splits of stream %u, now %zu", in->n_splits, stream, n);
    in->n_splits = n < MOST_TICKETS ? n : MOST_TICKETS;
    if (n)
        memcpy(in->splits, splits, in->n_splits * sizeof *splits);
}

void sim_add_stream(client *c, const Mr__Wire__Place *p)
{
    uint32_t stream = p->stream;
    uint64_t first = p->elements;
    intake *in = &c->in[stream];
    for (int k = 0; k < c->n_mine; k++)
        if (c->mine[k] == stream)
            sim_broken("stream %u is given to the same client twice", stream);
    if (first < S->acknowledged[0][stream] && !S->o.restores)
        sim_broken("stream %u goes on at %" PRIu64 ", %" PRIu64 " were acknowledged", stream, first,
                   S->acknowledged[0][stream]);
    if (c->saved && !c->joined && !S->not_alone && first != c->saved_in[stream].handed)
        sim_broken("a restored position is not taken: stream %u at %" PRIu64 ", not %" PRIu64,
                   stream, first, c->saved_in[stream].handed);
    sim_drop_intake(in);
    *in = (intake){.handed = first, .base = first - p->skip};
    if (p->position.len)
        memcpy(in->position, p->position.data, p->position.len);
    snprintf(in->home, sizeof in->home, "%s", p->home);
    sim_add_splits(c, stream, p->splits, p->n_splits);
    c->asked[stream] = first;
    c->flushed[stream] = 0;
    c->mine[c->n_mine++] = stream;
    if (stream >= S->n_streams)
        S->n_streams = stream + 1;
}

void sim_remove_stream(client *c, uint32_t stream)
{
    sim_drop_intake(&c->in[stream]);
    for (int k = 0; k < c->n_mine; k++)
        if (c->mine[k] == stream)
            c->mine[k] = c->mine[--c->n_mine];
}

static void count_element(const intake *in, uint32_t stream)
{
    uint64_t n = in->handed;
    size_t k = 0;
    while (k < in->n_splits && n >= S->split_length[in->splits[k] % (uint64_t)S->o.splits])
        n -= S->split_length[in->splits[k++] % (uint64_t)S->o.splits];
    if (k == in->n_splits) {
        sim_broken("element %" PRIu64 " of stream %u is of no split", in->handed, stream);
        return;
    }
    uint64_t split = in->splits[k];
    if (S->given_split[split][n]++)
        S->twice++;
}

static void hand_out(client *c, uint32_t stream)
{
    intake *in = &c->in[stream];
    uint64_t n = in->handed;
    if (n >= MOST_GIVEN) {
        sim_broken("stream %u has too many elements", stream);
        return;
    }
    uint8_t *given = &S->given[stream][n];
    if (n < S->acknowledged[0][stream] && !S->o.restores)
        sim_broken("stream %u: element %" PRIu64 " was acknowledged, and comes again", stream, n);
    if (S->o.newcomers)
        count_element(in, stream);
    else if (*given && !S->unsaved && !S->not_alone)
        sim_broken("stream %u: element %" PRIu64 " comes again", stream, n);
    *given = 1;
    sim_hand_out(c, in);
}

void sim_consume_shared(const event *e)
{
    client *c = &S->c[e->node];
    uint32_t ready[MOST_INTAKES];
    size_t n = 0;
    if (sim_draw(30) == 0)
        sim_flush(c, false);
    sim_report_consumed(e->node);
    if (S->o.restores && sim_draw(6) == 0) {
        c->saved = true;
        memcpy(c->saved_in, c->in, sizeof c->in);
        memcpy(c->saved_mine, c->mine, sizeof c->mine);
        memcpy(S->given_saved, S->given, sizeof S->given);
        c->n_saved = c->n_mine;
        for (int s = 0; s < MOST_INTAKES; s++) { /* those it does not have begin at 0 */
            bool mine = false;
            for (int k = 0; k < c->n_mine; k++)
                mine |= c->mine[k] == (uint32_t)s;
            if (!mine)
                c->saved_in[s] = (intake){0};
        }
    }
    for (int k = 0; k < c->n_mine; k++)
        if (c->in[c->mine[k]].first)
            ready[n++] = c->mine[k];
    if (n) {
        hand_out(c, ready[sim_draw(n)]);
    } else if (c->over) {
        c->leaving = true;
        sim_say("client %d learns that all is over", e->node);
        sim_flush(c, true);
        return;
    }
    mr__job_reader_waits(c->reader, n == 0, S->now);
    sim_tick(CLIENT, e->node);
}

/* ---- the end ---- */

/* An element comes to one client, unless another heard that it may not be so. */
static void check_newcomers(void)
{
    if (S->warns && !S->warned && !S->refused)
        sim_broken("the dispatcher warned, and no client heard of it");
    if (S->twice && !S->refused && !S->repeats && !S->losses && !S->warned)
        sim_broken("%d elements came twice, and nobody heard of it", S->twice);
    for (int t = 0; t < S->o.splits * S->o.passes && S->refused < S->o.consumers; t++)
        for (uint64_t i = 0; i < S->split_length[t % S->o.splits]; i++)
            if (!S->given_split[t][i])
                sim_broken("element %" PRIu64 " of split %d was never given", i, t);
}

void sim_check_shared(void)
{
    if (S->o.newcomers) {
        check_newcomers();
        return;
    }
    bool dynamic = S->o.mode == MR__WIRE__MODE__DYNAMIC;
    for (int t = 0; dynamic && t < S->o.splits * S->o.passes; t++)
        if (!S->owner[t])
            sim_broken("split %d was never given to a stream", t);
    if (S->n_streams == 0)
        sim_broken("nobody was given a stream");
    for (uint32_t s = 0; s < S->n_streams; s++) {
        uint64_t n = dynamic ? sim_elements_of(S->tickets[s], S->n_tickets[s]) : S->length[0];
        if (!dynamic && !S->home[s][0])
            continue; /* a number that no worker has */
        for (uint64_t i = 0; i < n && !S->not_alone; i++)
            if (!S->given[s][i])
                sim_broken("stream %u: element %" PRIu64 " of %" PRIu64 " was never given", s, i,
                           n);
    }
}
