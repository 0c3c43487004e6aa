/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that prepare features: what a model makes of strings and numbers, trained, saved and moved
 * elsewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/loop/fit.h"
#include "trainer/model/layer.h"
#include "trainer/exchange/saved_model.h"

static mr_status st;

static mr_strategy *two_replicas(void)
{
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    return s;
}

static mr_code predict(const char *model, const char *data, predicted *out)
{
    mr_strategy *s = two_replicas();
    mr_model *m = NULL;
    mr_dataset *ds = mr_test_graph(data);
    mr_test_context("%s", model);
    out->n = 0;
    mr_code rc = mr_model_parse(&m, model, &st);
    if (rc == MR_OK)
        rc = mr_predict(s, m, ds, test_take, out, NULL, &st);
    mr_dataset_unref(ds);
    mr_model_free(m);
    mr_strategy_free(s);
    return rc;
}

static void check(const char *model, const char *data, const float *want, size_t n)
{
    predicted g;
    mr_ok(predict(model, data, &g), &st);
    mr_eq_u64(g.n, n);
    for (size_t i = 0; i < n; i++)
        mr_eq_f64(g.values[i], want[i], 1e-6);
}

static const char letters[] = "from_tensor_slices([\"b\", \"x\", \"a\"]).map(x => [x]).batch(2)",
                  with_labels[] = "from_tensor_slices([\"b\", \"x\", \"a\"]).map(x => ([x], "
                                  "[1.0])).batch(2)",
                  numbers[] = "from_tensor_slices([7, 9, 5]).map(x => [x]).batch(2)",
                  floats[] = "from_tensor_slices([-0.5, 0.25, 3.0]).map(x => [x]).batch(2)";

/* A model with "%s" in it, which becomes the path of a file of the test. */
static const char *with_file(const char *format, const char *name)
{
    static char text[900];
    snprintf(text, sizeof text, format, mr_test_path(name));
    return text;
}

MR_TEST(strings_and_numbers_become_class_numbers)
{
    static const float index[] = {2, 0, 1}, spread[] = {0, 0, 1, 1, 0, 0, 0, 1, 0},
                       bins[] = {0, 1, 2}, again[] = {1, 0, 2};
    check("lookup([\"a\", \"b\"]).cast()", letters, index, 3);
    check("lookup([\"a\", \"b\"]).cast()", with_labels, index, 3);
    check("input(1).lookup(vocabulary=[\"a\", \"b\"]).category_encoding(3)", letters, spread, 9);
    check("lookup([5, 7]).cast()", numbers, index, 3);
    check("discretization([0.0, 2.5]).cast()", floats, bins, 3);
    check("discretization([0.0, 2.5]).lookup([0, 2], oov=1).cast()", floats, again, 3);
    static const float words[] = {2, 0, 1, 3};
    check("text_vectorization([\"a\", \"b\"], output_sequence_length=2).cast()",
          "from_tensor_slices([\"A!\", \"what b\"]).map(x => [x]).batch(2)", words, 4);
    check("text_vectorization([\"a\", \"b\"], output_sequence_length=2).cast()",
          "from_tensor_slices([\"A!\", \"what b\"]).batch(1)", words, 4);
    mr_test_file("tokens", "a\nb\n");
    mkdir(mr_test_path("adapted"), 0777);
    mr_test_file("adapted/vocabulary.txt", "a\nb\n");
    mr_test_file("adapted/boundaries.json", "{\"boundaries\": [0, 2.5]}");
    mr_test_file("adapted/normalization.json", "{\"mean\": [0.25], \"variance\": [0.0625]}");
    check(with_file("lookup(\"%s\").cast()", "tokens"), letters, index, 3);
    check(with_file("lookup(\"%s\").cast()", "adapted"), letters, index, 3);
    check(with_file("discretization(\"%s\").cast()", "adapted"), floats, bins, 3);
    static const float normal[] = {-3, 0, 11};
    check(with_file("normalization(adapted=\"%s\")", "adapted"), floats, normal, 3);
}

MR_TEST(hashes_are_those_of_the_pipeline)
{
    predicted in_model, in_pipeline;
    mr_ok(predict("hashing(num_bins=1000).cast()", letters, &in_model), &st);
    mr_ok(predict("cast()",
                  "from_tensor_slices([\"b\", \"x\", \"a\"]).map(x => [hash(x, "
                  "buckets=1000)]).batch(2)",
                  &in_pipeline),
          &st);
    mr_eq_u64(in_model.n, 3);
    mr_eq_mem(in_model.values, in_pipeline.values, 3 * sizeof(float));
}

