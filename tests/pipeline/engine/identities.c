/* SPDX-License-Identifier: Apache-2.0 */
/* Identities are values: the same for all threads and blocks, and after a restore at any place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/events.h"
#include "tests/harness.h"

/* Joined texts of the records of all events: "source:file:ordinal:epoch+...", "#" for sources in
 * functions. */
static char *records_of(const mr_events *e, size_t from)
{
    size_t room = 64 * 1024, n = 0;
    char *text = calloc(room, 1);
    for (size_t i = from; i < e->n; i++) {
        for (size_t k = 0; k < e->v[i].n_ids && n + 100 < room; k++) {
            const mr_identity *id = &e->v[i].ids[k];
            char source[24] = "#";
            if (id->source < 100)
                snprintf(source, sizeof source, "%d", (int)id->source);
            n += (size_t)snprintf(text + n, room - n, "%s%s:%d:%d:%d",
                                  k          ? "+"
                                  : i > from ? " "
                                             : "",
                                  source, (int)id->file, (int)id->ordinal, (int)id->epoch);
        }
    }
    return text;
}

static mr_iterator *open_it(const char *text, int64_t threads, int64_t rows)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_iterator_opts opts = {.has_threads = true,
                             .threads = threads,
                             .block_rows = rows,
                             .identities = true,
                             .positions = true};
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

static void check_records(const mr_events *e, const mr_events *whole, size_t from, const char *text)
{
    char *got = records_of(e, 0), *wanted = whole ? records_of(whole, from) : strdup(text);
    mr_eq_str(got, wanted);
    free(got);
    free(wanted);
}

static void check_restored(const char *graph, const mr_events *whole, size_t at, int64_t threads,
                           int64_t rows)
{
    mr_events before = {0}, after = {0};
    mr_status st;
    void *bytes = NULL;
    size_t size;
    mr_iterator *it = open_it(graph, threads, rows);
    mr_events_run(&before, it, 3, at);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_iterator_close(it);
    it = open_it(graph, threads, rows);
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_events_run(&after, it, 3, SIZE_MAX);
    mr_test_context("%s, %d threads, blocks of %d, restored after %zu", graph, (int)threads,
                    (int)rows, at);
    check_records(&after, whole, at, NULL);
    mr_iterator_close(it);
    mr_free(bytes);
    mr_events_reset(&before, 0);
    mr_events_reset(&after, 0);
}

