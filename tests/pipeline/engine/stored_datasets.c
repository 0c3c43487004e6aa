/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets that are stored as values, in positions, blocks and graphs: who wrote the store must not
 * decide what is read and written. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/engine/run.h"
#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/bytes.h"
#include "tests/events.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_iterator *open_graph(const char *text)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

/* The position of `from` after its first element, as one of `to`. Owned. */
static void *forged(const char *from, const char *to, size_t *size)
{
    void *bytes, *mine;
    size_t n, n_mine, text_size, state_size;
    const void *text, *state;
    uint64_t skip;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator *it = open_graph(from), *other = open_graph(to);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &n, &st), &st);
    mr_ok(mr_iterator_save(other, &mine, &n_mine, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_iterator_close(other);
    mr_state_r r = {.at = (unsigned char *)bytes + 8, .end = (unsigned char *)bytes + n};
    mr_state_r q = {.at = (unsigned char *)mine + 8, .end = (unsigned char *)mine + n_mine};
    mr_state_w w = {0};
    mr_ok(mr_state_get_bytes(&r, &text, &text_size, &st), &st);
    mr_ok(mr_state_get_u64(&r, &skip, &st), &st);
    mr_ok(mr_state_get_bytes(&r, &state, &state_size, &st), &st);
    mr_ok(mr_state_get_bytes(&q, &text, &text_size, &st), &st);
    mr_ok(mr_state_put_bytes(&w, text, text_size, &st), &st);
    mr_ok(mr_state_put_u64(&w, skip, &st), &st);
    mr_ok(mr_state_put_bytes(&w, state, state_size, &st), &st);
    unsigned char *made = mr_malloc(w.size + 8);
    memcpy(made, bytes, 4);
    memcpy(made + 8, w.data, w.size);
    mr_ok(mr__zlib_need(&st), &st);
    mr__store_le(made + 4, mr__zlib.crc32_z(0, w.data, w.size), 4);
    *size = w.size + 8;
    mr__state_w_reset(&w);
    mr_free(bytes);
    mr_free(mine);
    return made;
}

static mr_code restore(const char *from, const char *to, mr_status *st)
{
    size_t n;
    void *bytes = forged(from, to, &n);
    mr_iterator *it = open_graph(to);
    mr_code rc = mr_iterator_restore(it, bytes, n, st);
    mr_iterator_close(it);
    mr_free(bytes);
    return rc;
}

/* A graph over the test's files. */
static const char *graph(const char *function)
{
    static char texts[4][1024];
    static unsigned turn;
    char *to = texts[turn++ % 4];
    snprintf(to, sizeof texts[0],
             "from_tensor_slices([\"%s\", \"%s\"]).map(f => %s).flat_map(d => d)",
             mr_test_path("a"), mr_test_path("b"), function);
    return to;
}

static void put_files(void)
{
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(mr_test_path(i ? "b" : "a"), "w");
        mr_check(f && fputs("one\ntwo\n", f) >= 0 && fclose(f) == 0);
    }
}

MR_TEST(a_position_brings_no_readers_into_a_graph)
{
    static const char *const innocent[] = {"from_tensor_slices([f, f])",
                                           "from_tensors(f).map(g => g + g)"};
    static const char *const reading[] = {
        "text_line(f)", "list_files(f)", "from_tensors(f).map(g => read_file(g))",
        "from_tensors(f).flat_map(g => text_line(g))", "files(f).map(r => r[\"contents\"])"};
    mr_status st;
    put_files();
    for (size_t i = 0; i < sizeof innocent / sizeof *innocent; i++)
        for (size_t k = 0; k < sizeof reading / sizeof *reading; k++) {
            mr_test_context("%s in %s", reading[k], innocent[i]);
            mr_code_is(restore(graph(reading[k]), graph(innocent[i]), &st), MR_PERMISSION_DENIED,
                       &st);
            mr_has_str(st.message, "which the graph itself does not do");
            mr_ok(restore(graph(reading[k]), graph(reading[k]), &st), &st);
        }
    mr_ok(restore(graph(innocent[0]), graph(innocent[1]), &st), &st);
}

MR_TEST(a_position_holds_no_dataset_that_writes)
{
    mr_status st;
    void *bytes;
    size_t n;
    char function[512];
    mr_block b = MR_BLOCK_EMPTY;
    put_files();
    snprintf(function, sizeof function, "from_tensor_slices([f, f]).save(\"%s\")",
             mr_test_path("w"));
    mr_iterator *it = open_graph(graph(function));
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st); /* runs: it is this graph's own */
    mr_code_is(mr_iterator_save(it, &bytes, &n, &st), MR_PERMISSION_DENIED, &st);
    mr_has_str(st.message, "save, which writes files");
    mr_block_reset(&b);
    mr_iterator_close(it);
}

/* What a worker sends, and what a program keeps. */
MR_TEST(blocks_bring_only_datasets_of_values)
{
    static const struct {
        const char *text;
        mr_code code;
    } cases[] = {
        {"range(4).window(2)", MR_OK},
        {"range(4).map(x => range(x).map(y => y * 2).batch(2))", MR_OK},
        {"range(4).map(x => text_line(\"a\"))", MR_PERMISSION_DENIED},
        {"range(4).map(x => range(x).map(y => lookup(\"w\", \"a\")))", MR_PERMISSION_DENIED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *bytes = NULL;
        size_t n = 0;
        mr_status st;
        mr_block b = MR_BLOCK_EMPTY, again = MR_BLOCK_EMPTY;
        mr_test_context("%s", cases[i].text);
        mr_dataset *ds = mr_test_graph(cases[i].text);
        mr_iterator *it = open_graph(cases[i].text);
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_ok(mr_block_to_bytes(&b, &bytes, &n, &st), &st);
        mr_code_is(mr_block_from_bytes(bytes, n, mr_dataset_spec(ds), &again, &st), cases[i].code,
                   &st);
        mr_free(bytes);
        mr_block_reset(&b);
        mr_block_reset(&again);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
}

/* A graph may have datasets as values; as protobuf they must not write. */
MR_TEST(values_of_a_graph_in_protobuf_do_not_write)
{
    static const struct {
        const char *text;
        mr_code code;
    } cases[] = {{"from_tensors(range(3).batch(2)).flat_map(d => d)", MR_OK},
                 {"from_tensors(range(3).save(\"w\")).flat_map(d => d)", MR_PERMISSION_DENIED},
                 {"from_tensors(range(3).cache(\"w\")).flat_map(d => d)", MR_PERMISSION_DENIED},
                 {"range(3).save(\"w\")", MR_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *bytes = NULL;
        size_t n = 0;
        mr_status st;
        mr_dataset *ds = mr_test_graph(cases[i].text), *again = NULL;
        mr_test_context("%s", cases[i].text);
        mr_ok(mr_dataset_to_proto(ds, &bytes, &n, &st), &st);
        mr_code_is(mr_dataset_from_proto(bytes, n, &again, &st), cases[i].code, &st);
        mr_dataset_unref(again);
        mr_dataset_unref(ds);
        mr_free(bytes);
    }
}
