/* SPDX-License-Identifier: Apache-2.0 */
/* How many workers are needed: from what clients and workers report with each Pulse.
 *
 *     needs of a job = capacity used for it * (time of its clients / their own time)
 *
 * The capacity used is in workers: the share of its time that each one was busy with the job. A
 * client that waits makes the second factor greater than 1: without the wait it would take that
 * many times more. If nothing waits, the first factor is below the number of workers. */
#include <math.h>
#include <stdio.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

#define NOTHING_TO_DO 0.02 /* share of own time below which a client only reads */
#define ROUNDED_OFF   0.05 /* of a worker */
enum { LEAST_S = 5 };      /* measured for less: a job keeps what it has */

static mr__d_pace *pace_of(mr__d_job *j)
{
    if (!j->pace)
        j->pace = mr_calloc(1, sizeof *j->pace); /* NULL: it is not measured */
    return j->pace;
}

static void take_of_client(mr__d_job *j, const Mr__Wire__Usage *u)
{
    mr__d_pace *p = u->job_id == j->id ? pace_of(j) : NULL;
    if (!p)
        return;
    p->sum.bytes += u->bytes;
    p->sum.client_wait_ns += u->wait_ns;
    p->sum.client_own_ns += u->own_ns;
}

static void take_of_worker(mr__dispatcher *d, mr__d_worker *w, const Mr__Wire__Pulse *pulse)
{
    double passed = (double)(d->now - w->used_at), busy = 0, streams = 0;
    bool is_first = !w->used_at;
    w->used_at = d->now;
    for (size_t i = 0; i < pulse->n_usage; i++) {
        busy += (double)pulse->usage[i]->busy_ns;
        streams += pulse->usage[i]->streams;
    }
    double share = streams > 0 ? busy / (passed * streams) : 0;
    double cpu = pulse->cpus ? (double)pulse->cpu_ns / (passed * pulse->cpus) : 0;
    share = fmin(fmax(share, cpu), 1);
    for (size_t i = 0; i < pulse->n_usage; i++) {
        const Mr__Wire__Usage *u = pulse->usage[i];
        mr__d_job *j = mr__id_map_get(&d->jobs_by_id, u->job_id);
        mr__d_pace *p = j ? pace_of(j) : NULL;
        if (!p)
            continue;
        p->sum.worker_wait_ns += u->wait_ns;
        if (busy > 0 && passed > 0 && !is_first)
            p->sum.used_ns += share * passed * (double)u->busy_ns / busy;
    }
}

void mr__d_take_usage(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Pulse *pulse)
{
    if (x->worker)
        take_of_worker(d, x->worker, pulse);
    for (size_t i = 0; x->client && i < pulse->n_usage; i++)
        take_of_client(x->client->job, pulse->usage[i]);
}

static void add_sample(mr__d_job *j, int64_t now)
{
    mr__d_pace *p = j->pace;
    mr__d_sample *s = &p->samples[p->n++ % MR__PACE_SAMPLES];
    *s = (mr__d_sample){.at = now, .sum = p->sum};
}

/* How many workers can work for j at once. */
static double most_workers(const mr__d_job *j)
{
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC && !j->spec->streams)
        return j->spec->splits ? (double)j->spec->splits : 1;
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
        return j->spec->streams;
    return j->n_streams - j->n_ended;
}

/* Sets j->needs and j->why. */
static void judge(const mr__dispatcher *d, mr__d_job *j)
{
    const mr__d_pace *p = j->pace;
    double most = most_workers(j);
    const char *title = mr__d_title(j);
    if (mr__d_static(j) || j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS) {
        j->needs = j->n_streams - j->n_ended;
        snprintf(j->why, sizeof j->why, "%s needs %.0f: each of its streams has its own worker",
                 title, j->needs);
        return;
    }
    const mr__d_sample *last = p && p->n ? &p->samples[(p->n - 1) % MR__PACE_SAMPLES] : NULL;
    const mr__d_sample *first =
        last ? &p->samples[p->n > MR__PACE_SAMPLES ? p->n % MR__PACE_SAMPLES : 0] : NULL;
    double span = last ? (double)(last->at - first->at) : 0;
    if (span < LEAST_S * 1e9) {
        j->needs = fmin(fmax((double)d->n_heap, 1), most);
        snprintf(j->why, sizeof j->why, "%s needs %.0f, as before: it was measured for %.0f s",
                 title, j->needs, span * 1e-9);
        return;
    }
    double own = (double)(last->sum.client_own_ns - first->sum.client_own_ns);
    double wait = (double)(last->sum.client_wait_ns - first->sum.client_wait_ns);
    double used = (last->sum.used_ns - first->sum.used_ns) / span;
    double all = own + wait;
    if (used <= 0 && wait > 0) {
        j->needs = fmin(fmax((double)d->n_heap, 1), most);
        snprintf(j->why, sizeof j->why, "%s needs %.0f: it waits, and nothing was made yet", title,
                 j->needs);
        return;
    }
    if (all > 0 && own < NOTHING_TO_DO * all) {
        j->needs = most;
        snprintf(j->why, sizeof j->why, "%s needs %.0f, one for each stream: its clients only read",
                 title, most);
        return;
    }
    double factor = own > 0 ? all / own : 1;
    j->needs = fmin(used * factor, most);
    snprintf(j->why, sizeof j->why,
             "%s needs %.1f: it uses the time of %.1f workers, and its clients wait %.0f %% of "
             "theirs%s",
             title, j->needs, used, all > 0 ? wait / all * 100 : 0,
             used * factor > most ? "; more workers than streams do not help" : "");
}

void mr__d_tick_target(mr__dispatcher *d, int64_t now)
{
    double needs = 0;
    if (d->target_at && now - d->target_at < MR__SECOND)
        return;
    d->target_at = now;
    for (mr__d_job *j = d->jobs; j; j = j->next) {
        j->needs = 0;
        j->why[0] = '\0';
        if (j->pace)
            add_sample(j, now);
        if (!j->prepared && j->waiting) {
            j->needs = 1;
            snprintf(j->why, sizeof j->why, "%s needs 1, to begin", mr__d_title(j));
        } else if (j->prepared && !mr__d_finished(j) && mr__d_is_read(j)) {
            judge(d, j);
        }
        needs += j->needs;
    }
    double target = ceil(needs - ROUNDED_OFF);
    if (needs > 0 && target < 1) /* also one that takes little is served */
        target = 1;
    d->needs = needs;
    d->target = fmin(fmax(target, d->opts.min_workers),
                     d->opts.max_workers > 0 ? d->opts.max_workers : MR__MOST_STREAMS);
}
