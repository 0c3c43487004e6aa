/* SPDX-License-Identifier: Apache-2.0 */
/* In the trace the trainer is one process and the input pipeline another. The trainer has a
 * thread for the loop and three for each replica: its host thread, its stream and its sums. */
#include "train_trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/strategy/strategy.h>
#include "../bench.h"

enum { INPUT = 1, TRAINER = 2, ROWS_OF_REPLICA = 3 };

static int thread_of(mr_timeline_row row, size_t replica)
{
    return row == MR_ROW_LOOP ? 1 : 1 + (int)replica * ROWS_OF_REPLICA + (int)row;
}

static mr_code put_row(bench_trace *t, mr_timeline_row row, size_t replica, mr_status *st)
{
    static const char *const names[] = {
        [MR_ROW_HOST] = "host", [MR_ROW_STREAM] = "stream", [MR_ROW_SUMS] = "sums"};
    char name[48];
    int thread = thread_of(row, replica);
    if (row == MR_ROW_LOOP)
        snprintf(name, sizeof name, "loop");
    else
        snprintf(name, sizeof name, "replica %zu: %s", replica, names[row]);
    MR_TRY(bench_trace_name(t, "thread_name", TRAINER, thread, name, st));
    return bench_trace_put(t,
                           json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "thread_sort_index",
                                     "ph", "M", "pid", TRAINER, "tid", thread, "args", "sort_index",
                                     thread),
                           st);
}

static mr_code put_rows(bench_trace *t, mr_strategy *s, mr_status *st)
{
    size_t first = mr_strategy_first_replica_id(s);
    MR_TRY(bench_trace_name(t, "process_name", TRAINER, 0, "trainer", st));
    MR_TRY(put_row(t, MR_ROW_LOOP, 0, st));
    for (size_t r = first; r < first + mr_strategy_num_local_replicas(s); r++)
        for (mr_timeline_row row = MR_ROW_HOST; row <= MR_ROW_SUMS; row++)
            MR_TRY(put_row(t, row, r, st));
    return MR_OK;
}

/* began: second 0 of the trace. */
static mr_code put_span(bench_trace *t, const mr_timeline_span *s, double began, mr_status *st)
{
    static const char *const kinds[] = {
        [MR_SPAN_WORK] = "work", [MR_SPAN_WAIT] = "wait", [MR_SPAN_SYNC] = "sync"};
    json_t *args = json_pack("{s:I}", "step", (json_int_t)s->step);
    bool good =
        args && (s->bytes == 0 ||
                 json_object_set_new(args, "bytes", json_integer((json_int_t)s->bytes)) == 0);
    good = good &&
           (!s->callback || json_object_set_new(args, "callback", json_string(s->callback)) == 0);
    json_t *event =
        good ? json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:O}", "name", s->what, "cat",
                         kinds[s->kind], "ph", "X", "pid", TRAINER, "tid",
                         thread_of(s->row, s->replica), "ts", (s->begin_seconds - began) * 1e6,
                         "dur", s->seconds * 1e6, "args", args)
             : NULL;
    json_decref(args);
    return bench_trace_put(t, event, st);
}

static mr_code put_trainer(bench_trace *t, const mr_train_event *e, mr_status *st)
{
    double began = mr_iterator_trace_begin(mr_train_input(e));
    size_t left_out;
    mr_timeline_span *spans = mr_calloc(TRAIN_TRACE_SPANS, sizeof *spans);
    if (!spans)
        return mr_fail_memory(st, TRAIN_TRACE_SPANS * sizeof *spans, "the spans of a trace");
    size_t n = mr_timeline_read(e->opts->timeline, spans, TRAIN_TRACE_SPANS, &left_out);
    mr_code rc = put_rows(t, e->strategy, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = put_span(t, &spans[i], began, st);
    if (left_out > 0 && n > 0)
        fprintf(stderr,
                "millrace: the trace has room for %d spans of the trainer; %zu, from step %" PRId64
                " on, are left out\n",
                TRAIN_TRACE_SPANS, left_out, spans[n - 1].step);
    mr_free(spans);
    return rc;
}

mr_code train_trace_check(const char *path, mr_status *st)
{
    bench_trace t = {0};
    mr_code rc = bench_trace_open(&t, path, st);
    bench_trace_abort(&t);
    return rc;
}

mr_code train_trace_write(const char *path, const mr_train_event *e, mr_status *st)
{
    bench_trace t = {0};
    mr_code rc = bench_trace_open(&t, path, st);
    if (rc == MR_OK)
        rc = bench_trace_run(&t, mr_train_input(e), INPUT, "input pipeline", e->seconds, st);
    if (rc == MR_OK)
        rc = put_trainer(&t, e, st);
    if (rc == MR_OK)
        rc = bench_trace_close(&t, st);
    bench_trace_abort(&t);
    return rc;
}
