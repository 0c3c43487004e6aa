/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher's reports, as JSON, and the tables of its status page. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/version.h"
#include "transport/service/dispatcher/dispatcher_state.h"

enum {
    MOST_ROWS = 1000, /* of a table of the page */
    MOST_REASONS = 10
};

static json_t *target_reasons(const mr__dispatcher *d)
{
    json_t *list = json_array();
    size_t left_out = 0;
    for (const mr__d_job *j = d->jobs; j; j = j->next) {
        if (j->why[0] && json_array_size(list) < MOST_REASONS)
            json_array_append_new(list, mr__json_text(j->why));
        else
            left_out += j->why[0] != 0;
    }
    if (left_out)
        json_array_append_new(list, json_sprintf("%zu more jobs", left_out));
    if (!json_array_size(list))
        json_array_append_new(list, json_string("no job is read"));
    if (d->target < d->needs - 1)
        json_array_append_new(list, json_sprintf("not more than --max-workers %.0f", d->target));
    else if (d->target > d->needs + 1 || (d->target > 0 && d->needs <= 0))
        json_array_append_new(list, json_sprintf("not less than --min-workers %.0f", d->target));
    return list;
}

static json_t *report_status(const mr__dispatcher *d, int64_t now)
{
    size_t workers = 0, streams = 0;
    for (const mr__d_worker *w = d->workers; w; w = w->next)
        workers += w->connection != 0;
    for (const mr__d_job *j = d->jobs; j; j = j->next)
        streams += j->n_streams;
    double uptime = d->started == INT64_MIN ? 0 : (double)(now - d->started) * 1e-9;
    json_t *status =
        json_pack("{s:I, s:I, s:I, s:f, s:I, s:o, s:o}", "jobs", (json_int_t)d->n_jobs, "workers",
                  (json_int_t)workers, "streams", (json_int_t)streams, "uptime_seconds", uptime,
                  "target_workers", (json_int_t)d->target, "target_reasons", target_reasons(d),
                  "state", mr__json_text(d->opts.state));
    if (d->disk_full)
        json_object_set_new(status, "disk_full", json_true());
    return status;
}

static const char *id_of(const mr__d_job *j, char id[32])
{
    snprintf(id, 32, "%016" PRIx64, j->id);
    return id;
}

static json_t *report_jobs(const mr__dispatcher *d, const mr__d_connection *x)
{
    json_t *list = json_array();
    for (const mr__d_job *j = d->jobs; j; j = j->next) {
        char id[32];
        if (!mr__d_sees(x, j))
            continue;
        json_t *job = json_pack("{s:o, s:s, s:s, s:I, s:I, s:b}", "job", mr__json_text(j->name),
                                "id", id_of(j, id), "mode", mr__d_modes[j->spec->mode], "streams",
                                (json_int_t)j->n_streams, "elements", (json_int_t)j->elements,
                                "finished", mr__d_finished(j));
        if (d->opts.names_only)
            json_object_set_new(job, "owner", mr__json_text(j->spec->owner));
        json_array_append_new(list, job);
    }
    return list;
}

static json_t *report_workers(const mr__dispatcher *d, size_t most)
{
    json_t *list = json_array();
    for (const mr__d_worker *w = d->workers; w && most; w = w->next) {
        if (mr__d_is_away(d, w, MR__FINISHED_S)) /* only kept for its drain */
            continue;
        most--;
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:s}", "worker", mr__json_text(w->address),
                                        "streams", (json_int_t)w->n_streams, "state",
                                        !w->connection ? "lost"
                                        : w->draining  ? "draining"
                                                       : "serving"));
    }
    return list;
}

static json_t *report_stream(const mr__d_stream *s)
{
    return json_pack("{s:I, s:o, s:I, s:I, s:b}", "stream", (json_int_t)s->index, "worker",
                     mr__json_text(s->worker ? s->worker->address : ""), "generation",
                     (json_int_t)s->generation, "acknowledged", (json_int_t)s->elements, "end",
                     s->end);
}

static json_t *report_streams(const mr__dispatcher *d, const mr__d_connection *x, const char *name)
{
    const mr__d_job *j = mr__d_job_called(d, x, name);
    if (!j)
        return NULL;
    json_t *list = json_array();
    for (uint32_t i = 0; i < j->n_streams; i++)
        json_array_append_new(list, report_stream(j->streams[i]));
    return list;
}

/* ---- the page: all reports, cut to a readable length ---- */

void mr__d_measure(mr__dispatcher *d, int64_t now)
{
    for (mr__d_job *j = d->jobs; j; j = j->next) {
        bool is_due = !j->rate.at || now - j->rate.at >= MR__SECOND;
        mr__rate_measure(&j->rate, j->elements, now);
        if (is_due && (mr__d_finished(j) || !j->clients))
            j->rate.per_second = 0;
    }
}

