/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "pipeline/graph/dataset.h"
#include "pipeline/graph/fn.h"
#include "pipeline/graph/libprotobuf.h"
#include "pipeline/graph/graph.pb-c.h"
#include "pipeline/graph/node.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

static mr_dataset *travel(const mr_dataset *ds)
{
    void *bytes = NULL;
    size_t size = 0;
    mr_dataset *back = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_proto(ds, &bytes, &size, &st), &st);
    mr_ok(mr_dataset_from_proto(bytes, size, &back, &st), &st);
    mr_free(bytes);
    return back;
}

/* ds (taken) is the same afterwards. */
static void travels(mr_dataset *ds)
{
    mr_dataset *back = travel(ds);
    mr_eq_str(sample_text(back), sample_text(ds));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
}

static mr_dataset *value(mr_value v)
{
    return sample_with("sample_source", "value", v, NULL);
}

MR_TEST(every_type_of_parameter_travels)
{
    mr_fn *fn = sample_fn("(a, b) => (b, a + 1)");
    travels(sample_source(3, NULL));
    travels(sample_source(3, &(sample_opts){.size = 2,
                                            .depth = 3,
                                            .seed = INT64_MIN,
                                            .has_seed = true,
                                            .flag = true,
                                            .order = MR_NO,
                                            .rate = 0.1,
                                            .codec = (char[]){"GZIP"},
                                            .fn = fn,
                                            .sizes = {(int64_t[]){1, 2}, 2},
                                            .weights = {(double[]){0.1, 2}, 2}}));
    const char *names[] = {"a*", "b*"};
    travels(sample_files(names, (bool[]){true, false}, 2));
    mr_fn_unref(fn);
}

MR_TEST(values_travel_exactly)
{
    mr_value items[] = {{.kind = MR_V_NONE},
                        {.kind = MR_V_AUTO},
                        {.kind = MR_V_BOOL, .i = 1},
                        {.kind = MR_V_INT, .i = INT64_MIN},
                        {.kind = MR_V_FLOAT, .f = 0.1},
                        sample_string("\x01\xff"),
                        sample_tensor(MR_FLOAT64, 1, (int64_t[]){2}, (double[]){0.1, -0.0}),
                        sample_tensor(MR_BOOL, 1, (int64_t[]){2}, (bool[]){true, false}),
                        sample_tensor(MR_FLOAT32, 2, (int64_t[]){0, 3}, ""),
                        {.kind = MR_V_LIST},
                        {.kind = MR_V_DATASET, .dataset = sample_source(1, NULL)},
                        {.kind = MR_V_FN, .fn = sample_fn("x => x")}};
    mr_value v = sample_tuple(items, sizeof items / sizeof *items);
    mr_dataset *ds = value(v), *back = travel(ds);
    const struct sample_all *a = mr_dataset_params(ds), *b = mr_dataset_params(back);
    mr_eq_u64(b->o.value.n, a->o.value.n);
    for (size_t i = 0; i + 2 < a->o.value.n; i++)
        mr_check(mr_value_equal(&a->o.value.items[i], &b->o.value.items[i]));
    mr_eq_str(sample_text(back), sample_text(ds));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
}

MR_TEST(ragged_rows_and_strings_travel)
{
    static const mr_bytes strings[] = {{"a", 1}, {NULL, 0}, {"ccc", 3}};
    mr_value v = sample_tensor(MR_STRING, 1, (int64_t[]){3}, strings);
    mr_dataset *ds = value(v), *back = travel(ds);
    const struct sample_all *a = mr_dataset_params(ds), *b = mr_dataset_params(back);
    mr_check(mr_value_equal(&a->o.value, &b->o.value));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
    static const int64_t shape[] = {2, -1}, splits[] = {0, 1, 3};
    mr_status st;
    v = (mr_value){.kind = MR_V_TENSOR};
    mr_ok(mr_array_alloc_ragged(&v.tensor, MR_STRING, 2, 1, &st), &st);
    *(mr_row *)v.tensor.data = (mr_row){strings, shape, splits};
    ds = value(v);
    back = travel(ds);
    a = mr_dataset_params(ds);
    b = mr_dataset_params(back);
    mr_check(mr_value_equal(&a->o.value, &b->o.value));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
}

MR_TEST(shared_nodes_stay_shared)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *ds = sample_join((mr_dataset *[]){mr_dataset_ref(s), s}, 2);
    mr_dataset *back = travel(ds);
    mr_check(mr_dataset_input(back, 0) == mr_dataset_input(back, 1));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
}

