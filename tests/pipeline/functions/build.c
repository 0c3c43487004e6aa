/* SPDX-License-Identifier: Apache-2.0 */
/* From text to graphs: arguments, captures, templates, and where errors belong. */
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/functions/compiler/function.h"
#include "pipeline/graph/op.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* Elements as text, "refused: ..." for what does not build, " !..." for an error while running. */
static const char *show(const char *text, const mr_env *env)
{
    static char buf[8192];
    mr_status st;
    mr_dataset *ds = NULL;
    mr_code rc = mr_dataset_from_text(text, strlen(text), env, &ds, &st);
    if (rc != MR_OK) {
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
        snprintf(buf, sizeof buf, "refused: %s", st.message);
        return buf;
    }
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    mr_iterator_opts opts = {.has_threads = true, .block_rows = 3};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    buf[0] = '\0';
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
        size_t n = strlen(buf);
        snprintf(buf + n, sizeof buf - n, "%s", n ? "; " : "");
        n = strlen(buf);
        evaluate_print(mr_dataset_spec(ds), &b, &none, buf + n, sizeof buf - n);
    }
    size_t n = strlen(buf);
    if (rc != MR_END)
        snprintf(buf + n, sizeof buf - n, " !%s", st.message);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return buf;
}

MR_TEST(arguments_are_arithmetic)
{
    mr_eq_str(show("range(1 + 1, 10 // 2, min(1, 7))", NULL), "2; 3; 4");
    mr_eq_str(show("range(-1, 1)", NULL), "-1; 0");
    mr_eq_str(show("range(10).batch(size([1, 2, 3])).take(1)", NULL), "[0, 1, 2]");
    mr_has_str(show("range(1 // 0)", NULL), "refused: line 1, column 7: integer division by zero");
    mr_has_str(show("range(1.5)", NULL), "refused");
    mr_has_str(show("range(true)", NULL), "refused");
    mr_has_str(show("range(n)", NULL), "refused");
}

MR_TEST(lists_become_tensors_by_what_is_in_them)
{
    mr_eq_str(show("from_tensors([[1, 2], [3, 4]])", NULL), "[[1, 2], [3, 4]]");
    mr_eq_str(show("from_tensors([1, 2.5], \"a\", [true])", NULL), "([1.0, 2.5], \"a\", [true])");
    mr_eq_str(show("from_tensor_slices(b=[1, 2], a=[\"x\", \"y\"])", NULL),
              "{a: \"x\", b: 1}; {a: \"y\", b: 2}");
    mr_eq_str(show("from_tensors((1, 2), 3)", NULL), "((1, 2), 3)");
    mr_has_str(show("from_tensors([1, [2]])", NULL), "refused");
    mr_has_str(show("from_tensors([1, true])", NULL), "refused");
    mr_has_str(show("from_tensors([1, \"a\"])", NULL), "refused");
    mr_has_str(show("from_tensors(1, a=2)", NULL), "refused");
}

MR_TEST(errors_name_the_place_and_what_exists)
{
    mr_has_str(show("range(3).bach(2)", NULL), "unknown op 'bach'; did you mean 'batch'?");
    mr_has_str(show("range(3).bach(2)", NULL), "\n  range(3).bach(2)\n");
    mr_has_str(show("zip(rnage(3), range(2))", NULL), "unknown op 'rnage'");
    mr_has_str(show("range(3).cast(\"float32\")", NULL),
               "unknown op 'cast': it is a function of values, as in map(x => cast(x))");
    mr_has_str(show("range(3).batch(2, foo=3)", NULL), "no parameter 'foo'; it has batch_size");
    mr_has_str(show("range(3).batch(2, 2, 2, 2, 2)", NULL), "refused");
    mr_has_str(show("range(3).batch()", NULL), "refused");
    mr_has_str(show("batch(3)", NULL), "refused");
    mr_has_str(show("range(3).range(3)", NULL), "refused");
    mr_has_str(show("range(3).map(3)", NULL), "must be a function");
    mr_has_str(show("range(3).batch(x => x)", NULL), "cannot be a function");
    mr_has_str(show("range(3).batch(2, batch_size=2)", NULL), "given twice");
    mr_has_str(show("range(3).batch(0)", NULL), "batch_size must be at least 1");
    mr_has_str(show("range(3).map(x => x + 1.5)", NULL), "column 23");
    mr_has_str(show("range(3)\n  .map(x =>\n x + \"a\")", NULL), "line 3");
}

MR_TEST(a_bad_value_in_a_function_is_an_error_of_the_call)
{
    mr_has_str(show("range(3).flat_map(x => range(3).batch(0))", NULL), " !");
    mr_has_str(show("range(1, 3).flat_map(x => range(3).batch(2 - x))", NULL), "[0]; [1]; [2] !");
    mr_has_str(show("range(3).flat_map(x => range(0, 3, 2 // x))", NULL), "division by zero");
    mr_has_str(show("range(3).flat_map(x => range(\"a\"))", NULL), "refused");
    mr_has_str(show("range(3).flat_map(x => range(x + 1.5))", NULL), "refused");
    mr_has_str(show("range(3).flat_map(x => range(3).bach(2))", NULL), "refused");
    mr_has_str(show("range(3).flat_map(x => x)", NULL), "refused");
}

