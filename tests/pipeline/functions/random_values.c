/* SPDX-License-Identifier: Apache-2.0 */
/* Random functions: the same for an element whatever runs it, other for each element, epoch, call
 * and seed, and of the distribution that they name. */
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

/* The elements of a pipeline, in the order they come. */
static const char *show(const char *text, const mr_iterator_opts *opts)
{
    static char buf[4][8192];
    static int turn;
    char *s = buf[turn++ % 4];
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    size_t n = 0;
    *s = '\0';
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    for (mr_code rc; (rc = mr_iterator_next(it, 1000, &b, &st)) != MR_END;) {
        if (rc == MR_OK)
            evaluate_print(mr_dataset_spec(ds), &b, &none, s + n, sizeof *buf - n);
        else
            snprintf(s + n, sizeof *buf - n, "!%s", st.message);
        n += strlen(s + n);
        n += (size_t)snprintf(s + n, sizeof *buf - n, "; ");
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return s;
}

static const char draws[] = "(random_int(0, 1000), random_uniform([2]), random_normal(), "
                            "random_choice([x, 7, 8]), shuffle_rows([x, 1, 2, 3]))";

MR_TEST(values_do_not_depend_on_what_runs_them)
{
    char text[600], other[600];
    mr_iterator_opts opts = {.has_threads = true};
    snprintf(text, sizeof text, "range(23).map(x => %s)", draws);
    char whole[8192];
    snprintf(whole, sizeof whole, "%s", show(text, &opts));
    for (int64_t block = 1; block < 9; block += 2) {
        opts.block_rows = block;
        mr_eq_str(show(text, &opts), whole);
    }
    const mr_iterator_opts threads = {.has_threads = true, .threads = 3, .block_rows = 2};
    snprintf(other, sizeof other, "range(23).map(x => %s, num_parallel_calls=3).prefetch(4)",
             draws);
    mr_eq_str(show(other, &threads), whole);
    snprintf(other, sizeof other, "range(23).map(x => %s).batch(5).unbatch()", draws);
    mr_eq_str(show(other, &threads), whole);
    snprintf(other, sizeof other, "range(23).batch(4).unbatch().cache().map(x => %s)", draws);
    mr_eq_str(show(other, &threads), whole);
    mr_eq_str(show("range(9).shuffle(9, seed=1).map(x => (x, random_int(0, 99)))"
                   ".filter((x, r) => x == 5)",
                   NULL),
              show("range(9).map(x => (x, random_int(0, 99))).filter((x, r) => x == 5)", NULL));
}

MR_TEST(workers_draw_what_one_would)
{
    mr_eq_str(show("range(8).shard(2, 1).map(x => (x, random_int(0, 999)))", NULL),
              show("range(8).map(x => (x, random_int(0, 999))).shard(2, 1)", NULL));
}

MR_TEST(each_element_epoch_call_and_seed_draws_anew)
{
    mr_eq_str(show("range(50).batch(50).map(v => random_int(0, 1000000000, shape=[50]))"
                   ".map(v => size(unique_values(v)))",
                   NULL),
              "50; ");
    mr_eq_str(show("range(40).map(x => random_int(0, 1000000000)).repeat(2).batch(80)"
                   ".map(v => size(unique_values(v)))",
                   NULL),
              "80; ");
    mr_eq_str(show("range(9).map(x => random_int(0, 1000000000) == random_int(0, 1000000000))"
                   ".batch(9).map(v => any(v))",
                   NULL),
              "false; ");
    mr_eq_str(show("range(9).map(x => random_int(0, 1000000000, seed=1) == "
                   "random_int(0, 1000000000, seed=1)).batch(9).map(v => any(v))",
                   NULL),
              "false; ");
    const mr_iterator_opts one = {.has_seed = true, .seed = 1}, two = {.has_seed = true, .seed = 2};
    const char *text = "range(9).map(x => random_uniform())";
    mr_check(strcmp(show(text, &one), show(text, &two)) != 0);
    mr_eq_str(show(text, &one), show(text, &one));
    mr_check(strcmp(show(text, NULL), show("range(9).map(x => random_uniform(seed=1))", NULL)) !=
             0);
    /* Blank space does not belong to a function; another call before it does. */
    mr_eq_str(show(text, NULL), show("range(9).map( x=>( random_uniform( ) ) )", NULL));
    mr_eq_str(show("range(9).map(x => (random_int(0, 9), random_uniform())[1])", NULL),
              show("range(9).map(x => (random_normal(), random_uniform())[1])", NULL));
}

MR_TEST(functions_inside_functions_draw_too)
{
    mr_eq_str(show("range(30).flat_map(x => range(2).map(y => random_int(0, 1000000000)))"
                   ".batch(60).map(v => size(unique_values(v)))",
                   NULL),
              "60; ");
    mr_eq_str(show("range(60).flat_map(x => range(random_int(0, 3))).batch(100)"
                   ".map(v => (any(v == 0), any(v == 1), any(v == 2)))",
                   NULL),
              "(true, true, false); ");
    mr_status st;
    mr_fn *fn = mr_fn_text("x => random_int(x, 1000000000)");
    mr_ok(mr_fn_register("test_draw", fn, &st), &st);
    mr_fn_unref(fn);
    mr_eq_str(show("range(30).map(x => test_draw(x) if x % 2 == 1 else test_draw(-x)).batch(30)"
                   ".map(v => size(unique_values(v)))",
                   NULL),
              "30; ");
    mr_eq_str(show("range(9).map(x => -1 if x < 8 else random_int(0, 1000000)).skip(8)", NULL),
              show("range(9).map(x => random_int(0, 1000000)).skip(8)", NULL));
    mr_eq_str(show("range(4).filter(x => random_int(0, 1) == 0)", NULL), "0; 1; 2; 3; ");
}

MR_TEST(distributions_are_what_they_say)
{
    mr_eq_str(show("range(20).map(x => random_uniform([5000], low=2.0, high=4.0))"
                   ".map(v => (min(v) >= 2.0, max(v) < 4.0, abs(mean(v) - 3.0) < 0.05))"
                   ".filter((a, b, c) => a and b and c).batch(100).map((a, b, c) => size(a))",
                   NULL),
              "20; ");
    mr_eq_str(show("range(20).map(x => random_uniform([5000], dtype=\"float64\"))"
                   ".map(v => abs(mean(v * v) - cast(1, \"float64\") / 3) < 0.03)"
                   ".batch(100).map(v => count_nonzero(v))",
                   NULL),
              "20; ");
    mr_eq_str(show("range(20).map(x => random_normal([5000], mean=1.0, stddev=2.0))"
                   ".map(v => abs(mean(v) - 1.0) < 0.15 and "
                   "abs(mean((v - 1.0) * (v - 1.0)) - 4.0) < 0.5).batch(100)"
                   ".map(v => count_nonzero(v))",
                   NULL),
              "20; ");
    mr_eq_str(show("range(1).map(x => random_int(-3, 4, shape=[7000]))"
                   ".map(v => (min(v), max(v), all([abs(count_nonzero(v == -3) - 1000) < 150, "
                   "abs(count_nonzero(v == 3) - 1000) < 150])))",
                   NULL),
              "(-3, 3, true); ");
    mr_eq_str(show("range(1).map(x => random_int(-9223372036854775808, 9223372036854775807, "
                   "shape=[100])).map(v => (any(v < 0), any(v > 0)))",
                   NULL),
              "(true, true); ");
    mr_eq_str(show("range(50).map(x => sort(shuffle_rows([[3, 0], [1, 0], [2, 0]])[:, 0]))"
                   ".batch(50).map(v => (all(v[:, 0] == 1), all(v[:, 2] == 3)))",
                   NULL),
              "(true, true); ");
    mr_eq_str(
        show("range(600).map(x => shuffle_rows([0, 1, 2])).batch(600)"
             ".map(v => v[:, 0] * 9 + v[:, 1] * 3 + v[:, 2]).map(v => size(unique_values(v)))",
             NULL),
        "6; ");
    mr_eq_str(show("range(1).map(x => random_choice([\"a\", \"b\"], size=100))"
                   ".map(v => sort(unique_values(v)))",
                   NULL),
              "[\"a\", \"b\"]; ");
}

MR_TEST(edges_of_random_functions)
{
    mr_eq_str(show("range(2).map(x => random_int(5, 6))", NULL), "5; 5; ");
    mr_eq_str(show("range(2).map(x => (random_uniform([0]), random_choice(ones([0]), 0)))", NULL),
              "([], []); ([], []); ");
    mr_eq_str(show("range(3).map(x => length(random_normal([x])))", NULL), "0; 1; 2; ");
    mr_eq_str(show("range(2).map(x => shuffle_rows(ones([x])))", NULL), "[]; [1.0]; ");
    mr_eq_str(show("range(2).map(x => random_int(0, x))", NULL),
              "!random_int: low, 0, is not less than high, 0 in random_int(0, x); 0; ");
    mr_has_str(show("range(2).map(x => random_choice(ones([x])))", NULL),
               "!random_choice from no values in random_choice(ones([x])); 1.0; ");
    mr_has_str(evaluate(1, "x => random_int(5, 5)"), "low must be less than high");
    mr_has_str(evaluate(1, "x => random_uniform(low=1.0, high=1.0)"), "low must be less than high");
    mr_has_str(evaluate(1, "x => random_uniform(dtype=\"int64\")"), "makes float32 and float64");
    mr_has_str(evaluate(1, "x => random_choice(x)"), "random_choice from a scalar");
    mr_has_str(evaluate(1, "x => shuffle_rows(x)"), "shuffle_rows of a scalar");
    mr_has_str(evaluate(1, "x => random_uniform([-1])"), "a dimension is negative");
}

MR_TEST(a_restored_pipeline_draws_on)
{
    static const char text[] = "range(9).shuffle(4, seed=1).map(x => (x, random_int(0, 1000)))"
                               ".repeat(2)";
    mr_status st;
    mr_iterator *it = NULL, *again = NULL;
    mr_block a = MR_BLOCK_EMPTY, b = MR_BLOCK_EMPTY;
    void *position = NULL;
    size_t size = 0;
    const mr_iterator_opts opts = {.positions = true};
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    for (int i = 0; i < 5; i++)
        mr_ok(mr_iterator_next(it, 1, &a, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_ok(mr_iterator_open(&again, ds, &opts, &st), &st);
    mr_ok(mr_iterator_restore(again, position, size, &st), &st);
    for (int i = 5; i < 18; i++) {
        mr_ok(mr_iterator_next(it, 1, &a, &st), &st);
        mr_ok(mr_iterator_next(again, 1, &b, &st), &st);
        mr_eq_i64(((int64_t *)a.columns[0].data)[0], ((int64_t *)b.columns[0].data)[0]);
        mr_eq_i64(((int64_t *)a.columns[1].data)[0], ((int64_t *)b.columns[1].data)[0]);
    }
    mr_free(position);
    mr_block_reset(&a);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_iterator_close(again);
    mr_dataset_unref(ds);
}
