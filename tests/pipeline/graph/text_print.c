/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "pipeline/params/expr.h"
#include "pipeline/graph/fn.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

/* ds (taken) prints as that, and the text is canonical. */
static void prints(mr_dataset *ds, const char *want)
{
    const mr_expr *e = NULL;
    char *again = NULL;
    mr_status st;
    mr_eq_str(sample_text(ds), want);
    mr_ok(mr_expr_parse(want, strlen(want), &e, &st), &st);
    mr_ok(mr_expr_print(e, &again, &st), &st);
    mr_eq_str(again, want);
    mr_expr_unref(e);
    mr_free(again);
    mr_dataset_unref(ds);
}

static mr_dataset *value(mr_value v)
{
    return sample_with("sample_source", "value", v, NULL);
}

MR_TEST(what_is_at_its_default_is_left_out)
{
    prints(sample_source(3, &(sample_opts){.size = 5, .depth = 0}), "sample_source(3)");
    prints(sample_source(3, &(sample_opts){.size = 6}), "sample_source(3, 6)");
    prints(sample_source(3, &(sample_opts){.flag = true,
                                           .order = MR_NO,
                                           .rate = 0.25,
                                           .codec = (char[]){"ZSTD"},
                                           .has_seed = true,
                                           .seed = -7,
                                           .sizes = {(int64_t[]){4}, 1},
                                           .weights = {(double[]){0.1, 2}, 2},
                                           .depth = 2}),
           "sample_source(3, depth=2, seed=-7, flag=true, order=false, rate=0.25, codec=\"ZSTD\", "
           "sizes=4, weights=[0.1, 2.0])");
}

MR_TEST(inputs_print_as_chains_and_calls)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *j = sample_join((mr_dataset *[]){sample_pass(mr_dataset_ref(s), 2), s}, 2);
    prints(sample_pass(j, 3),
           "sample_join(sample_source(1).sample_pass(2), sample_source(1)).sample_pass(3)");
}

MR_TEST(tensors_print_as_what_gives_them_again)
{
    static const double tenth = 0.1;
    int64_t four[] = {4}, square[] = {2, 2}, none[] = {0}, flat[] = {0, 3};
    prints(value(sample_tensor(MR_INT64, 2, square, (int64_t[]){1, -2, 3, INT64_MIN})),
           "sample_source(1, value=[[1, -2], [3, -9223372036854775808]])");
    prints(value(sample_tensor(MR_FLOAT32, 1, four, (float[]){0.1f, 1, 16777216, -0.0f})),
           "sample_source(1, value=[0.1, 1.0, 16777216.0, -0.0])");
    prints(value(sample_tensor(MR_FLOAT32, 1, four, (float[]){0x1.5c87fap-84f, 0, 0, 0})),
           "sample_source(1, value=[7.038530691851209e-26, 0.0, 0.0, 0.0])");
    prints(value(sample_tensor(MR_BOOL, 1, (int64_t[]){2}, (bool[]){true, false})),
           "sample_source(1, value=[true, false])");
    prints(value(sample_tensor(MR_INT32, 1, four, (int32_t[]){1, 2, 3, 4})),
           "sample_source(1, value=cast([1, 2, 3, 4], \"int32\"))");
    prints(value(sample_tensor(MR_FLOAT64, 0, NULL, (double[]){0.5})),
           "sample_source(1, value=cast(0.5, \"float64\"))");
    prints(value(sample_tensor(MR_FLOAT64, 0, NULL, &tenth)),
           "sample_source(1, value=decode_raw(\"\\x9a\\x99\\x99\\x99\\x99\\x99\\xb9?\", "
           "\"float64\")[0])");
    prints(
        value(sample_tensor(MR_UINT64, 2, (int64_t[]){1, 1}, (uint64_t[]){UINT64_MAX})),
        "sample_source(1, value=reshape(decode_raw(\"\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\", "
        "\"uint64\"), [1, 1]))");
    prints(value(sample_tensor(MR_FLOAT16, 1, (int64_t[]){2}, (uint16_t[]){0x3c00, 0x3800})),
           "sample_source(1, value=cast([1.0, 0.5], \"float16\"))");
    prints(value(sample_tensor(MR_FLOAT32, 1, none, "")), "sample_source(1, value=[])");
    prints(value(sample_tensor(MR_INT64, 2, flat, "")),
           "sample_source(1, value=zeros([0, 3], \"int64\"))");
    float infinite[] = {INFINITY};
    prints(value(sample_tensor(MR_FLOAT32, 1, (int64_t[]){1}, infinite)),
           "sample_source(1, value=decode_raw(\"\\x00\\x00\\x80\\x7f\", \"float32\"))");
}

MR_TEST(floats_print_the_fewest_digits_that_round_trip)
{
    uint64_t state = mr_test_seed();
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = mr_test_random(&state);
        double f;
        memcpy(&f, &bits, sizeof f);
        if (!isfinite(f))
            continue;
        mr_dataset *ds = value((mr_value){.kind = MR_V_FLOAT, .f = f});
        const char *text = sample_text(ds);
        const mr_expr *e = NULL;
        mr_status st;
        mr_ok(mr_expr_parse(text, strlen(text), &e, &st), &st);
        mr_eq_mem(&e->children[1]->f, &f, sizeof f);
        mr_expr_unref(e);
        mr_dataset_unref(ds);
    }
}

