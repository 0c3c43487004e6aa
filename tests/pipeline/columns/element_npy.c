/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_npy.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/dataset.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* Entries of the graph's elements, one after the other, until the end or an error. */
typedef struct entries {
    char descr[256], bytes[256];
    size_t n, size; /* of bytes */
    int rank;
    int64_t shape[MR_MAX_RANK];
} entries;

static mr_code encode_all(mr_iterator *it, mr_npy_encoder *e, entries *out, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_npy_entry type = {0};
    mr_code rc;
    while ((rc = mr_iterator_next(it, 2, &b, st)) == MR_OK) {
        if (!type.descr)
            rc = mr_npy_encoder_begin(e, &b, &type, st);
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++) {
            mr_bytes entry;
            rc = mr_npy_encode(e, &b, i, &entry, st);
            if (rc != MR_OK)
                break;
            mr_check(out->size + entry.size <= sizeof out->bytes);
            if (entry.size)
                memcpy(out->bytes + out->size, entry.data, entry.size);
            out->size += entry.size;
            out->n++;
        }
        if (rc != MR_OK)
            break;
    }
    if (rc == MR_END && !type.descr)
        rc = mr_npy_encoder_begin(e, NULL, &type, st);
    if (type.descr) {
        snprintf(out->descr, sizeof out->descr, "%s", type.descr);
        out->rank = type.rank;
        memcpy(out->shape, type.shape, (size_t)type.rank * sizeof *type.shape);
    }
    mr_block_reset(&b);
    return rc == MR_END ? MR_OK : rc;
}

static mr_code encode(const char *text, entries *out, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_npy_encoder *e = NULL;
    const mr_iterator_opts opts = {.has_threads = true};
    *out = (entries){.n = 0};
    mr_test_context("%s", text);
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &opts, st);
    if (rc == MR_OK)
        rc = mr_npy_encoder_new(&e, mr_iterator_spec(it), st);
    if (rc == MR_OK)
        rc = encode_all(it, e, out, st);
    mr_npy_encoder_free(e);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(a_lone_component_is_an_array_of_its_type)
{
    entries x;
    mr_status st;
    mr_ok(encode("range(3)", &x, &st), &st);
    mr_eq_str(x.descr, "'<i8'");
    mr_eq_i64(x.rank, 0);
    const int64_t want[] = {0, 1, 2};
    mr_eq_u64(x.size, sizeof want);
    mr_eq_mem(x.bytes, want, sizeof want);
    mr_ok(encode("range(2).map(x => ones([2, 3]))", &x, &st), &st);
    mr_eq_str(x.descr, "'<f4'");
    mr_eq_i64(x.rank, 2);
    mr_eq_i64(x.shape[0], 2);
    mr_eq_i64(x.shape[1], 3);
    mr_eq_u64(x.size, 2 * 6 * sizeof(float));
}

MR_TEST(every_type_has_its_code)
{
    static const char *const types[][2] = {
        {"bool", "'|b1'"},   {"int8", "'|i1'"},    {"int16", "'<i2'"},   {"int32", "'<i4'"},
        {"int64", "'<i8'"},  {"uint8", "'|u1'"},   {"uint16", "'<u2'"},  {"uint32", "'<u4'"},
        {"uint64", "'<u8'"}, {"float16", "'<f2'"}, {"float32", "'<f4'"}, {"float64", "'<f8'"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[80];
        entries x;
        mr_status st;
        snprintf(text, sizeof text, "range(1).map(x => cast(x, \"%s\"))", types[i][0]);
        mr_ok(encode(text, &x, &st), &st);
        mr_eq_str(x.descr, types[i][1]);
    }
}

MR_TEST(several_components_are_fields_without_padding)
{
    entries x;
    mr_status st;
    mr_ok(
        encode("range(2).map(x => {\"it's\": cast(x, \"uint8\"), \"b\": [x, x], \"m\": [[true]]})",
               &x, &st),
        &st);
    mr_eq_str(x.descr, "[('b', '<i8', (2,)), ('it\\'s', '|u1'), ('m', '|b1', (1, 1))]");
    mr_eq_i64(x.rank, 0);
    mr_eq_u64(x.size, 2 * (2 * 8 + 1 + 1));
    const unsigned char second[] = {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    mr_eq_mem(x.bytes + 18, second, sizeof second);
    mr_ok(encode("range(1).map(x => (x, x == 0))", &x, &st), &st);
    mr_eq_str(x.descr, "[('0', '<i8'), ('1', '|b1')]");
}

MR_TEST(rows_that_could_differ_are_taken_where_they_do_not)
{
    entries x;
    mr_status st;
    mr_ok(encode("range(3).map(x => ones([2 + x - x]))", &x, &st), &st);
    mr_eq_i64(x.shape[0], 2);
    mr_eq_u64(x.n, 3);
    mr_ok(encode("range(3).filter(x => x > 9).map(x => ones([2])).batch(2)", &x, &st), &st);
    mr_eq_str(x.descr, "'<f4'"); /* no element says the first axis */
    mr_eq_i64(x.shape[0], 0);
    mr_eq_i64(x.shape[1], 2);
}

MR_TEST(what_numpy_cannot_hold_is_refused)
{
    entries x;
    mr_status st;
    mr_code_is(encode("range(3).map(x => {\"s\": \"text\", \"x\": x})", &x, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "component 's' is string");
    mr_code_is(encode("range(3).map(x => cast(x, \"bfloat16\"))", &x, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "'value' is bfloat16");
    mr_code_is(encode("range(3).window(2)", &x, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(encode("range(5).map(x => ones([2 + x // 3]))", &x, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "has shape [3], the first element [2]");
    mr_eq_u64(x.n, 3);
    mr_code_is(encode("range(4).map(x => ones([x])).ragged_batch(2)", &x, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "ragged");
}

MR_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    mr_fault_each_allocation(n)
    {
        entries x;
        mr_status st;
        mr_code rc =
            mr_fault_expect(encode("range(2).map(x => {\"a\": x, \"b\": [x, x]})", &x, &st), &st);
        mr_check(rc != MR_OK || x.n == 2);
    }
}