static json_t *page_job(const mr__d_job *j)
{
    char id[32];
    const char *state = mr__d_finished(j)  ? "finished"
                        : !j->prepared     ? "waits for its files"
                        : mr__d_is_read(j) ? "running"
                                           : "waits for a client";
    static const mr__d_usage none;
    const mr__d_usage *u = j->pace ? &j->pace->sum : &none;
    return json_pack("{s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:b, s:I, s:f, s:f}", "job",
                     mr__json_text(j->name), "id", id_of(j, id), "state", state, "mode",
                     mr__d_modes[j->spec->mode], "streams", (json_int_t)j->n_streams,
                     "streams_ended", (json_int_t)j->n_ended, "elements", (json_int_t)j->elements,
                     "elements_per_second", j->rate.per_second, "finished", mr__d_finished(j),
                     "bytes", (json_int_t)u->bytes, "client_wait_seconds",
                     (double)u->client_wait_ns * 1e-9, "worker_wait_seconds",
                     (double)u->worker_wait_ns * 1e-9);
}

/* Jobs and their streams, unfinished ones first. */
static void page_jobs(const mr__dispatcher *d, json_t *page)
{
    json_t *jobs = json_array(), *streams = json_array();
    size_t n_streams = 0;
    for (int finished = 0; finished < 2; finished++)
        for (const mr__d_job *j = d->jobs; j; j = j->next) {
            if (mr__d_finished(j) != finished)
                continue;
            n_streams += j->n_streams;
            if (json_array_size(jobs) < MOST_ROWS)
                json_array_append_new(jobs, page_job(j));
            for (uint32_t i = 0; i < j->n_streams && json_array_size(streams) < MOST_ROWS; i++) {
                char id[32];
                json_t *s = report_stream(j->streams[i]);
                json_object_set_new(s, "job", mr__json_text(j->name[0] ? j->name : id_of(j, id)));
                json_array_append_new(streams, s);
            }
        }
    json_object_set_new(page, "left_out",
                        json_pack("{s:I, s:I}", "jobs",
                                  (json_int_t)(d->n_jobs - json_array_size(jobs)), "streams",
                                  (json_int_t)(n_streams - json_array_size(streams))));
    json_object_set_new(page, "jobs", jobs);
    json_object_set_new(page, "streams", streams);
}

static void page_workers(const mr__dispatcher *d, json_t *page)
{
    size_t n = 0;
    for (const mr__d_worker *w = d->workers; w; w = w->next)
        n += !mr__d_is_away(d, w, MR__FINISHED_S);
    json_object_set_new(page, "workers", report_workers(d, MOST_ROWS));
    json_object_set_new(json_object_get(page, "left_out"), "workers",
                        json_integer(n > MOST_ROWS ? (json_int_t)(n - MOST_ROWS) : 0));
}

/* Streams that a client reads and no worker serves. */
static size_t waiting_streams(const mr__dispatcher *d)
{
    size_t n = 0;
    for (const mr__d_job *j = d->jobs; j; j = j->next)
        for (uint32_t i = 0; j->clients && i < j->n_streams; i++) {
            const mr__d_stream *s = j->streams[i];
            n += s->reader && s->reader->connection && !s->end &&
                 !(s->worker && s->worker->connection);
        }
    return n;
}

static json_t *report_page(const mr__dispatcher *d, int64_t now)
{
    double rate = 0;
    for (const mr__d_job *j = d->jobs; j; j = j->next)
        rate += j->rate.per_second;
    json_t *page = json_object(), *status = report_status(d, now);
    json_object_set_new(status, "elements", json_integer((json_int_t)d->acknowledged));
    json_object_set_new(status, "elements_per_second", json_real(rate));
    json_object_set_new(status, "disk_full", json_boolean(d->disk_full));
    json_object_set_new(status, "waiting_streams", json_integer((json_int_t)waiting_streams(d)));
    json_object_set_new(status, "moves", json_integer((json_int_t)d->n_moved));
    if (d->disk_full)
        json_object_set_new(
            status, "alarm",
            json_string("The account cannot be written: no new jobs are taken. Free "
                        "space in its state directory."));
    json_object_set_new(status, "version", json_string(mr_version()));
    json_object_set_new(page, "status", status);
    page_jobs(d, page);
    page_workers(d, page);
    json_object_set_new(page, "events", mr__recent_json(&d->recent, now));
    return page;
}

char *mr__d_report(const mr__dispatcher *d, const mr__d_connection *x, const char *what,
                   const char *name, int64_t now)
{
    json_t *j = NULL;
    if (strcmp(what, "status") == 0)
        j = report_status(d, now);
    else if (strcmp(what, "jobs") == 0)
        j = report_jobs(d, x);
    else if (strcmp(what, "workers") == 0)
        j = report_workers(d, SIZE_MAX);
    else if (strcmp(what, "streams") == 0)
        j = report_streams(d, x, name);
    else if (strcmp(what, "page") == 0)
        j = report_page(d, now);
    return mr__json_print(j);
}

char *mr__dispatcher_report(const mr__dispatcher *d, const char *what, const char *name,
                            int64_t now)
{
    return mr__d_report(d, NULL, what, name, now);
}

