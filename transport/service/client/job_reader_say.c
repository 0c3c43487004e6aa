/* SPDX-License-Identifier: Apache-2.0 */
/* What a client's reader tells the dispatcher, and its user of waiting; pulses. */
#include "transport/service/client/job_reader_state.h"

#include <stdio.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/note.h"

static Mr__Wire__Place place_of(const mr__r_stream *s)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = s->index;
    p.generation = s->generation;
    p.worker = s->worker ? s->worker->address : (char *)"";
    p.elements = s->consumed;
    p.position = (ProtobufCBinaryData){s->position_bytes, s->position};
    p.skip = s->skip;
    p.end = s->ended && s->consumed == s->received;
    if (p.end && s->end_position) {
        p.position = (ProtobufCBinaryData){s->end_position_bytes, s->end_position};
        p.skip = 0;
    }
    p.home = s->home;
    return p;
}

/* Fills places with every stream of this client, or those with news only. Returns how many; frees
 * nothing of *places, which is one allocation with *list after them. */
static size_t places_of(const mr__job_reader *r, bool news, Mr__Wire__Place **places,
                        Mr__Wire__Place ***list)
{
    size_t n = 0;
    *places = mr_calloc(r->n_streams + 1, sizeof **places);
    *list = mr_calloc(r->n_streams + 1, sizeof **list);
    for (size_t i = 0; *places && *list && i < r->n_streams; i++) {
        const mr__r_stream *s = &r->streams[i];
        if (s->gone)
            continue;
        Mr__Wire__Place p = place_of(s);
        if (!news) {
            p.n_splits = s->n_splits;
            p.splits = s->splits;
        }
        if (news && s->consumed == s->acknowledged && (!p.end || s->end_said))
            continue;
        (*places)[n] = p;
        (*list)[n] = &(*places)[n];
        n++;
    }
    return n;
}

void mr__r_join(mr__job_reader *r)
{
    Mr__Wire__Join j = *r->opts.join;
    Mr__Wire__Place *places = NULL, **list = NULL;
    j.request = ++r->request;
    j.client_id = r->client_id;
    if (r->is_joined) {
        j.job_id = r->job_id;
        j.n_places = places_of(r, false, &places, &list);
        j.places = list;
    }
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_JOIN;
    m.join = &j;
    r->out.to_dispatcher(r->ctx, &m);
    mr_free(places);
    mr_free(list);
}

void mr__r_acknowledge(mr__job_reader *r)
{
    Mr__Wire__Place *places, **list;
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    a.job_id = r->job_id;
    a.client_id = r->client_id;
    a.request = ++r->request;
    a.n_places = places_of(r, true, &places, &list);
    a.places = list;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE;
    m.acknowledge = &a;
    r->out.to_dispatcher(r->ctx, &m);
    if (r->flushing)
        r->flush_request = a.request;
    mr_free(places);
    mr_free(list);
}

void mr__job_reader_leave(mr__job_reader *r)
{
    if (r->dispatcher != MR__UP || r->has_left)
        return;
    Mr__Wire__Leave leave = MR__WIRE__LEAVE__INIT;
    leave.job_id = r->job_id;
    leave.client_id = r->client_id;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_LEAVE;
    m.leave = &leave;
    r->out.to_dispatcher(r->ctx, &m);
    r->has_left = true;
}

void mr__r_note_said(mr__job_reader *r)
{
    for (size_t i = 0; i < r->n_streams; i++) {
        mr__r_stream *s = &r->streams[i];
        s->acknowledged = s->consumed;
        s->end_said = s->ended && s->consumed == s->received;
    }
}

bool mr__r_has_news(const mr__job_reader *r)
{
    for (size_t i = 0; i < r->n_streams; i++) {
        const mr__r_stream *s = &r->streams[i];
        bool end = s->ended && s->consumed == s->received && !s->end_said;
        if (s->consumed != s->acknowledged || end)
            return true;
    }
    return false;
}

void mr__r_pulse(mr__job_reader *r, const char *address)
{
    Mr__Wire__Pulse p = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &p;
    if (address)
        r->out.to_worker(r->ctx, address, &m);
    else
        r->out.to_dispatcher(r->ctx, &m);
}

void mr__r_say_lost(mr__job_reader *r, mr__r_stream *s)
{
    Mr__Wire__Lost l = MR__WIRE__LOST__INIT;
    l.job_id = r->job_id;
    l.stream = s->index;
    l.generation = s->generation;
    l.missing = s->misses > 0 || s->elsewhere;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_LOST;
    m.lost = &l;
    r->out.to_dispatcher(r->ctx, &m);
    s->lost_at = INT64_MAX;
}

bool mr__r_is_left_out(const mr__job_reader *r)
{
    bool open = false;
    for (size_t i = 0; i < r->n_streams; i++)
        open |= !r->streams[i].ended;
    return r->shared && r->admitted && !open;
}

void mr__r_why_nothing(const mr__job_reader *r, char *out, size_t size)
{
    bool served = false;
    for (const mr__r_worker *w = r->workers; w; w = w->next)
        served |= w->state == MR__UP;
    const char *cause = r->why[0] ? ": " : "";
    *out = '\0';
    if (r->dispatcher != MR__UP)
        snprintf(out, size, "; its dispatcher is not there%s%s", cause, r->why);
    else if (mr__r_is_left_out(r))
        snprintf(out, size, "; other clients read all streams, or their workers are away");
    else if (!served) /* Joined too comes when some worker knows the job */
        snprintf(out, size, "; no worker%s serves the job",
                 r->admitted && r->opts.local_workers ? " on this host" : "");
}

void mr__r_note_waits(const mr__job_reader *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_streams; i++)
        n += !r->streams[i].ended && !r->streams[i].opened;
    if (r->dispatcher != MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "waiting for the dispatcher at %s%s%s",
                 r->opts.dispatcher, r->why[0] ? ": " : "", r->why);
    else
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 mr__r_is_left_out(r)    ? "waiting for a stream of the job at %s: other clients "
                                           "read all that there are, or their workers are away"
                 : r->opts.local_workers ? "waiting for workers on this host of the service at %s"
                                         : "waiting for workers of the service at %s",
                 r->opts.dispatcher);
    if (n)
        mr__note(r->out.note, r->ctx, MR_LOG_INFO, "%zu streams are hosted by nobody that answers",
                 n);
}
