/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: which spans are kept, and how few. */
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "tests/harness.h"

static mr_iterator *run_text(const char *text, const mr_iterator_opts *opts)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    mr_dataset_unref(ds);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 4096, &b, &st)) == MR_OK)
        ;
    mr_code_is(rc, MR_END, &st);
    mr_block_reset(&b);
    return it;
}

MR_TEST(nothing_is_kept_unless_asked_for)
{
    double left_out = -1;
    mr_iterator *it = run_text("range(100).batch(10)", NULL);
    mr_eq_u64(mr_iterator_trace(it, NULL, 0, &left_out), 0);
    mr_check(left_out == 0);
    mr_iterator_close(it);
}

/* One of the root's spans in the calling thread holds each other one. */
MR_TEST(spans_lie_within_those_of_the_root)
{
    static const mr_iterator_opts opts = {.has_threads = true, .trace_spans = 4096};
    double left_out;
    mr_op_span spans[4096];
    mr_iterator *it = run_text("range(200).flat_map(x => range(3)).batch(7)", &opts);
    size_t n = mr_iterator_trace(it, spans, 4096, &left_out);
    mr_check(n > 4 && n <= 4096);
    mr_check(left_out == 0);
    size_t inside = 0;
    for (size_t i = 0; i < n; i++) {
        const mr_op_span *s = &spans[i];
        mr_check(!s->waiting && s->thread == spans[0].thread);
        mr_check(s->seconds >= 0 && s->begin_seconds > -1e-3);
        bool held = strcmp(s->path, "batch") == 0;
        for (size_t k = 0; k < n && !held; k++)
            held = strcmp(spans[k].path, "batch") == 0 &&
                   spans[k].begin_seconds <= s->begin_seconds &&
                   spans[k].begin_seconds + spans[k].seconds >= s->begin_seconds + s->seconds;
        mr_check(held);
        inside += strcmp(s->path, "batch/flat_map/(f)/range") == 0;
    }
    mr_check(inside >= 200);
    mr_iterator_close(it);
}

MR_TEST(the_shortest_make_room)
{
    for (size_t room = 1; room < 40; room += 19) {
        const mr_iterator_opts opts = {.has_threads = true, .block_rows = 1, .trace_spans = room};
        double left_out;
        mr_op_span spans[40];
        mr_iterator *it = run_text("range(1000).map(x => x + 1)", &opts);
        size_t n = mr_iterator_trace(it, spans, 40, &left_out);
        mr_check(n < room || n == 0);
        mr_check(left_out > 0);
        for (size_t i = 0; i < n; i++)
            mr_check(spans[i].seconds >= left_out * 0.999);
        mr_iterator_close(it);
    }
}

MR_TEST(several_threads_write_one_trace)
{
    static const mr_iterator_opts opts = {
        .has_threads = true, .threads = 3, .block_rows = 8, .trace_spans = 100};
    double left_out;
    mr_iterator *it =
        run_text("range(20000).map(x => x * x, num_parallel_calls=3).batch(4).prefetch(2)", &opts);
    mr_check(mr_iterator_trace(it, NULL, 0, &left_out) < 100);
    mr_iterator_close(it);
}

MR_TEST(there_may_be_no_memory_for_it)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_dataset *ds = mr_test_graph("range(3)");
    mr_code_is(mr_iterator_open(&it, ds, &(mr_iterator_opts){.trace_spans = SIZE_MAX}, &st),
               MR_RESOURCE_EXHAUSTED, &st);
    mr_check(!it);
    mr_dataset_unref(ds);
}
