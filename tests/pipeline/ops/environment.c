/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the environment end the pipeline, whatever ops follow; errors of elements do not. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/system/system.h"
#include "tests/events.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

/* ---- a graph with its tail ---- */

/* Runs text to its end and compares its events; `threads` of its pool. */
static void run_with(const char *text, const char *expected, int64_t threads)
{
    mr_events e = {0}, wanted = {0};
    mr_iterator *it = NULL;
    mr_status st;
    mr_test_context("%s: %d threads", text, (int)threads);
    mr_dataset *ds = mr_drive_build(text);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = threads, .has_threads = true},
                           &st),
          &st);
    mr_events_run(&e, it, 3, 1000);
    mr_events_split(&wanted, expected);
    char *got = mr_events_join(&e);
    bool same = e.n == wanted.n;
    for (size_t i = 0; same && i < e.n; i++)
        same = mr_event_is(e.v[i].text, wanted.v[i].text);
    if (!same)
        mr_fail_test("expected %s, got %s", expected, got);
    free(got);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_events_reset(&e, 0);
    mr_events_reset(&wanted, 0);
    mr_test_context("%s", "");
}

static void run(const char *text, const char *expected)
{
    run_with(text, expected, 0);
    run_with(text, expected, 3);
}

/* `source` gives one error of no element and nothing else, whatever follows it. */
static void ends_through_all(const char *source, const char *part)
{
    static const char *const tails[] = {
        "%s.ignore_errors()",
        "%s.map(x => 1).ignore_errors()",
        "%s.map(x => 1, num_parallel_calls=2).ignore_errors()",
        "%s.filter(x => true).map(x => 1).batch(2).ignore_errors()",
        "%s.map(x => 1).padded_batch(2).unbatch().ignore_errors()",
        "%s.prefetch(2).map(x => 1).prefetch(auto).ignore_errors()",
        "%s.map(x => 1).shuffle(3, seed=1).ignore_errors()",
        "%s.repeat(2).ignore_errors().repeat(2)",
        "%s.repeat().ignore_errors().take(4)",
        "%s.cache().map(x => 1).ignore_errors()",
        "%s.map(x => 1).concatenate(range(3)).ignore_errors()",
        "zip(%s, range(4)).map(x => 1).ignore_errors()",
        "zip(range(4), %s).map(x => 1).ignore_errors()",
        "%s.skip(1).take(2).ignore_errors()",
        "%s.map(x => 1).window(2, drop_remainder=true).flat_map(w => w).ignore_errors()",
        "%s.map(x => 1).group_by_window(x => x, (k, w) => w, 2).ignore_errors()",
        "%s.map(x => 1).scan(0, (s, x) => (s + x, s)).ignore_errors()",
        "%s.enumerate().take_while(x => true).map(x => 1).unique().ignore_errors()",
        ("choose_from_datasets([%s.map(x => 1), range(3)], from_tensor_slices([0, 1, 0])"
         ".ignore_errors()).ignore_errors()"),
        "sample_from_datasets([%s.map(x => 1)], seed=1).ignore_errors()",
        "mix({\"a\": %s.map(x => 1)}, seed=1).ignore_errors()",
        "%s.map(x => 1).shard(2, 0).assert_cardinality(9).ignore_errors()",
        "%s.map(x => range(2)).flat_map(d => d).ignore_errors()",
        "%s.ignore_errors(max=0).ignore_errors().ignore_errors(max=5)",
    };
    char wanted[128];
    snprintf(wanted, sizeof wanted, "!%s", part);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char text[1024];
        snprintf(text, sizeof text, tails[i], source);
        run(text, wanted);
    }
    mr_status last;
    mr_drive_error(source, &last);
    mr_check(mr_status_is_of_no_element(&last));
}

MR_TEST(no_file_matches_ends_the_pipeline)
{
    ends_through_all(mr_drive_path("text_line(\"@/none-*\")"), "no_file_matches");
}

MR_TEST(a_missing_file_ends_the_pipeline)
{
    ends_through_all(mr_drive_path("text_line(\"@/none\")"), "cannot_open");
}