/* ---- one of a program's own ---- */

static mr_code make_small(const mr_layer *l, const char *text, char **out, mr_status *status)
{
    size_t size = strlen(text) + 16;
    (void)l;
    if (!(*out = mr_malloc(size)))
        return mr_fail_memory(status, size, "an expression");
    snprintf(*out, size, "lower(%s)", text);
    return MR_OK;
}

static mr_code nothing(const mr_layer_pass *p, mr_status *status)
{
    (void)p;
    (void)status;
    return MR_OK;
}

MR_TEST(programs_add_layers_that_prepare)
{
    static const mr_layer_desc small = {.is = {.abi = MR_ABI_VERSION,
                                               .name = "small",
                                               .doc = "Texts in lower case.",
                                               .example = "small().lookup([\"a\"]).cast()"},
                                        .view = true,
                                        .prepare = make_small},
                               both = {.is = {.abi = MR_ABI_VERSION,
                                              .name = "both",
                                              .doc = "Prepares, and computes on devices.",
                                              .example = "both()"},
                                       .forward = nothing,
                                       .backward = nothing,
                                       .prepare = make_small};
    static const float index[] = {1, 2, 0};
    mr_ok(mr_layer_register(&small, &st), &st);
    mr_code_is(mr_layer_register(&both, &st), MR_INVALID_ARGUMENT, &st);
    check("small().lookup([\"a\", \"b\"]).cast()",
          "from_tensor_slices([\"A\", \"B\", \"c\"]).map(x => [x]).batch(2)", index, 3);
}

MR_TEST(what_is_wrong_is_named_before_the_first_step)
{
    static const struct {
        const char *model, *data;
        mr_code rc;
        const char *word;
    } cases[] = {
        {"dense(2).lookup([\"a\"])", letters, MR_INVALID_ARGUMENT, "cannot follow dense"},
        {"lookup(3)", letters, MR_INVALID_ARGUMENT, "a list of tokens or the name of a file"},
        {"lookup(\"\")", letters, MR_INVALID_ARGUMENT, "a list of tokens or the name of a file"},
        {"lookup([1, 2]).cast()", letters, MR_INVALID_ARGUMENT, "the model's lookup"},
        {"lookup([\"a\", \"a\"]).cast()", letters, MR_INVALID_ARGUMENT, "is a duplicate"},
        {"lookup([\"a\"]).cast()", floats, MR_INVALID_ARGUMENT, "expects strings or integers"},
        {"lookup(\"nowhere\").cast()", letters, MR_NOT_FOUND, "no such vocabulary"},
        {"text_vectorization([\"a\"], 2).cast()", numbers, MR_INVALID_ARGUMENT, "expects strings"},
        {"input(3).text_vectorization([\"a\"], 2).cast()", letters, MR_INVALID_ARGUMENT, "[3]"},
        {"hashing(10).cast()", numbers, MR_INVALID_ARGUMENT, "the model's hashing"},
        {"discretization([1.0, 0.5]).cast()", floats, MR_INVALID_ARGUMENT, "ascend"},
        {"discretization([\"a\"]).cast()", floats, MR_INVALID_ARGUMENT, "must be a number"},
        {"discretization([]).cast()", floats, MR_INVALID_ARGUMENT, "a list of numbers"},
        {"discretization(\"nowhere\").cast()", floats, MR_INVALID_ARGUMENT, "nowhere"},
        {"normalization(adapted=\"nowhere\")", floats, MR_INVALID_ARGUMENT, "nowhere"},
        {"normalization(adapted=[1.0])", floats, MR_INVALID_ARGUMENT, "name of a file"},
        {"normalization()", floats, MR_INVALID_ARGUMENT, "mean and variance, or adapted"},
        {"lookup([\"a\"]).cast()", "from_tensors({\"a\": \"b\"}).batch(1)", MR_INVALID_ARGUMENT,
         "the data must yield features"},
        {"dense(1)", letters, MR_INVALID_ARGUMENT, "numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        predicted g;
        mr_code_is(predict(cases[i].model, cases[i].data, &g), cases[i].rc, &st);
        mr_has_str(st.message, cases[i].word);
    }
    static const struct {
        const char *content, *word;
    } files[] = {{"{", "not JSON"},
                 {"{\"mean\": [1]}", "no list \"variance\""},
                 {"{\"mean\": [1], \"variance\": [\"a\"]}", "value 0 of \"variance\""},
                 {"{\"mean\": [1, 2], \"variance\": [1]}", "2 means, but 1 variances"},
                 {"{\"mean\": [1], \"variance\": [-1]}", "must be at least 0"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        predicted g;
        mr_test_file("normalization.json", files[i].content);
        mr_code_is(
            predict(with_file("normalization(adapted=\"%s\")", "normalization.json"), floats, &g),
            MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, files[i].word);
    }
}

static mr_code train_and_save(const char *model, const char *data, const char *name, mr_status *why)
{
    const mr_iterator_opts here = {.has_threads = true};
    const char *const cpu = "cpu:0";
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *loss = NULL;
    mr_optimizer *o = NULL;
    mr_dataset *ds = NULL;
    mr_code rc = mr_dataset_from_text(data, strlen(data), NULL, &ds, why);
    if (rc == MR_OK)
        rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = &cpu, .n_devices = 1}, why);
    if (rc == MR_OK)
        rc = mr_model_parse(&m, model, why);
    if (rc == MR_OK)
        rc = mr_loss_parse(&loss, "mse", why);
    if (rc == MR_OK)
        rc = mr_optimizer_parse(&o, "sgd(0.01)", why);
    if (rc == MR_OK)
        rc = mr_fit(s, m, ds, loss, o, &(mr_fit_opts){.validation = ds, .iterator = &here}, NULL,
                    why);
    if (rc == MR_OK)
        rc = mr_model_save(m, mr_test_path(name), NULL, why);
    mr_dataset_unref(ds);
    mr_optimizer_free(o);
    mr_loss_free(loss);
    mr_model_free(m);
    mr_strategy_free(s);
    return rc;
}

