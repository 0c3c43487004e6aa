/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/worker_status.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/host_stats.h"
#include "pipeline/system/system.h"
#include "pipeline/version.h"

#define NAME "millrace_worker_"
enum { MOST_ROWS = 1000 };

static const mr__status_field figures[] = {
    {.key = "streams",
     .title = "Streams",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "streams",
     .help = "Streams that clients read here."},
    {.key = "clients",
     .title = "Clients",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "clients",
     .help = "Clients that are connected."},
    {.key = "elements_per_second", .title = "Elements", .kind = MR__STATUS_RATE},
    {.key = "elements",
     .title = "Elements since the start",
     .kind = MR__STATUS_NUMBER,
     .metric = NAME "sent_elements_total",
     .help = "Elements sent to clients since the start."},
    {.key = "bytes_per_second", .title = "Bytes per second", .kind = MR__STATUS_BYTES},
    {.key = "bytes",
     .title = "Sent",
     .kind = MR__STATUS_BYTES,
     .metric = NAME "sent_bytes_total",
     .help = "Bytes of blocks sent to clients since the start."},
    {.key = "busy_ratio",
     .kind = MR__STATUS_RATIO,
     .title = "Busy",
     .metric = NAME "busy_ratio",
     .help = "The share of time in which streams that are read were being made, not waiting."},
    {.key = "cpu_seconds",
     .kind = MR__STATUS_RATIO,
     .metric = NAME "cpu_seconds_total",
     .help = "Processor time of this process in seconds."},
    {.key = "resident_bytes",
     .title = "Memory",
     .kind = MR__STATUS_BYTES,
     .metric = NAME "resident_bytes",
     .help = "Resident memory of this process in bytes."},
    {.key = "queue_bytes",
     .title = "Queued",
     .kind = MR__STATUS_BYTES,
     .metric = NAME "queue_bytes",
     .help = "Bytes that are queued for clients."},
    {.key = "dispatcher", .title = "Dispatcher", .kind = MR__STATUS_TEXT},
    {.key = "connected",
     .title = "Connected to it",
     .kind = MR__STATUS_YES,
     .metric = NAME "connected",
     .help = "1 while it is connected to its dispatcher."},
    {.key = "draining",
     .title = "Draining",
     .kind = MR__STATUS_YES,
     .metric = NAME "draining",
     .help = "1 while it drains: its streams move to other workers."},
    {.key = "uptime_seconds",
     .title = "Up",
     .kind = MR__STATUS_DURATION,
     .metric = NAME "uptime_seconds",
     .help = "Seconds since the start."},
    {.key = "version", .title = "Version", .kind = MR__STATUS_TEXT},
    {0}};

static const mr__status_field stream_fields[] = {
    {.key = "job", .title = "Job's number", .kind = MR__STATUS_TEXT},
    {.key = "stream", .title = "Stream", .kind = MR__STATUS_NUMBER},
    {.key = "generation", .title = "Generation", .kind = MR__STATUS_NUMBER},
    {.key = "elements", .title = "Elements", .kind = MR__STATUS_NUMBER},
    {.key = "client", .title = "Client", .kind = MR__STATUS_TEXT},
    {0}};

static const mr__status_field host_fields[] = {
    {.key = "host", .title = "Host", .kind = MR__STATUS_TEXT, .is_label = true},
    {.key = "bytes",
     .title = "Read",
     .kind = MR__STATUS_BYTES,
     .metric = "millrace_remote_bytes_total",
     .help = "Bytes read from URLs of the host since the start."},
    {.key = "requests",
     .title = "Requests",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_remote_requests_total",
     .help = "Requests to the host since the start, including retries."},
    {.key = "retries",
     .title = "Retries",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_remote_retries_total",
     .help = "Requests to the host after one that failed."},
    {.key = "open_connections",
     .title = "Connections",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_remote_open_connections",
     .help = "Connections to the host that are open."},
    {.key = "cached_bytes",
     .title = "From the cache",
     .kind = MR__STATUS_BYTES,
     .metric = "millrace_remote_cached_bytes_total",
     .help = "Bytes of the host's objects read from the local cache since the start."},
    {.key = "cache_hits",
     .title = "Hits",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_remote_cache_hits_total",
     .help = "Pieces that were needed and were in the local cache."},
    {.key = "cache_misses",
     .title = "Misses",
     .kind = MR__STATUS_NUMBER,
     .metric = "millrace_remote_cache_misses_total",
     .help = "Pieces that were needed and were fetched into the local cache first."},
    {.key = "first_byte",
     .kind = MR__STATUS_HISTOGRAM,
     .metric = "millrace_remote_first_byte_seconds",
     .help = "Seconds from a request to the first byte of its answer."},
    {0}};

