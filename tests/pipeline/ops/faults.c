/* SPDX-License-Identifier: Apache-2.0 */
/* Every op with every allocation failing, and every op that reads files with every system call and
 * every completion failing: in open, next, save, restore and close. One test for each line of
 * ops.def, so that a new op needs a graph here. Asserted of each: the code and the message; that
 * what was delivered before is a prefix of the right output; that going back to the last position
 * saved, and starting again, give the right output; and that no memory and no file is left over. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord/record_index.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/graph/op.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/rows.h"
#include "pipeline/ops/sources.h"
#include "tests/events.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/arrow_file.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/npy_file.h"
#include "tests/pipeline/ops/parquet_table.h"

/* ---- graphs: of each op its example, and these. @ is the test's directory ---- */

enum { DIFFERS = 1 /* another epoch has other elements, not only another order */ };

static const struct graph {
    const char *op, *text;
    int flags;
} graphs[] = {
    {"arrow",
     "arrow([\"@/table.arrow\", \"@/damaged\", \"@/table.stream\", \"@/missing\"]).batch(2)", 0},
    {"arrow",
     "arrow(\"@/packed.arrow\", columns=[\"name\"]).skip(1).map(r => r[\"name\"]).repeat(2)", 0},
    {"assert_cardinality", "range(-2, 3).map(x => 6 // x).assert_cardinality(7).repeat(2)", 0},
    {"batch",
     "from_tensor_slices([\"a\", \"bb\", \"\", \"d\"], [1, 2, 3, 4]).filter((s, n) => n != "
     "2).batch(2).repeat(2)",
     0},
    {"batch", "range(-3, 9).map(x => (6 // x, ones([2]))).batch(4, drop_remainder=true)", 0},
    {"bucket_by_sequence_length",
     "range(1, 8).map(x => (ones([x]), \"s\")).bucket_by_sequence_length((x, s) => 6 // (length(x) "
     "- 4), [2], [2, 3]).repeat(2)",
     0},
    {"cache", "range(-2, 4).map(x => (6 // x, \"s\")).cache().repeat(3)", 0},
    {"cache", "range(5).batch(2).cache().repeat(2).unbatch()", 0},
    {"cache", "range(6).map(x => (x, \"s\")).cache(\"@/kept\").repeat(2)", 0},
    {"choose_from_datasets",
     "choose_from_datasets([range(-2, 3).map(x => (6 // x, \"s\")), range(3).map(x => (x, "
     "\"t\"))], range(9).map(x => 6 // (x - 5) % 3), stop_on_empty_dataset=false).repeat(2)",
     0},
    {"concatenate",
     "range(-1, 3).map(x => 6 // x).concatenate(range(3).filter(x => x > "
     "0)).repeat(2)",
     0},
    {"counter", "zip(counter(5, 3), range(9)).batch(2)", 0},
    {"csv",
     "csv([\"@/rows.csv\", \"@/rows.csv\", \"@/missing\"], {\"b\": bytes, \"a\": feature(int64, "
     "default=-1)}).batch(2)",
     0},
    {"csv", "csv(\"@/rows.csv\", [bytes, bytes, bytes], header=false).skip(1)", 0},
    {"enumerate", "range(-2, 3).map(x => 6 // x).enumerate(start=4).batch(2)", 0},
    {"filter",
     "range(-9, 9).filter(x => 12 // x % 2 == 0, num_parallel_calls=3).map(x => (x, "
     "x)).filter((a, b) => a + b > -9)",
     0},
    {"files", "files(\"@/notes-1.txt\", \"@/notes-2.txt\", \"@/missing\").batch(2)", 0},
    {"files", "files(\"@/*.gz\", compression=\"GZIP\").map(f => f[\"contents\"]).prefetch(1)", 0},
    {"fixed_length_record",
     "fixed_length_record([\"@/fixed.bin\", \"@/fixed.bin\"], 3, "
     "header_bytes=2, footer_bytes=1).batch(2)",
     0},
    {"flat_map", "range(-1, 4).flat_map(n => range(-1, n).map(x => (6 // x, n)).batch(2))", 0},
    {"flat_map", "range(3).flat_map(n => range(3).map(x => ones([x])).shuffle(2, seed=n))", 0},
    {"from_tensor_slices",
     "from_tensor_slices([\"a\", \"b\"], [[1, 2], [3, 4]]).repeat(2).batch(3)", 0},
    {"from_tensors", "from_tensors({\"a\": [1, 2], \"b\": \"s\"}).repeat(3).batch(2)", 0},
    {"global_shuffle", "tfrecord(\"@/train-*\").global_shuffle(seed=1).batch(3).repeat(2)", 0},
    {"global_shuffle",
     "tfrecord(\"@/train-1.tfrecord\", \"@/train-2.tfrecord\", record_range=[1, "
     "2]).global_shuffle(seed=1).skip(1)",
     0},
    {"group_by_window",
     "range(-2, 7).map(x => (6 // x, \"s\")).group_by_window((x, s) => x % 3, (k, w) => "
     "w.batch(2).map((x, s) => (k, 6 // (x - 3))), k => k + 2).repeat(2)",
     0},
    {"group_by_window",
     "range(7).map(x => ones([x])).group_by_window(x => length(x) % 2, (k, w) => w, 3)", 0},
    {"ignore_errors", "range(-3, 4).map(x => 6 // x).ignore_errors(log_warning=true).batch(2)", 0},
    {"image_folder", "image_folder(\"@/classes\", extensions=[\"txt\"]).batch(2).repeat(2)", 0},
    {"interleave",
     "range(-1, 5).interleave(n => range(-1, n).map(x => (6 // x, n)), "
     "cycle_length=3, block_length=2, num_parallel_calls=2)",
     0},
    {"interleave", "range(4).interleave(n => range(n).batch(2).prefetch(1), cycle_length=2)", 0},
    {"jsonl",
     "jsonl([\"@/objects.jsonl\", \"@/missing\"], {\"a\": int64, \"s\": bytes[], \"x\": "
     "feature(float32, shape=[2], default=1.5)}).repeat(2)",
     0},
    {"list_files",
     "list_files(\"@/n*\", \"@/t*\", shuffle=true, seed=3).map(f => "
     "length(decode_raw(f, \"uint8\")) % 10).repeat(2)",
     0},
    {"load", "load(\"@/elements\").map((n, s) => 6 // (n - 2)).repeat(2)", 0},
    {"map",
     "range(-3, 9).map(x => (6 // x, [x, x]), num_parallel_calls=2).map((a, b) => {\"a\": a, "
     "\"b\": sum(b)})",
     0},
    {"map", "range(5).map(n => range(n).map(x => x * n)).flat_map(d => d.batch(2))", 0},
    {"mix",
     "mix({\"a\": range(-2, 3).map(x => 6 // x), \"b\": range(4).shuffle(3, seed=2)}, "
     "weights={\"b\": 1, \"a\": 2}, seed=3, stop=\"repeat\").repeat(2)",
     0},
    {"npy", "npy([\"@/points-0.npy\", \"@/missing\", \"@/turned.npy\"]).batch(2).repeat(2)", 0},
    {"npz", "npz([\"@/arrays-0.npz\", \"@/missing\"], arrays=[\"x\", \"y\"]).repeat(2)", 0},
    {"padded_batch",
     "range(6).map(x => (ones([x]), [\"a\", \"b\"])).padded_batch(4, "
     "padding_values=(-1.0, \"-\")).repeat(2)",
     0},
    {"padded_batch",
     "range(1, 6).map(x => zeros([x, 2])).padded_batch(2, padded_shapes=[4, "
     "none])",
     0},
    {"parquet",
     "parquet([\"@/rows-0.parquet\", \"@/rows-1.parquet\", \"@/missing\"], "
     "columns=[\"x\", \"t\"]).batch(2)",
     0},
    {"parquet", "parquet(\"@/rows-?.parquet\").skip(3).map(r => r[\"s\"])", 0},
    {"prefetch", "range(-3, 9).map(x => 6 // x).prefetch(2).batch(2).prefetch(auto)", 0},
    {"ragged_batch", "range(-2, 6).map(x => (ones([6 // x % 4]), \"s\")).ragged_batch(3).repeat(2)",
     0},
    {"random",
     "zip(random(seed=5, rerandomize_each_iteration=true), range(-2, 5).map(x => 6 // "
     "x)).repeat(2)",
     0},
    {"range", "range(9, -9, -4).repeat(2)", 0},
    {"rebatch", "range(11).batch(4).rebatch([2, 0, 3]).repeat(2)", 0},
    {"rebatch", "range(1, 5).map(x => (ones([x]), zeros([x, 2]))).rebatch(3, drop_remainder=true)",
     0},
    {"rejection_resample",
     "range(-2, 9).map(x => (x, \"s\")).rejection_resample((x, s) => 6 // x % 2, [1, 3], "
     "seed=5).repeat(2)",
     DIFFERS},
    {"repeat", "range(-1, 2).map(x => 6 // x).repeat(3).prefetch(1).repeat(2)", 0},
    {"replica_slices", "range(-5, 8).map(x => 6 // (x + 4)).batch(5).replica_slices(3)", 0},
    {"sample_from_datasets",
     "sample_from_datasets([range(-2, 3).map(x => 6 // x), range(4).map(x => x * 10), range(3)], "
     "weights=[2, 1, 0], seed=3, rerandomize_each_iteration=true).repeat(2)",
     0},
    {"save", "range(-2, 4).map(x => (6 // x, \"s\")).save(\"@/saved\").repeat(2)", 0},
    {"scan",
     "range(-2, 6).map(x => (6 // x, \"s\")).scan((0, [1]), (s, x) => ((s[0] + 6 // (x[0] - 3), "
     "concat(s[1], [x[0]])), (s, x[1]))).repeat(2)",
     0},
    {"shard",
     "range(-4, 9).map(x => 6 // x).shard(3, 1).batch(2).shard(2, 1, "
     "require_non_empty=true)",
     0},
    {"shuffle", "range(-2, 9).map(x => (6 // x, \"s\")).shuffle(4, seed=5).repeat(2)", 0},
    {"shuffle", "range(7).map(x => ones([x])).shuffle(3, seed=5, reshuffle_each_iteration=false)",
     0},
    {"skip", "range(-2, 9).map(x => 6 // x).skip(3).repeat(2)", 0},
    {"snapshot", "range(3).map(x => (x, \"s\")).snapshot(\"@/snapshots\").repeat(2)", 0},
    {"split", "range(-2, 9).map(x => (6 // x, \"s\")).split([0.6, 0.4]).batch(2).repeat(2)", 0},
    {"take", "range(-2, 9).shuffle(4, seed=1).map(x => 6 // x).take(4).repeat(2)", DIFFERS},
    {"take_while",
     "range(-2, 9).map(x => (6 // x, \"s\")).take_while((x, s) => 12 // (x - 6) < 3).repeat(2)", 0},
    {"tar", "tar(\"@/a-1.tar\", \"@/damaged\", \"@/a-2.tar\", \"@/missing\").batch(2)", 0},
    {"tar", "tar(\"@/a-*.tar\", members=[\"txt\"]).map(r => r[\"txt\"]).repeat(2)", 0},
    {"text_line", "text_line([\"@/notes-1.txt\", \"@/notes-2.txt\", \"@/missing\"]).batch(2)", 0},
    {"text_line", "text_line(\"@/*.gz\", compression=\"GZIP\").prefetch(1)", 0},
    {"tfrecord",
     "tfrecord(\"@/train-1.tfrecord\", \"@/damaged\", \"@/train-2.tfrecord\", "
     "num_parallel_reads=2)",
     0},
    {"tfrecord", "list_files(\"@/train-*d\").interleave(tfrecord, cycle_length=2).batch(2)", 0},
    {"tfrecord",
     "tfrecord(\"@/damaged\", \"@/train-1.tfrecord\", on_corrupt=\"skip\", "
     "quarantine=\"@/bad\").batch(2)",
     0},
    {"tfrecord", "tfrecord(\"@/train-*\").skip(2).batch(2)", 0},
    {"tfrecord", "tfrecord(\"@/train-*\", record_range=[1, 2]).repeat(2)", 0},
    {"tfrecord", "tfrecord(\"@/records.gz\", compression=\"GZIP\").repeat(2)", 0},
    {"tfrecord", "tfrecord(\"@/records.zz\", compression=\"ZLIB\").take(5)", 0},
    {"tfrecord", "tfrecord(\"@/records.zst\", compression=\"ZSTD\").batch(2)", 0},
    {"unbatch", "range(5).map(x => (ones([x]), zeros([x, 2]))).unbatch().batch(3)", 0},
    {"unbatch", "range(11).batch(4).map(x => 12 // (x - 6)).unbatch().repeat(2)", 0},
    {"unique", "range(-3, 9).map(x => 6 // x % 3).unique().repeat(2)", 0},
    {"unique", "from_tensor_slices([\"a\", \"b\", \"a\", \"\", \"b\", \"c\"]).batch(2).unique()",
     0},
    {"window",
     "range(-2, 7).map(x => (6 // x, x)).window(3, shift=2, stride=2).flat_map((a, b) => "
     "zip(a, b.batch(2)))",
     0},
    {"with_options", "range(-2, 3).map(x => 6 // x).with_options(deterministic=true).prefetch(2)",
     0},
    {"zip",
     "zip(range(-2, 4).map(x => 6 // x), from_tensor_slices([\"a\", \"b\", \"c\", \"d\", "
     "\"e\"])).repeat(2)",
     0},
};