static mr_code predict_saved(const char *name, const char *data, predicted *out)
{
    mr_strategy *s = two_replicas();
    mr_saved *saved = NULL;
    mr_model *m = NULL;
    mr_dataset *ds = mr_test_graph(data);
    out->n = 0;
    mr_code rc = mr_saved_open(&saved, mr_test_path(name), &st);
    if (rc == MR_OK)
        rc = mr_model_parse(&m, mr_saved_model_text(saved), &st);
    if (rc == MR_OK)
        rc = mr_saved_build(saved, m, s, NULL, &st);
    if (rc == MR_OK)
        rc = mr_predict(s, m, ds, test_take, out, NULL, &st);
    mr_dataset_unref(ds);
    mr_model_free(m);
    mr_saved_close(saved);
    mr_strategy_free(s);
    return rc;
}

static bool there(const char *name)
{
    return access(mr_test_path(name), F_OK) == 0;
}

MR_TEST(what_was_learned_goes_with_the_saved_model)
{
    predicted before, after;
    char other[700];
    mr_test_file("tokens", "a\nb\n");
    mr_ok(train_and_save(
              with_file("lookup(\"%s\", name=\"words\").embedding(3, 2).flatten().dense(1)",
                        "tokens"),
              with_labels, "one", &st),
          &st);
    mr_check(there("one/preprocessing/words/vocabulary.txt"));
    mr_ok(predict_saved("one", letters, &before), &st);
    mr_eq_u64(before.n, 3);
    mr_eq_i64(unlink(mr_test_path("tokens")), 0);
    snprintf(other, sizeof other, "%s", mr_test_path("an \"odd\" place"));
    mr_eq_i64(rename(mr_test_path("one"), other), 0);
    mr_ok(predict_saved("an \"odd\" place", letters, &after), &st);
    mr_eq_mem(after.values, before.values, 3 * sizeof(float));
    /* Saved again from there, and over itself. */
    mr_saved *saved = NULL;
    mr_ok(mr_saved_open(&saved, other, &st), &st);
    mr_ok(train_and_save(mr_saved_model_text(saved), with_labels, "an \"odd\" place", &st), &st);
    mr_saved_close(saved);
    mr_ok(predict_saved("an \"odd\" place", letters, &after), &st);
    char file[800], all[1200];
    snprintf(file, sizeof file, "%s/preprocessing/words/vocabulary.txt", other);
    mr_test_file("an \"odd\" place/preprocessing/words/vocabulary.txt", "a\nc\n");
    mr_code_is(predict_saved("an \"odd\" place", letters, &after), MR_DATA_LOSS, &st);
    mr_status_format(&st, all, sizeof all);
    mr_has_str(all, "words/vocabulary.txt has the CRC-32C");
    mr_eq_i64(unlink(file), 0);
    mr_code_is(predict_saved("an \"odd\" place", letters, &after), MR_NOT_FOUND, &st);
    mr_status_format(&st, all, sizeof all);
    mr_has_str(all, "words/vocabulary.txt");
}

