/* SPDX-License-Identifier: Apache-2.0 */
/* Programs from callbacks, and functions with what surrounds them. */
#include "pipeline/functions/compiler/program.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/params/value.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* The elements of a pipeline of single int64s, as "1 2 3". An error is "!" and its message, and the
 * run continues. If there is no graph: "refused: " and the message. */
static const char *run_env(const char *text, const mr_env *env)
{
    static char shown[2000];
    size_t at = 0;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    shown[0] = 0;
    mr_code rc = mr_dataset_from_text(text, strlen(text), env, &ds, &st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, NULL, &st);
    if (rc != MR_OK)
        snprintf(shown, sizeof shown, "refused: %s", st.message);
    while (rc == MR_OK && at + 300 < sizeof shown) {
        rc = mr_iterator_next(it, 1, &b, &st);
        if (rc == MR_OK)
            at += (size_t)snprintf(shown + at, sizeof shown - at, "%s%lld", at ? " " : "",
                                   (long long)*(const int64_t *)b.columns[0].data);
        else if (rc != MR_END) {
            at +=
                (size_t)snprintf(shown + at, sizeof shown - at, "%s!%s", at ? " " : "", st.message);
            rc = MR_OK;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return shown;
}

static const char *run(const char *text)
{
    return run_env(text, NULL);
}

/* Twice the integer, but fails for 3; ctx counts the calls. */
static mr_code twice(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    int *calls = ctx;
    ++*calls;
    const int64_t *x = in->columns[0].data;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    out->rows = in->rows;
    for (size_t r = 0; r < in->rows; r++) {
        if (x[r] == 3)
            return mr_fail(st, MR_OUT_OF_RANGE, "three is refused");
        ((int64_t *)out->columns[0].data)[r] = 2 * x[r];
    }
    return MR_OK;
}

static const char *run_callback(mr_fn *fn, size_t rows)
{
    static char shown[1000];
    mr_spec *in = mr_spec_scalar(MR_INT64);
    mr_block b = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    const mr_program *p = NULL;
    mr_status st;
    mr_eq_i64(evaluate_integers(0, rows, &b, &st), MR_OK);
    mr_eq_i64(mr_program_get(fn, in, &p, &st), MR_OK);
    mr_eq_i64(mr_program_run(p, &b, &out, &errors, &st), MR_OK);
    evaluate_print(mr_program_output(p), &out, &errors, shown, sizeof shown);
    mr_row_errors_reset(&errors);
    mr_block_reset(&out);
    mr_block_reset(&b);
    mr_program_unref(p);
    mr_spec_unref(in);
    mr_fn_unref(fn);
    return shown;
}

MR_TEST(a_block_callback_that_fails_is_tried_again_row_by_row)
{
    int calls = 0;
    mr_eq_str(run_callback(mr_fn_block(twice, &calls, NULL), 3), "0; 2; 4");
    mr_eq_i64(calls, 1);
    const char *shown = run_callback(mr_fn_block(twice, &calls, NULL), 5);
    mr_has_str(shown, "three is refused");
    mr_has_str(shown, "8");
    mr_eq_i64(calls, 1 + 1 + 5);
}

MR_TEST(an_element_callback_sees_one_row_at_a_time)
{
    int calls = 0;
    mr_eq_str(run_callback(mr_fn_element(twice, &calls, NULL), 3), "0; 2; 4");
    mr_eq_i64(calls, 3);
}

MR_TEST(registered_functions_are_called_by_name)
{
    static int calls;
    mr_status st;
    mr_fn *fn = mr_fn_block(twice, &calls, NULL), *text = mr_fn_text("(a, b) => a * 10 + b");
    mr_eq_i64(mr_fn_register("test_twice", fn, &st), MR_OK);
    mr_eq_i64(mr_fn_register("test_join", text, &st), MR_OK);
    mr_eq_i64(mr_fn_register("test_twice", fn, &st), MR_ALREADY_EXISTS);
    mr_eq_i64(mr_fn_register("concat", fn, &st), MR_INVALID_ARGUMENT);
    mr_eq_i64(mr_fn_register("no name", fn, &st), MR_INVALID_ARGUMENT);
    mr_fn_unref(fn);
    mr_fn_unref(text);
    mr_eq_str(run("range(3).map(test_twice)"), "0 2 4");
    mr_eq_str(run("range(3).map(x => test_twice(x) + 1)"), "1 3 5");
    mr_eq_str(run("range(3).map(x => test_join(x, test_twice(x)))"), "0 12 24");
    mr_eq_str(run("range(2, 5).map(x => test_twice(x) // 2)"), "2 !three is refused 4");
    mr_eq_str(run("range(5).map(x => 0 if x == 3 else test_twice(x))"), "0 2 4 0 8");
    mr_has_str(run("range(3).map(x => test_join(x))"), "refused");
}

MR_TEST(functions_capture_the_names_around_them)
{
    mr_eq_str(run("range(3).flat_map(x => range(x).map(y => x * 10 + y))"), "10 20 21");
    mr_eq_str(run("range(2).flat_map(x => range(2).flat_map(y => range(2).map(z => x * 100 + "
                  "y * 10 + z)))"),
              "0 1 10 11 100 101 110 111");
    mr_eq_str(run("range(2).flat_map(x => range(3).map(x => x * 2))"), "0 2 4 0 2 4");
    mr_eq_str(run("range(3).flat_map(x => range(4).filter(y => y % 2 == x % 2).take(x))"), "1 0 2");
    mr_eq_str(run("range(4).map(x => (x, x + 2)).flat_map((a, b) => range(a, b))"),
              "0 1 1 2 2 3 3 4");
    mr_eq_str(
        run("range(4).map(x => {\"n\": x}).flat_map(r => range(r[\"n\"]).map(y => r[\"n\"]))"),
        "1 2 2 3 3 3");
}

MR_TEST(a_dataset_that_cannot_be_made_is_its_elements_error)
{
    mr_has_str(run("range(2).flat_map(x => range(3).batch(0)).unbatch()"), "batch_size");
    mr_eq_str(run("range(1, 4).flat_map(x => range(x, x + 2, 2 - x))"),
              "1 2 !range: step must not be 0");
    mr_eq_str(run("range(2).flat_map(x => range(10 // x).take(1))"),
              "!integer division by zero in 10 // x 0");
    mr_has_str(run("range(2).flat_map(x => range(\"a\"))"), "refused");
    mr_has_str(run("range(2).flat_map(x => range(3).map(y => y + \"a\"))"), "refused");
    mr_has_str(run("range(2).flat_map(x => x)"), "refused");
}

MR_TEST(plain_arguments_are_computed)
{
    mr_eq_str(run("range(2 * 3 // 2)"), "0 1 2");
    mr_eq_str(run("range(abs(-3)).skip(size([1, 2]))"), "2");
    mr_eq_str(run("range(2 if 1 < 2 else 10 // 0)"), "0 1");
    mr_eq_str(run("from_tensor_slices([1, 2] + [3, 4])"), "4 6");
    mr_has_str(run("range(3 // 0)"), "refused: line 1, column 7: integer division by zero");
    mr_has_str(run("range(n)"), "refused: line 1, column 7: unknown name 'n'");
}

static mr_code plus(void *ctx, const char *name, const mr_value *args, size_t n, mr_value *out,
                    mr_status *st)
{
    (void)ctx;
    if (strcmp(name, "plus") != 0)
        return mr_fail(st, MR_NOT_FOUND, "no function '%s'", name);
    if (n != 2 || args[0].kind != MR_V_INT || args[1].kind != MR_V_INT)
        return mr_fail(st, MR_INVALID_ARGUMENT, "plus takes two integers");
    *out = (mr_value){.kind = MR_V_INT, .i = args[0].i + args[1].i};
    return MR_OK;
}

MR_TEST(the_environments_names_and_functions_are_in_scope)
{
    const mr_value values[] = {{.kind = MR_V_INT, .i = 3}, {.kind = MR_V_INT, .i = 10}};
    const mr_env env = {(const char *const[]){"n", "k"}, values, 2, plus, NULL};
    mr_eq_str(run_env("range(n)", &env), "0 1 2");
    mr_eq_str(run_env("range(n + 1).skip(n - 1)", &env), "2 3");
    mr_eq_str(run_env("range(plus(1, 1))", &env), "0 1");
    mr_eq_str(run_env("range(plus(plus(1, 1), n) * 2).skip(k - 2)", &env), "8 9");
    mr_eq_str(run_env("range(2).map(x => x * k + n)", &env), "3 13");
    mr_eq_str(run_env("range(2).flat_map(x => range(n).map(y => y * k))", &env), "0 10 20 0 10 20");
    mr_has_str(run_env("range(plus(1))", &env), "refused");
    mr_has_str(run_env("range(m)", &env), "refused");
}

/* Directly, through a registered expression, and through one that calls another. */
MR_TEST(what_registered_expressions_call_may_block)
{
    static const struct {
        const char *name, *text;
        bool blocks;
    } cases[] = {{NULL, "x => waits(x)", true},
                 {"calls_it", "x => waits(x) + 1", true},
                 {NULL, "x => 2 * calls_it(x)", true},
                 {"calls_that", "x => calls_it(x)", true},
                 {NULL, "x => range(calls_that(x))", true},
                 {"adds", "x => x + 1", false},
                 {NULL, "x => adds(x)", false}};
    mr_status st;
    int calls = 0;
    mr_fn *waits = mr_fn_element(twice, &calls, &(mr_fn_opts){.may_block = true, .name = "waits"});
    mr_spec *number = mr_spec_scalar(MR_INT64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mr_program *p = NULL;
        mr_fn *fn = mr_fn_text(cases[i].text);
        mr_test_context("%s", cases[i].text);
        if (cases[i].name)
            mr_ok(mr_fn_register(cases[i].name, fn, &st), &st);
        mr_ok(mr_program_get(fn, number, &p, &st), &st);
        mr_check(mr_program_may_block(p) == cases[i].blocks);
        mr_program_unref(p);
        mr_fn_unref(fn);
    }
    mr_spec_unref(number);
    mr_fn_unref(waits);
}

MR_TEST(registered_expressions_that_call_each_other_are_refused)
{
    mr_status st;
    mr_fn *there = mr_fn_text("x => back(x)"), *back = mr_fn_text("x => there(x)");
    mr_ok(mr_fn_register("there", there, &st), &st);
    mr_ok(mr_fn_register("back", back, &st), &st);
    mr_check(strstr(run("range(2).map(x => there(x))"), "calls itself"));
    mr_check(strstr(run("range(2).map(there)"), "calls itself"));
    mr_eq_str(run("range(2).map(x => x + 1)"), "1 2");
    mr_fn_unref(there);
    mr_fn_unref(back);
}

/* Registers prefix0 to prefix(n - 1); of each but the first, `text` with the name of the previous
 * one in place of each %. */
static void register_chain(const char *prefix, const char *first, const char *text, int n)
{
    for (int i = 0; i < n; i++) {
        char name[32], now[256], *at = now;
        mr_status st;
        for (const char *c = i ? text : first; *c; c++)
            if (*c == '%')
                at += snprintf(at, 32, "%s%d", prefix, i - 1);
            else
                *at++ = *c;
        *at = 0;
        snprintf(name, sizeof name, "%s%d", prefix, i);
        mr_fn *fn = mr_fn_text(now);
        mr_ok(mr_fn_register(name, fn, &st), &st);
        mr_fn_unref(fn);
    }
}

/* There are 2 to the 60th ways through these calls: typing, opening and running take none twice. */
MR_TEST(registered_expressions_that_share_others_are_looked_at_once)
{
    register_chain("same", "x => x + 1", "x => x if x < 9 else %(x) + %(x)", 60);
    register_chain("types", "x => x + 1",
                   "x => cast(x, \"int64\") if x < 9 else cast(%(cast(x, \"int32\")), \"int64\") + "
                   "cast(%(cast(x, \"int64\")), \"int64\")",
                   60);
    register_chain("rows", "x => x + 1", "x => %(x) + %(x)", 60);
    mr_eq_str(run("range(3).map(same59)"), "0 1 2");
    mr_eq_str(run("range(3).map(types59)"), "0 1 2");
    mr_eq_str(run("range(3).map(x => same59(x) + same59(x))"), "0 2 4");
    mr_eq_str(run("range(2).flat_map(x => range(2).map(y => same59(x + y)))"), "0 1 1 2");
    mr_eq_str(run("range(8, 10).batch(2).map(b => rows3(b)).unbatch()"), "72 80");
    mr_eq_str(run("range(0).batch(2).map(rows59).unbatch()"), "");
}

MR_TEST(calls_of_registered_expressions_that_are_too_deep_are_refused)
{
    register_chain("deep", "x => x + 1", "x => %(x)", 400);
    mr_eq_str(run("range(3).map(deep150)"), "1 2 3");
    mr_has_str(run("range(3).map(deep399)"), "too deeply");
}

MR_TEST(graphs_whose_allocations_fail_leave_nothing)
{
    static const char *const texts[] = {
        "range(2 * 3).flat_map(x => range(x).map(y => (x * y, [x, y, 1]))).batch(2)",
        "from_tensors({\"a\": [1, 2.5]}).map(r => {\"c\": r[\"a\"][0], \"d\": one_hot(1, 3)})",
        "zip(range(3), range(3)).interleave((a, b) => from_tensors(a).repeat(b + 1))",
        "range(3).map(x => zeros([x]) if x > 1 and x < 5 else concat([1.5], ones([x])))",
        "range(plus(n, 2)).filter(x => x % 2 == n)",
        "range(5).map(x => few3(x) + few3(2))",
    };
    const mr_value value = {.kind = MR_V_INT, .i = 3};
    const mr_env env = {(const char *const[]){"n"}, &value, 1, plus, NULL};
    register_chain("few", "x => x + 1", "x => %(x) + %(x)", 4);
    /* After this they keep their programs, and the names of their results. */
    mr_eq_str(run("range(1).map(x => few3(x) + few3(2))"), "32");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mr_fault_each_allocation(n)
        {
            mr_dataset *ds = NULL;
            mr_iterator *it = NULL;
            mr_block b = MR_BLOCK_EMPTY;
            mr_status st;
            mr_code rc = mr_fault_expect(
                mr_dataset_from_text(texts[i], strlen(texts[i]), &env, &ds, &st), &st);
            if (rc == MR_OK)
                rc = mr_fault_expect(
                    mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
            for (int k = 0; k < 20 && rc == MR_OK; k++)
                rc = mr_fault_expect(mr_iterator_next(it, 1, &b, &st), &st);
            mr_block_reset(&b);
            mr_iterator_close(it);
            mr_dataset_unref(ds);
        }
}