static mr_code next_numbers(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)pass;
    int64_t *next = ctx;
    if (*next % 8 == 7) { /* the end of a pass */
        ++*next;
        return MR_END;
    }
    size_t n = want < 2 ? 1 : 2;
    if (*next % 8 + (int64_t)n > 7)
        n = 1;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    for (size_t i = 0; i < n; i++)
        ((int64_t *)out->columns[0].data)[i] = (*next)++ % 8;
    out->rows = n;
    return MR_OK;
}

static int64_t generated;

static mr_dataset *generator(void)
{
    generated = 0;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = NULL;
    if (spec)
        ds = mr_from_generator(&(mr_generator){.ctx = &generated, .next = next_numbers}, spec);
    mr_spec_unref(spec);
    return ds;
}

static int64_t numbers[] = {3, 1, 4, 1, 5};
static const mr_array column = {.dtype = MR_INT64, .rows = 5, .data = numbers};

static mr_dataset *arrays(void)
{
    return mr_batch(mr_from_arrays(&column, NULL, 1), 2, NULL);
}

static mr_dataset *held_rows(void)
{
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_array columns[] = {column};
    mr_block b = {.rows = 5, .n_columns = 1, .columns = columns};
    mr_dataset *ds = spec ? mr__rows_dataset(&b, spec) : NULL;
    mr_spec_unref(spec);
    return ds;
}

