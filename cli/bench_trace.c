/* SPDX-License-Identifier: Apache-2.0 */
/* The output of bench --trace: a JSON object with the list traceEvents, for Perfetto and
 * chrome://tracing. Each run is a process with its threads; a span of an op is a complete event
 * ("X") of category "busy" or "wait", in microseconds. */
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

static mr_code failed(const bench_trace *t, mr_status *st)
{
    return mr_fail_errno(st, errno, "%s: the trace could not be written", t->path);
}

mr_code bench_trace_put(bench_trace *t, json_t *event, mr_status *st)
{
    char *text = event ? json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(event);
    if (!text)
        return mr_fail_memory(st, 0, "an event of the trace");
    bool good = fprintf(t->file, "%s%s", t->has_events ? ",\n" : "\n", text) > 0;
    t->has_events = true;
    free(text);
    return good ? MR_OK : failed(t, st);
}

mr_code bench_trace_open(bench_trace *t, const char *path, mr_status *st)
{
    size_t room = strlen(path) + sizeof ".partial";
    struct stat there;
    t->path = path;
    if (stat(path, &there) != 0 || S_ISREG(there.st_mode)) {
        t->partial = mr_malloc(room);
        if (!t->partial)
            return mr_fail_memory(st, room, "the name of a file");
        snprintf(t->partial, room, "%s.partial", path);
    }
    t->file = fopen(t->partial ? t->partial : path, "w");
    if (!t->file || fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", t->file) < 0)
        return failed(t, st);
    return MR_OK;
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
                "millrace: the trace of %s (%.3f s) has room for %d spans; those of less than %.3g "
                "us are left out\n",
                name, seconds, BENCH_TRACE_SPANS, left_out * 1e6);
    mr_free(spans);
    return rc;
}

mr_code bench_trace_close(bench_trace *t, mr_status *st)
{
    if (!t->file)
        return MR_OK;
    bool good = fputs("\n]}\n", t->file) >= 0 && fflush(t->file) == 0;
    if (!good || (t->partial && rename(t->partial, t->path) != 0))
        return failed(t, st);
    fclose(t->file);
    t->file = NULL;
    return MR_OK;
}

void bench_trace_abort(bench_trace *t)
{
    if (t->file) {
        fclose(t->file);
        if (t->partial)
            remove(t->partial);
    }
    t->file = NULL;
    mr_free(t->partial);
    t->partial = NULL;
}
