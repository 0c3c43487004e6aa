/* SPDX-License-Identifier: Apache-2.0 */
/* Every op at once: its descriptor is sound, its example builds, runs, and is the same graph in all
 * three forms. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/params.h"
#include "tests/fault.h"
#include "tests/harness.h"

enum { MOST_ROWS = 1000, MOST_PARAMS_BYTES = 4096 };

/* The i-th op of the reference, NULL behind the last. */
static const mr_op *public_op(size_t *i)
{
    const mr_op *op = mr_op_at((*i)++);
    while (op && ((op->props & MR_OP_INTERNAL) || strncmp(op->name, "sample_", 7) == 0))
        op = mr_op_at((*i)++);
    if (op)
        mr_test_context("op %s", op->name);
    return op;
}

static mr_dataset *build(const char *text)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
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
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_dataset *ds = build(op->example), *back = NULL;
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
        back = build(text);
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

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f != NULL);
    mr_check(fputs(text, f) >= 0);
    mr_check(fclose(f) == 0);
}

MR_TEST(every_example_runs)
{
    write_file("train-0.tfrecord", "");
    write_file("notes-1.txt", "a line\nanother\n");
    write_file("labels.bin", "01234567abc");
    write_file("README.md", "#\n");
    mr_check(chdir(mr_test_dir()) == 0);
    size_t i = 0;
    for (const mr_op *op; (op = public_op(&i));) {
        mr_dataset *ds = build(op->example);
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
