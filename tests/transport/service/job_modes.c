/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream runs, mode by mode. */
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "tests/draws.h"
#include "tests/harness.h"
#include "transport/service/job.h"

MR_ONE_THREAD;

/* The job of a graph, in `streams` streams, final. */
static Mr__Wire__Job *job_of(const char *text, Mr__Wire__Mode mode, uint32_t streams)
{
    mr_status st;
    Mr__Wire__Job *job = NULL, *final = NULL;
    Mr__Wire__FileList **lists = NULL;
    size_t n = 0;
    const mr__job_opts o = {
        .mode = mode, .streams = streams, .block_length = 1, .seed = 7, .match = "worker"};
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr__job_new(ds, &o, &job, &st), &st);
    mr_ok(mr__job_match(job, &lists, &n, &st), &st);
    mr_ok(mr__job_finish(job, lists, n, &final, &st), &st);
    mr__job_lists_free(lists, n);
    mr__wire_free(job);
    mr_dataset_unref(ds);
    return final;
}

static char *text_of(const Mr__Wire__Job *job, uint32_t stream, uint64_t *seed)
{
    mr_status st;
    mr_dataset *ds = NULL;
    char *text = NULL;
    mr_ok(mr__job_cut(job, stream, &ds, seed, NULL, &st), &st);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_dataset_unref(ds);
    return text;
}

MR_TEST(static_modes_give_each_worker_its_shard)
{
    static const struct {
        Mr__Wire__Mode mode;
        const char *graph, *second_of_two;
    } cases[] = {
        {MR__WIRE__MODE__DATA, "range(9).batch(2)",
         "range(9).batch(2).shard(2, 1, require_non_empty=true)"},
        {MR__WIRE__MODE__FILE_OR_DATA, "range(9).batch(2).prefetch(1)",
         "range(9).batch(2).shard(2, 1, require_non_empty=true).prefetch(1)"},
        {MR__WIRE__MODE__HINT, "range(9).shard(-1, 0).batch(2)",
         "range(9).shard(2, 1, require_non_empty=true).batch(2)"},
        {MR__WIRE__MODE__FILE, "from_tensor_slices([\"a\", \"b\"]).flat_map(f => tfrecord(f))",
         "from_tensor_slices([\"a\", \"b\"]).shard(2, 1, require_non_empty=true).flat_map(f => "
         "tfrecord(f))"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s", cases[i].graph);
        Mr__Wire__Job *job = job_of(cases[i].graph, cases[i].mode, 2);
        char *text = text_of(job, 1, NULL);
        mr_eq_str(text, cases[i].second_of_two);
        mr_free(text);
        mr__wire_free(job);
    }
}

MR_TEST(what_cannot_be_sharded_by_file_is_an_error_of_reading)
{
    mr_status st;
    mr_dataset *ds = NULL;
    Mr__Wire__Job *job = job_of("range(9)", MR__WIRE__MODE__FILE, 2);
    mr_code_is(mr__job_cut(job, 0, &ds, NULL, NULL, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "range");
    mr__wire_free(job);
}

/* Random ops that have no seed. */
MR_TEST(seeds_are_each_streams_own_or_the_same_as_the_mode_needs)
{
    static const struct {
        Mr__Wire__Mode mode;
        bool same;
    } cases[] = {{MR__WIRE__MODE__EXACTLY_ONCE, false},
                 {MR__WIRE__MODE__DYNAMIC, false},
                 {MR__WIRE__MODE__PARALLEL_EPOCHS, false},
                 {MR__WIRE__MODE__FILE_OR_DATA, true},
                 {MR__WIRE__MODE__HINT, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t a_seed, b_seed;
        Mr__Wire__Job *job = job_of("range(9).shuffle(3)", cases[i].mode, 2);
        mr_dataset *a, *b;
        char draws[2][256] = {"", ""};
        mr_status st;
        mr_ok(mr__job_cut(job, 0, &a, &a_seed, NULL, &st), &st);
        mr_ok(mr__job_cut(job, 1, &b, &b_seed, NULL, &st), &st);
        mr_test_draws(a, draws[0], sizeof draws[0]);
        mr_test_draws(b, draws[1], sizeof draws[1]);
        mr_test_context("mode %d: %s, %s", (int)cases[i].mode, draws[0], draws[1]);
        mr_has_str(draws[0], "shuffle:");
        mr_check((strcmp(draws[0], draws[1]) == 0) == cases[i].same);
        mr_check((a_seed == b_seed) == cases[i].same);
        mr_dataset_unref(a);
        mr_dataset_unref(b);
        mr__wire_free(job);
    }
}

MR_TEST(only_exactly_once_needs_the_same_again)
{
    static const char text[] = "range(9).map(x => x, num_parallel_calls=2, deterministic=false)";
    mr_status st;
    Mr__Wire__Job *job = NULL;
    mr__job_opts o = {.mode = MR__WIRE__MODE__EXACTLY_ONCE, .block_length = 1, .match = "worker"};
    mr_dataset *ds = mr_test_graph(text);
    mr_code_is(mr__job_new(ds, &o, &job, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "dynamic");
    o.mode = MR__WIRE__MODE__PARALLEL_EPOCHS;
    mr_ok(mr__job_new(ds, &o, &job, &st), &st);
    mr__wire_free(job);
    mr_dataset_unref(ds);
}
