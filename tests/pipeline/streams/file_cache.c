/* SPDX-License-Identifier: Apache-2.0 */
/* Files of elements through the ops that write and read them: positions while they are written,
 * two writers, damage, faults of system calls and crashes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/log.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/system/system.h"
#include "tests/events.h"
#include "tests/fault.h"
#include "tests/fault_calls.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_iterator *open_graph(mr_dataset *ds, bool identities)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_iterator_opts opts = {
        .has_threads = true, .positions = true, .block_rows = 3, .identities = identities};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    return it;
}

static char *show(const char *text)
{
    mr_events e = {0};
    mr_dataset *ds = mr_test_graph(text);
    mr_iterator *it = open_graph(ds, true);
    mr_events_run(&e, it, 2, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    char *all = mr_events_join(&e);
    mr_events_reset(&e, 0);
    return all;
}

static void shows(const char *text, const char *expected)
{
    char *got = show(text);
    mr_test_context("%s", text);
    mr_eq_str(got, expected);
    free(got);
}

/* A graph in which @ is the test's directory. */
static const char *graph(const char *text)
{
    static char texts[4][4096];
    static unsigned turn;
    char *to = texts[turn++ % 4];
    size_t n = 0;
    for (; *text; text++)
        n += (size_t)snprintf(to + n, sizeof texts[0] - n, *text == '@' ? "%s" : "%.1s",
                              *text == '@' ? mr_test_dir() : text);
    return to;
}

static bool there(const char *name)
{
    return access(mr_test_path(name), F_OK) == 0;
}

MR_TEST(the_first_run_writes_later_ones_read)
{
    shows(graph("range(-2, 3).map(x => (6 // x, \"s\")).cache(\"@/a\").repeat(2).ignore_errors()"),
          "(-3,\"s\") (-6,\"s\") (6,\"s\") (3,\"s\") (-3,\"s\") (-6,\"s\") (6,\"s\") (3,\"s\")");
    mr_check(there("a.cache") && !there(".a.cache.lock"));
    shows(graph("range(-2, 3).map(x => (6 // x, \"s\")).cache(\"@/a\")"),
          "(-3,\"s\") (-6,\"s\") (6,\"s\") (3,\"s\")"); /* without the error of 0 */
    shows(graph("range(0).cache(\"@/empty\").repeat(2)"), "");
    mr_check(there("empty.cache"));
    shows(graph("range(0).cache(\"@/empty\")"), "");
    shows(graph("range(3).map(x => ones([x])).snapshot(\"@/n\").repeat(2)"),
          "[] [1] [1,1] [] [1] [1,1]");
    shows(graph("range(2).snapshot(\"@/n\")"), "0 1"); /* another graph, another snapshot */
    shows(graph("range(3).save(\"@/s\").repeat(2)"), "0 1 2 0 1 2");
    shows(graph("range(4).map(x => {\"n\": x, \"w\": [\"a\", \"b\"]}).save(\"@/s\")"),
          "(0,[\"a\",\"b\"]) (1,[\"a\",\"b\"]) (2,[\"a\",\"b\"]) (3,[\"a\",\"b\"])");
    shows(graph("load(\"@/s\").map(x => x[\"n\"])"), "0 1 2 3");
    shows(graph("range(4).map(x => ones([x])).save(\"@/d\").take(1)"), "[]");
    mr_check(!there("d/elements.mre"));
    mr_dataset *ds = mr_test_graph(graph("load(\"@/s\")"));
    mr_eq_i64(mr_dataset_cardinality(ds), 4);
    mr_dataset_unref(ds);
}

MR_TEST(a_pass_that_stops_early_leaves_no_file)
{
    shows(graph("range(9).cache(\"@/a\").take(4)"), "0 1 2 3");
    mr_check(!there("a.cache") && !there(".a.cache.lock"));
    shows(graph("range(9).cache(\"@/a\").take(4).repeat(2)"), "0 1 2 3 0 1 2 3");
    mr_check(!there("a.cache"));
}

/* Saved after every element, restored in another iterator, also when the file is complete by then:
 * the rest is the same, and so is the second pass, which the file makes. */
