/* SPDX-License-Identifier: Apache-2.0 */
/* Every op at once: its descriptor is sound, its example builds, runs, and is the same graph in all
 * three forms. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/node.h"
#include "pipeline/params/params.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/arrow_file.h"
#include "tests/pipeline/ops/npy_file.h"
#include "tests/pipeline/ops/parquet_table.h"

MR_ONE_THREAD;

enum { MOST_ROWS = 1000, MOST_PARAMS_BYTES = 4096 };

/* Goes to a folder with the elements that load's example reads as it is built. */
static void enter_folder(void)
{
    mr_iterator *it = NULL;
    mr_iterator_opts opts = {.has_threads = true};
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc;
    mr_check(chdir(mr_test_dir()) == 0);
    mr_dataset *ds = mr_test_graph("range(3).save(\"elements\")");
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    do
        rc = mr_iterator_next(it, MOST_ROWS, &b, &st);
    while (rc == MR_OK);
    mr_code_is(rc, MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* The ops of sample_ops.c. */
static bool is_sample(const mr_op *op)
{
    return strncmp(op->name, "sample_", 7) == 0 && strcmp(op->name, "sample_from_datasets") != 0;
}

/* The i-th op of the reference, NULL after the last. */
static const mr_op *public_op(size_t *i)
{
    const mr_op *op = mr_op_at((*i)++);
    while (op && ((op->props & MR_OP_INTERNAL) || is_sample(op)))
        op = mr_op_at((*i)++);
    if (op)
        mr_test_context("op %s", op->name);
    return op;
}

static char *print(const mr_dataset *ds)
{
    char *text = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    return text;
}

MR_TEST(descriptors_are_sound)
{
    size_t i = 0;
    mr_status st;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_ok(mr__op_check(op, &st), &st);
        mr_check(op->next != NULL);
        mr_check(!op->save == !op->restore);
        mr_has_str(op->example, op->name);
        for (const mr_param *p = op->params; p && p->name; p++)
            mr_check(p->doc[strlen(p->doc) - 1] == '.');
    }
}

/* The reference has no default for these. */
MR_TEST(descriptors_say_what_cannot_be_concluded)
{
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_check(op->order_doc || op->max_inputs != 0);
        mr_check(op->count_doc || (op->props & MR_OP_KEEPS_COUNT));
        mr_check(op->state_doc || op->max_inputs != 0);
        bool holds = false;
        for (const mr_param *p = op->params; p && p->name; p++)
            holds = holds || (p->flags & MR_P_HOLDS);
        mr_check(!holds || op->memory_doc);
    }
}

MR_TEST(what_ops_hold_follows_from_their_parameters)
{
    static const struct held {
        const char *text;
        int64_t elements, bytes;
    } cases[] = {
        {"range(9)", 0, 0},
        {"range(9).map(x => x)", 0, 0},
        {"range(9).shuffle(4)", 4, 32},
        {"range(9).shuffle(400)", 9, 72}, /* no more than there are */
        {"range(9).shuffle(-2)", 9, 72},
        {"range(9).filter(x => x > 1).shuffle(-2)", MR_INFINITE, -1},
        {"range(9).map(x => zeros([2, 3])).batch(2)", 2, 48},
        {"range(9).map(x => \"s\").padded_batch(2)", 2, -1},
        {"range(9).map(x => zeros([x])).ragged_batch(2)", 2, -1},
        {"range(9).window(3)", 3, 24},
        {"range(9).prefetch(2)", 2, 16},
        {"range(9).prefetch(auto)", MR_UNKNOWN_COUNT, -1},
        {"range(9).batch(3).cache()", 3, -1},
        {"range(9).cache()", 9, 72},
        {"range(9).cache(\"file\")", 0, 0},
        {"counter().cache()", MR_INFINITE, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s", cases[i].text);
        mr_dataset *ds = mr_test_graph(cases[i].text);
        int64_t elements, bytes;
        mr_dataset_held(ds, &elements, &bytes);
        mr_eq_i64(elements, cases[i].elements);
        mr_eq_i64(bytes, cases[i].bytes);
        mr_dataset_unref(ds);
    }
    mr_dataset *bad = mr_dataset_fail(&(mr_status){.code = MR_INTERNAL});
    int64_t elements, bytes;
    mr_dataset_held(bad, &elements, &bytes);
    mr_eq_i64(elements, 0);
    mr_eq_i64(bytes, 0);
    mr_dataset_unref(bad);
}

static void cover(bool *covered, uint32_t at, size_t size)
{
    mr_check(at + size <= MOST_PARAMS_BYTES);
    memset(covered + at, true, size);
}

/* A field without a row in the table would be lost by text and protobuf. One flag may be without:
 * the readers' `paths`, which the constructor turns into mr_strs.is_path. */
MR_TEST(tables_cover_their_structs_but_for_padding)
{
    static const size_t sizes[] = {
        [MR_PT_I64] = sizeof(int64_t),      [MR_PT_F64] = sizeof(double),
        [MR_PT_BOOL] = sizeof(bool),        [MR_PT_TRI] = sizeof(mr_tri),
        [MR_PT_STR] = sizeof(char *),       [MR_PT_FN] = sizeof(mr_fn *),
        [MR_PT_VALUE] = sizeof(mr_value),   [MR_PT_INTS] = sizeof(mr_ints),
        [MR_PT_FLOATS] = sizeof(mr_floats), [MR_PT_STRS] = sizeof(mr_strs)};
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        bool covered[MOST_PARAMS_BYTES] = {0};
        size_t gap = 0, most = sizeof(int64_t) - 1;
        for (const mr_param *p = op->params; p && p->name; p++) {
            cover(covered, p->at, sizes[p->type]);
            most += (p->flags & MR_P_PATTERN) ? sizeof(bool) : 0;
            if (p->has_at)
                cover(covered, p->has_at, sizeof(bool));
        }
        for (size_t k = 0; k < op->params_size; k++) {
            gap = covered[k] ? 0 : gap + 1;
            mr_check(gap <= most);
        }
    }
}

