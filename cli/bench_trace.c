/* SPDX-License-Identifier: Apache-2.0 */
/* The output of bench --trace: a JSON object with the list traceEvents, for Perfetto and
 * chrome://tracing. Each run is a process with its threads; a span of an op is a complete event
 * ("X") of category "busy" or "wait", in microseconds. Hosts of URLs have counters ("C"). */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <millrace/pipeline/memory/alloc.h>
#include "host_table.h"

static mr_code put_text(bench_trace *t, const char *text, mr_status *st)
{
    return mr_atomic_file_put(t->file, text, strlen(text), st);
}

mr_code bench_trace_put(bench_trace *t, json_t *event, mr_status *st)
{
    char *text = event ? json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(event);
    if (!text)
        return mr_fail_memory(st, 0, "an event of the trace");
    mr_code rc = put_text(t, t->has_events ? ",\n" : "\n", st);
    if (rc == MR_OK)
        rc = put_text(t, text, st);
    t->has_events = true;
    free(text);
    return rc;
}

mr_code bench_trace_open(bench_trace *t, const char *path, mr_status *st)
{
    struct stat there;
    mr_atomic_file_opts o = {MR_SYNC_NONE, stat(path, &there) == 0 && !S_ISREG(there.st_mode)};
    MR_TRY(mr_atomic_file_open(&t->file, path, &o, st));
    return put_text(t, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", st);
}

mr_code bench_trace_name(bench_trace *t, const char *what, int64_t process, int thread,
                         const char *name, mr_status *st)
{
    return bench_trace_put(t,
                           json_pack("{s:s, s:s, s:I, s:i, s:{s:s}}", "name", what, "ph", "M",
                                     "pid", (json_int_t)process, "tid", thread, "args", "name",
                                     name),
                           st);
}

static bool seen_before(const mr_op_span *spans, size_t i)
{
    for (size_t k = i; k-- > 0;)
        if (spans[k].thread == spans[i].thread)
            return true;
    return false;
}

/* The calling thread has spans: opening the root, and each call of its next. */
static mr_code put_names(bench_trace *t, const mr_op_span *spans, size_t n, int64_t run,
                         const char *name, mr_status *st)
{
    MR_TRY(bench_trace_name(t, "process_name", run, 0, name, st));
    for (size_t i = 0; i < n; i++)
        if (!seen_before(spans, i))
            MR_TRY(bench_trace_name(t, "thread_name", run, spans[i].thread,
                                    spans[i].thread == gettid() ? "consumer" : "pool", st));
    return MR_OK;
}

static mr_code put_span(bench_trace *t, const mr_op_span *s, int64_t run, mr_status *st)
{
    char name[80];
    snprintf(name, sizeof name, s->waiting ? "%.60s waits" : "%.60s", s->op);
    return bench_trace_put(
        t,
        json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:{s:s}}", "name", name, "cat",
                  s->waiting ? "wait" : "busy", "ph", "X", "pid", (json_int_t)run, "tid", s->thread,
                  "ts", s->begin_seconds * 1e6, "dur", s->seconds * 1e6, "args", "path", s->path),
        st);
}

mr_code bench_trace_run(bench_trace *t, mr_iterator *it, int64_t run, const char *name,
                        double seconds, mr_status *st)
{
    double left_out;
    size_t room = mr_iterator_trace(it, NULL, 0, &left_out);
    mr_op_span *spans = mr_calloc(room + 1, sizeof *spans);
    if (!spans)
        return mr_fail_memory(st, room * sizeof *spans, "the spans of a run");
    /* Of those that were left out since there may be fewer; more than room are not taken. */
    size_t n = mr_iterator_trace(it, spans, room, &left_out);
    n = n < room ? n : room;
    mr_code rc = put_names(t, spans, n, run, name, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = put_span(t, &spans[i], run, st);
    if (left_out > 0)
        fprintf(stderr,
                "millrace: the trace of %s (%.3f s) has room for %d spans; spans shorter than %.3g "
                "us are omitted\n",
                name, seconds, BENCH_TRACE_SPANS, left_out * 1e6);
    mr_free(spans);
    return rc;
}

mr_code bench_trace_hosts(bench_trace *t, int64_t run, double at, const mr_host_stats *before,
                          size_t n_before, mr_status *st)
{
    size_t n;
    mr_host_stats *v = host_table_own(&n);
    if (!v)
        return mr_fail_memory(st, sizeof *v, "statistics");
    host_table_since(v, n, before, n_before);
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        char name[sizeof v->host + 8];
        snprintf(name, sizeof name, "host %s", v[i].host);
        rc = bench_trace_put(
            t,
            json_pack("{s:s, s:s, s:I, s:f, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}}", "name",
                      name, "ph", "C", "pid", (json_int_t)run, "ts", at * 1e6, "args", "bytes",
                      (json_int_t)v[i].bytes, "requests", (json_int_t)v[i].requests, "retries",
                      (json_int_t)v[i].retries, "open_connections",
                      (json_int_t)v[i].open_connections, "cached_bytes",
                      (json_int_t)v[i].cached_bytes, "cache_hits", (json_int_t)v[i].cache_hits,
                      "cache_misses", (json_int_t)v[i].cache_misses, "first_byte_seconds",
                      v[i].first_byte_seconds),
            st);
    }
    mr_free(v);
    return rc;
}

mr_code bench_trace_close(bench_trace *t, mr_status *st)
{
    if (!t->file)
        return MR_OK;
    mr_atomic_file *f = t->file;
    mr_code rc = put_text(t, "\n]}\n", st);
    t->file = NULL;
    return mr_atomic_file_close(f, rc, st);
}

void bench_trace_abort(bench_trace *t)
{
    mr_atomic_file_abort(t->file);
    t->file = NULL;
}