/* Files of holes, which take no room. */
MR_TEST(files_of_what_was_learned_have_a_largest_size)
{
    mr_test_file("words", "");
    mr_check(truncate(mr_test_path("words"), ((off_t)1 << 30) + 1) == 0);
    mr_check(train_and_save(with_file("lookup(\"%s\").embedding(3, 2).flatten().dense(1)", "words"),
                            with_labels, "one", &st) != MR_OK);
    mr_has_str(st.message, "more than the 1073741824 bytes");
    mr_test_file("moments", "");
    mr_check(truncate(mr_test_path("moments"), ((off_t)1 << 28) + 1) == 0);
    mr_check(train_and_save(with_file("normalization(adapted=\"%s\").dense(1)", "moments"),
                            with_labels, "one", &st) != MR_OK);
    mr_has_str(st.message, "more than the 268435456 bytes");
}

MR_TEST(a_model_is_saved_with_the_files_that_it_was_made_with)
{
    predicted g;
    mr_model *m = NULL;
    mr_test_file("tokens", "a\nb\n");
    mr_ok(train_and_save(
              with_file("lookup(\"%s\", name=\"words\").embedding(3, 2).flatten().dense(1)",
                        "tokens"),
              with_labels, "first", &st),
          &st);
    mr_saved *saved = NULL;
    mr_strategy *s = two_replicas();
    mr_ok(mr_saved_open(&saved, mr_test_path("first"), &st), &st);
    mr_ok(mr_model_parse(&m, mr_saved_model_text(saved), &st), &st);
    mr_ok(mr_saved_build(saved, m, s, NULL, &st), &st);
    mr_saved_close(saved);
    /* Its directory may be gone when it is saved again, as an old checkpoint is. */
    char command[500];
    snprintf(command, sizeof command, "rm -r '%s'", mr_test_path("first"));
    mr_eq_i64(system(command), 0);
    mr_ok(mr_model_save(m, mr_test_path("second"), NULL, &st), &st);
    mr_model_free(m);
    mr_strategy_free(s);
    mr_ok(predict_saved("second", letters, &g), &st);
    mr_eq_u64(g.n, 3);
}

MR_TEST(each_layer_has_a_file_of_its_own)
{
    predicted g;
    mkdir(mr_test_path("adapted"), 0777);
    mr_test_file("adapted/boundaries.json", "{\"boundaries\": [0, 2.5]}");
    mr_test_file("adapted/vocabulary.txt", "0\n2\n");
    mr_test_file("adapted/normalization.json", "{\"mean\": [1], \"variance\": [4]}");
    char model[1500], path[400];
    snprintf(path, sizeof path, "%s", mr_test_path("adapted"));
    snprintf(model, sizeof model,
             "discretization(\"%s\").lookup(\"%s\").normalization(adapted=\"%s\").dense(1)", path,
             path, path);
    mr_ok(train_and_save(model,
                         "from_tensor_slices([-0.5, 0.25, 3.0]).map(x => ([x], [1.0])).batch(3)",
                         "two", &st),
          &st);
    mr_check(there("two/preprocessing/discretization/boundaries.json"));
    mr_check(there("two/preprocessing/lookup/vocabulary.txt"));
    mr_check(there("two/preprocessing/normalization/normalization.json"));
    char command[500];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    mr_eq_i64(system(command), 0);
    mr_ok(predict_saved("two", floats, &g), &st);
    mr_eq_u64(g.n, 3);
}

MR_TEST(memory_may_run_out)
{
    mr_test_file("tokens", "a\nb\n");
    char model[900];
    snprintf(model, sizeof model, "%s", with_file("lookup(\"%s\").cast().dense(1)", "tokens"));
    mr_ok(train_and_save(model, with_labels, "m", &st), &st);
    mr_fault_exact(100);
    mr_fault_each_allocation(n)
    {
        mr_code rc = train_and_save(model, with_labels, "m", &st);
        mr_fault_expect(rc, &st);
        bool seen = mr_fault_seen(); /* or it comes while the model is opened */
        mr_saved *saved = NULL;
        rc = mr_fault_expect(mr_saved_open(&saved, mr_test_path("m"), &st), &st);
        mr_check(rc == MR_OK || !seen);
        mr_saved_close(saved);
    }
}