/* x => x + a with a vector of two. */
static mr_fn *adding_fn(void)
{
    const mr_expr *e = NULL;
    mr_fn *fn = NULL;
    mr_status st;
    const char *name = "a";
    mr_value captured = sample_tensor(MR_INT8, 1, (int64_t[]){2}, (int8_t[]){1, 2});
    mr_ok(mr_expr_parse("x => x + a", 10, &e, &st), &st);
    mr_ok(mr__fn_of_expr(e, &name, &captured, 1, &fn, &st), &st);
    mr_expr_unref(e);
    mr_value_reset(&captured);
    return fn;
}

MR_TEST(captures_travel_with_their_function)
{
    mr_fn *fn = adding_fn();
    mr_value captured = sample_tensor(MR_INT8, 1, (int64_t[]){2}, (int8_t[]){1, 2});
    mr_dataset *ds = sample_source(1, &(sample_opts){.fn = fn}), *back = travel(ds);
    const struct sample_all *p = mr_dataset_params(back);
    mr_eq_u64(p->o.fn->n_captures, 1);
    mr_check(mr_value_equal(&p->o.fn->captures[0], &captured));
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
    mr_fn_unref(fn);
    mr_value_reset(&captured);
}

/* A source of which less is known than it says: integers of any number of axes. */
static mr_dataset *wide_source(const sample_opts *o)
{
    mr_dataset *ds = sample_source(1, o);
    mr_spec *any = mr_spec_tensor(MR_INT64, -1, NULL),
            *pair = mr_spec_tensor(MR_INT64, 1, (int64_t[]){2});
    mr__dataset_widen(ds, pair); /* does not cover it */
    mr_check(!mr__dataset_widened(ds));
    mr__dataset_widen(ds, any);
    mr_check(mr__dataset_widened(ds) && mr_spec_equal(mr_dataset_spec(ds), any));
    mr_spec_unref(any);
    mr_spec_unref(pair);
    return ds;
}

/* The same function, made of a template that knew `a` to be a vector. */
static mr_fn *wide_fn(void)
{
    mr_fn *fn = adding_fn();
    fn->capture_specs = mr_calloc(2, sizeof(mr_spec *));
    fn->capture_specs[0] = mr_spec_tensor(MR_INT8, 1, (int64_t[]){-1});
    return fn;
}

MR_TEST(what_a_function_knew_of_what_it_made_travels)
{
    mr_fn *fn = wide_fn();
    mr_dataset *ds = sample_pass(wide_source(&(sample_opts){.fn = fn}), 1), *back = travel(ds);
    const struct sample_all *p = mr_dataset_params(mr_dataset_input(back, 0));
    mr_check(p->o.fn->capture_specs != NULL);
    mr_check(mr_spec_equal(p->o.fn->capture_specs[0], fn->capture_specs[0]));
    mr_check(mr_spec_equal(mr_dataset_spec(back), mr_dataset_spec(ds)));
    mr_eq_i64(mr_spec_leaf(mr_dataset_spec(back), 0)->rank, -1);
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
    mr_fn_unref(fn);
}

MR_TEST(long_chains_travel)
{
    mr_dataset *ds = sample_source(1, NULL);
    for (int i = 0; i < 20000; i++)
        ds = sample_pass(ds, i);
    mr_dataset *back = travel(ds);
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
}

/* ---- hostile ---- */