/* Every reader of files, with names and with patterns that match nothing. */
MR_TEST(every_source_ends_at_what_it_was_given)
{
    static const char *const sources[] = {
        "tfrecord(\"@/none\")",
        "tfrecord(\"@/none-*\")",
        "tfrecord([\"@/none\", \"@/none-2\"], num_parallel_reads=2)",
        "tfrecord(\"@/none-*\", num_parallel_reads=2)",
        "tfrecord(\"@/none\", record_range=[0, 2])",
        "tfrecord(\"@/none\").global_shuffle(seed=1)",
        "tfrecord(\"@/none-*\").global_shuffle(seed=1)",
        "tfrecord(\"@/none\", record_compression=\"ZSTD\")",
        "fixed_length_record(\"@/none\", 4)",
        "files(\"@/none\")",
        "files(\"@/none-*\")",
        "jsonl(\"@/none\", {\"a\": int64})",
        "csv(\"@/none-*\", {\"a\": int64})",
        "csv(\"@/none\", {\"a\": int64})",
        "arrow(\"@/none\", schema={\"a\": int64})",
        "parquet(\"@/none\", schema={\"a\": int64})",
        "parquet(\"@/none-*\", schema={\"a\": int64})",
        "tar(\"@/none\", members=[\"txt\"])",
        "list_files(\"@/none-*\")",
        "image_folder(\"@/none\")",
        "range(3).flat_map(i => text_line(\"@/none\"))",
        "range(3).interleave(i => tfrecord(\"@/none\"), cycle_length=2, num_parallel_calls=2)",
        "range(3).flat_map(i => list_files(\"@/none-*\"))",
        "range(3).map(x => lookup(\"a\", \"@/none\"))",
        "range(3).map(x => lookup(\"a\", \"@/none\", default=0))",
        "range(3).map(x => read_file(\"@/none\"))",
        "range(3).map(x => discretization(cast(x, \"float32\"), \"@/none\"))",
        "range(3).cache(\"@/none/c\")",
        "range(3).flat_map(i => range(3).snapshot(\"@/none/c\"))",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char text[1024];
        const char *source = mr_drive_path(sources[i]);
        run(source, "!not_found");
        snprintf(text, sizeof text, "%s.map(x => 1).ignore_errors().batch(2).prefetch(2)", source);
        run(text, "!not_found");
    }
}

MR_TEST(an_encoding_that_is_not_read_ends_the_pipeline)
{
    mr_drive_bytes("u16",
                   "\xFF\xFE"
                   "1\0\n\0",
                   6);
    mr_drive_file("u8", "1\n");
    static const char *const sources[] = {
        "text_line([\"@/u8\", \"@/u16\", \"@/u8\"])",
        "from_tensor_slices([\"@/u8\", \"@/u16\", \"@/u8\"]).flat_map(f => text_line(f))",
        "csv([\"@/u8\", \"@/u16\"], [bytes], header=false)",
        ("jsonl(\"@/u8\", {\"a\": feature(int64, default=1)}).take(0)"
         ".concatenate(csv([\"@/u8\", \"@/u16\"], {\"a\": int64}, header=false))"),
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s.map(x => 1).ignore_errors()", mr_drive_path(sources[i]));
        run(text, "1 !unimplemented");
    }
}

/* ---- names that are elements ---- */

