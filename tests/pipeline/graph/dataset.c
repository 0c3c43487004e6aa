/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/dataset.h"

#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/node.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

static void fails(mr_dataset *ds, const char *message)
{
    mr_eq_str(sample_error(ds), message);
    mr_check(mr_dataset_spec(ds) == NULL);
    mr_dataset_unref(ds);
}

static mr_value integer(int64_t i)
{
    return (mr_value){.kind = MR_V_INT, .i = i};
}

MR_TEST(unset_options_take_their_defaults)
{
    mr_dataset *ds = sample_source(3, NULL);
    mr_status st;
    mr_ok(mr_dataset_check(ds, &st), &st);
    const struct sample_all *p = mr_dataset_params(ds);
    mr_eq_i64(p->o.size, 5);
    mr_eq_i64(p->o.depth, MR_AUTO);
    mr_eq_str(p->o.codec, "");
    mr_eq_i64(mr_dataset_cardinality(ds), 3);
    mr_eq_str(sample_text(ds), "sample_source(3)");
    mr_dataset_unref(ds);
}

MR_TEST(errors_name_op_parameter_expected_and_found)
{
    fails(sample_source(1001, NULL), "sample_source: n must be at most 1000, not 1001");
    fails(sample_source(-2, NULL), "sample_source: n must be at least -1, not -2");
    fails(sample_source(1, &(sample_opts){.size = -1}),
          "sample_source: size must be at least 1, not -1");
    fails(sample_source(1, &(sample_opts){.rate = 1.5}),
          "sample_source: rate must be at most 1, not 1.5");
    fails(sample_source(1, &(sample_opts){.codec = (char[]){"LZ4"}}),
          "sample_source: codec must be \"\", \"GZIP\" or \"ZSTD\", not \"LZ4\"");
    fails(sample_source(1, &(sample_opts){.sizes = {(int64_t[]){3, 0}, 2}}),
          "sample_source: sizes must be at least 1, not 0");
    fails(sample_source(-1, NULL), "sample_source: -1 is refused");
    fails(sample_source(99, NULL), "sample_source: ninety-nine does not fit");
    fails(sample_join(NULL, 0), "sample_join: expected at least 1 input datasets, found 0");
    fails(sample_pass(NULL, 1), "sample_pass: input 0 is NULL");
}

/* Inputs are released also on failure, as LeakSanitizer sees. */
MR_TEST(null_arguments_are_errors)
{
    mr_dataset *ds = sample_pass(sample_source(3, NULL), 7);
    mr_dataset *both[] = {sample_source(1, NULL), sample_source(2, NULL)};
    mr_dataset *again[] = {sample_source(1, NULL), sample_source(2, NULL)};
    fails(mr_dataset_new(NULL, NULL, NULL, 0), "the op is NULL");
    fails(mr_dataset_new(NULL, NULL, both, 2), "the op is NULL");
    fails(mr_dataset_new(mr_dataset_op(ds), NULL, NULL, 1), "sample_pass: input 0 is NULL");
    fails(mr_dataset_from_values(NULL, NULL, NULL, 0), "the op is NULL");
    fails(mr_dataset_with_inputs(NULL, NULL, 2), "the dataset is NULL");
    fails(mr_dataset_with_inputs(NULL, again, 2), "the dataset is NULL");
    fails(mr_dataset_with_inputs(ds, NULL, 1), "sample_pass: input 0 is NULL");
    fails(mr_dataset_with_inputs(ds, NULL, 0), "sample_pass: expected at least 1 input datasets, "
                                               "found 0");
    mr_value two = integer(2);
    fails(mr_dataset_with_param(NULL, "n", &two), "the dataset is NULL");
    fails(mr_dataset_with_param(ds, NULL, &two), "sample_pass: has no parameter ");
    mr_dataset_unref(ds);
}

