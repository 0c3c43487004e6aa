/* SPDX-License-Identifier: Apache-2.0 */
/* What random functions draw depends on the element's records and the seeds, and on nothing
 * else. */
#include "pipeline/functions/compiler/draws.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/functions/descriptor.h"
#include "pipeline/streams/reduce_dataset.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

static const mr__iterator_internal seed_made_up = {.seed_made_up = true};

/* All elements of a pipeline in one line. */
static const char *elements(const char *text, const mr_iterator_opts *opts)
{
    static char lines[4][32768];
    static int k;
    char *buf = lines[k++ % 4];
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    size_t n = 0;
    mr_code rc;
    buf[0] = '\0';
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, opts, &st), &st);
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
        n += (size_t)snprintf(buf + n, sizeof lines[0] - n, "%s", n ? "; " : "");
        evaluate_print(mr_dataset_spec(ds), &b, &none, buf + n, sizeof lines[0] - n);
        n += strlen(buf + n);
    }
    mr_code_is(rc, MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return buf;
}

#define PAIR "[[[cast(x, \"int64\")], [-1]]]"

MR_TEST(threads_blocks_and_batches_change_nothing)
{
    const char *one = elements("range(40).map(x => random_flip(" PAIR ", seed=3))", NULL);
    mr_has_str(one, "[[[-1], [");
    mr_has_str(one, "], [-1]]]");
    for (int threads = 0; threads <= 4; threads += 4)
        for (int rows = 1; rows <= 7; rows += 3) {
            const mr_iterator_opts opts = {
                .threads = threads, .has_threads = true, .block_rows = rows};
            mr_eq_str(elements("range(40).map(x => random_flip(" PAIR ", seed=3), "
                               "num_parallel_calls=3)",
                               &opts),
                      one);
        }
    mr_eq_str(elements("range(40).map(x => " PAIR ").batch(8)"
                       ".map(x => random_flip(x, seed=3)).unbatch()",
                       NULL),
              one);
}

MR_TEST(each_element_epoch_seed_and_call_draws_for_itself)
{
#define CROP "random_crop([[[0], [1], [2], [3], [4], [5], [6], [7], [8], [9]]], [1, 1]"
    const char *epochs = elements("range(20).map(x => " CROP ", seed=1)).repeat(2)", NULL);
    const char *half = strstr(epochs + strlen(epochs) / 2 - 2, "; ");
    mr_check(half != NULL);
    mr_check(strncmp(epochs, half + 2, strlen(half + 2)) != 0);
    const char *first = elements("range(20).map(x => " CROP ", seed=1))", NULL);
    mr_check(strncmp(epochs, first, strlen(first)) == 0);
    mr_check(strcmp(first, elements("range(20).map(x => " CROP ", seed=2))", NULL)) != 0);
    const mr_iterator_opts job = {.seed = 5, .has_seed = true},
                           other = {.seed = 6, .has_seed = true};
    const mr_iterator_opts made_up = {.seed = 5, .has_seed = true, .internal = &seed_made_up};
    const char *with_job = elements("range(20).map(x => " CROP ", seed=1))", &job);
    mr_check(strcmp(first, with_job) != 0);
    mr_check(strcmp(with_job, elements("range(20).map(x => " CROP ", seed=1))", &other)) != 0);
    mr_eq_str(elements("range(20).map(x => " CROP ", seed=1))", &made_up), first);
    /* Two calls of one function draw two values. */
    mr_has_str(elements("range(20).map(x => " CROP ") == " CROP "))", NULL), "false");
    /* The value is the element's, not that of its place. */
    const char *skipped = elements("range(20).skip(7).map(x => " CROP ", seed=1))", NULL);
    mr_eq_str(strstr(first, skipped), skipped);
}

/* The rows that a branch sees are some of the block's; rows of several shapes come alone. */
MR_TEST(a_branch_and_a_ragged_row_draw_as_their_element)
{
    const char *all = elements("range(30).map(x => " CROP ", seed=4))"
                               ".enumerate().filter((i, v) => i % 3 == 1).map((i, v) => v)",
                               NULL);
    mr_eq_str(elements("range(30).map(x => (x, " CROP ", seed=4) if x % 3 == 1 else [[[x]]]))"
                       ".filter((x, v) => x % 3 == 1).map((x, v) => v)",
                       NULL),
              all);
    const char *ragged = elements("range(6).map(x => zeros([1, x + 1, 1]) + 1.0)"
                                  ".map(x => pad_to(x, [1, 10]))"
                                  ".map(x => random_crop(x, [1, 1], seed=4))",
                                  NULL);
    const mr_iterator_opts alone = {.block_rows = 1};
    mr_eq_str(elements("range(6).map(x => zeros([1, x + 1, 1]) + 1.0)"
                       ".map(x => random_crop(pad_to(x, [1, 10]), [1, 1], seed=4))",
                       &alone),
              ragged);
}