static const struct made {
    const char *op;
    mr_dataset *(*make)(void);
    bool replays;
} made[] = {
    {"from_generator", generator, false}, {"from_arrays", arrays, true}, {"rows", held_rows, true}};

/* ---- files that the graphs name, in the current directory too, where the examples look ---- */

static void write_records(const char *name, int n, mr_compression compression)
{
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    char record[300];
    memset(record, '.', sizeof record);
    mr_tfrecord_writer_opts opts = {.compression = compression};
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name), &opts, &st), &st);
    for (int i = 0; i < n; i++) {
        snprintf(record, sizeof record, "%.7s%d", name, i);
        size_t size = strlen(record);
        record[size] = '.';
        mr_ok(mr_tfrecord_writer_append(w, record, i % 3 == 2 ? sizeof record : size, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
}

/* Two records in the blocks of a tar archive. */
static void write_archive(const char *name)
{
    char v[6 * 512] = "";
    FILE *f = fopen(mr_test_path(name), "wb");
    for (int i = 0; i < 2; i++) {
        char *h = v + i * 1024;
        unsigned sum = 0;
        snprintf(h, 100, "%d.txt", i);
        snprintf(h + 124, 12, "%011o", 3u);
        memset(h + 148, ' ', 8);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        for (int k = 0; k < 512; k++)
            sum += (unsigned char)h[k];
        snprintf(h + 148, 8, "%06o", sum);
        memcpy(h + 512, i ? "two" : "one", 3);
    }
    mr_check(f && fwrite(v, 1, sizeof v, f) == sizeof v && fclose(f) == 0);
}

static void write_files(void)
{
    write_records("train-1.tfrecord", 5, MR_COMPRESSION_NONE);
    write_records("train-2.tfrecord", 3, MR_COMPRESSION_NONE);
    mr_status st;
    mr_ok(mr_record_index_write(mr_test_path("train-1.tfrecord"), NULL, NULL, &st), &st);
    mr_ok(mr_record_index_write(mr_test_path("train-2.tfrecord"), NULL, NULL, &st), &st);
    write_records("records.gz", 4, MR_COMPRESSION_GZIP);
    write_records("records.zz", 4, MR_COMPRESSION_ZLIB);
    write_records("records.zst", 4, MR_COMPRESSION_ZSTD);
    mr_drive_file("damaged", "not a record at all, whatever one thinks of it");
    mr_drive_file("labels.bin", "12345678abcde");
    mr_drive_file("fixed.bin", "HHaaabbbcccdddF");
    mr_drive_file("notes-1.txt", "one\ntwo\r\nlast");
    mr_drive_file("notes-2.txt", "\nfour\n");
    mr_drive_file("README.md", "#");
    for (size_t i = 0; i < 3; i++)
        mr_eq_i64(mkdir(mr_test_path(i == 0   ? "classes"
                                     : i == 1 ? "classes/a"
                                              : "classes/b"),
                        0777),
                  0);
    write_archive("a-1.tar");
    write_archive("a-2.tar");
    mr_drive_file("classes/a/1.txt", "one");
    mr_drive_file("classes/b/2.txt", "two");
    mr_drive_file("classes/b/3.txt", "three");
    parquet_file("people-0.parquet", "range(2).map(x => {\"name\": \"Ann\", \"age\": x})", 1000,
                 MR_COMPRESSION_ZSTD);
    for (int i = 0; i < 2; i++)
        parquet_file(
            i ? "rows-1.parquet" : "rows-0.parquet",
            "range(5).map(x => {\"x\": x, \"s\": format(\"{}\", x), \"t\": [\"a\", \"b\"]})", 60,
            MR_COMPRESSION_ZSTD);
    arrow_file("people-0.arrow", "range(2).map(x => {\"name\": \"Ann\", \"age\": x})", 1000);
    arrow_file("table.arrow", "range(3).map(n => {\"name\": format(\"n{}\", n), \"x\": ones([n])})",
               2);
    arrow_stream("table.stream", "table.arrow");
    arrow_file_packed("packed.arrow", "range(3).map(n => {\"name\": \"abc\", \"x\": n})", 12);
    npy_file("points-0.npy", NPY_HEAD("'<i8'", "False", "(3, 2)"), npy_six, sizeof npy_six);
    npy_file("turned.npy", NPY_HEAD("'<i8'", "True", "(3, 2)"), npy_six, sizeof npy_six);
    npz_file("arrays-0.npz");
    mr_drive_file("people-1.jsonl", "{\"name\": \"Ann\"}\n{\"name\": \"Bob\", \"age\": 3}\n");
    mr_drive_file("table.csv", "name,x\nAnn,1\nBob,2.5\n");
    mr_drive_file("objects.jsonl", "{\"a\": 1, \"s\": [\"b\", \"\"]}\n\n{\"a\": 2}\n{\"a\": true}\n"
                                   "{\"a\": 3, \"s\": [], \"x\": [1, 2]}");
    mr_drive_file("rows.csv", "a,b,c\n1,\"x \"\"y\"\"\",z\n,\"two\nlines\",z\nq,1,2\n\n4,5,6");
    mr_eq_i64(chdir(mr_test_dir()), 0);
    free(mr_drive_show("zip(range(5), from_tensor_slices([\"a\", \"b\", \"\", \"d\", "
                       "\"e\"])).save(\"elements\")"));
}

/* ---- one run with a fault in it ---- */

enum { SAVE_AT = 2 /* pulls before the first save; the second comes as many later */ };

struct run {
    const char *text;
    mr_dataset *(*make)(void); /* instead of a text */
    bool replays;
    int64_t threads;
    bool no_uring, differs;
    mr_events expected;
    mr_code fault;     /* the code of the fault that is planned */
    const char *phase; /* for messages */
};

static mr_code build(const struct run *r, mr_dataset **ds, mr_status *st)
{
    *ds = NULL;
    if (r->make)
        *ds = r->make();
    if (r->make && !*ds)
        return mr_fail_memory(st, 0, "a spec");
    if (!r->make)
        MR_TRY(mr_dataset_from_text(r->text, strlen(r->text), NULL, ds, st));
    return mr_dataset_check(*ds, st);
}

static mr_code open_run(const struct run *r, mr_dataset *ds, mr_iterator **it, mr_status *st)
{
    *it = NULL;
    mr_iterator_opts opts = {.threads = r->threads,
                             .has_threads = true,
                             .block_rows = 3,
                             .positions = true,
                             .identities = true,
                             .no_uring = r->no_uring};
    return mr_iterator_open(it, ds, &opts, st);
}

static bool is_fault(const struct run *r, mr_code rc, const mr_status *st)
{
    return mr_fault_seen() && rc == r->fault && st->code == rc && st->message[0];
}

/* rc is good, or the planned fault's. */
static bool good(const struct run *r, const char *what, mr_code rc, const mr_status *st)
{
    if (rc >= 0)
        return true;
    if (!is_fault(r, rc, st)) {
        char line[1400];
        mr_status_format(st, line, sizeof line);
        mr_fail_test("%s: %s instead of %s: %s", what, mr_code_text(rc), mr_code_text(r->fault),
                     line);
    }
    return false;
}

static void equal(const struct run *r, const char *what, mr_events *e, bool sorted)
{
    mr_events wanted = {0};
    mr_events_copy(&wanted, &r->expected, r->expected.n);
    if (sorted) {
        mr_events_sort(e);
        mr_events_sort(&wanted);
    }
    bool same = e->n == wanted.n;
    for (size_t i = 0; i < e->n && same; i++)
        same = mr_event_is(e->v[i].text, wanted.v[i].text);
    if (!same) {
        char *a = mr_events_join(e), *b = mr_events_join(&wanted);
        mr_fail_test("%s: expected\n  %s\ngot\n  %s", what, b, a);
    }
    mr_events_reset(&wanted, 0);
}

static bool expected(const struct run *r, const mr_events *e, size_t i)
{
    return i < r->expected.n && mr_event_is(e->v[i].text, r->expected.v[i].text);
}

/* Pulls to the end. False: the fault came up, after a prefix of the right output. */
static bool pull_all(const struct run *r, mr_iterator *it, mr_events *e, void **position,
                     size_t *size, size_t *events)
{
    mr_block b = MR_BLOCK_EMPTY;
    bool whole = true;
    for (int pulls = 1; whole; pulls++) {
        size_t before = e->n;
        mr_code rc = mr_events_pull(e, it, 2, &b);
        if (rc == MR_END)
            break;
        if (rc < 0 && !expected(r, e, before) && is_fault(r, rc, &e->error)) {
            mr_events_reset(e, before);
            whole = false;
            break;
        }
        /* Of no element: it comes again after a position that is saved now. */
        bool again = rc < 0 && mr_status_is_of_no_element(&e->error);
        for (size_t i = before; i < e->n; i++)
            if (!expected(r, e, i))
                mr_fail_test("%s: event %zu is %s instead of %s", r->phase, i, e->v[i].text,
                             i < r->expected.n ? r->expected.v[i].text : "the end");
        if (position && pulls % SAVE_AT == 0 && pulls <= 2 * SAVE_AT) {
            void *bytes;
            mr_status st;
            size_t bytes_size;
            /* The position was taken with the block: if that failed, the next block has one. One
             * taken after the fault may hold its error, which is delivered again then. */
            bool after_fault = mr_fault_seen();
            if (good(r, "save", mr_iterator_save(it, &bytes, &bytes_size, &st), &st)) {
                mr_free(after_fault ? bytes : *position);
                *position = after_fault ? *position : bytes;
                *size = after_fault ? *size : bytes_size;
                *events = after_fault ? *events : again ? before : e->n;
            }
        }
    }
    mr_block_reset(&b);
    if (whole)
        equal(r, "the whole", e, false);
    return whole;
}

/* Restores the last position into a new iterator, twice if the first meets the fault. */
static void go_back(const struct run *r, mr_dataset *ds, const void *position, size_t size,
                    size_t events)
{
    for (int tries = 0; tries < 2; tries++) {
        mr_iterator *it = NULL;
        mr_status st;
        mr_events e = {0};
        bool done = good(r, "open again", open_run(r, ds, &it, &st), &st) &&
                    good(r, "restore", mr_iterator_restore(it, position, size, &st), &st);
        if (done) {
            mr_events_copy(&e, &r->expected, events);
            done = pull_all(r, it, &e, NULL, NULL, NULL);
        }
        mr_iterator_close(it);
        mr_events_reset(&e, 0);
        if (done)
            return;
    }
    mr_fail_test("two faults, but one was planned");
}

static void run_fresh(const struct run *r, mr_dataset *ds, bool sorted)
{
    mr_iterator *it;
    mr_status st;
    mr_events e = {0};
    mr_ok(open_run(r, ds, &it, &st), &st);
    mr_events_run(&e, it, 3, SIZE_MAX);
    mr_iterator_close(it);
    equal(r, sorted ? "an iterator opened after the fault" : "a second try", &e, sorted);
    mr_events_reset(&e, 0);
}

/* Does the whole with one transient fault somewhere in it. */
static void run_once(struct run *r)
{
    mr_dataset *ds;
    mr_iterator *it = NULL;
    mr_status st;
    void *position = NULL;
    size_t size = 0, at = 0;
    r->phase = "the run with the fault";
    if (good(r, "build", build(r, &ds, &st), &st) &&
        good(r, "open", open_run(r, ds, &it, &st), &st)) {
        mr_events e = {0};
        if (!pull_all(r, it, &e, &position, &size, &at)) {
            size_t after = e.n; /* going on ends, and closing is clean */
            mr_events_run(&e, it, 3, after + 2 * r->expected.n + 50);
            mr_check(e.n < after + 2 * r->expected.n + 50);
        }
        mr_iterator_close(it);
        r->phase = "restored";
        if (position && r->replays)
            go_back(r, ds, position, size, at);
        mr_events_reset(&e, 0);
        if (mr_fault_seen() && r->replays && !r->differs)
            run_fresh(r, ds, true);
    }
    mr_free(position);
    mr_dataset_unref(ds);
    if (mr_fault_seen()) {
        mr_ok(build(r, &ds, &st), &st);
        run_fresh(r, ds, false);
        mr_dataset_unref(ds);
    }
}

static void begin(struct run *r)
{
    mr_dataset *ds;
    mr_iterator *it;
    mr_status st;
    mr_ok(build(r, &ds, &st), &st);
    mr_ok(open_run(r, ds, &it, &st), &st);
    mr_events_run(&r->expected, it, 2, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_check(r->expected.n > 0);
}

/* ---- allocations ---- */

static void fail_each_allocation(struct run *r)
{
    r->fault = MR_RESOURCE_EXHAUSTED;
    mr_fault_exact(20);
    mr_fault_each_allocation(n) run_once(r);
}

/* Many threads, many faults: nothing is exact but codes, messages, prefixes and leaks. */
static void fail_some_allocations(struct run *r)
{
    uint64_t seed = mr_test_seed();
    r->fault = MR_RESOURCE_EXHAUSTED;
    r->threads = 4;
    for (int i = 0; i < (mr_test_long() ? 300 : 8); i++) {
        mr_dataset *ds;
        mr_iterator *it = NULL;
        mr_status st;
        mr_events e = {0};
        void *position = NULL;
        size_t size = 0;
        uint64_t draw = mr_test_random(&seed);
        mr_buffer_pool_trim();
        int64_t live = mr_fault_live_allocations(), files = mr_fault_open_files();
        mr_test_context("%s, 4 threads, seed %llu", r->text ? r->text : "made in C",
                        (unsigned long long)draw);
        mr_ok(build(r, &ds, &st), &st);
        mr_fault_random(MR_FAULT_ALLOCATION, 0, 1 + (unsigned)(draw % 30), draw);
        if (good(r, "open", open_run(r, ds, &it, &st), &st)) {
            mr_block b = MR_BLOCK_EMPTY;
            bool clean = true;
            mr_code rc = MR_OK;
            for (size_t most = 2 * r->expected.n + 50; rc != MR_END && e.n < most;) {
                size_t before = e.n;
                rc = mr_events_pull(&e, it, 2, &b);
                if (rc < 0 && !(clean && expected(r, &e, before)))
                    clean = clean && !is_fault(r, rc, &e.error);
                for (size_t k = before; clean && k < e.n; k++)
                    if (!expected(r, &e, k))
                        mr_fail_test("event %zu is %s instead of %s", k, e.v[k].text,
                                     k < r->expected.n ? r->expected.v[k].text : "the end");
                if (position || !good(r, "save", mr_iterator_save(it, &position, &size, &st), &st))
                    continue;
                /* After a fault the position may hold what the fault changed. */
                rc = mr_iterator_restore(it, position, size, &st);
                if (clean ? !good(r, "restore", rc, &st) : rc < 0)
                    break; /* it may only be closed then */
                clean = false;
            }
            mr_block_reset(&b);
        }
        mr_fault_off();
        mr_iterator_close(it);
        mr_free(position);
        mr_dataset_unref(ds);
        mr_events_reset(&e, 0);
        mr_ok(build(r, &ds, &st), &st);
        run_fresh(r, ds, false);
        mr_dataset_unref(ds);
        mr_buffer_pool_trim();
        mr_eq_i64(mr_fault_live_allocations(), live);
        mr_eq_i64(mr_fault_open_files(), files);
    }
    r->threads = 0;
}

/* ---- system calls and completions ---- */

static void fail_each_call(struct run *r, mr_fault_kind kind, int err)
{
    /* A call that a signal interrupted is made again. */
    r->fault = err == EINTR ? MR_OK : mr_fail_errno(NULL, err, "a fault");
    mr_fault_exact(60);
    mr_fault_each(n, kind, err, false) run_once(r);
}

static void fail_reads(struct run *r)
{
    static const int errors[] = {EIO, EINTR, ENOMEM, EMFILE};
    for (int way = 0; way < 4; way++) {
        mr_fault_off();
        if (way & 1)
            mr_fault_uncached();
        if (way & 2)
            mr_fault_no_uring();
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            fprintf(stderr, "way %d, %s\n", way, strerror(errors[i]));
            fail_each_call(r, MR_FAULT_SYSTEM_CALL, errors[i]);
            if (way == 1 && errors[i] != EMFILE)
                fail_each_call(r, MR_FAULT_COMPLETION, errors[i]);
        }
        mr_fault_short_reads(mr_test_seed() + (uint64_t)way);
        fail_each_call(r, MR_FAULT_SYSTEM_CALL, EIO);
    }
    mr_fault_off();
}

/* ---- for every op ---- */

static void each_graph(const char *op, void (*test)(struct run *r))
{
    mr_fault_count();
    write_files();
    const mr_op *o = mr_op_find(op, strlen(op));
    mr_check(o != NULL);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        if (strcmp(made[i].op, op) != 0)
            continue;
        struct run r = {.make = made[i].make, .replays = made[i].replays};
        begin(&r);
        test(&r);
        mr_events_reset(&r.expected, 0);
        return;
    }
    struct run example = {.text = o->example, .replays = true};
    begin(&example);
    test(&example);
    mr_events_reset(&example.expected, 0);
    int n = 0;
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        if (strcmp(graphs[i].op, op) != 0)
            continue;
        struct run r = {.text = mr_drive_path(graphs[i].text),
                        .replays = true,
                        .differs = graphs[i].flags & DIFFERS};
        mr_check(strstr(r.text, op) != NULL);
        fprintf(stderr, "%s\n", r.text);
        begin(&r);
        test(&r);
        mr_events_reset(&r.expected, 0);
        n++;
    }
    if (!n)
        mr_fail_test("no graph of its own in the table");
}