MR_TEST(every_example_is_one_graph_in_three_forms)
{
    enter_folder();
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_dataset *ds = mr_test_graph(op->example), *back = NULL;
        char *text = print(ds);
        void *bytes = NULL, *again = NULL;
        size_t n = 0, m = 0;
        mr_status st;
        mr_ok(mr_dataset_to_proto(ds, &bytes, &n, &st), &st);
        mr_ok(mr_dataset_from_proto(bytes, n, &back, &st), &st);
        char *travelled = print(back);
        mr_eq_str(travelled, text);
        mr_check(mr_spec_equal(mr_dataset_spec(back), mr_dataset_spec(ds)));
        mr_eq_i64(mr_dataset_cardinality(back), mr_dataset_cardinality(ds));
        mr_dataset_unref(back);
        back = mr_test_graph(text);
        char *rebuilt = print(back);
        mr_eq_str(rebuilt, text);
        mr_ok(mr_dataset_to_proto(back, &again, &m, &st), &st);
        mr_eq_u64(m, n);
        mr_eq_mem(again, bytes, n);
        mr_free(text);
        mr_free(travelled);
        mr_free(rebuilt);
        mr_free(bytes);
        mr_free(again);
        mr_dataset_unref(back);
        mr_dataset_unref(ds);
    }
}

MR_TEST(every_example_runs)
{
    mr_test_file("train-0.tfrecord", "");
    mr_test_file("train-0.tfrecord.idx", "");
    mr_test_file("notes-1.txt", "a line\nanother\n");
    mr_test_file("labels.bin", "01234567abc");
    mr_test_file("README.md", "#\n");
    mr_check(mkdir(mr_test_path("pets"), 0777) == 0 && mkdir(mr_test_path("pets/cat"), 0777) == 0);
    mr_test_file("pets/cat/1.jpg", "");
    FILE *archive = fopen(mr_test_path("shard-0.tar"), "wb");
    static const char end[1024];
    mr_check(archive && fwrite(end, 1, sizeof end, archive) == sizeof end && fclose(archive) == 0);
    mr_test_file("people-1.jsonl", "{\"name\": \"Ann\"}\n{\"name\": \"Bob\", \"age\": 3}\n");
    npy_file("points-0.npy", NPY_HEAD("'<i8'", "False", "(3, 2)"), npy_six, sizeof npy_six);
    npz_file("arrays-0.npz");
    mr_test_file("table.csv", "name,x\nAnn,1\nBob,2.5\n");
    arrow_file("people-0.arrow", "range(2).map(x => {\"name\": \"Ann\", \"age\": x})", 1000);
    parquet_file("people-0.parquet", "range(2).map(x => {\"name\": \"Ann\", \"age\": x})", 1000,
                 MR_COMPRESSION_ZSTD);
    enter_folder();
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_dataset *ds = mr_test_graph(op->example);
        mr_iterator *it = NULL;
        mr_iterator_opts opts = {.has_threads = true};
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        mr_code rc;
        int64_t rows = 0, count = mr_dataset_cardinality(ds);
        mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
        while (rows < MOST_ROWS && (rc = mr_iterator_next(it, MOST_ROWS, &b, &st)) == MR_OK)
            rows += (int64_t)b.rows;
        if (rows < MOST_ROWS && rc != MR_END)
            mr_ok(rc, &st);
        if (count >= 0 && count < MOST_ROWS)
            mr_eq_i64(rows, count);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    mr_check(chdir("/") == 0);
}

MR_TEST(every_failed_allocation_while_building_is_reported)
{
    enter_folder();
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_fault_each_allocation(n)
        {
            mr_dataset *ds = NULL, *back = NULL;
            void *bytes = NULL;
            size_t size = 0;
            mr_status st;
            if (mr_fault_expect(
                    mr_dataset_from_text(op->example, strlen(op->example), NULL, &ds, &st), &st) !=
                MR_OK)
                continue;
            if (mr_fault_expect(mr_dataset_to_proto(ds, &bytes, &size, &st), &st) == MR_OK &&
                mr_fault_expect(mr_dataset_from_proto(bytes, size, &back, &st), &st) == MR_OK)
                mr_dataset_unref(back);
            mr_free(bytes);
            mr_dataset_unref(ds);
        }
    }
}