/* ---- the view of the report "page" ---- */

#define NAME "millrace_dispatcher_"

static const mr__status_field figures[] = {
    {.key = "jobs",
     .title = "Jobs",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "jobs",
     .help = "Jobs of this dispatcher."},
    {.key = "streams",
     .title = "Streams",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "streams",
     .help = "Streams of all jobs."},
    {.key = "waiting_streams",
     .title = "Streams without a worker",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "waiting_streams",
     .help = "Streams that a client reads and no worker serves."},
    {.key = "workers",
     .title = "Workers",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "workers",
     .help = "Connected workers."},
    {.key = "target_workers",
     .title = "Workers needed",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_target_workers",
     .help = "The number of workers at which clients would not wait, by the rates of the last 30 "
             "seconds, within --min-workers and --max-workers."},
    {.key = "moves",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "moved_streams_total",
     .help = "Streams that moved to a worker with less load since the start."},
    {.key = "elements_per_second", .title = "Elements", .kind = MR__STATUS_RATE},
    {.key = "elements",
     .title = "Elements since the start",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "acknowledged_elements_total",
     .help = "Elements of all jobs that were acknowledged since the start."},
    {.key = "uptime_seconds",
     .title = "Up",
     .kind = MR__STATUS_DURATION,
     .metric = NAME "uptime_seconds",
     .help = "Seconds since the start."},
    {.key = "state", .title = "Account", .kind = MR__STATUS_TEXT},
    {.key = "disk_full",
     .kind = MR__STATUS_YES,
     .metric = NAME "disk_full",
     .help = "1 while the account cannot be written and no new jobs are taken."},
    {.key = "version", .title = "Version", .kind = MR__STATUS_TEXT},
    {0}};

static const mr__status_field jobs[] = {
    {.key = "job", .title = "Job", .kind = MR__STATUS_TEXT, .is_label = true},
    {.key = "id", .title = "Number", .kind = MR__STATUS_TEXT, .is_label = true},
    {.key = "mode", .title = "Mode", .kind = MR__STATUS_TEXT},
    {.key = "state", .title = "State", .kind = MR__STATUS_TEXT},
    {.key = "streams_ended",
     .title = "Streams ended",
     .kind = MR__STATUS_PROGRESS,
     .of = "streams",
     .metric = NAME "job_streams_ended",
     .help = "Streams of a job that were read to their end."},
    {.key = "streams",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "job_streams",
     .help = "Streams of a job."},
    {.key = "elements",
     .title = "Elements",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "job_elements_total",
     .help = "Elements of a job that were acknowledged."},
    {.key = "elements",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_job_elements_total",
     .help = "Elements of a job that were acknowledged."},
    {.key = "bytes",
     .kind = MR__STATUS_BYTES,
     .metric = "millrace_job_bytes_total",
     .help = "Bytes of a job's blocks that clients received from this dispatcher's workers."},
    {.key = "client_wait_seconds",
     .kind = MR__STATUS_DURATION,
     .metric = "millrace_job_client_wait_seconds_total",
     .help = "Seconds in which clients of a job had nothing to read."},
    {.key = "worker_wait_seconds",
     .kind = MR__STATUS_DURATION,
     .metric = "millrace_job_worker_wait_seconds_total",
     .help = "Seconds in which streams of a job had a block ready and no credit to send it."},
    {.key = "elements_per_second", .title = "Rate", .kind = MR__STATUS_RATE},
    {0}};

static const mr__status_field streams[] = {
    {.key = "job", .title = "Job", .kind = MR__STATUS_TEXT},
    {.key = "stream", .title = "Stream", .kind = MR__STATUS_NUMBER},
    {.key = "worker", .title = "Worker", .kind = MR__STATUS_TEXT},
    {.key = "generation", .title = "Generation", .kind = MR__STATUS_NUMBER},
    {.key = "acknowledged", .title = "Elements", .kind = MR__STATUS_NUMBER},
    {.key = "end", .title = "Ended", .kind = MR__STATUS_YES},
    {0}};

static const mr__status_field workers[] = {
    {.key = "worker", .title = "Worker", .kind = MR__STATUS_TEXT, .is_label = true},
    {.key = "state",
     .title = "State",
     .kind = MR__STATUS_TEXT,
     .of = "serving",
     .metric = NAME "worker_serving",
     .help = "1 for a worker that serves, 0 for one that drains or is lost."},
    {.key = "streams",
     .title = "Streams",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "worker_streams",
     .help = "Streams that a worker hosts."},
    {0}};

const mr__status_table mr__dispatcher_view[] = {
    {"status", NULL, NULL, figures},
    {"jobs", "Jobs",
     "There are no jobs. A client creates one when it reads a graph with distribute.", jobs},
    {"streams", "Streams and their workers", "There are no streams.", streams},
    {"workers", "Workers", "No worker has connected: start millrace worker --dispatcher HOST:PORT.",
     workers},
    {"events", "Last events", "Nothing has happened yet.", mr__recent_fields},
    {0}};
