/* SPDX-License-Identifier: Apache-2.0 */
/* What layers learn of data, held against Keras's examples and plain loops. */
#include "trainer/loop/adapt.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_status st;

static mr_code adapt_with(const char *data, const char *layer, const mr_iterator_opts *opts)
{
    mr_dataset *ds = NULL;
    mr_test_context("%s of %s", layer, data);
    MR_TRY(mr_dataset_from_text(data, strlen(data), NULL, &ds, &st));
    mr_code rc = mr_adapt(ds, layer, mr_test_path("out"), opts, &st);
    mr_dataset_unref(ds);
    return rc;
}

static mr_code adapt(const char *data, const char *layer)
{
    return adapt_with(data, layer, NULL);
}

static const char *content(const char *name)
{
    static char text[8192];
    FILE *f = fopen(mr_test_path(name), "rb");
    mr_check(f != NULL);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void check_list(const char *name, const char *key, const double *want, size_t n, double off)
{
    json_error_t e;
    json_t *root = json_load_file(mr_test_path(name), 0, &e), *list = json_object_get(root, key);
    mr_eq_u64(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        mr_eq_f64(json_number_value(json_array_get(list, i)), want[i], off);
    json_decref(root);
}

MR_TEST(a_vocabulary_begins_with_what_is_frequent)
{
    /* Keras's example. */
    static const char words[] = "from_tensors([[\"a\", \"c\", \"d\"], [\"d\", \"z\", \"b\"]])";
    mr_ok(adapt(words, "lookup()"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "d\nz\nc\nb\na\n");
    mr_ok(adapt(words, "lookup"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "d\nz\nc\nb\na\n");
    mr_ok(adapt(words, "lookup(max_tokens=4)"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "d\nz\nc\n");
    mr_ok(adapt(words, "lookup(max_tokens=4, oov=2)"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "d\nz\n");
    mr_ok(adapt("from_tensor_slices([12, 1138, 42, 1000, 42, -5, 1000])", "lookup()"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "1000\n42\n1138\n12\n-5\n");
    /* With labels, in batches, of rows that differ in length. */
    mr_ok(adapt("from_tensor_slices([\"x y\", \"\", \"y\"]).map(s => (split(s), 1))", "lookup()"),
          &st);
    mr_eq_str(content("out/vocabulary.txt"), "y\nx\n");
    mr_ok(adapt("range(5000).map(i => cast(i % 3000, \"int16\")).batch(7)", "lookup()"), &st);
    mr_check(strncmp(content("out/vocabulary.txt"), "1999\n1998\n", 10) == 0);
}

MR_TEST(words_of_texts_are_counted)
{
    static const char texts[] =
        "from_tensor_slices([\"The cat, the dog.\", \"A dog!\", \"\"]).batch(2)";
    mr_ok(adapt(texts, "text_vectorization()"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "the\ndog\ncat\na\n");
    mr_ok(adapt(texts, "text_vectorization(max_tokens=4)"), &st);
    mr_eq_str(content("out/vocabulary.txt"), "the\ndog\n");
}

MR_TEST(moments_are_those_of_all_rows)
{
    static const double mean[] = {1, 8, 5}, variance[] = {1, 1, 1}, one_mean = 14.0 / 3,
                        one_variance = 186.0 / 6 - 196.0 / 9; /* of 0 7 4 2 9 6 */
    static const char rows[] =
        "from_tensor_slices([[0.0, 7.0, 4.0], [2.0, 9.0, 6.0], [0.0, 7.0, 4.0], [2.0, 9.0, 6.0]])";
    char text[300];
    for (int batch = 0; batch < 4; batch++) {
        snprintf(text, sizeof text, batch ? "%s.batch(%d)" : "%s", rows, batch);
        mr_ok(adapt(text, "normalization()"), &st);
        check_list("out/normalization.json", "mean", mean, 3, 1e-12);
        check_list("out/normalization.json", "variance", variance, 3, 1e-12);
        mr_ok(adapt(text, "normalization(axis=\"none\")"), &st);
        check_list("out/normalization.json", "mean", &one_mean, 1, 1e-12);
        check_list("out/normalization.json", "variance", &one_variance, 1, 1e-12);
    }
    /* Far from zero nothing is lost; bytes too. */
    const double far = 1e9 + 0.5, quarter = 0.25;
    mr_ok(adapt("range(1000).map(i => cast(i % 2, \"float64\") + 1000000000.0)",
                "normalization(axis=\"none\")"),
          &st);
    check_list("out/normalization.json", "mean", &far, 1, 1e-6);
    check_list("out/normalization.json", "variance", &quarter, 1, 1e-6);
}

MR_TEST(boundaries_part_the_values_evenly)
{
    /* Keras's example: [[-1.5, 1, 3.4, .5], [0, 3, 1.3, 0]] in 4 bins. */
    static const double want[] = {0, 0.5, 1.3};
    mr_ok(adapt("from_tensors([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]])",
                "discretization(num_bins=4)"),
          &st);
    check_list("out/boundaries.json", "boundaries", want, 3, 1e-6);
    static const double tens[] = {9, 19, 29, 39, 49, 59, 69, 79, 89};
    mr_ok(adapt("range(100).shuffle(100).batch(9)", "discretization(10)"), &st);
    check_list("out/boundaries.json", "boundaries", tens, 9, 1e-9);
    static const double zero[] = {0};
    mr_ok(adapt("from_tensor_slices([0, 0, 0, 0])", "discretization(4)"), &st);
    check_list("out/boundaries.json", "boundaries", zero, 1, 0);
}

MR_TEST(what_cannot_be_learned_is_refused)
{
    static const struct {
        const char *data, *layer;
        mr_code rc;
        const char *word;
    } cases[] = {
        {"range(3)", "dense(3)", MR_INVALID_ARGUMENT, "a layer that learns"},
        {"range(3)", "lookup(max_tokens=1)", MR_INVALID_ARGUMENT, "must be more than 1"},
        {"range(3)", "lookup(tokens=1)", MR_INVALID_ARGUMENT, "tokens"},
        {"range(3)", "text_vectorization()", MR_INVALID_ARGUMENT, "learns from strings"},
        {"from_tensors(\"...\")", "text_vectorization()", MR_FAILED_PRECONDITION, "no value"},
        {"range(3)", "discretization()", MR_INVALID_ARGUMENT, "num_bins"},
        {"range(3)", "discretization(1)", MR_INVALID_ARGUMENT, "num_bins"},
        {"from_tensors([1.0])", "lookup()", MR_INVALID_ARGUMENT, "strings or integers"},
        {"from_tensors([\"a\"])", "normalization()", MR_INVALID_ARGUMENT, "numbers"},
        {"from_tensors({\"a\": 1})", "lookup()", MR_INVALID_ARGUMENT, "must yield features"},
        {"range(0)", "lookup()", MR_FAILED_PRECONDITION, "no value"},
        {"range(0)", "normalization()", MR_FAILED_PRECONDITION, "no value"},
        {"range(0)", "discretization(3)", MR_FAILED_PRECONDITION, "no value"},
        {"from_tensors([\"a\\nb\"])", "lookup()", MR_INVALID_ARGUMENT, "line break"},
        {"range(3).map(x => log(0.0 * cast(x, \"float32\")))", "normalization()",
         MR_INVALID_ARGUMENT, "-inf"},
        {"range(3).map(x => log(0.0 * cast(x, \"float32\")))", "discretization(2)",
         MR_INVALID_ARGUMENT, "-inf"},
        {"range(5).batch(2)", "normalization()", MR_INVALID_ARGUMENT, "drop_remainder"},
        {"text_line(\"nowhere\")", "lookup()", MR_NOT_FOUND, "nowhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_code_is(adapt(cases[i].data, cases[i].layer), cases[i].rc, &st);
        char all[1200];
        mr_status_format(&st, all, sizeof all);
        mr_has_str(all, cases[i].word);
    }
    mr_check(access(mr_test_path("out"), F_OK) != 0);
}

MR_TEST(memory_may_run_out)
{
    static const char *const layers[] = {"lookup()", "normalization()", "discretization(2)"};
    const mr_iterator_opts here = {.has_threads = true};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        mr_fault_exact(100);
        mr_fault_each_allocation(n)
        {
            mr_code rc = adapt_with("range(9)", layers[i], &here);
            mr_fault_expect(rc, &st);
        }
    }
}