MR_TEST(variadic_parameters_print_as_arguments)
{
    mr_value items[] = {{.kind = MR_V_INT, .i = 1}, sample_string("a\"b")};
    mr_value v = sample_tuple(items, 2);
    prints(sample_values(v), "sample_values(1, \"a\\\"b\")");
    mr_value named[] = {{.kind = MR_V_INT, .i = 1}, {.kind = MR_V_INT, .i = 2}};
    v = sample_tuple(named, 2);
    v.kind = MR_V_RECORD;
    v.names = mr_calloc(2, sizeof *v.names);
    v.names[0] = mr_strdup("image");
    v.names[1] = mr_strdup("label");
    mr_value copy;
    mr_status st;
    mr_ok(mr_value_copy(&copy, &v, &st), &st);
    prints(sample_values(v), "sample_values(image=1, label=2)");
    copy.names[0][2] = '/';
    prints(sample_values(copy), "sample_values({\"im/ge\": 1, \"label\": 2})");
}

MR_TEST(a_path_with_a_patterns_characters_stays_a_path)
{
    const char *names[] = {"a*.tfrecord", "b[1].tfrecord", "plain"};
    prints(sample_files(names, NULL, 3),
           "sample_files(\"a*.tfrecord\", \"b[1].tfrecord\", \"plain\")");
    prints(sample_files(names, (bool[]){true, false, true}, 3),
           "sample_files(\"\" + \"a*.tfrecord\", \"b[1].tfrecord\", \"plain\")");
    prints(sample_files(names, NULL, 1), "sample_files(\"a*.tfrecord\")");
    prints(sample_files(names, NULL, 0), "sample_files([])");
}

MR_TEST(functions_print_with_what_they_captured)
{
    const char *names[] = {"a", "b", "c", "d"};
    const mr_expr *e = NULL;
    mr_status st;
    mr_fn *fn = NULL;
    static const char text[] = "x => f(x + a, a => a, b ** 2, -a, c[0], d.take(1), b.x())";
    mr_value values[] = {{.kind = MR_V_INT, .i = -3},
                         {.kind = MR_V_FLOAT, .f = -0.5},
                         sample_tensor(MR_INT32, 1, (int64_t[]){1}, (int32_t[]){5}),
                         {.kind = MR_V_DATASET, .dataset = sample_source(2, NULL)}};
    mr_ok(mr_expr_parse(text, strlen(text), &e, &st), &st);
    mr_ok(mr__fn_of_expr(e, names, values, 4, &fn, &st), &st);
    prints(sample_source(1, &(sample_opts){.fn = fn}),
           "sample_source(1, fn=x => f(x + -3, a => a, (-0.5) ** 2, --3, cast([5], \"int32\")[0], "
           "sample_source(2).take(1), (-0.5).x()))");
    mr_fn_unref(fn);
    mr_expr_unref(e);
    mr_value_reset(&values[2]);
    mr_value_reset(&values[3]);
}

static mr_code callback(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    (void)in;
    (void)out;
    return mr_fail(st, MR_INTERNAL, "never called");
}

MR_TEST(a_callback_prints_its_name_or_fails)
{
    mr_fn *fn = mr__fn_new(MR_FN_BLOCK);
    fn->callback = callback;
    mr_dataset *ds = sample_source(1, &(sample_opts){.fn = fn});
    char *text = NULL;
    void *bytes = NULL;
    size_t size;
    mr_status st;
    mr_code_is(mr_dataset_to_text(ds, &text, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "not registered");
    mr_code_is(mr_dataset_to_proto(ds, &bytes, &size, &st), MR_FAILED_PRECONDITION, &st);
    mr_dataset_unref(ds);
    fn->name = mr_strdup("my_callback");
    prints(sample_source(1, &(sample_opts){.fn = fn}), "sample_source(1, fn=my_callback)");
    mr_fn_unref(fn);
}

MR_TEST(a_graph_that_multiplies_in_text_is_refused)
{
    mr_dataset *ds = sample_source(1, NULL);
    for (int i = 0; i < 40; i++) {
        mr_value v = {.kind = MR_V_DATASET, .dataset = ds};
        mr_value items[] = {v, {.kind = MR_V_DATASET, .dataset = mr_dataset_ref(ds)}};
        ds = sample_values(sample_tuple(items, 2));
    }
    char *text = NULL;
    mr_status st;
    mr_code_is(mr_dataset_to_text(ds, &text, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "the text of a graph");
    mr_dataset_unref(ds);
}

MR_TEST(every_failed_allocation_is_reported)
{
    mr_fn *fn = sample_fn("x => x + 1");
    mr_dataset *ds =
        sample_pass(sample_source(1, &(sample_opts){.fn = fn, .codec = (char[]){"GZIP"}}), 1);
    mr_fault_each_allocation(n)
    {
        char *text = NULL;
        mr_status st;
        if (mr_fault_expect(mr_dataset_to_text(ds, &text, &st), &st) == MR_OK)
            mr_free(text);
    }
    mr_dataset_unref(ds);
    mr_fn_unref(fn);
}