MR_TEST(where_the_name_is_an_element_the_next_file_follows)
{
    mr_drive_file("a", "a1\na2\n");
    mr_drive_file("b", "b1\n");
    static const char *const readers[] = {"text_line(f)", "text_line(f).map(x => x)",
                                          "text_line([f]).prefetch(1)",
                                          "files(f).map(x => x[\"contents\"]).flat_map(t => "
                                          "from_tensor_slices(split(t, \"\\n\"))).filter(x => "
                                          "x != \"\")"};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "from_tensor_slices([\"@/a\", \"@/none\", \"@/b\"]).flat_map(f => %s)",
                 readers[i]);
        run(mr_drive_path(text), "\"a1\" \"a2\" !cannot_open \"b1\"");
        strcat(text, ".ignore_errors()");
        run(mr_drive_path(text), "\"a1\" \"a2\" \"b1\"");
    }
    mr_drive(
        mr_drive_path("from_tensor_slices([\"@/a\", \"@/none\", \"@/b\"]).interleave(text_line,"
                      " cycle_length=2).ignore_errors()"),
        "\"a1\" \"a2\" \"b1\"");
    mr_drive(mr_drive_path("from_tensor_slices([\"@/none-*\", \"@/[ab]\"]).flat_map(list_files)"
                           ".flat_map(text_line).ignore_errors()"),
             "\"a1\" \"a2\" \"b1\"");
    mr_drive(mr_drive_path("from_tensor_slices([\"@/a\", \"@/none\"]).map(read_file)"),
             "\"a1\na2\n\" !cannot_open");
    mr_drive(mr_drive_path("from_tensor_slices([\"@/none\", \"@/b\"]).map(read_file)"
                           ".ignore_errors().map(length)"),
             "3");
    mr_drive(mr_drive_path("from_tensor_slices([\"@/none\"]).flat_map(f => tfrecord(f, "
                           "num_parallel_reads=2)).ignore_errors()"),
             "");
    mr_drive(mr_drive_path("from_tensor_slices([\"@/none\"]).flat_map(f => tfrecord(f, "
                           "record_range=[0, 1])).ignore_errors()"),
             "");
}

static mr_code lines_of(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    char path[512];
    const mr_bytes *name = in->columns[0].data;
    snprintf(path, sizeof path, "%.*s", (int)name->size, name->data);
    mr_dataset *ds = mr_text_line((const char *[]){path}, 1, NULL);
    mr_code rc = mr_block_prepare(out, 1, st);
    if (rc == MR_OK)
        rc = mr_array_alloc_datasets(&out->columns[0], 1, st);
    if (rc != MR_OK)
        mr_dataset_unref(ds);
    else
        *(mr_dataset **)out->columns[0].data = ds;
    out->rows = rc == MR_OK;
    return rc;
}

MR_TEST(a_function_in_c_makes_readers_of_elements)
{
    mr_drive_file("a", "a1\n");
    mr_drive_file("b", "b1\n");
    mr_spec *lines = mr_spec_dataset(mr_spec_scalar(MR_STRING));
    mr_fn *fn = mr_fn_element(lines_of, NULL, &(mr_fn_opts){.out = lines});
    mr_spec_unref(lines);
    mr_dataset *ds = mr_flat_map(
        mr_drive_build(mr_drive_path("from_tensor_slices([\"@/a\", \"@/none\", \"@/b\"])")), fn);
    mr_drive_dataset(mr_ignore_errors(ds, NULL), "\"a1\" \"b1\"");
}

/* A name of a folder, a socket or an endless chain of links, in every reader. */
MR_TEST(what_is_no_file_is_as_a_missing_one)
{
    static const char *const sources[] = {
        "tfrecord(%s)",
        "text_line(%s)",
        "fixed_length_record(%s, 4)",
        "files(%s)",
        "jsonl(%s, {\"a\": int64})",
        "csv(%s, {\"a\": int64})",
        "arrow(%s, schema={\"a\": int64})",
        "parquet(%s, schema={\"a\": int64})",
        "npy(%s, schema=int64)",
        "npz(%s, arrays=[\"a\"], schema={\"a\": int64})",
        "tar(%s, members=[\"txt\"])",
    };
    static const char *const names[] = {"@/folder", "@/folder/", "@/fold*", "@/socket", "@/round"};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", mr_test_path("socket"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    mr_check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    mr_check(mkdir(mr_test_path("folder"), 0755) == 0);
    mr_check(symlink("round", mr_test_path("round")) == 0);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            char name[64], text[256];
            mr_status last;
            snprintf(name, sizeof name, "\"%s\"", names[k]);
            snprintf(text, sizeof text, sources[i], name);
            strcat(text, ".map(x => 1).ignore_errors()");
            mr_test_context("%s", text);
            mr_drive_error(mr_drive_path(text), &last);
            mr_check(mr_status_is_of_no_element(&last));
            snprintf(text, sizeof text, sources[i], "f");
            if (strstr(names[k], "*"))
                continue;
            char outer[512];
            snprintf(outer, sizeof outer, "from_tensor_slices([%s]).flat_map(f => %s.map(x => 1))",
                     name, text);
            strcat(outer, ".ignore_errors()");
            run(mr_drive_path(outer), "");
        }
    close(fd);
}