MR_TEST(values_of_a_wrong_type_are_named)
{
    static const struct {
        const char *param;
        mr_value v;
        const char *message;
    } cases[] = {
        {"n", {.kind = MR_V_FLOAT, .f = 1.5}, "sample_source: n must be an integer, not 1.5"},
        {"n", {.kind = MR_V_BOOL, .i = 1}, "sample_source: n must be an integer, not true"},
        {"n", {.kind = MR_V_AUTO}, "sample_source: n must be an integer, not auto"},
        {"n", {.kind = MR_V_NONE}, "sample_source: n must be an integer, not none"},
        {"n", {.kind = MR_V_UNSET}, "sample_source: expected n, which is missing"},
        {"size", {.kind = MR_V_INT, .i = 0}, "sample_source: size must be at least 1, not 0"},
        {"depth",
         {.kind = MR_V_LIST},
         "sample_source: depth must be an integer or auto, not a list"},
        {"flag", {.kind = MR_V_INT, .i = 1}, "sample_source: flag must be true or false, not 1"},
        {"order", {.kind = MR_V_NONE}, "sample_source: order must be true or false, not none"},
        {"rate", {.kind = MR_V_BOOL}, "sample_source: rate must be a number, not false"},
        {"codec", {.kind = MR_V_INT, .i = 1}, "sample_source: codec must be a string, not 1"},
        {"fn",
         {.kind = MR_V_INT, .i = 1},
         "sample_source: fn must be a function, such as x => x, not 1"},
        {"sizes",
         {.kind = MR_V_FLOAT, .f = 2},
         "sample_source: sizes must be an integer or a list of integers, not 2.0"},
        {"weights",
         {.kind = MR_V_BOOL, .i = 1},
         "sample_source: weights must be a list of numbers, not true"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fails(sample_with("sample_source", cases[i].param, cases[i].v, NULL), cases[i].message);
    fails(sample_with("sample_source", "n", sample_string("abc"), NULL),
          "sample_source: n must be an integer, not \"abc\"");
    fails(sample_with("sample_source", "n",
                      sample_tensor(MR_INT64, 1, (int64_t[]){2}, (int64_t[]){1, 2}), NULL),
          "sample_source: n must be an integer, not a tensor of int64 [2]");
    fails(sample_with("sample_files", "names", integer(3), NULL),
          "sample_files: names must be a string or a list of strings, not 3");
}

MR_TEST(numbers_are_taken_where_they_mean_the_same)
{
    mr_dataset *ds = sample_with("sample_source", "rate", integer(1), NULL);
    const struct sample_all *p = mr_dataset_params(ds);
    mr_check(p->o.rate == 1.0);
    mr_dataset_unref(ds);
    ds =
        sample_with("sample_source", "n", sample_tensor(MR_UINT8, 0, NULL, (uint8_t[]){200}), NULL);
    p = mr_dataset_params(ds);
    mr_eq_i64(p->n, 200);
    mr_dataset_unref(ds);
    ds = sample_with("sample_source", "weights",
                     sample_tensor(MR_FLOAT32, 1, (int64_t[]){2}, (float[]){1, 0.5f}), NULL);
    p = mr_dataset_params(ds);
    mr_eq_u64(p->o.weights.n, 2);
    mr_check(p->o.weights.v[1] == 0.5);
    mr_dataset_unref(ds);
    ds = sample_with("sample_source", "sizes", sample_tensor(MR_FLOAT32, 1, (int64_t[]){0}, ""),
                     NULL);
    p = mr_dataset_params(ds);
    mr_eq_u64(p->o.sizes.n, 0);
    mr_dataset_unref(ds);
    ds = sample_with("sample_source", "depth", (mr_value){.kind = MR_V_NONE}, NULL);
    p = mr_dataset_params(ds);
    mr_eq_i64(p->o.depth, MR_AUTO);
    mr_dataset_unref(ds);
}

MR_TEST(errors_pass_through_the_ops_above)
{
    mr_dataset *bad = sample_pass(sample_pass(sample_source(-2, NULL), 1), 2);
    mr_eq_str(sample_error(bad), "sample_source: n must be at least -1, not -2");
    mr_dataset *both[] = {sample_source(1, NULL), bad};
    fails(sample_join(both, 2), "sample_source: n must be at least -1, not -2");
}

MR_TEST(a_function_that_carries_an_error_fails_its_op)
{
    mr_fn *fn = mr__fn_new(MR_FN_EXPR);
    mr_status st;
    mr_fail(&st, MR_INVALID_ARGUMENT, "line 1, column 1: broken");
    fn->error = mr_memdup(&st, sizeof st);
    mr_dataset *ds = sample_source(1, &(sample_opts){.fn = fn});
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_eq_str(st.message, "line 1, column 1: broken");
    mr_eq_str(st.op, "sample_source");
    mr_dataset_unref(ds);
    mr_fn_unref(fn);
}

MR_TEST(nodes_own_copies_of_what_they_were_given)
{
    int64_t sizes[] = {1, 2};
    double weights[] = {0.5};
    char codec[] = "GZIP";
    mr_value v = sample_string("text");
    mr_dataset *ds = sample_source(
        1,
        &(sample_opts){.sizes = {sizes, 2}, .weights = {weights, 1}, .codec = codec, .value = v});
    sizes[0] = 9;
    weights[0] = 9;
    codec[0] = 'X';
    mr_value_reset(&v);
    const struct sample_all *p = mr_dataset_params(ds);
    mr_eq_i64(p->o.sizes.v[0], 1);
    mr_check(p->o.weights.v[0] == 0.5);
    mr_eq_str(p->o.codec, "GZIP");
    mr_eq_str(p->o.value.s, "text");
    mr_dataset_unref(ds);
}

MR_TEST(unknown_values_make_templates)
{
    mr_value unknown = {.kind = MR_V_UNKNOWN, .spec = mr_spec_scalar(MR_INT64)};
    mr_dataset *ds = sample_with("sample_source", "n", unknown, NULL);
    mr_value back;
    mr_status st;
    mr_ok(mr_dataset_check(ds, &st), &st);
    mr_check(mr_param_unknown(ds, offsetof(struct sample_all, n)));
    mr_check(!mr_param_unknown(ds, offsetof(struct sample_all, o.size)));
    mr_eq_i64(mr_dataset_cardinality(ds), MR_UNKNOWN_COUNT);
    mr_ok(mr_dataset_param(ds, 0, &back, &st), &st);
    mr_eq_i64(back.kind, MR_V_UNKNOWN);
    mr_value_reset(&back);
    mr_value three = integer(3);
    mr_dataset *known = mr_dataset_with_param(ds, "n", &three);
    mr_check(!mr_param_unknown(known, offsetof(struct sample_all, n)));
    mr_eq_i64(mr_dataset_cardinality(known), 3);
    mr_dataset_unref(ds);
    mr_dataset_unref(known);
    unknown = (mr_value){.kind = MR_V_UNKNOWN, .spec = mr_spec_scalar(MR_STRING)};
    fails(sample_with("sample_source", "n", unknown, NULL),
          "sample_source: n must be an integer, not a value of type string[]");
    mr_value items[] = {{.kind = MR_V_UNKNOWN, .spec = mr_spec_scalar(MR_STRING)},
                        sample_string("a")};
    ds = sample_with("sample_files", "names", sample_tuple(items, 2), NULL);
    mr_check(mr_param_unknown(ds, 0));
    mr_dataset_unref(ds);
}

MR_TEST(with_param_changes_one_and_refuses_strangers)
{
    mr_dataset *ds = sample_source(3, &(sample_opts){.seed = 0, .has_seed = true});
    mr_value two = integer(2), unset = {0};
    mr_dataset *other = mr_dataset_with_param(ds, "size", &two);
    mr_eq_str(sample_text(other), "sample_source(3, 2, seed=0)");
    mr_dataset *without = mr_dataset_with_param(other, "seed", &unset);
    mr_eq_str(sample_text(without), "sample_source(3, 2)");
    fails(mr_dataset_with_param(ds, "nothing", &two), "sample_source: has no parameter nothing");
    mr_value v = {.kind = MR_V_INT, .i = 5};
    mr_status st;
    mr_ok(mr_dataset_param_named(ds, "nothing", &v, &st), &st);
    mr_eq_i64(v.kind, MR_V_UNSET);
    mr_dataset_unref(ds);
    mr_dataset_unref(other);
    mr_dataset_unref(without);
}

MR_TEST(with_inputs_keeps_the_parameters)
{
    mr_dataset *ds = sample_pass(sample_source(3, NULL), 7);
    mr_dataset *input = sample_source(4, NULL);
    mr_dataset *other = mr_dataset_with_inputs(ds, &input, 1);
    mr_eq_str(sample_text(other), "sample_source(4).sample_pass(7)");
    mr_eq_i64(mr_dataset_cardinality(other), 4);
    mr_dataset_unref(ds);
    mr_dataset_unref(other);
}

MR_TEST(a_chain_of_any_length_goes_without_recursion)
{
    mr_dataset *ds = sample_source(1, NULL);
    for (int i = 0; i < 200000; i++)
        ds = sample_pass(ds, i);
    mr_dataset *copy = mr__dataset_instance(ds);
    mr_check(copy != NULL);
    mr_dataset_unref(ds);
    mr_dataset_unref(copy);
}

MR_TEST(elements_may_not_nest_without_end)
{
    mr_dataset *ds = sample_source(1, NULL);
    for (int i = 0; i < 300; i++)
        ds = sample_join((mr_dataset *[]){ds, sample_source(1, NULL)}, 2);
    mr_has_str(sample_error(ds), "nest more than 256 levels deep");
    mr_dataset_unref(ds);
}

static int destroyed;

static void start(void *state)
{
    *(int *)state = 7;
}

static void stop(void *state)
{
    destroyed += *(int *)state;
}

MR_TEST(instances_share_nodes_but_not_state)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *ds = sample_join((mr_dataset *[]){mr_dataset_ref(s), s}, 2);
    mr_dataset *copy = mr__dataset_instance(ds);
    mr_status st;
    void *a, *b, *again;
    mr_check(mr_dataset_input(copy, 0) == mr_dataset_input(copy, 1));
    mr_check(mr_dataset_input(copy, 0) != s);
    mr_check(mr_dataset_params(mr_dataset_input(copy, 0)) == mr_dataset_params(s));
    mr_ok(mr__dataset_shared(s, sizeof(int), start, stop, &a, &st), &st);
    mr_ok(mr__dataset_shared(mr_dataset_input(copy, 0), sizeof(int), start, stop, &b, &st), &st);
    mr_ok(mr__dataset_shared(mr_dataset_input(copy, 1), sizeof(int), start, stop, &again, &st),
          &st);
    mr_check(a != b && b == again);
    mr_eq_i64(*(int *)a, 7);
    mr_dataset_unref(ds);
    mr_eq_i64(destroyed, 7);
    mr_dataset_unref(copy);
    mr_eq_i64(destroyed, 14);
}

MR_TEST(a_node_reached_twice_is_ordered_once)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *p = sample_pass(mr_dataset_ref(s), 1);
    mr_dataset *ds = sample_join((mr_dataset *[]){p, s, mr_dataset_ref(p)}, 3);
    mr__nodes nodes;
    mr_status st;
    mr_ok(mr__nodes_of(ds, &nodes, &st), &st);
    mr_eq_u64(nodes.n, 3);
    mr_check(nodes.v[0] == s && nodes.v[1] == p && nodes.v[2] == ds);
    static const size_t inputs[] = {0, 1, 0, 1};
    mr_eq_mem(nodes.inputs, inputs, sizeof inputs);
    mr__nodes_reset(&nodes);
    mr_dataset_unref(ds);
}

MR_TEST(every_failed_allocation_gives_a_dataset_that_says_so)
{
    int64_t sizes[] = {1, 2};
    sample_ops();
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr_dataset *ds = sample_pass(
            sample_source(1, &(sample_opts){.sizes = {sizes, 2}, .codec = (char[]){"GZIP"}}), 1);
        mr_dataset *copy = NULL, *named = NULL;
        if (mr_fault_expect(mr_dataset_check(ds, &st), &st) == MR_OK) {
            copy = mr__dataset_instance(ds);
            mr_value v = integer(3);
            named = mr_dataset_with_param(ds, "n", &v);
            (void)mr_fault_expect(mr_dataset_check(named, &st), &st);
            mr_check(copy || mr_fault_seen());
        }
        mr_dataset_unref(copy);
        mr_dataset_unref(named);
        mr_dataset_unref(ds);
    }
}