MR_TEST(functions_see_the_names_outside)
{
    mr_eq_str(show("range(3).flat_map(x => range(x).map(y => (x, y)))", NULL),
              "(1, 0); (2, 0); (2, 1)");
    mr_eq_str(
        show("range(2, 4).flat_map(x => range(x).flat_map(y => range(y).map(z => [x, y, z])))",
             NULL),
        "[2, 1, 0]; [3, 1, 0]; [3, 2, 0]; [3, 2, 1]");
    mr_eq_str(show("range(2).flat_map(x => range(2).map(x => x + 10))", NULL), "10; 11; 10; 11");
    mr_eq_str(
        show("from_tensors([1, 2], \"a\").flat_map((v, s) => range(2).map(i => (s, v[i])))", NULL),
        "(\"a\", 1); (\"a\", 2)");
}

MR_TEST(the_environment_gives_names_and_functions)
{
    const char *const names[] = {"n", "pair"};
    mr_value items[2] = {{.kind = MR_V_INT, .i = 5}, {.kind = MR_V_BOOL, .i = 1}};
    mr_value values[2] = {{.kind = MR_V_INT, .i = 3}, {.kind = MR_V_TUPLE, .items = items, .n = 2}};
    mr_env env = {.names = names, .values = values, .n = 2};
    mr_eq_str(show("range(n)", &env), "0; 1; 2");
    mr_eq_str(show("range(2).map(x => x + n * 2)", &env), "6; 7");
    mr_eq_str(show("range(pair[0] - 4)", &env), "0");
    mr_eq_str(show("range(2).flat_map(x => range(n - 1).map(y => y + n))", &env), "3; 4; 3; 4");
}

static mr_code half(void *ctx, const char *name, const mr_value *args, size_t n, mr_value *out,
                    mr_status *st)
{
    if (strcmp(name, "half") != 0)
        return mr_fail(st, MR_NOT_FOUND, "there is no %s", name);
    ++*(int *)ctx;
    if (n != 1 || args[0].kind != MR_V_INT)
        return mr_fail(st, MR_INVALID_ARGUMENT, "half takes an integer");
    *out = (mr_value){.kind = MR_V_INT, .i = args[0].i / 2};
    return MR_OK;
}

MR_TEST(the_environments_functions_are_called_in_plain_arguments)
{
    int calls = 0;
    mr_env env = {.call = half, .ctx = &calls};
    mr_eq_str(show("range(10).batch(half(half(8) + 4)).take(1)", &env), "[0, 1, 2, 3]");
    mr_eq_i64(calls, 2);
    mr_has_str(show("range(half(\"a\"))", &env), "half takes an integer");
    mr_has_str(show("range(third(9))", &env), "refused");
}

MR_TEST(datasets_are_values_inside_functions)
{
    mr_eq_str(show("range(4).window(2).flat_map(w => w)", NULL), "0; 1; 2; 3");
    mr_eq_str(show("range(4).window(2).flat_map(w => w.batch(2))", NULL), "[0, 1]; [2, 3]");
    mr_eq_str(show("range(2).map(x => range(x)).flat_map(d => zip(d, d))", NULL), "(0, 0)");
    mr_eq_str(
        show("zip(range(2).window(2), range(5, 7).window(2)).flat_map((a, b) => zip(a, b))", NULL),
        "(0, 5); (1, 6)");
    mr_eq_str(
        show("zip(range(2).window(2), range(2).window(2)).flat_map(w => zip(w[0], w[-1]))", NULL),
        "(0, 0); (1, 1)");
    mr_eq_str(
        show("range(2).window(2).map(w => {\"a\": w}).flat_map(r => r[\"a\"].batch(2))", NULL),
        "[0, 1]");
    mr_eq_str(show("range(2).flat_map(x => (range(2) if x == 0 else range(5, 6)).batch(2))", NULL),
              "[0, 1]; [5]");
    mr_eq_str(show("range(3).flat_map(range)", NULL), "0; 0; 1");
    mr_has_str(show("range(4).window(2).map(w => w + 1)", NULL), "refused");
    mr_has_str(show("range(4).flat_map(w => w.batch(2))", NULL), "refused");
}

static mr_code triple(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    for (size_t r = 0; r < in->rows; r++) {
        int64_t x = ((const int64_t *)in->columns[0].data)[r];
        if (x == 2)
            return mr_fail(st, MR_INVALID_ARGUMENT, "two is not to be tripled");
        ((int64_t *)out->columns[0].data)[r] = 3 * x;
    }
    out->rows = in->rows;
    return MR_OK;
}