#define MR_OP(op)                                                                                  \
    MR_TEST(each_allocation_of_##op)                                                               \
    {                                                                                              \
        each_graph(#op, fail_each_allocation);                                                     \
    }                                                                                              \
    MR_TEST(some_allocations_of_##op##_in_threads)                                                 \
    {                                                                                              \
        each_graph(#op, fail_some_allocations);                                                    \
    }
#include "pipeline/ops/ops.def"
#undef MR_OP

MR_TEST_SLOW(each_system_call_of_arrow)
{
    each_graph("arrow", fail_reads);
}
MR_TEST_SLOW(each_system_call_of_parquet)
{
    each_graph("parquet", fail_reads);
}
MR_TEST_SLOW(each_system_call_of_tar)
{
    each_graph("tar", fail_reads);
}
MR_TEST(each_system_call_of_csv)
{
    each_graph("csv", fail_reads);
}
MR_TEST(each_system_call_of_jsonl)
{
    each_graph("jsonl", fail_reads);
}
MR_TEST(each_system_call_of_text_line)
{
    each_graph("text_line", fail_reads);
}
MR_TEST(each_system_call_of_fixed_length_record)
{
    each_graph("fixed_length_record", fail_reads);
}
MR_TEST(each_system_call_of_files)
{
    each_graph("files", fail_reads);
}
MR_TEST_SLOW(each_system_call_of_image_folder)
{
    each_graph("image_folder", fail_reads);
}
MR_TEST(each_system_call_of_list_files)
{
    each_graph("list_files", fail_reads);
}
MR_TEST_SLOW(each_system_call_of_global_shuffle)
{
    each_graph("global_shuffle", fail_reads);
}
MR_TEST_SLOW(each_system_call_of_tfrecord)
{
    each_graph("tfrecord", fail_reads);
}

MR_TEST(each_system_call_of_npy)
{
    each_graph("npy", fail_reads);
}
MR_TEST(each_system_call_of_npz)
{
    each_graph("npz", fail_reads);
}

MR_TEST(every_op_that_reads_files_is_among_them)
{
    static const char *const known[] = {
        "arrow",   "csv", "fixed_length_record", "files",   "list_files", "jsonl", "npy", "npz",
        "parquet", "tar", "text_line",           "tfrecord"};
    const mr_op *op;
    for (size_t i = 0; (op = mr_op_at(i)) != NULL; i++) {
        bool found = op->role != MR_ROLE_FILES && !(op->props & MR_OP_FILE_NAMES);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found = found || strcmp(known[k], op->name) == 0;
        if (!found)
            mr_fail_test("%s reads files: its system calls must fail here too", op->name);
    }
}