static void positions_of(const char *text, const char *file, bool complete_before)
{
    unlink(mr_test_path(file));
    char *expected = show(text);
    mr_dataset *ds = mr_test_graph(text);
    for (size_t k = 0;; k++) {
        mr_events e = {0};
        void *bytes;
        size_t size;
        mr_status st;
        unlink(mr_test_path(file));
        mr_iterator *it = open_graph(ds, true);
        mr_test_context("%s, restored after %zu", text, k);
        mr_events_run(&e, it, 1, k);
        bool whole = e.n < k;
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        mr_iterator_close(it);
        if (complete_before)
            free(show(text));
        it = open_graph(ds, true);
        mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
        mr_events_run(&e, it, 3, SIZE_MAX);
        mr_iterator_close(it);
        mr_free(bytes);
        char *got = mr_events_join(&e);
        mr_eq_str(got, expected);
        free(got);
        mr_events_reset(&e, 0);
        mr_check(there(file));
        if (whole)
            break;
    }
    mr_dataset_unref(ds);
    free(expected);
}

MR_TEST(positions_while_a_file_is_written_and_read)
{
    static const char text[] =
        "range(-3, 5).map(x => 12 // x).shuffle(3, seed=1).cache(\"@/a\").repeat(2).batch(2)";
    positions_of(graph(text), "a.cache", false);
    positions_of(graph("range(6).save(\"@/s\")"), "s/elements.mre", false);
    positions_of(graph("range(6).cache(\"@/b\")"), "b.cache", true);
}

MR_TEST(positions_of_load)
{
    free(show(graph("range(9).batch(2).save(\"@/s\")")));
    positions_of(graph("load(\"@/s\").unbatch().cache(\"@/c\").repeat(2)"), "c.cache", false);
}

/* Another iterator completed the file after this one was opened. */
MR_TEST(a_file_that_was_completed_meanwhile_is_read)
{
    static const char text[] = "range(9).shuffle(9).cache(\"@/a\")"; /* another order each time */
    mr_events e = {0};
    mr_dataset *late = mr_test_graph(graph(text));
    mr_iterator *it = open_graph(late, true);
    char *first = show(graph(text));
    mr_events_run(&e, it, 2, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(late);
    char *got = mr_events_join(&e);
    mr_eq_str(got, first);
    free(got);
    mr_events_reset(&e, 0);
    shows(graph(text), first);
    free(first);
}

MR_TEST(one_writer_at_a_time)
{
    char *got =
        show(graph("zip(range(3).cache(\"@/a\"), range(3).cache(\"@/a\")).ignore_errors()"));
    mr_has_str(got, "!ignore_errors/zip[1]/cache:_already_exists");
    mr_has_str(got, "is_being_written_by_another");
    free(got);
    mr_check(!there(".a.cache.lock"));
    shows(graph("zip(range(3).snapshot(\"@/n\"), range(3).snapshot(\"@/n\"))"),
          "(0,0) (1,1) (2,2)");
}

MR_TEST(a_file_that_does_not_fit_or_is_damaged_is_an_error)
{
    char path[1024];
    free(show(graph("range(600).cache(\"@/a\")")));
    char *got = show(graph("range(2).map(x => \"s\").cache(\"@/a\")"));
    mr_has_str(got, "holds_elements_of_int64[]");
    free(got);
    snprintf(path, sizeof path, "%s", mr_test_path("a.cache"));
    FILE *f = fopen(path, "r+");
    mr_check(f != NULL);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    fclose(f);
    mr_eq_i64(truncate(path, size - 33), 0); /* without its last record */
    got = show(graph("range(600).cache(\"@/a\").skip(600)"));
    mr_has_str(got, "stops_before_its_end");
    free(got);
    f = fopen(path, "w");
    fclose(f);
    got = show(graph("range(600).cache(\"@/a\").ignore_errors()"));
    mr_has_str(got, "the_file_is_empty");
    free(got);
    mr_dataset *ds = NULL;
    mr_status st;
    const char *text = graph("load(\"@/nowhere\")");
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), MR_NOT_FOUND, &st);
}

/* ---- faults ---- */