MR_TEST(a_forbidden_file_is_as_a_missing_one)
{
    if (geteuid() == 0)
        mr_skip_test("root may read everything");
    mr_drive_file("a", "a1\n");
    mr_drive_file("closed", "c1\n");
    mr_check(chmod(mr_test_path("closed"), 0) == 0);
    run(mr_drive_path("text_line([\"@/a\", \"@/closed\", \"@/a\"]).ignore_errors()"),
        "\"a1\" !permission_denied");
    run(mr_drive_path("from_tensor_slices([\"@/a\", \"@/closed\", \"@/a\"]).flat_map(text_line)"
                      ".ignore_errors()"),
        "\"a1\" \"a1\"");
    mr_check(mkdir(mr_test_path("folder"), 0) == 0);
    run(mr_drive_path("text_line(\"@/folder/*\").ignore_errors()"), "!cannot_list");
    run(mr_drive_path("text_line(\"@/*/x\").ignore_errors()"), "!cannot_access");
}

/* ---- what the system lacks ---- */

static atomic_int lacks; /* other threads read it */
static const char *lacks_at;

static int scarce_open(const char *path, int flags, mode_t mode)
{
    if (lacks && strstr(path, lacks_at)) {
        errno = lacks;
        return -1;
    }
    return mr__system_real()->open(path, flags, mode);
}

static ssize_t scarce_write(int fd, const void *buf, size_t n)
{
    (void)buf;
    (void)n;
    errno = lacks;
    return lacks ? -1 : mr__system_real()->write(fd, buf, n);
}

MR_TEST(what_the_system_lacks_ends_the_pipeline)
{
    static const int lack[] = {EMFILE, ENFILE, ENOSPC, EDQUOT};
    mr_drive_file("a", "a1\na2\n");
    mr_drive_file("b", "b1\n");
    mr__system table = *mr__system_real();
    table.open = scarce_open;
    lacks_at = "/b";
    mr__system_set(&table);
    for (size_t i = 0; i < sizeof lack / sizeof *lack; i++) {
        lacks = lack[i];
        run(mr_drive_path("from_tensor_slices([\"@/a\", \"@/b\", \"@/a\"]).flat_map(text_line)"
                          ".ignore_errors()"),
            "\"a1\" \"a2\" !resource_exhausted");
        run(mr_drive_path("from_tensor_slices([\"@/b\", \"@/a\"]).map(read_file)"
                          ".map(length).ignore_errors()"),
            "!resource_exhausted");
        run(mr_drive_path("from_tensor_slices([\"@/a\", \"@/b\", \"@/a\"]).interleave(text_line, "
                          "cycle_length=2, num_parallel_calls=2).ignore_errors().take(9)"),
            "\"a1\" !resource_exhausted");
    }
    lacks = 0;
    mr__system_set(NULL);
}

MR_TEST(a_full_disk_ends_the_pipeline)
{
    mr__system table = *mr__system_real();
    table.write = scarce_write;
    lacks = ENOSPC;
    mr__system_set(&table);
    static const char *const graphs[] = {"range(100000).cache(\"@/c\").ignore_errors()",
                                         "range(100000).snapshot(\"@/s\").ignore_errors()",
                                         "range(100000).save(\"@/e\").ignore_errors()"};
    for (size_t i = 0; i < 3; i++) {
        mr_status last;
        mr_drive_error(mr_drive_path(graphs[i]), &last);
        mr_code_is(last.code, MR_RESOURCE_EXHAUSTED, &last);
        mr_check(mr_status_is_of_no_element(&last));
    }
    lacks = 0;
    mr__system_set(NULL);
}

