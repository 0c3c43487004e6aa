/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/dispatcher/service_requests.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "pipeline/memory/alloc.h"
#include "transport/net/address.h"
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/service/job.h"
#include "transport/service/request.h"
#include "transport/service/service_options.h"
#include "transport/service/status/status_render.h"
#include "transport/wire/token_file.h"

#define TIMEOUT       5.0
#define DRAIN_TIMEOUT 30.0 /* a worker takes up to 5 s to end */
#define MOST_TIMEOUT  1e6

/* Sends {what, name, graph}; *report is owned, mr__message_free. */
static mr_code request(const char *service, const char *what, const char *name,
                       const ProtobufCBinaryData *graph, const mr_service_request_opts *opts,
                       mr__message **report, mr_status *st)
{
    static const mr_service_request_opts defaults;
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    opts = opts ? opts : &defaults;
    double timeout = opts->timeout > 0            ? opts->timeout
                     : strcmp(what, "drain") == 0 ? DRAIN_TIMEOUT
                                                  : TIMEOUT;
    if (!service)
        return mr_fail(st, MR_INVALID_ARGUMENT, "dispatcher: the address is NULL");
    MR_TRY(mr__option_address("dispatcher", service, false, st));
    mr__request_opts o = {.dispatcher = service,
                          .timeout_ns = (int64_t)(fmin(timeout, MOST_TIMEOUT) * 1e9),
                          .cancel = opts->cancel};
    MR_TRY(mr__option_token(opts->token_file, opts->tls, MR__TLS_CONNECTS, &o.token, st));
    ask.request = 1;
    ask.what = (char *)(uintptr_t)what;
    ask.name = (char *)(uintptr_t)(name ? name : "");
    if (graph)
        ask.graph = *graph;
    mr_code rc = mr__request(&o, &ask, report, st);
    mr__token_free(&o.token);
    return rc;
}

mr_code mr_service_report(const char *service, const char *what, const char *name,
                          const mr_service_request_opts *opts, char **json, mr_status *st)
{
    static const char *const reports[] = {"status", "jobs", "workers", "streams", "page"};
    mr__message *m;
    size_t i = 0, n = sizeof reports / sizeof *reports;
    while (i < n && (!what || strcmp(what, reports[i]) != 0)) /* other requests return no report */
        i++;
    if (i == n)
        return mr_fail(st, MR_NOT_FOUND, "there is no report \"%.100s\"", what ? what : "");
    MR_TRY(request(service, what, name, NULL, opts, &m, st));
    char *text = mr_strdup(m->report->json);
    mr_code rc = text ? MR_OK : mr_fail_memory(st, strlen(m->report->json), "a report");
    mr__message_free(m);
    if (rc == MR_OK)
        *json = text;
    return rc;
}

/* ---- the page as text ---- */

/* How many workers are needed, and why: in few lines of a terminal. */
static void put_target(mr__text *t, const json_t *status, size_t lines, size_t columns)
{
    const json_t *reason;
    size_t i, most = !lines ? SIZE_MAX : lines < 30 ? 0 : lines / 10;
    mr__put_format(t, ", workers needed: %lld\n",
                   (long long)json_integer_value(json_object_get(status, "target_workers")));
    json_array_foreach(json_object_get(status, "target_reasons"), i, reason)
    {
        char line[512];
        if (i >= most)
            break;
        mr_text_visible(json_string_value(reason), false, line, sizeof line);
        size_t n = strlen(line), room = columns > 2 ? columns - 2 : SIZE_MAX;
        while (n > room || (n && ((unsigned char)line[n] & 0xc0) == 0x80))
            n--;
        line[n] = '\0';
        mr__put_format(t, "  %s\n", line);
    }
}

static size_t lines_in(const mr__text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->data[i] == '\n';
    return n;
}

static void put_head(mr__text *t, const char *service, const json_t *status, size_t lines,
                     size_t columns)
{
    static const mr__status_field state = {.key = "state", .kind = MR__STATUS_TEXT},
                                  elements = {.key = "elements", .kind = MR__STATUS_NUMBER},
                                  rate = {.key = "elements_per_second", .kind = MR__STATUS_RATE};
    static const char *const counts[] = {"jobs", "workers", "streams"};
    mr__put(t, "dispatcher ");
    mr__put(t, service);
    mr__put_format(t, ": up %.0f s, account in ",
                   floor(json_number_value(json_object_get(status, "uptime_seconds"))));
    mr__put_value(t, &state, status, 0, false);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        mr__put_format(t, "%s%s %lld", i ? ", " : "\n", counts[i],
                       (long long)json_integer_value(json_object_get(status, counts[i])));
    mr__put(t, "\n");
    if (json_is_true(json_object_get(status, "disk_full")))
        mr__put(t, "the account cannot be written: no new jobs are taken; free space in its state "
                   "directory\n");
    mr__put_value(t, &elements, status, 0, false);
    mr__put(t, " elements acknowledged, ");
    mr__put_value(t, &rate, status, 0, false);
    put_target(t, status, lines, columns);
}

