/* SPDX-License-Identifier: Apache-2.0 */
/* Files of elements where several workers run the same graph. */
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "shard/distribute/distribute.h"
#include "shard/passes/own_files.h"
#include "tests/harness.h"

/* The text of part i of n; owned. */
static char *part_of(const char *text, int64_t i, int64_t n)
{
    const mr_parts parts = {.index = i, .n = n, .what = "workers"};
    mr_dataset *ds = mr_test_graph(text), *made = NULL;
    char *out = NULL;
    mr_status st;
    mr_ok(mr_own_files(ds, &parts, &made, &st), &st);
    mr_ok(mr_dataset_to_text(made, &out, &st), &st);
    mr_dataset_unref(made);
    mr_dataset_unref(ds);
    return out;
}

static void begins(const char *text, int64_t i, int64_t n, const char *expected)
{
    char *got = part_of(text, i, n);
    mr_test_context("%s", got);
    mr_check(strncmp(got, expected, strlen(expected)) == 0);
    mr_free(got);
}

MR_TEST(each_part_has_its_own_cache)
{
    begins("range(3).cache(\"c\")", 1, 2, "range(3).cache(\"c-stream-1-of-2\", graph=\"");
    begins("range(3).cache(\"c\")", 0, 1, "range(3).cache(\"c\", graph=\"");
    begins("range(3).cache().batch(2)", 1, 2, "range(3).cache().batch(2)");
    begins("range(3).cache(\"c\", strict=true).batch(2)", 1, 2,
           "range(3).cache(\"c-stream-1-of-2\", strict=true, graph=\"");
    char *a = part_of("range(3).cache(\"c\")", 1, 2), *b = part_of("range(4).cache(\"c\")", 1, 2);
    mr_check(strcmp(strstr(a, "graph="), strstr(b, "graph=")) != 0);
    mr_free(b);
    /* what a rewrite set is kept: the graph below may have been changed since */
    b = part_of(a, 0, 2);
    mr_check(strcmp(strstr(a, "graph="), strstr(b, "graph=")) == 0);
    mr_has_str(b, "cache(\"c-stream-1-of-2-stream-0-of-2\"");
    mr_free(a);
    mr_free(b);
}

MR_TEST(what_all_parts_would_write_is_refused)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"range(3).save(\"d\").batch(2)", "save below 2 workers"},
        {"range(3).snapshot(\"d\")", "snapshot below 2 workers"},
        {"range(3).concatenate(range(3).save(\"d\"))", "save below 2 workers"},
        {"range(3).flat_map(x => range(2).save(\"d\"))", "save below 2 workers in a function"},
        {"range(3).flat_map(x => range(2).cache(\"d\"))", "cache below 2 workers in a function"},
        {"range(3).flat_map(x => range(2).cache(filename=\"d\"))", "in a function"},
        {"range(3).window(2).flat_map(w => w.flat_map(x => range(x).snapshot(\"d\")))",
         "in a function"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_dataset *ds = mr_test_graph(cases[i].text), *made = NULL;
        mr_dist_dataset *dd = NULL;
        mr_status st;
        const mr_parts two = {.n = 2, .what = "workers"}, one = {.n = 1, .what = "workers"};
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_own_files(ds, &two, &made, &st), MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, cases[i].part);
        mr_ok(mr_check_own_files(ds, &one, &st), &st);
        mr_dataset_unref(ds);
        char text[256];
        snprintf(text, sizeof text, "%s.batch(2)", cases[i].text);
        ds = mr_test_graph(text);
        mr_code_is(mr_distribute_dataset(ds, &(mr_distribute_opts){.num_workers = 2}, &dd, &st),
                   MR_FAILED_PRECONDITION, &st);
        mr_dataset_unref(ds);
    }
    mr_dataset *ds = mr_test_graph("range(3).flat_map(x => range(2).cache(\"\"))");
    const mr_parts two = {.n = 2, .what = "workers"};
    mr_status st;
    mr_ok(mr_check_own_files(ds, &two, &st), &st);
    mr_dataset_unref(ds);
}

/* Two workers in turn, each with all others' pipelines to count its steps by. */
MR_TEST(workers_keep_their_parts)
{
    char text[1200];
    snprintf(text, sizeof text, "range(8).cache(\"%s\").batch(2)", mr_test_path("c"));
    mr_dataset *ds = mr_test_graph(text);
    for (int round = 0; round < 4; round++) {
        mr_dist_dataset *dd = NULL;
        mr_dist_iterator *it = NULL;
        mr_step step;
        mr_status st;
        int64_t sum = 0;
        const mr_distribute_opts o = {
            .num_workers = 2, .worker = round % 2, .policy = MR_SHARD_DATA, .has_policy = true};
        mr_ok(mr_distribute_dataset(ds, &o, &dd, &st), &st);
        mr_ok(mr_dist_iterator_open(&it, dd, NULL, &st), &st);
        while (mr_dist_iterator_next(it, NULL, &step, &st) == MR_OK)
            if (step.has_data[0])
                for (size_t i = 0; i < step.replicas[0].columns[0].rows; i++)
                    sum += ((const int64_t *)step.replicas[0].columns[0].data)[i];
        mr_check(sum > 0);
        mr_dist_iterator_close(it);
        mr_dist_dataset_free(dd);
    }
    mr_dataset_unref(ds);
    FILE *f = fopen(mr_test_path("c-stream-1-of-2.cache"), "r");
    mr_check(f != NULL);
    fclose(f);
}