MR_TEST(functions_from_c_are_called_by_name)
{
    mr_status st;
    mr_fn *fn = mr_fn_block(triple, NULL, NULL);
    mr_ok(mr_fn_register("triple", fn, &st), &st);
    mr_eq_str(show("range(2).map(triple)", NULL), "0; 3");
    mr_eq_str(show("range(2).map(x => triple(x) + 1)", NULL), "1; 4");
    mr_eq_str(show("range(4).map(x => (x, triple(x))).ignore_errors()", NULL),
              "(0, 0); (1, 3); (3, 9)");
    mr_has_str(show("range(4).map(triple)", NULL), "0; 3 !");
    mr_has_str(show("range(4).map(x => triple(x) + 1.5)", NULL), "refused");
    mr_code_is(mr_fn_register("triple", fn, &st), MR_ALREADY_EXISTS, &st);
    mr_code_is(mr_fn_register("sum", fn, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_fn_register("batch", fn, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_fn_register("3x", fn, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_fn_register("", fn, &st), MR_INVALID_ARGUMENT, &st);
    mr_fn_unref(fn);
}

MR_TEST(a_function_carries_its_syntax_error)
{
    mr_status st;
    mr_spec *in = mr_spec_scalar(MR_INT64);
    const mr_program *p = NULL;
    static const char *const bad[] = {"x => ", "x + 1", "(", "", "x => (x", "1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i]);
        mr_fn *fn = mr_fn_text(bad[i]);
        mr_check(fn);
        mr_code_is(mr_program_get(fn, in, &p, &st), MR_INVALID_ARGUMENT, &st);
        mr_check(st.message[0]);
        mr_fn_unref(fn);
    }
    mr_spec_unref(in);
}

MR_TEST(building_survives_every_failed_allocation)
{
    static const char *const texts[] = {
        "range(4).map(x => {\"a\": [x, 2], \"b\": (x, 1.5)}).batch(2 + 1)",
        "range(3).flat_map(x => range(x).map(y => y + x).batch(x + 1))",
        "zip(range(2).window(2), range(2).window(2)).flat_map(w => zip(w[0], w[1]))",
        "from_tensors([[1, 2.5]], (\"a\", [true]), [])",
        "range(3).bach(2)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_test_context("%s", texts[i]);
        bool refused = strstr(texts[i], "bach") != NULL;
        mr_fault_each_allocation(n)
        {
            mr_status st;
            mr_dataset *ds = NULL;
            mr_code rc = mr_dataset_from_text(texts[i], strlen(texts[i]), NULL, &ds, &st);
            if (!refused)
                mr_fault_expect(rc, &st);
            else
                mr_check(rc == MR_INVALID_ARGUMENT || rc == MR_RESOURCE_EXHAUSTED);
            mr_dataset_unref(ds);
            mr_buffer_pool_trim();
        }
    }
}

/* ---- arrays of the caller ---- */

static int n_released;

static void release_values(void *ctx, void *data)
{
    (void)ctx;
    n_released += data != NULL;
}

MR_TEST(an_array_of_the_caller_is_not_copied_and_prints_as_a_reference)
{
    static float values[5] = {1, 2, 3, 4, 5};
    mr_status st;
    mr_dataset *ds = NULL, *again = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    char *text, *other;
    void *bytes;
    size_t n;
    mr_value v = {.kind = MR_V_TENSOR,
                  .tensor = {.dtype = MR_FLOAT32,
                             .resident = true,
                             .rank = 2,
                             .rows = 1,
                             .shape = {5, 1},
                             .data = values}};
    mr_ok(mr_buffer_wrap(&v.tensor.owner, values, sizeof values, true, release_values, NULL, &st),
          &st);
    const mr_env env = {.names = (const char *const[]){"a"}, .values = &v, .n = 1};
    static const char call[] = "from_tensor_slices((a, a)).map((x, y) => x + a[0])";
    mr_ok(mr_dataset_from_text(call, strlen(call), &env, &ds, &st), &st);
    mr_value_reset(&v);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_has_str(text, "from_tensor_slices((array(\"float32[5, 1]\", \"");
    mr_has_str(text, ".map((x, y) => x + array(\"float32[5, 1]\", \"");
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &again, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_ok(mr_dataset_to_proto(ds, &bytes, &n, &st), &st);
    mr_ok(mr_dataset_from_proto(bytes, n, &again, &st), &st);
    mr_ok(mr_dataset_to_text(again, &other, &st), &st);
    mr_eq_str(other, text); /* positions of the one suit the other */
    mr_free(other);
    mr_free(bytes);
    mr_dataset_unref(again);

    mr_dataset *plain = mr_dataset_ref(mr_dataset_input(ds, 0));
    mr_ok(mr_iterator_open(&it, plain, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 3, &b, &st), &st);
    mr_check(b.columns[0].data == values && !mr_array_writable(&b.columns[0], 0));
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(plain);
    values[4] = 7;
    mr_ok(mr_dataset_to_text(ds, &other, &st), &st);
    mr_check(strcmp(other, text) != 0); /* other values */
    mr_free(other);
    mr_free(text);
    mr_eq_i64(n_released, 0);
    mr_dataset_unref(ds);
    mr_eq_i64(n_released, 1);
}