/* x, unless it is 5 while the system lacks something. */
static mr_code scarce(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    const int64_t *x = in->columns[0].data;
    int lack = lacks;
    (void)ctx;
    for (size_t i = 0; i < in->rows; i++)
        if (lack && x[i] == 5)
            return mr_fail_errno(st, lack, "no room for %d", 5);
    return mr_block_slice(out, in, 0, in->rows, st);
}

static mr_code scarce_next(void *ctx, void *pass, size_t max_rows, mr_block *out, mr_status *st)
{
    int64_t *at = pass;
    (void)ctx;
    (void)max_rows;
    if (*at == 9)
        return MR_END;
    int lack = lacks;
    if (lack && *at == 5)
        return mr_fail_errno(st, lack, "no room for %d", 5);
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = (*at)++;
    out->rows = 1;
    return MR_OK;
}

static mr_code scarce_open_pass(void *ctx, void **pass, mr_status *st)
{
    (void)ctx;
    *pass = mr_calloc(1, sizeof(int64_t));
    return *pass ? MR_OK : mr_fail_memory(st, sizeof(int64_t), "a pass");
}

static void scarce_close(void *ctx, void *pass)
{
    (void)ctx;
    mr_free(pass);
}

static mr_code scarce_save(void *ctx, void *pass, void **bytes, size_t *n, mr_status *st)
{
    (void)ctx;
    *n = sizeof(int64_t);
    if (!(*bytes = mr_malloc(*n)))
        return mr_fail_memory(st, *n, "a pass");
    memcpy(*bytes, pass, *n);
    return MR_OK;
}

static mr_code scarce_restore(void *ctx, void *pass, const void *bytes, size_t n, mr_status *st)
{
    (void)ctx;
    (void)st;
    memcpy(pass, bytes, n);
    return MR_OK;
}

/* The elements of ds, in two parts if `lack` ends the first. Owned: free. */
static char *in_parts(mr_dataset *ds, int lack, int64_t threads)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_events e = {0};
    void *bytes;
    size_t size;
    const mr_iterator_opts o = {
        .positions = true, .has_threads = true, .threads = threads, .has_seed = true};
    lacks = lack;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    while (mr_events_pull(&e, it, 3, &b) != MR_END)
        ;
    lacks = 0;
    if (lack) {
        mr_check(e.n > 0 && mr_event_is(e.v[e.n - 1].text, "!no_room_for_5"));
        mr_events_reset(&e, e.n - 1);
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
        mr_free(bytes);
        mr_events_run(&e, it, 3, 100);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    char *text = mr_events_join(&e);
    mr_events_reset(&e, 0);
    return text;
}

static void continues(mr_dataset *ds)
{
    ds = mr_ignore_errors(ds, NULL);
    for (int64_t threads = 0; threads < 4; threads += 3) {
        char *all = in_parts(ds, 0, threads), *parts = in_parts(ds, EMFILE, threads);
        mr_check(strlen(all) > 0);
        mr_eq_str(parts, all);
        free(all);
        free(parts);
    }
    mr_dataset_unref(ds);
}

