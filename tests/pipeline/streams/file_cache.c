/* SPDX-License-Identifier: Apache-2.0 */
/* Files of elements through the ops that write and read them: positions while they are written,
 * two writers, damage, faults of system calls and crashes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
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
    shows(graph("range(0).map(x => (x, \"t\")).cache(\"@/a\")"),
          "(-3,\"s\") (-6,\"s\") (6,\"s\") (3,\"s\")");
    shows(graph("range(0).cache(\"@/empty\").repeat(2)"), "");
    shows(graph("range(5).cache(\"@/empty\")"), "");
    shows(graph("range(3).map(x => ones([x])).snapshot(\"@/n\").repeat(2)"),
          "[] [1] [1,1] [] [1] [1,1]");
    shows(graph("range(2).snapshot(\"@/n\")"), "0 1"); /* another graph, another snapshot */
    shows(graph("range(3).save(\"@/s\").repeat(2)"), "0 1 2 0 1 2");
    shows(graph("range(4).map(x => {\"n\": x, \"w\": [\"a\", \"b\"]}).save(\"@/s\")"),
          "(0,[\"a\",\"b\"]) (1,[\"a\",\"b\"]) (2,[\"a\",\"b\"]) (3,[\"a\",\"b\"])");
    shows(graph("load(\"@/s\").map(x => x[\"n\"])"), "0 1 2 3");
    shows(graph("range(4).window(2).save(\"@/d\").take(1)"), "{0,1}");
    mr_check(!there("d/elements.mre"));
    shows(graph("range(4).window(2).save(\"@/d\")"), "{0,1} {2,3}");
    shows(graph("load(\"@/d\")"), "{0,1} {2,3}");
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
    mr_events e = {0};
    mr_dataset *late = mr_test_graph(graph("range(9).cache(\"@/a\")"));
    mr_iterator *it = open_graph(late, true);
    shows(graph("range(3).cache(\"@/a\")"), "0 1 2");
    mr_events_run(&e, it, 2, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(late);
    char *got = mr_events_join(&e);
    mr_eq_str(got, "0 1 2");
    free(got);
    mr_events_reset(&e, 0);
    shows(graph("range(9).cache(\"@/a\")"), "0 1 2");
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
    mr_eq_i64(truncate(path, size - 25), 0); /* without its last record */
    got = show(graph("range(2).cache(\"@/a\").skip(600)"));
    mr_has_str(got, "stops_before_its_end");
    free(got);
    f = fopen(path, "w");
    fclose(f);
    got = show(graph("range(2).cache(\"@/a\")"));
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