static mr_code run_through(const char *text, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator_opts opts = {.has_threads = true, .block_rows = 2, .no_uring = true};
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st), first = MR_OK;
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &opts, st);
    first = rc;
    for (int i = 0; rc != MR_END && it && i < 100; i++) {
        mr_status why;
        rc = mr_iterator_next(it, 2, &b, &why);
        if (rc < 0 && first == MR_OK) {
            first = rc;
            *st = why;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return first;
}

static const char *const writers[] = {"range(7).cache(\"@/f\")", "range(7).save(\"@/f\")",
                                      "range(7).snapshot(\"@/f\")"};

static void clean(void)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'/f* '%s'/.f*", mr_test_dir(), mr_test_dir());
    mr_eq_i64(system(command), 0);
}

/* What is there is whole, and nothing keeps the next run from writing. */
static void whole_again(const char *text)
{
    mr_fault_off();
    shows(text, "0 1 2 3 4 5 6");
    shows(text, "0 1 2 3 4 5 6");
}

MR_TEST(any_system_call_may_fail)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const char *text = graph(writers[i]);
        clean();
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false)
        {
            mr_status st;
            mr_fault_expect(run_through(text, &st), &st);
            whole_again(text);
            clean();
        }
    }
}

MR_TEST_SLOW(any_allocation_may_fail)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const char *text = graph(writers[i]);
        clean();
        mr_fault_each_allocation(n)
        {
            mr_status st;
            mr_fault_expect(run_through(text, &st), &st);
            clean();
        }
    }
}

/* ---- crashes: the process ends at its n-th call that changes or looks up a file ---- */

static int calls_left = -1;

static bool dies(const char *call)
{
    (void)call;
    if (calls_left >= 0 && calls_left-- == 0)
        _exit(9);
    return false;
}

/* false: it came to its end. */
static bool die_at(int n, const char *text)
{
    int how;
    fflush(NULL);
    pid_t child = fork();
    mr_check(child >= 0);
    if (child == 0) {
        static mr__system table;
        mr_status st;
        table = *mr__system_real();
        mr_fault_calls(&table, "open write fsync rename unlink mkdir flock close", dies);
        mr__system_set(&table);
        calls_left = n;
        _exit(run_through(text, &st) == MR_OK ? 0 : 1);
    }
    mr_eq_i64(waitpid(child, &how, 0), child);
    mr_check(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 9));
    return WEXITSTATUS(how) == 9;
}

MR_TEST(a_crash_at_any_system_call_leaves_a_whole_file_or_none)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        bool died = true;
        for (int n = 0; died; n++) {
            const char *text = graph(writers[i]);
            clean();
            died = die_at(n, text);
            mr_test_context("%s dies at call %d", text, n);
            whole_again(text);
        }
    }
}

/* ---- complete without the end ---- */

static void count_warnings(void *ctx, mr_log_level level, const char *message)
{
    *(int *)ctx += level == MR_LOG_WARNING && !strstr(message, "was skipped");
}