MR_TEST(identities_are_what_the_graph_says_however_it_runs)
{
    static const struct {
        const char *graph, *records;
    } cases[] = {
        {"range(2).concatenate(range(1)).repeat(2)",
         "0:0:0:0 0:0:1:0 1:0:0:0 0:0:0:1 0:0:1:1 1:0:0:1"},
        {"range(2).repeat(2).repeat(2)",
         "0:0:0:0 0:0:1:0 0:0:0:1 0:0:1:1 0:0:0:2 0:0:1:2 0:0:0:3 0:0:1:3"},
        {"zip(range(2), range(1).repeat(2))", "0:0:0:0+1:0:0:0 0:0:1:0+1:0:0:1"},
        {"range(3).window(2).flat_map(w => w)", "0:0:0:0 0:0:1:0 0:0:2:0"},
        {"zip(range(2).flat_map(x => range(1)), range(2))", "#:0:0:0+1:0:0:0 #:0:0:0+1:0:1:0"},
        {"range(2).flat_map(x => range(1).repeat(2))", "#:0:0:0 #:0:0:1 #:0:0:0 #:0:0:1"},
        {"range(4).batch(3).unbatch().map(x => x + 1, num_parallel_calls=2)",
         "0:0:0:0 0:0:1:0 0:0:2:0 0:0:3:0"},
        {"range(1).repeat().prefetch(9).take(2).repeat(2)", "0:0:0:0 0:0:0:1 0:0:0:2 0:0:0:3"},
        {"range(1).repeat().map(x => x, "
         "num_parallel_calls=4).batch(2).prefetch(3).take(1).repeat(2)",
         "0:0:0:0+0:0:0:1 0:0:0:2+0:0:0:3"},
        {"range(1).concatenate(range(1)).prefetch(2).take(1).repeat(3)", "0:0:0:0 0:0:0:1 0:0:0:2"},
        {"zip(range(1).concatenate(range(1)).prefetch(2), range(1)).concatenate(zip(range(1), "
         "range(1)))",
         "0:0:0:0+2:0:0:0 3:0:0:0+4:0:0:0"},
        {"zip(range(1).repeat(3), range(1)).batch(2).repeat(2)", "0:0:0:0+1:0:0:0 0:0:0:2+1:0:0:1"},
        {"range(1).repeat(3).batch(2).unbatch().take(1).repeat(2)", "0:0:0:0 0:0:0:2"},
        {"range(2).cache().repeat(2)", "0:0:0:0 0:0:1:0 0:0:0:0 0:0:1:0"},
    };
    static const int64_t blocks[] = {1, 3, 1024};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t threads = 0; threads <= 4; threads += 4)
            for (size_t b = 0; b < 3; b++) {
                mr_events e = {0};
                mr_iterator *it = open_it(cases[i].graph, threads, blocks[b]);
                mr_events_run(&e, it, 3, SIZE_MAX);
                mr_iterator_close(it);
                mr_test_context("%s, %d threads, blocks of %d", cases[i].graph, (int)threads,
                                (int)blocks[b]);
                check_records(&e, NULL, 0, cases[i].records);
                for (size_t at = 0; at <= e.n; at++)
                    check_restored(cases[i].graph, &e, at, threads, blocks[b]);
                mr_events_reset(&e, 0);
            }
}

/* Another call of a function has other sources; the same call always the same. */
MR_TEST(sources_in_functions_are_named_by_the_element_of_the_call)
{
    mr_events e = {0}, batched = {0};
    mr_iterator *it = open_it("range(2).flat_map(x => range(2))", 0, 0);
    mr_events_run(&e, it, 9, SIZE_MAX);
    mr_iterator_close(it);
    mr_eq_u64(e.n, 4);
    mr_eq_u64(e.v[0].ids[0].source, e.v[1].ids[0].source);
    mr_check(e.v[0].ids[0].source != e.v[2].ids[0].source);
    mr_events again = {0};
    it = open_it("range(1).repeat(2).flat_map(x => range(1))", 0, 0);
    mr_events_run(&again, it, 9, SIZE_MAX);
    mr_iterator_close(it);
    mr_check(again.v[0].ids[0].source != again.v[1].ids[0].source);
    mr_events_reset(&again, 0);
    /* Ops added after change nothing. */
    it = open_it("range(2).flat_map(x => range(2)).map(x => x).batch(4)", 4, 0);
    mr_events_run(&batched, it, 9, SIZE_MAX);
    mr_iterator_close(it);
    mr_eq_u64(batched.v[0].n_ids, 4);
    for (size_t i = 0; i < 4; i++)
        mr_check(memcmp(&batched.v[0].ids[i], &e.v[i].ids[0], sizeof(mr_identity)) == 0);
    mr_events_reset(&e, 0);
    mr_events_reset(&batched, 0);
}

/* What unseeded ops draw from a job's seed does not depend on whether anybody looks. */
MR_TEST(identities_change_no_order)
{
    const char *text = "range(3).flat_map(x => range(20).shuffle(20))";
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        mr_iterator *it = NULL;
        mr_events e = {0};
        mr_status st;
        mr_dataset *ds = mr_test_graph(text);
        mr_iterator_opts opts = {.has_seed = true, .seed = 3, .identities = i == 1};
        mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
        mr_events_run(&e, it, 64, SIZE_MAX);
        texts[i] = mr_events_join(&e);
        mr_events_reset(&e, 0);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    mr_eq_str(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}