static void expect_even(const char *crop)
{
    int count[10] = {0}, n = 0;
    char text[256];
    snprintf(text, sizeof text, "range(2000).map(x => %s, seed=9))", crop);
    const char *shown = elements(text, NULL);
    for (const char *s = shown; *s; s++)
        if (*s >= '0' && *s <= '9') {
            count[*s - '0']++;
            n++;
        }
    mr_eq_i64(n, 2000);
    for (int i = 0; i < 10; i++)
        mr_check(count[i] > 140 && count[i] < 260);
}

MR_TEST(places_are_equally_likely)
{
    expect_even(CROP);
    expect_even(
        "random_crop([[[0]], [[1]], [[2]], [[3]], [[4]], [[5]], [[6]], [[7]], [[8]], [[9]]],"
        " [1, 1]");
}

MR_TEST(numbers_below_a_bound_cover_it)
{
    mr__draws d = {.key = 1};
    int seen[6] = {0};
    for (int i = 0; i < 600; i++)
        seen[mr__draw_below(&d, 6)]++;
    for (int i = 0; i < 6; i++)
        mr_check(seen[i] > 60 && seen[i] < 150);
    mr_eq_u64(mr__draw_below(&d, 1), 0);
    for (int i = 0; i < 100; i++) {
        double u = mr__draw_uniform(&d);
        mr_check(u >= 0 && u < 1);
        mr_check(mr__draw_below(&d, UINT64_MAX) < UINT64_MAX);
    }
}

static int64_t reduced(mr_dataset *ds, const mr_iterator_opts *opts)
{
    mr_status st;
    mr_value init = {0};
    mr_block out = MR_BLOCK_EMPTY;
    mr_ok(mr_value_from_text("0", 1, &init, &st), &st);
    mr_fn *fn = mr_fn_text("(s, x) => s * 3 % 1000003 + sum(" CROP ", seed=1))");
    mr_ok(mr_reduce(ds, &init, fn, opts, &out, &st), &st);
    int64_t v = *(int64_t *)out.columns[0].data;
    mr_block_reset(&out);
    mr_value_reset(&init);
    mr_fn_unref(fn);
    return v;
}

/* What a scan or a reduction adds up is drawn for each element too. */
MR_TEST(folds_draw_by_the_elements)
{
    const char *drawn = elements("range(20).map(x => " CROP ", seed=1))", NULL);
    mr_eq_str(elements("range(20).scan(0, (s, x) => (s, " CROP ", seed=1)))", NULL), drawn);
    const mr_iterator_opts job = {.seed = 5, .has_seed = true},
                           made_up = {.seed = 5, .has_seed = true, .internal = &seed_made_up};
    static const char text[] = "range(20)";
    mr_dataset *ds = mr_test_graph(text);
    int64_t want = 0;
    for (const char *s = drawn; *s; s++)
        if (*s >= '0' && *s <= '9')
            want = want * 3 % 1000003 + (*s - '0');
    mr_eq_i64(reduced(ds, NULL), want);
    mr_eq_i64(reduced(ds, &made_up), want);
    mr_check(reduced(ds, &job) != want);
    mr_dataset_unref(ds);
}

MR_TEST(a_crop_must_fit)
{
    mr_has_str(evaluate(1, "x => random_crop([[[1]]], [2, 1])"), "1 rows, fewer than 2");
    mr_has_str(evaluate(1, "x => random_crop(zeros([x + 1, 1, 1]), [2, 1])"),
               "is smaller than 2 x 1");
    mr_eq_str(evaluate(2, "x => random_crop([[[x], [x]]], [1, 1])"), "[[[0]]]; [[[1]]]");
    mr_eq_str(evaluate(1, "x => random_flip(zeros([0, 2, 1]))"), "[]");
}