/* Takes n elements, `want` a call, in each of `passes`. Returns the number of warnings. */
static int take_only(const char *text, size_t n, size_t want, int passes)
{
    int warnings = 0;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_test_graph(text);
    mr_log_set(count_warnings, &warnings, MR_LOG_WARNING);
    mr_iterator *it = open_graph(ds, true);
    for (int pass = 0; pass < passes; pass++) {
        for (size_t got = 0; got < n; got += b.rows)
            mr_ok(mr_iterator_next(it, want < n - got ? want : n - got, &b, &st), &st);
        if (pass + 1 < passes)
            mr_ok(mr_iterator_rewind(it, &st), &st);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_dataset_unref(ds);
    return warnings;
}

/* A consumer that knows how many elements there are does not ask for the end. */
MR_TEST(a_pass_of_exactly_all_elements_is_complete)
{
    static const struct {
        const char *op, *file;
    } kinds[] = {{".cache(\"@/f\")", "f.cache"},
                 {".save(\"@/f\")", "f/elements.mre"},
                 {".snapshot(\"@/f\")", NULL}};
    static const struct {
        const char *before, *after;
        size_t n; /* elements */
    } graphs[] = {{"range(6)", "", 6},
                  {"range(6)", ".batch(2)", 3},
                  {"range(1)", "", 1},
                  {"range(6)", ".take(6)", 6},
                  {"range(-2, 5).map(x => 6 // x)", ".ignore_errors()", 6}, /* 7, but one fails */
                  {"range(9).filter(x => x < 6)", "", 6},
                  {"range(3).filter(x => true).repeat(2)", ".map(x => x + 1).batch(2)", 3},
                  {"range(9).filter(x => x < 6)", ".prefetch(2)", 6},
                  {"range(9).filter(x => x < 6)", ".take(6)", 6},
                  {"range(9).filter(x => x < 6)", ".prefetch(2).take(6).batch(2)", 3}};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (size_t want = 1; want < 9; want += 3) {
                char text[256];
                snprintf(text, sizeof text, "%s%s%s", graphs[i].before, kinds[k].op,
                         graphs[i].after);
                mr_test_context("%s, %zu a call", text, want);
                clean();
                mr_eq_i64(take_only(graph(text), graphs[i].n, want, 2), 0);
                mr_check(!kinds[k].file || there(kinds[k].file));
                clean();
                bool early = graphs[i].n > 1 && !strstr(graphs[i].after, "prefetch");
                if (early && k == 0) {
                    mr_eq_i64(take_only(graph(text), graphs[i].n - 1, 1, 1), 1);
                    mr_check(!there(kinds[k].file));
                }
            }
}

/* The pull that shows whether a file is complete does not count as an opening of sources. */
MR_TEST(identities_of_later_passes_are_those_of_passes_that_stop)
{
    static const char text[] = "range(2).filter(x => true).repeat(3).cache(\"@/f\")";
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_test_graph(graph(text));
    mr_iterator *it = open_graph(ds, true);
    for (int i = 0; i < 2; i++)
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_u64(b.ids.ids[0].epoch, 1);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* Nor one that an op above stops. */
MR_TEST(a_pass_that_ends_at_the_last_element_is_complete)
{
    static const char *const graphs[] = {
        "range(9).filter(x => x < 3).cache(\"@/f\").take(3)",
        "range(9).filter(x => x < 3).cache(\"@/f\").prefetch(1).take(3)",
        "zip(range(3), range(9).filter(x => x < 3).cache(\"@/f\")).map((x, y) => y)",
        "zip(range(9).filter(x => x < 3).cache(\"@/f\"), range(3)).map((x, y) => x)",
        "range(1).flat_map(i => range(9).filter(x => x < 3).cache(\"@/f\")).take(3)",
        "range(9).filter(x => x < 3).cache(\"@/g\").filter(x => true).cache(\"@/f\").take(3)",
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        clean();
        shows(graph(graphs[i]), "0 1 2");
        mr_check(there("f.cache"));
        clean();
        char *text = mr_strf("%s.take(2)", graphs[i]);
        shows(graph(text), "0 1");
        mr_check(!there("f.cache") || strstr(graphs[i], "prefetch"));
        mr_free(text);
    }
}

/* Of two files one above the other neither may lack what the other has. */
MR_TEST(files_of_each_other_are_looked_at_from_the_top)
{
    static const char *const graphs[] = {
        "range(9).filter(x => x < 6).cache(\"@/g\").cache(\"@/f\")",
        "range(9).filter(x => x < 6).cache(\"@/g\").map(x => x).cache(\"@/f\")",
        "range(9).filter(x => x < 6).cache(\"@/g\").prefetch(1).cache(\"@/f\")",
        "range(9).filter(x => x < 6).save(\"@/s\").cache(\"@/g\").cache(\"@/f\")",
        "range(9).filter(x => x < 6).cache(\"@/g\").cache(\"@/f\").prefetch(1)",
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        for (size_t n = 1; n <= 6; n++) {
            clean();
            unlink(mr_test_path("g.cache"));
            take_only(graph(graphs[i]), n, 1, 1);
            mr_test_context("%s, %zu taken", graphs[i], n);
            mr_check(n < 6 || there("f.cache"));
            shows(graph(graphs[i]), "0 1 2 3 4 5");
            take_only(graph(graphs[i]), n, 2, 2);
            shows(graph(graphs[i]), "0 1 2 3 4 5");
        }
}

/* A number that is asserted, or was counted in files, does not prove the end. */
MR_TEST(a_count_that_may_be_wrong_completes_no_file)
{
    static const struct {
        const char *graph, *all;
        size_t n; /* elements that are taken */
        bool complete;
    } cases[] = {
        {"range(9).filter(x => x < 3).assert_cardinality(3).cache(\"@/f\")", "0 1 2", 3, true},
        {"range(9).filter(x => x < 3).cache(\"@/f\").assert_cardinality(3)", "0 1 2", 3, true},
        {"range(9).filter(x => x < 3).assert_cardinality(3).cache(\"@/f\").batch(3)", "[0,1,2]", 1,
         true},
        {"range(3).assert_cardinality(3).map(x => x).cache(\"@/f\").assert_cardinality(3)", "0 1 2",
         3, true},
        {"range(5).assert_cardinality(3).cache(\"@/f\")", "0 1 2 !", 3, false},
        {"range(5).cache(\"@/f\").assert_cardinality(3)", "0 1 2 !", 3, false},
        {"range(2).assert_cardinality(3).cache(\"@/f\")", "0 1 !", 2, false},
        {"range(5).assert_cardinality(3).ignore_errors().cache(\"@/f\")", "0 1 2", 3, true},
        {"range(1).flat_map(i => range(5).assert_cardinality(3)).cache(\"@/f\")", "0 1 2 !", 3,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clean();
        take_only(graph(cases[i].graph), cases[i].n, 1, 1);
        mr_test_context("%s", cases[i].graph);
        mr_eq_i64(there("f.cache"), cases[i].complete);
        clean();
        mr_events wanted = {0}, got = {0};
        char *text = show(graph(cases[i].graph));
        mr_events_split(&got, text);
        mr_events_split(&wanted, cases[i].all);
        mr_test_context("%s: %s", cases[i].graph, text);
        for (size_t k = 0; k < wanted.n; k++)
            mr_check(k < got.n && mr_event_is(got.v[k].text, wanted.v[k].text));
        mr_events_reset(&got, 0);
        mr_events_reset(&wanted, 0);
        free(text);
    }
}

/* What load reads may be written again after the graph was built. */
MR_TEST(a_cache_of_what_was_saved_again_has_all_of_it)
{
    mr_events e = {0};
    clean();
    free(show(graph("range(3).save(\"@/sv\")")));
    mr_dataset *ds = mr_test_graph(graph("load(\"@/sv\").cache(\"@/f\")"));
    mr_eq_i64(mr_dataset_cardinality(ds), 3);
    free(show(graph("range(5).save(\"@/sv\")")));
    mr_iterator *it = open_graph(ds, true);
    mr_events_run(&e, it, 1, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_eq_u64(e.n, 5);
    mr_events_reset(&e, 0);
    ds = mr_test_graph(graph("load(\"@/sv\").cache(\"@/f\").batch(2)"));
    mr_eq_i64(mr_dataset_cardinality(ds), 3);
    mr_dataset_unref(ds);
    shows(graph("load(\"@/sv\").cache(\"@/f\")"), "0 1 2 3 4");
}

/* Only what leads to the file is pulled: another input may be slow, or wait forever. */
MR_TEST(the_pull_for_the_end_leaves_other_inputs_alone)
{
    int ends[2];
    char text[256];
    mr_eq_i64(pipe(ends), 0);
    mr_eq_i64(write(ends[1], "a\nb\n", 4), 4);
    clean();
    snprintf(text, sizeof text,
             "zip(range(9).filter(x => x < 2).cache(\"@/f\"), text_line(\"/dev/fd/%d\"))", ends[0]);
    mr_eq_i64(take_only(graph(text), 2, 1, 1), 0); /* would block if it asked for a third line */
    mr_check(there("f.cache"));
    clean();
    mr_eq_i64(write(ends[1], "a\nb\n", 4), 4);
    snprintf(text, sizeof text,
             "zip(text_line(\"/dev/fd/%d\"), range(9).filter(x => x < 2).cache(\"@/f\"))", ends[0]);
    mr_eq_i64(take_only(graph(text), 2, 1, 1), 0);
    mr_check(there("f.cache"));
    close(ends[0]);
    close(ends[1]);
}

MR_TEST(what_stops_early_does_not_wait_for_a_pipe)
{
    int ends[2];
    char text[256];
    mr_eq_i64(pipe(ends), 0);
    mr_eq_i64(write(ends[1], "a\nb\n", 4), 4);
    snprintf(text, sizeof text, "text_line(\"/dev/fd/%d\").cache(\"@/f\")", ends[0]);
    mr_eq_i64(take_only(graph(text), 2, 1, 1), 1); /* would block if it asked for a third */
    mr_check(!there("f.cache"));
    close(ends[0]);
    close(ends[1]);
}

/* ---- what a file was made from ---- */

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void refused(const char *text, const char *part, const char *name)
{
    char *got = show(text);
    mr_test_context("%s", text);
    mr_has_str(got, part);
    if (name)
        mr_has_str(got, name);
    free(got);
}

MR_TEST(a_file_of_another_graph_is_refused)
{
    shows(graph("range(3).map(x => x * 2).cache(\"@/f\")"), "0 2 4");
    refused(graph("range(3).map(x => x * 3).cache(\"@/f\")"), "written_by_another_graph", "x_*_3");
    refused(graph("range(4).map(x => x * 2).cache(\"@/f\").ignore_errors()"),
            "written_by_another_graph", "f.cache");
    refused(graph("range(3).shuffle(3, seed=1).map(x => x * 2).cache(\"@/f\")"),
            "written_by_another_graph", "f.cache");
    shows(graph("range(3).map(x => x * 2).cache(\"@/f\", strict=true).batch(2)"), "[0,2] [4]");
    shows(graph("range(3).map(x => x * 3).snapshot(\"@/f\")"), "0 3 6"); /* has a separate one */
    shows(graph("range(3).map(x => x * 4).snapshot(\"@/f\")"), "0 4 8");
}

static int looks_at_input; /* calls of stat */

static int counting_stat(const char *path, struct stat *out)
{
    looks_at_input += strstr(path, "/in-a") != NULL;
    return mr__system_real()->stat(path, out);
}

/* Once in a run, however often it repeats. */
MR_TEST(inputs_are_looked_at_once_in_a_run)
{
    static const char *const graphs[] = {
        "text_line(\"@/in-a\").cache(\"@/f\")",
        "text_line(\"@/in-a\").snapshot(\"@/f\")",
        "text_line(\"@/in-a\").snapshot(\"@/g\").cache(\"@/f\")",
        "range(2).flat_map(i => text_line(\"@/in-a\").cache(\"@/f\"))",
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        clean();
        put_file("in-a", "one\n");
        char *repeated = mr_strf("%s.repeat(5)", graphs[i]);
        char *first = show(graph(repeated));
        mr__system table = *mr__system_real();
        table.stat = counting_stat;
        mr__system_set(&table);
        looks_at_input = 0;
        shows(graph(graphs[i]), i == 3 ? "\"one\" \"one\"" : "\"one\"");
        int once = looks_at_input;
        mr_check(once > 0);
        looks_at_input = 0;
        shows(graph(repeated), first);
        mr_eq_i64(looks_at_input, i == 3 ? 5 * once : once);
        mr__system_set(NULL);
        put_file("in-a", "one\ntwo\n");
        refused(graph(graphs[i]), "in-a,_which_had_4_bytes", NULL);
        mr_free(repeated);
        free(first);
    }
}

MR_TEST(a_file_that_is_replaced_in_a_run_is_checked_again)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    clean();
    put_file("in-a", "one\n");
    shows(graph("text_line(\"@/in-a\").cache(\"@/f\")"), "\"one\"");
    mr_dataset *ds = mr_test_graph(graph("text_line(\"@/in-a\").cache(\"@/f\")"));
    mr_iterator *it = open_graph(ds, true);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    unlink(mr_test_path("f.cache"));
    shows(graph("text_line(\"@/in-a\").map(x => x + \"!\").cache(\"@/f\")"), "\"one!\"");
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_FAILED_PRECONDITION, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* Each way in which a graph reads files, and what may happen to them. */
MR_TEST(a_file_of_inputs_that_changed_is_refused)
{
    static const char *const readers[] = {
        "text_line([\"@/in-a\", \"@/in-b\"])",
        "text_line(\"@/in-*\")",
        "list_files(\"@/in-*\").flat_map(f => text_line(f))",
        "list_files(\"@/in-*\").interleave(f => text_line(f), cycle_length=1)",
        "from_tensor_slices([\"@/in-a\", \"@/in-b\"]).map(f => read_file(f))",
        "from_tensor_slices([\"@/in-a\", \"@/in-b\"]).map(f => read_file(f), num_parallel_calls=2)",
        "text_line(\"@/in-*\").shuffle(9, seed=1).repeat(2).prefetch(2)",
        "files(\"@/in-*\")",
        "text_line(\"@/in-*\").cache(\"@/fin\")"};
    static const char *const ops[] = {".cache(\"@/f\")", ".snapshot(\"@/f\")"};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        for (size_t k = 0; k < 2; k++) {
            char text[512];
            snprintf(text, sizeof text, "%s%s", readers[i], ops[k]);
            mr_test_context("%s", text);
            clean();
            put_file("in-a", "one\n");
            put_file("in-b", "two\n");
            unlink(mr_test_path("in-c"));
            char *first = show(graph(text));
            mr_check(!strchr(first, '!'));
            shows(graph(text), first);
            put_file("in-b", "two\nthree\n");
            refused(graph(text), "in-b,_which_had_4_bytes_then_and_has_10_now", "remove_it");
            put_file("in-b", "tow\n");
            shows(graph(text), first); /* its size is the same */
            unlink(mr_test_path("in-b"));
            refused(graph(text), "in-b,_which_cannot_be_found", NULL);
            unlink(mr_test_path("in-a"));
            shows(graph(text), first); /* the data were deleted, the cache is kept */
            put_file("in-a", "one\n");
            put_file("in-b", "two\n");
            shows(graph(text), first);
            put_file("in-c", "four\n");
            if (strstr(text, "in-*"))
                refused(graph(text), "in-c_is_new", NULL);
            else
                shows(graph(text), first);
            free(first);
        }
}

/* The inputs of a cache that was read are those of the cache above it. */
MR_TEST(a_file_made_from_another_file_has_its_inputs)
{
    static const char text[] = "text_line(\"@/in-*\").cache(\"@/fin\").map(s => s).cache(\"@/f\")";
    put_file("in-a", "one\n");
    shows(graph("text_line(\"@/in-*\").cache(\"@/fin\")"), "\"one\"");
    shows(graph(text), "\"one\"");
    put_file("in-a", "three\n");
    unlink(mr_test_path("fin.cache"));
    refused(graph(text), "in-a,_which_had_4_bytes_then_and_has_6_now", "f.cache");
}

/* A vocabulary is loaded once a process; each pass that uses it has it among its inputs. */
MR_TEST(a_vocabulary_that_was_loaded_before_is_an_input)
{
    static const char text[] =
        "from_tensor_slices([\"a\", \"b\"]).map(x => lookup(x, \"@/words\")).cache(\"@/f\")";
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    put_file("words", "b\na\n");
    mr_dataset *ds = mr_test_graph(graph(text));
    for (int pass = 0; pass < 2; pass++) { /* the first one leaves no file */
        mr_iterator *it = open_graph(ds, true);
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_check(!there("f.cache"));
        while (pass > 0 && mr_iterator_next(it, 1, &b, &st) == MR_OK)
            continue;
        mr_iterator_close(it);
    }
    mr_block_reset(&b);
    mr_dataset_unref(ds);
    mr_check(there("f.cache"));
    put_file("words", "b\nc\na\n");
    refused(graph(text), "words,_which_had_4_bytes_then_and_has_6_now", NULL);
}

MR_TEST(strict_compares_times_too)
{
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 5}};
    put_file("in", "one\n");
    mr_eq_i64(utimensat(AT_FDCWD, mr_test_path("in"), times, 0), 0);
    shows(graph("text_line(\"@/in\").cache(\"@/f\")"), "\"one\"");
    shows(graph("text_line(\"@/in\").cache(\"@/f\", strict=true)"), "\"one\"");
    times[1].tv_nsec++;
    mr_eq_i64(utimensat(AT_FDCWD, mr_test_path("in"), times, 0), 0);
    shows(graph("text_line(\"@/in\").cache(\"@/f\")"), "\"one\"");
    refused(graph("text_line(\"@/in\").cache(\"@/f\", strict=true)"),
            "in,_which_has_been_written_since", "f.cache");
}

/* save writes what version 0.1 wrote of a cache too. */
MR_TEST(a_file_of_an_earlier_version_is_read_with_a_warning)
{
    char from[1200];
    free(show(graph("range(3).save(\"@/f\")")));
    snprintf(from, sizeof from, "%s", mr_test_path("f/elements.mre"));
    mr_eq_i64(rename(from, mr_test_path("g.cache")), 0);
    mr_eq_i64(take_only(graph("range(3).map(x => x * 2).cache(\"@/g\")"), 3, 1, 2), 1);
    shows(graph("range(3).map(x => x * 2).cache(\"@/g\")"), "0 1 2");
}

/* Bytes of what it was made from that were changed or cut. */
MR_TEST(a_damaged_origin_is_an_error)
{
    char path[1200];
    put_file("in", "one\n");
    free(show(graph("text_line(\"@/in\").cache(\"@/f\")")));
    snprintf(path, sizeof path, "%s", mr_test_path("f.cache"));
    FILE *f = fopen(path, "r+");
    mr_check(f != NULL);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    for (long at = size - 34; at > size - 60; at--) {
        mr_test_context("byte %ld of %ld", at, size);
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 1, f);
        fflush(f);
        char *got = show(graph("text_line(\"@/in\").cache(\"@/f\").ignore_errors()"));
        mr_has_str(got, "damaged");
        free(got);
        fseek(f, at, SEEK_SET);
        fputc(c, f);
    }
    fclose(f);
    shows(graph("text_line(\"@/in\").cache(\"@/f\")"), "\"one\"");
}

/* ---- datasets in files ---- */

static mr_code build(const char *text, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(datasets_are_loaded_only_if_the_user_says_so)
{
    mr_status st;
    shows(graph("range(4).window(2).save(\"@/f\")"), "{0,1} {2,3}");
    mr_code_is(build(graph("load(\"@/f\")"), &st), MR_PERMISSION_DENIED, &st);
    mr_has_str(st.message, "allow_datasets=true");
    mr_code_is(build(graph("load(\"@/f\", allow_datasets=false)"), &st), MR_PERMISSION_DENIED, &st);
    shows(graph("load(\"@/f\", allow_datasets=true).flat_map(w => w)"), "0 1 2 3");
    shows(graph("range(4).map(x => (x, range(x))).save(\"@/f\")"),
          "(0,{}) (1,{0}) (2,{0,1}) (3,{0,1,2})");
    mr_code_is(build(graph("load(\"@/f\").map((x, d) => x)"), &st), MR_PERMISSION_DENIED, &st);
    put_file("in", "one\n");
    shows(graph("from_tensors(\"@/in\").map(f => text_line(f)).save(\"@/f\")"), "{\"one\"}");
    shows(graph("load(\"@/f\", allow_datasets=true).flat_map(d => d)"), "\"one\"");
    /* a file that is read again is not asked about, so it holds none */
    mr_code_is(build(graph("range(4).window(2).cache(\"@/g\")"), &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(build(graph("range(4).window(2).snapshot(\"@/g\")"), &st), MR_INVALID_ARGUMENT, &st);
    shows(graph("range(4).window(2).cache().flat_map(w => w)"), "0 1 2 3");
}

MR_TEST(datasets_that_write_are_not_stored)
{
    static const char *const graphs[] = {
        "range(2).map(x => range(3).save(\"@/w\"))",
        "range(2).map(x => range(3).snapshot(\"@/w\").batch(2))",
        "range(2).map(x => range(3).cache(\"@/w\"))",
        "range(2).map(x => range(3).cache(format(\"{}/w\", \"@\")))",
        "range(2).map(x => tfrecord(\"@/in\", on_corrupt=\"skip\", quarantine=\"@/w\"))",
        "range(2).map(x => range(3).flat_map(y => range(2).save(\"@/w\")))",
        "range(2).map(x => range(3).window(2).map(w => w.map(y => y).save(\"@/w\")))"};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s.save(\"@/f\")", graphs[i]);
        clean();
        refused(graph(text), "which_writes_files", NULL);
        mr_check(!there("f/elements.mre"));
    }
}
