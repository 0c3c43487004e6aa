/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs with very many inputs, arguments, components or shared nodes take time in proportion. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/graph/op.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* before + n times `each` (with %zu: its number, counted down) separated by commas + after;
 * owned. */
static char *repeated(const char *before, const char *each, size_t n, const char *after)
{
    size_t room = strlen(before) + n * (strlen(each) + 24) + strlen(after) + 1;
    char *text = mr_malloc(room), number[24];
    char *at = stpcpy(text, before);
    for (size_t i = n; i-- > 0;) {
        for (const char *p = each; *p; p++)
            if (*p == '#') {
                snprintf(number, sizeof number, "%zu", i);
                at = stpcpy(at, number);
            } else
                *at++ = *p;
        if (i)
            *at++ = ',';
    }
    strcpy(at, after);
    return text;
}

/* All that can be done with a graph: built, printed, sent, received, run, saved. */
static void live(const char *text)
{
    mr_status st;
    mr_dataset *ds = NULL, *back = NULL;
    char *printed = NULL;
    void *bytes = NULL;
    size_t size;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    ds = mr_test_graph(text);
    mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
    mr_free(printed);
    mr_ok(mr_dataset_to_proto(ds, &bytes, &size, &st), &st);
    mr_ok(mr_dataset_from_proto(bytes, size, &back, &st), &st);
    mr_free(bytes);
    mr_ok(mr_iterator_open(
              &it, back, &(mr_iterator_opts){.threads = 0, .has_threads = true, .positions = true},
              &st),
          &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_free(bytes);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(back);
    mr_dataset_unref(ds);
}

static double seconds_of(const char *before, const char *each, size_t n, const char *after)
{
    char *text = repeated(before, each, n, after);
    clock_t began = clock();
    live(text);
    double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    mr_free(text);
    return seconds;
}

/* Four times as much takes four times as long; what is quadratic takes sixteen times. */
static void check_linear(const char *before, const char *each, size_t n, const char *after)
{
    double quarter = seconds_of(before, each, n / 4, after);
    double whole = seconds_of(before, each, n, after);
    mr_test_context("%s: %.3f s for a quarter, %.3f s for all", before, quarter, whole);
    mr_check(whole < 9 * quarter + 0.3);
}

MR_TEST_SLOW(a_zip_of_very_many_inputs)
{
    check_linear("zip(", "range(2)", 50000, ")");
}

MR_TEST_SLOW(very_many_components_by_name)
{
    check_linear("from_tensors(", "a#=#", 50000, ")");
    check_linear("from_tensors({", "\"a#\":#", 50000, "})");
    check_linear("range(2).map(x => {", "\"a#\":x", 20000, "})");
}

MR_TEST_SLOW(very_many_computed_arguments_in_a_function)
{
    check_linear("range(2).flat_map(x => zip(", "range(x)", 20000, "))");
    check_linear("range(2).flat_map(x => zip(", "range(9).map(y => y + x)", 8000, "))");
}

static const char *error_of(const char *text)
{
    static mr_status st;
    mr_dataset *ds = NULL;
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), MR_INVALID_ARGUMENT, &st);
    return st.message;
}

MR_TEST(more_leaves_than_can_be_handled_are_an_error)
{
    char *text = repeated("zip(", "range(2)", 65537, ")");
    mr_has_str(error_of(text), "65537 components, but at most 65536");
    mr_free(text);
    char doubled[1024] = "range(3)";
    for (int i = 0; i < 16; i++)
        strcat(doubled, ".map(x => (x, x))");
    mr_dataset *ds = mr_test_graph(doubled);
    mr_dataset_unref(ds);
    for (int i = 0; i < 14; i++)
        strcat(doubled, ".map(x => (x, x))");
    mr_has_str(error_of(doubled), "131072 components, but at most 65536");
}

/* 2^40 ways lead to the source, over 41 nodes. */
MR_TEST(shared_nodes_are_walked_once)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes = NULL;
    size_t size;
    mr_dataset *ds = mr_range(0, 4, 1);
    for (int i = 0; i < 40; i++)
        ds = mr_concatenate(ds, mr_dataset_ref(ds));
    mr_ok(mr_dataset_check(ds, &st), &st);
    mr_eq_i64(mr_dataset_cardinality(ds), (int64_t)4 << 40);
    mr_ok(mr_dataset_to_proto(ds, &bytes, &size, &st), &st);
    mr_free(bytes);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = true}, &st), &st);
    mr_ok(mr_iterator_next(it, 4, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