MR_TEST(what_callbacks_lack_is_in_no_position)
{
    static const char *const graphs[] = {
        "range(9).map(@)",
        "range(9).map(@, num_parallel_calls=2)",
        "range(9).map(x => x + 0 // (x - 2)).map(@)",
        "range(9).map(x => @(x) + 12 // (x - 2))",
        "range(9).filter(x => @(x) != 3)",
        "range(9).flat_map(x => range(@(x)))",
        "range(9).interleave(x => range(@(x)), cycle_length=2)",
        "range(9).interleave(x => range(@(x)), cycle_length=2, num_parallel_calls=2)",
        "range(9).take_while(x => @(x) < 8)",
        "range(9).scan(0, (s, x) => (s + @(x), s))",
        "range(9).group_by_window(x => @(x) % 2, (k, w) => w, 2)",
        "range(9).group_by_window(x => x % 2, (k, w) => w.map(@), 2)",
        "range(9).rejection_resample(x => @(x) % 2, [1, 2], seed=1)",
        "range(9).bucket_by_sequence_length(x => @(x), [4], [2, 2])",
        "range(9).window(4).flat_map(w => w.map(@)).shuffle(3, seed=1)",
        "range(9).map(@).batch(2).prefetch(2)",
        "zip(range(9).map(@), range(9)).cache()",
        "range(4).concatenate(range(9).map(@)).repeat(2)",
    };
    const mr_fn_opts opts = {0};
    mr_fn *element = mr_fn_element(scarce, NULL, &opts), *block = mr_fn_block(scarce, NULL, &opts);
    mr_status st;
    mr_ok(mr_fn_register("scarce_element", element, &st), &st);
    mr_ok(mr_fn_register("scarce_block", block, &st), &st);
    for (size_t i = 0; i < 2 * sizeof graphs / sizeof *graphs; i++) {
        char text[200];
        const char *graph = graphs[i / 2], *at = strchr(graph, '@');
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - graph), graph,
                 i % 2 ? "scarce_element" : "scarce_block", at + 1);
        mr_test_context("%s", text);
        continues(mr_drive_build(text));
    }
    mr_fn_unref(block);
    mr_fn_unref(element);
    mr_spec *number = mr_spec_scalar(MR_INT64);
    for (int blocks = 0; blocks < 2; blocks++) {
        const mr_generator g = {.next = scarce_next,
                                .open = scarce_open_pass,
                                .close = scarce_close,
                                .save = scarce_save,
                                .restore = scarce_restore,
                                .may_block = blocks};
        mr_test_context("a generator, %d", blocks);
        continues(mr_batch(mr_from_generator(&g, number), 2, NULL));
    }
    mr_spec_unref(number);
}

/* ---- caches ---- */

MR_TEST(a_failed_input_completes_no_cache)
{
    run(mr_drive_path("text_line(\"@/none\").cache(\"@/c\").prefetch(3)"), "!cannot_open");
    run(mr_drive_path("text_line(\"@/none\").cache().prefetch(3).repeat(2)"), "!cannot_open");
    mr_check(access(mr_test_path("c.cache"), F_OK) != 0);
    mr_drive_file("none", "n1\n");
    run(mr_drive_path("text_line(\"@/none\").cache(\"@/c\").prefetch(3)"), "\"n1\"");
}

MR_TEST(a_cache_of_another_type_ends_the_pipeline)
{
    run_with(mr_drive_path("range(3).cache(\"@/c\")"), "0 1 2", 0);
    run(mr_drive_path("range(3).map(x => \"s\").cache(\"@/c\").ignore_errors()"),
        "!holds_elements_of");
}

MR_TEST(a_damaged_cache_ends_the_pipeline)
{
    mr_status last;
    free(mr_drive_show(mr_drive_path("range(9000).cache(\"@/c\")")));
    mr_check(truncate(mr_test_path("c.cache"), 9000) == 0);
    mr_drive_error(mr_drive_path("range(9000).cache(\"@/c\").ignore_errors()"), &last);
    mr_code_is(last.code, MR_DATA_LOSS, &last);
    mr_check(mr_status_is_of_no_element(&last));
}