const mr__status_table mr__worker_view[] = {
    {"status", NULL, NULL, figures},
    {"streams", "Streams that are read here", "No client reads a stream from this worker.",
     stream_fields},
    {"hosts", "Hosts of URLs", "No URL has been read.", host_fields},
    {"events", "Last events", "Nothing has happened yet.", mr__recent_fields},
    {0}};

void mr__worker_status_stream(json_t *streams, const Mr__Wire__Hosted *s, uint64_t next_element,
                              const char *client)
{
    char job[32];
    snprintf(job, sizeof job, "%016" PRIx64, s->job_id);
    json_array_append_new(
        streams, json_pack("{s:s, s:I, s:I, s:I, s:o}", "job", job, "stream", (json_int_t)s->stream,
                           "generation", (json_int_t)s->generation, "elements",
                           (json_int_t)next_element, "client", mr__json_text(client)));
}

static json_t *hosts(void)
{
    size_t room = mr_host_stats_read(NULL, 0);
    mr_host_stats *v = mr_calloc(room + 1, sizeof *v);
    size_t n = v ? mr_host_stats_read(v, room) : 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < n && i < room; i++) {
        json_t *bounds = json_array(), *counts = json_array();
        for (size_t k = 0; k <= MR_HOST_BOUNDS; k++) {
            if (k < MR_HOST_BOUNDS)
                json_array_append_new(bounds, json_real(mr_host_bounds[k]));
            json_array_append_new(counts, json_integer((json_int_t)v[i].first_bytes[k]));
        }
        json_array_append_new(
            rows,
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:f, s:o, s:o}}", "host",
                      mr__json_text(v[i].host), "bytes", (json_int_t)v[i].bytes, "requests",
                      (json_int_t)v[i].requests, "retries", (json_int_t)v[i].retries,
                      "open_connections", (json_int_t)v[i].open_connections, "cached_bytes",
                      (json_int_t)v[i].cached_bytes, "cache_hits", (json_int_t)v[i].cache_hits,
                      "cache_misses", (json_int_t)v[i].cache_misses, "first_byte", "sum",
                      v[i].first_byte_seconds, "bounds", bounds, "counts", counts));
    }
    mr_free(v);
    return rows;
}

char *mr__worker_status_report(mr__worker_status *s, const mr__worker_now *now, json_t *streams)
{
    json_t *page = json_object();
    size_t n = json_array_size(streams), left_out = n > MOST_ROWS ? n - MOST_ROWS : 0;
    mr__rate_measure(&s->elements_rate, s->elements, now->now);
    mr__rate_measure(&s->bytes_rate, s->bytes, now->now);
    json_object_set_new(page, "status",
                        json_pack("{s:I, s:I, s:I, s:f, s:I, s:f, s:o, s:b, s:b, s:f, s:s}",
                                  "streams", (json_int_t)n, "clients", (json_int_t)now->n_clients,
                                  "elements", (json_int_t)s->elements, "elements_per_second",
                                  s->elements_rate.per_second, "bytes", (json_int_t)s->bytes,
                                  "bytes_per_second", s->bytes_rate.per_second, "dispatcher",
                                  mr__json_text(now->dispatcher), "connected", now->is_connected,
                                  "draining", now->is_draining, "uptime_seconds",
                                  (double)(now->now - s->started) * 1e-9, "version", mr_version()));
    json_t *status = json_object_get(page, "status");
    json_object_set_new(status, "busy_ratio", json_real(now->busy_ratio));
    json_object_set_new(status, "cpu_seconds",
                        json_real((double)mr__clock_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9));
    json_object_set_new(status, "resident_bytes", json_integer((json_int_t)mr__memory_resident()));
    json_object_set_new(status, "queue_bytes", json_integer((json_int_t)now->queue_bytes));
    json_object_set_new(page, "left_out", json_pack("{s:I}", "streams", (json_int_t)left_out));
    while (json_array_size(streams) > MOST_ROWS)
        json_array_remove(streams, json_array_size(streams) - 1);
    json_object_set_new(page, "streams", streams);
    json_object_set_new(page, "hosts", hosts());
    json_object_set_new(page, "events", mr__recent_json(&s->lines, now->now));
    return mr__json_print(page);
}