mr_code mr_service_status_text(const char *service, size_t lines, size_t columns,
                               const mr_service_request_opts *opts, char **text, mr_status *st)
{
    char *json;
    mr__text t = {0};
    MR_TRY(mr_service_report(service, "page", NULL, opts, &json, st));
    json_t *page = json_loads(json, 0, NULL);
    mr_code rc = MR_OK;
    if (!page)
        rc = mr_fail(st, MR_DATA_LOSS, "the report is not JSON: %.100s", json);
    mr_free(json);
    if (rc != MR_OK)
        return rc;
    put_head(&t, service, json_object_get(page, "status"), lines, columns);
    size_t head = lines_in(&t) + 1;
    mr__status_text(&t, mr__dispatcher_view, page, lines > head ? lines - head : lines, columns,
                    time(NULL));
    json_decref(page);
    if (t.failed) {
        mr_free(t.data);
        return mr_fail_memory(st, t.n, "a report");
    }
    *text = t.data;
    return MR_OK;
}

/* ---- orders ---- */

static mr_code order(const char *service, const char *what, const char *name,
                     const mr_service_request_opts *opts, mr_status *st)
{
    mr__message *m;
    MR_TRY(request(service, what, name, NULL, opts, &m, st));
    mr__message_free(m);
    return MR_OK;
}

mr_code mr_service_cancel(const char *service, const char *job, const mr_service_request_opts *opts,
                          mr_status *st)
{
    return order(service, "cancel", job, opts, st);
}

mr_code mr_service_drain(const char *service, const char *worker,
                         const mr_service_request_opts *opts, mr_status *st)
{
    return order(service, "drain", worker, opts, st);
}

mr_code mr_service_rebalance(const char *service, const char *job,
                             const mr_service_request_opts *opts, int64_t *n_moves, mr_status *st)
{
    mr__message *m;
    MR_TRY(request(service, "rebalance", job, NULL, opts, &m, st));
    json_t *report = json_loads(m->report->json, 0, NULL);
    *n_moves = json_integer_value(json_object_get(report, "moves"));
    json_decref(report);
    mr__message_free(m);
    return MR_OK;
}

/* Appends this process's directory to the graph: later, relative names mean the files that they
 * mean now. */
static mr_code put_directory(void **graph, size_t *size, mr_status *st)
{
    Mr__Wire__GraphDirectory m = MR__WIRE__GRAPH_DIRECTORY__INIT;
    MR_TRY(mr__job_here(NULL, &m.directory, st));
    size_t n = mr__wire__graph_directory__get_packed_size(&m);
    uint8_t *more = mr_realloc(*graph, *size + n);
    if (more) {
        mr__wire__graph_directory__pack(&m, more + *size);
        *graph = more;
        *size += n;
    }
    mr_free(m.directory);
    return more ? MR_OK : mr_fail_memory(st, *size + n, "a graph");
}

mr_code mr_service_register(const char *service, const mr_dataset *ds,
                            const mr_service_request_opts *opts, char **id, mr_status *st)
{
    void *bytes = NULL;
    size_t size = 0;
    mr__message *m;
    MR_TRY(mr_dataset_check(ds, st));
    MR_TRY(mr__job_check_names(ds, st));
    MR_TRY(mr_dataset_to_proto(ds, &bytes, &size, st));
    mr_code rc = put_directory(&bytes, &size, st);
    if (rc == MR_OK)
        rc = request(service, "register", NULL, &(ProtobufCBinaryData){size, bytes}, opts, &m, st);
    mr_free(bytes);
    MR_TRY(rc);
    json_t *report = json_loads(m->report->json, 0, NULL);
    const char *text = json_string_value(json_object_get(report, "id"));
    char *copy = text ? mr_strdup(text) : NULL;
    if (!text)
        rc = mr_fail(st, MR_DATA_LOSS, "the report has no id: %.100s", m->report->json);
    else if (!copy)
        rc = mr_fail_memory(st, strlen(text), "an id");
    else
        *id = copy;
    json_decref(report);
    mr__message_free(m);
    return rc;
}

void mr_service_reload_certificates(void)
{
    mr__tls_hang_up();
}

mr_code mr_service_check_address(const char *address, bool listens, mr_status *st)
{
    if (!address)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the address is NULL");
    return listens ? mr__address_check_form(address, st) : mr__address_check(address, st);
}