static void refuses(Mr__Graph__Item **items, size_t n, const char *why)
{
    Mr__Graph__Graph g = MR__GRAPH__GRAPH__INIT;
    uint8_t bytes[4096];
    mr_dataset *ds = NULL;
    mr_status st;
    g.version = 1;
    g.items = items;
    g.n_items = n;
    mr_ok(mr__protobuf_need(&st), &st);
    mr_check(mr__graph__graph__get_packed_size(&g) <= sizeof bytes);
    size_t size = mr__graph__graph__pack(&g, bytes);
    mr_code_is(mr_dataset_from_proto(bytes, size, &ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, why);
    mr_check(ds == NULL);
}

/* A graph of a value, then sample_values of value `ref` under `key`. */
static void refuses_value(Mr__Graph__Value *v, const char *key, uint32_t ref, const char *op,
                          const char *why)
{
    Mr__Graph__Item a = MR__GRAPH__ITEM__INIT, b = MR__GRAPH__ITEM__INIT;
    Mr__Graph__Node node = MR__GRAPH__NODE__INIT;
    Mr__Graph__Param param = MR__GRAPH__PARAM__INIT, *params[] = {&param, &param};
    Mr__Graph__Item *items[] = {&a, &b};
    a.value = v;
    b.node = &node;
    node.op = (char *)(uintptr_t)op;
    node.params = params;
    node.n_params = ref == 77 ? 2 : 1;
    param.key = (char *)(uintptr_t)key;
    param.value = ref == 77 ? 0 : ref;
    refuses(items, 2, why);
}

MR_TEST(malformed_graphs_are_refused_in_words)
{
    Mr__Graph__Value v = MR__GRAPH__VALUE__INIT;
    Mr__Graph__Item empty = MR__GRAPH__ITEM__INIT, *items[] = {&empty};
    sample_ops();
    refuses(NULL, 0, "expected a node as the last item");
    refuses(items, 1, "expected exactly one of node, value and function");
    v.kind = MR__GRAPH__KIND__INT;
    refuses_value(&v, "n", 0, "no_such_op", "unknown op no_such_op: the graph has format");
    refuses_value(&v, "k", 0, "sample_pass", "op sample_pass has no parameter k here");
    refuses_value(&v, "n", 1, "sample_source", "expected an earlier value");
    refuses_value(&v, "n", 5, "sample_source", "expected an earlier value");
    refuses_value(&v, "n", 77, "sample_source", "given twice");
    v.kind = MR__GRAPH__KIND__STRING;
    refuses_value(&v, "n", 0, "sample_source", "n must be an integer, not \"\"");
    v.kind = 55;
    refuses_value(&v, "v", 0, "sample_values", "unknown kind");
    v.kind = MR__GRAPH__KIND__DATASET;
    v.ref = 3;
    refuses_value(&v, "v", 0, "sample_values", "expected an earlier node");
    v.kind = MR__GRAPH__KIND__FUNCTION;
    refuses_value(&v, "v", 0, "sample_values", "expected an earlier function");
    v.kind = MR__GRAPH__KIND__RECORD;
    v.items = (uint32_t[]){0};
    v.n_items = 1;
    refuses_value(&v, "v", 0, "sample_values", "a name for each component");
    v.kind = MR__GRAPH__KIND__LIST;
    refuses_value(&v, "v", 0, "sample_values", "expected an earlier value");
}

MR_TEST(tensors_are_checked_against_their_data)
{
    Mr__Graph__Value v = MR__GRAPH__VALUE__INIT;
    int64_t shape[9] = {2, 3};
    uint8_t data[24] = {0};
    sample_ops();
    v.kind = MR__GRAPH__KIND__TENSOR;
    v.dtype = (char[]){"int32"};
    v.shape = shape;
    v.n_shape = 2;
    v.data.data = data;
    v.data.len = 23;
    refuses_value(&v, "v", 0, "sample_values", "do not match its shape");
    v.data.len = 24;
    shape[0] = -2;
    refuses_value(&v, "v", 0, "sample_values", "do not match its shape");
    shape[0] = shape[1] = INT64_MAX;
    refuses_value(&v, "v", 0, "sample_values", "do not match its shape");
    v.n_shape = 9;
    refuses_value(&v, "v", 0, "sample_values", "too many axes");
    v.n_shape = 2;
    v.dtype = (char[]){"dataset"};
    refuses_value(&v, "v", 0, "sample_values", "unknown dtype");
    v.dtype = (char[]){"int32"};
    int64_t splits[] = {0, 4, 2};
    v.splits = splits;
    v.n_splits = 3;
    shape[0] = 2;
    shape[1] = -1;
    refuses_value(&v, "v", 0, "sample_values", "the splits of a ragged tensor do not match");
    splits[1] = 1;
    refuses_value(&v, "v", 0, "sample_values", "do not match its shape");
}

MR_TEST(a_value_goes_to_one_place_only)
{
    Mr__Graph__Value one = MR__GRAPH__VALUE__INIT, list = MR__GRAPH__VALUE__INIT;
    Mr__Graph__Item a = MR__GRAPH__ITEM__INIT, b = MR__GRAPH__ITEM__INIT;
    Mr__Graph__Item *items[] = {&a, &b};
    uint32_t twice[] = {0, 0};
    one.kind = MR__GRAPH__KIND__INT;
    list.kind = MR__GRAPH__KIND__LIST;
    list.items = twice;
    list.n_items = 2;
    a.value = &one;
    b.value = &list;
    refuses(items, 2, "item 1: expected an earlier value that nothing else refers to");
}

static void refuses_shapes(int64_t *shapes, size_t n, const char *why)
{
    Mr__Graph__Item a = MR__GRAPH__ITEM__INIT, b = MR__GRAPH__ITEM__INIT, *items[] = {&a, &b};
    Mr__Graph__Value v = MR__GRAPH__VALUE__INIT;
    Mr__Graph__Node node = MR__GRAPH__NODE__INIT;
    Mr__Graph__Param param = MR__GRAPH__PARAM__INIT, *params[] = {&param};
    v.kind = MR__GRAPH__KIND__INT;
    a.value = &v;
    b.node = &node;
    node.op = (char[]){"sample_source"};
    node.params = params;
    node.n_params = 1;
    param.key = (char[]){"n"};
    node.shapes = shapes;
    node.n_shapes = n;
    refuses(items, 2, why);
}

MR_TEST(shapes_are_checked_against_the_elements)
{
    sample_ops();
    refuses_shapes((int64_t[]){-2}, 1, "the shapes do not match");
    refuses_shapes((int64_t[]){9}, 1, "the shapes do not match");
    refuses_shapes((int64_t[]){1}, 1, "the shapes do not match");
    refuses_shapes((int64_t[]){1, -2}, 2, "the shapes do not match");
    refuses_shapes((int64_t[]){1, -1}, 2, "the shapes do not match");
    refuses_shapes((int64_t[]){INT64_MAX, 1}, 2, "the shapes do not match");
    refuses_shapes((int64_t[]){0, 0}, 2, "more shapes than components");
}

MR_TEST(deep_values_are_refused)
{
    enum { N = 400 };
    static Mr__Graph__Value values[N];
    static Mr__Graph__Item all[N], *items[N];
    static uint32_t below[N];
    for (uint32_t i = 0; i < N; i++) {
        mr__graph__value__init(&values[i]);
        mr__graph__item__init(&all[i]);
        values[i].kind = MR__GRAPH__KIND__LIST;
        below[i] = i - 1;
        values[i].items = &below[i];
        values[i].n_items = i > 0;
        all[i].value = &values[i];
        items[i] = &all[i];
    }
    refuses(items, N, "nested too deeply");
}

MR_TEST(damaged_bytes_never_crash)
{
    mr_fn *fn = wide_fn();
    mr_value items[] = {sample_string("abc"),
                        sample_tensor(MR_INT32, 1, (int64_t[]){2}, (int32_t[]){1, 2})};
    mr_value v = sample_tuple(items, 2);
    mr_dataset *ds = sample_pass(wide_source(&(sample_opts){.fn = fn, .value = v}), 1);
    mr_value_reset(&v);
    void *bytes = NULL;
    size_t size = 0;
    mr_status st;
    mr_ok(mr_dataset_to_proto(ds, &bytes, &size, &st), &st);
    uint8_t *p = bytes;
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            mr_dataset *back = NULL;
            p[i] ^= (uint8_t)(1 << bit);
            if (mr_dataset_from_proto(p, size, &back, &st) != MR_OK)
                mr_check(st.message[0] != '\0');
            mr_dataset_unref(back);
            p[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t n = 0; n < size; n++) {
        mr_dataset *back = NULL;
        (void)!mr_dataset_from_proto(p, n, &back, &st);
        mr_dataset_unref(back);
    }
    mr_free(bytes);
    mr_dataset_unref(ds);
    mr_fn_unref(fn);
}

MR_TEST(every_failed_allocation_is_reported)
{
    mr_fn *fn = wide_fn();
    static const mr_bytes strings[] = {{"a", 1}, {"bc", 2}};
    mr_value v = sample_tensor(MR_STRING, 1, (int64_t[]){2}, strings);
    mr_dataset *ds = sample_pass(wide_source(&(sample_opts){.fn = fn, .value = v}), 1);
    mr_value_reset(&v);
    mr_fault_each_allocation(n)
    {
        void *bytes = NULL;
        size_t size = 0;
        mr_status st;
        mr_dataset *back = NULL;
        if (mr_fault_expect(mr_dataset_to_proto(ds, &bytes, &size, &st), &st) != MR_OK)
            continue;
        if (mr_fault_expect(mr_dataset_from_proto(bytes, size, &back, &st), &st) == MR_OK)
            mr_dataset_unref(back);
        mr_free(bytes);
    }
    mr_dataset_unref(ds);
    mr_fn_unref(fn);
}
