/* SPDX-License-Identifier: Apache-2.0 */
/* What the dispatcher's status page shows of its report "page". */
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/service/status/recent.h"

#define NAME "millrace_dispatcher_"

static const mr__status_field figures[] = {
    {.key = "jobs",
     .title = "Jobs",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "jobs",
     .help = "Jobs that it knows."},
    {.key = "streams",
     .title = "Streams",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "streams",
     .help = "Streams of all jobs."},
    {.key = "workers",
     .title = "Workers",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "workers",
     .help = "Workers that are connected."},
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
    {"jobs", "Jobs", "There are no jobs. A client makes one when it reads a graph with distribute.",
     jobs},
    {"streams", "Streams, and where they live", "There are no streams.", streams},
    {"workers", "Workers", "No worker has come: start millrace worker --dispatcher HOST:PORT.",
     workers},
    {"events", "Last events", "Nothing has happened yet.", mr__recent_fields},
    {0}};