MR_TEST(a_cache_that_is_written_elsewhere_ends_the_pipeline)
{
    mr_iterator *writer = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build(mr_drive_path("range(3).cache(\"@/c\")"));
    mr_ok(mr_iterator_open(&writer, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(writer, 1, &b, &st), &st);
    run(mr_drive_path("range(3).cache(\"@/c\").ignore_errors()"), "!being_written");
    mr_block_reset(&b);
    mr_iterator_close(writer);
    mr_dataset_unref(ds);
}

/* ---- an op that cannot be opened ---- */

static int opened;

static mr_code open_once(mr_iter *it, mr_status *st)
{
    (void)it;
    return opened++ ? mr_fail(st, MR_INVALID_ARGUMENT, "opened twice") : MR_OK;
}

static mr_code pass(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr_iter_pull(it, 0, want, out, st);
}

static const mr_op once = {.abi = MR_ABI_VERSION,
                           .name = "once",
                           .doc = "Can be opened once.",
                           .min_inputs = 1,
                           .max_inputs = 1,
                           .role = MR_ROLE_PASS,
                           .open = open_once,
                           .next = pass};

/* Pulled again, it would fail again, for ever. */
MR_TEST(an_op_that_failed_to_open_stays_failed)
{
    for (int i = 0; i < 2; i++) {
        mr_dataset *input = mr_test_graph("range(2)"), *two;
        mr_dataset *ds = mr_dataset_new(&once, NULL, &input, 1);
        if (i == 0) {
            two = mr_repeat(ds, 3);
        } else {
            input = mr_dataset_ref(ds);
            two = mr_concatenate(ds, input);
        }
        mr_events e = {0};
        mr_iterator *it = NULL;
        mr_status st;
        opened = 0;
        two = mr_ignore_errors(two, NULL);
        mr_ok(mr_iterator_open(&it, two, NULL, &st), &st);
        mr_events_run(&e, it, 5, 100);
        mr_eq_u64(e.n, 3);
        mr_eq_str(e.v[1].text, "1");
        mr_check(mr_event_is(e.v[2].text, "!opened_twice"));
        mr_iterator_close(it);
        mr_dataset_unref(two);
        mr_events_reset(&e, 0);
    }
}

/* ---- after the error ---- */

MR_TEST(a_position_saved_after_it_tries_again)
{
    mr_drive_file("a", "a1\na2\n");
    static const char *const graphs[] = {
        "text_line([\"@/a\", \"@/late\"])",
        "text_line([\"@/a\", \"@/late\"]).prefetch(2).batch(1).unbatch()",
        "range(2).interleave(i => text_line([\"@/a\", \"@/late\"]), cycle_length=1).take(3)",
        ("from_tensor_slices([\"a1\", \"a2\"]).map(x => (x, lookup(x, \"@/late\")), "
         "num_parallel_calls=2).map((x, i) => x).concatenate(text_line(\"@/late\"))"),
    };
    static const char *const expected[] = {"\"a1\" \"a2\" ! \"l1\"", "\"a1\" \"a2\" ! \"l1\"",
                                           "\"a1\" \"a2\" ! \"l1\"", "! \"a1\" \"a2\" \"l1\""};
    for (size_t i = 0; i < 4; i++) {
        mr_iterator *it = NULL;
        mr_status st;
        mr_block b = MR_BLOCK_EMPTY;
        mr_events e = {0}, wanted = {0};
        void *bytes;
        size_t size;
        mr_test_context("%s", graphs[i]);
        mr_dataset *ds = mr_drive_build(mr_drive_path(graphs[i]));
        mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = true}, &st), &st);
        while (mr_events_pull(&e, it, 1, &b) != MR_END)
            ;
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        mr_drive_file("late", "l1\n");
        mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
        mr_events_run(&e, it, 2, 100);
        mr_events_split(&wanted, expected[i]);
        char *got = mr_events_join(&e);
        mr_test_context("%s: %s", graphs[i], got);
        mr_eq_u64(e.n, wanted.n);
        for (size_t k = 0; k < e.n; k++)
            mr_check(mr_event_is(e.v[k].text, wanted.v[k].text));
        free(got);
        mr_free(bytes);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr_events_reset(&e, 0);
        mr_events_reset(&wanted, 0);
        mr_check(unlink(mr_test_path("late")) == 0);
    }
}

MR_TEST(a_new_pass_tries_again)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build(mr_drive_path("text_line(\"@/late\").ignore_errors()"));
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, NULL);
    mr_drive_file("late", "l1\n");
    mr_ok(mr_iterator_rewind(it, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
