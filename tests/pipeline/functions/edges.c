/* SPDX-License-Identifier: Apache-2.0 */
/* Each function where mistakes hide: no values, one row, rows of many blocks, constants, rows of
 * several shapes; and the values at the edges of arithmetic. */
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* How a NaN prints. */
#define NOT "(1e999 - 1e999)"

/* A hash of all elements and errors of a pipeline, read in blocks of at most `block` rows. */
static uint64_t digest(const char *text, int64_t block, size_t *rows)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    const mr_iterator_opts opts = {.block_rows = block, .has_threads = true};
    uint64_t h = 14695981039346656037u;
    *rows = 0;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    for (mr_code rc; (rc = mr_iterator_next(it, 1024, &b, &st)) != MR_END;) {
        for (size_t r = 0; r < (rc == MR_OK ? b.rows : 1); r++) {
            char buf[2048];
            mr_block one = MR_BLOCK_EMPTY;
            if (rc == MR_OK) {
                mr_ok(mr_block_slice(&one, &b, r, 1, &st), &st);
                evaluate_print(mr_dataset_spec(ds), &one, &none, buf, sizeof buf);
            } else
                mr_status_format(&st, buf, sizeof buf);
            for (const char *c = buf; *c; c++)
                h = (h ^ (unsigned char)*c) * 1099511628211u;
            mr_block_reset(&one);
            ++*rows;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return h;
}

/* Every function over these operands: r is ragged, z empty, v a vector, s a string. */
static const char *const bodies[] = {
    "x + x % 5",
    "x + 1",
    "1 - x",
    "v * x",
    "r + 1",
    "r + r",
    "z + x",
    "v + [1, 2]",
    "[[1], [2]] * v",
    "s + \"a\"",
    "x / 2",
    "r // 2",
    "10 // (x % 3)",
    "10 % (x % 3)",
    "2 ** (x % 4 - 1)",
    "-r",
    "-z",
    "x == 3",
    "r < 1",
    "s >= \"b\"",
    "v != x",
    "x > 2 and x < 9",
    "r == 0 or r == 1",
    "not (x == 2)",
    "r if x % 2 == 0 else v",
    "10 // x if x > 3 else 7",
    "v[x % 4]",
    "r[x % 3]",
    "abs(r - 1)",
    "cast(r, \"uint8\")",
    "cast(z, \"bool\")",
    "concat(r, v)",
    "concat(z, z)",
    "stack(x, 1)",
    "stack(v, r)",
    "length(r)",
    "size(z)",
    "sum(r)",
    "sum(z)",
    "mean(r)",
    "min(r)",
    "max(v)",
    "min(x, 3, v)",
    "max(r, 1)",
    "one_hot(x % 4, 3)",
    "one_hot(r, 2)",
    "one_hot(x, x % 3)",
    "zeros([x % 3, 2])",
    "ones([2], \"int8\")",
    "reshape(v, [2, 1])",
    "reshape(r, [-1, 1])",
    "reshape(r, [2])",
    "decode_raw(s, \"uint8\")",
    "decode_raw(stack(s, s), \"uint16\")",
    "[x, 1][0]",
    "(x, r, z)",
    "{\"a\": v, \"b\": 1}",
    "(x, 5)[1]",
    "[r, r]",
    "r[1:]",
    "v[x % 2:]",
    "v[::-1]",
    "[v, v][x % 3, :]",
    "where(v > x, v, 0)",
    "where(r > 0)",
    "where([r > 0, r < 0])",
    "where(r > 0, r, x)",
    "argmax(v)",
    "argmin(r)",
    "any(r == 0)",
    "all(z)",
    "count_nonzero(v)",
    "norm(r)",
    "sort(r)",
    "sort([v, v], axis=0)",
    "sort([s, \"b\"])",
    "topk(v, x % 3)",
    "unique_values([x % 2, 0, x % 3])",
    "unique_values([s, \"ab\"])",
    "cumsum(r)",
    "discretization(r, [0.0, 1.5])",
    "cumsum([v, v], axis=0)",
    "transpose([r, r])",
    "expand_dims(r, 0)",
    "squeeze(v[:1], axis=0)",
    "gather(v, [x % 3, 0])",
    "gather(r, x % 3)",
    "pad(v, [x % 3, 1])",
    "pad(r, 1, constant_values=5)",
    "pad([s], 1)",
    "matmul([v, v], v)",
    "matmul(r, r)",
    "matmul([[1, 2]], [v, v])",
    "round(x / 2)",
    "sqrt(r)",
    "pow(x, 2)",
    "clip(r, x % 2, 1)",
    "length(s)",
    "substring(s, x % 3, 1)",
    "upper([s, \"a\"])",
    "strip(s + \" \")",
    "find(s, \"b\")",
    "contains([s, s], format(\"{}\", x % 7))",
    "split(join([s, s, format(\"{}\", x)], sep=\" \"))",
    "split(where(r > 0, s, \"d e\"))",
    "join(where(r > 0, s, \"d e\"), sep=\"-\")",
    "regex_replace(s, \"([ae])\", \"<\\\\1>\")",
    "regex_match([s, \"ab\"], \"a.\")",
    "to_number(format(\"{}\", x % 200), \"int8\")",
    "format(\"{} {}\", x, s)",
    "hash([s, format(\"{}\", x)], 7)",
    "utf8_decode(s)",
    "utf8_decode([s, \"\"])",
    "lookup(s, [\"ab\"])",
    "text_vectorization(s, [\"ab\"], 2)",
    "lookup(x % 5, [1, 3], oov=0)",
    "hashing(s, 7)",
    "rescaling([x, 1], 0.5, offset=-1.0)",
    "rescaling(r, 2.0)",
    "normalization(v, mean=[1], variance=[4])",
    "category_encoding([x % 5, 1], 4)",
    "category_encoding(cast(r, \"int64\") % 3, 3, output_mode=\"count\")",
    "category_encoding(x % 3, 3, output_mode=\"one_hot\")",
    "parse_json(format('{{\"a\": {}, \"b\": [{}]}}', x % 300, x), a=uint8, b=int32[])",
    "parse_csv(format(\"{},{}\", x % 200, s), [int8, bytes])",
    "parse_csv([format(\"{}\", x), \"1\"], [int64])",
    "read_file(\"/dev/null\" if x % 3 == 0 else \"/nowhere\")"};

MR_TEST(block_sizes_make_no_difference)
{
    static const int64_t blocks[] = {1, 3, 7, 1024};
    static const size_t rows_of[] = {1, 2, 1100};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (size_t k = 0; k < 3; k++) {
            char text[1024];
            uint64_t first = 0;
            size_t rows;
            snprintf(text, sizeof text,
                     "range(%zu).map(x => (x, ones([x %% 4], \"int64\"), zeros([0], \"int64\"), "
                     "[x, 7], \"ab\" if x %% 3 == 0 else \"cdef\")).map((x, r, z, v, s) => %s)",
                     rows_of[k], bodies[i]);
            for (size_t b = 0; b < 4; b++) {
                mr_test_context("%s in blocks of %d", text, (int)blocks[b]);
                uint64_t h = digest(text, blocks[b], &rows);
                mr_eq_u64(rows, rows_of[k]);
                mr_eq_u64(h, b ? first : h);
                first = h;
            }
        }
}

MR_TEST(a_float_remainder_of_zero_has_the_divisors_sign)
{
    mr_eq_str(evaluate(1, "x => [-4.0, 4.0, -4.5, 4.5] % 2.0"), "[0.0, 0.0, 1.5, 0.5]");
    mr_eq_str(evaluate(1, "x => cast([-4, 4, 0, -5, 5], \"float32\") % -2.0"),
              "[-0.0, -0.0, -0.0, -1.0, -1.0]");
    mr_eq_str(evaluate(1, "x => cast([-4, 4, -6], \"float64\") % 2.0"), "[0.0, 0.0, 0.0]");
    mr_eq_str(evaluate(1, "x => cast([-4, 4, -6], \"float16\") % 2.0"), "[0.0, 0.0, 0.0]");
    /* One rounding: float32, in between, would round to a tie. */
    mr_eq_str(evaluate(1, "x => cast(cast(cast(1.00048828125, \"float64\") + 1e-12, \"float16\"), "
                          "\"float64\") > 1.0"),
              "true");
    mr_eq_str(evaluate(1, "x => cast(cast([4629700416936869889, -4629700416936869889, "
                          "4629700416936869888], \"bfloat16\"), \"int64\") // 1125899906842624"),
              "[4128, -4128, 4096]");
}

MR_TEST(zero_divided_by_minus_one_is_zero)
{
    static const char *const types[] = {"int8", "int16", "int32", "int64"};
    for (size_t i = 0; i < 4; i++) {
        char f[200];
        snprintf(f, sizeof f, "x => (cast(x - 1, \"%s\") // -1, cast(x - 1, \"%s\") %% -1)",
                 types[i], types[i]);
        mr_eq_str(evaluate(3, f), "(1, 0); (0, 0); (-1, 0)");
    }
    mr_eq_str(evaluate(1, "x => (0 // -1, 0 % -1, 5 // -1)"), "(0, 0, -5)");
}

MR_TEST(nan_wins_in_min_and_max)
{
    static const char *const types[] = {"float16", "float32", "float64"};
    for (size_t i = 0; i < 3; i++) {
        char f[200];
        snprintf(f, sizeof f, "x => (cast(x, \"%s\") / 0, cast(x, \"%s\") + 1)", types[i],
                 types[i]);
        mr_test_context("%s", types[i]);
        mr_eq_str(evaluate(1, f, "(n, a) => (min(n, a), min(a, n), max(n, a), max(a, n))"),
                  "(" NOT ", " NOT ", " NOT ", " NOT ")");
        mr_eq_str(evaluate(1, f, "(n, a) => (min([n, a]), min([a, n]), min([a, n, a]))"),
                  "(" NOT ", " NOT ", " NOT ")");
        mr_eq_str(evaluate(1, f, "(n, a) => (max([n, a]), max([a, n]), max([a, n, a]))"),
                  "(" NOT ", " NOT ", " NOT ")");
        mr_eq_str(evaluate(1, f, "(n, a) => (min(a, a + 1), max(a, a + 1), sum([a, n]))"),
                  "(1.0, 2.0, " NOT ")");
    }
}

MR_TEST(errors_after_a_branch_or_ragged_rows_find_their_row)
{
    mr_eq_str(evaluate(5, "x => ((7 if x > 1 else 8), 10 // (x - 3))"),
              "(8, -4); (8, -5); (7, -10); !integer division by zero in 10 // (x - 3); (7, 10)");
    mr_eq_str(
        evaluate(5, "x => (1 // (x - 4) if x > 1 else 1 // x, 6 // (x - 3))"),
        "!integer division by zero in 1 // x; (1, -3); (-1, -6); "
        "!integer division by zero in 6 // (x - 3); !integer division by zero in 1 // (x - 4)");
    mr_eq_str(evaluate(4, "x => (length(ones([x])), 10 // (x - 2))"),
              "(0, -5); (1, -10); !integer division by zero in 10 // (x - 2); (3, 10)");
    mr_eq_str(evaluate(4, "x => (ones([x])[1] if x != 1 else 5.0, 6 // (x - 3))"),
              "!index 1 is out of range: axis 0 has length 0 in ones([x])[1]; (5.0, -3); "
              "(1.0, -6); !integer division by zero in 6 // (x - 3)");
}

MR_TEST(dividing_no_values_by_zero_is_no_error)
{
    mr_eq_str(evaluate(2, "x => zeros([0], \"int64\") // x"), "[]; []");
    mr_eq_str(evaluate(2, "x => ones([x], \"int64\") // 2"), "[]; [0]");
    mr_eq_str(evaluate(2, "x => ones([x], \"int64\") % (x - 1)"),
              "[]; !integer division by zero in ones([x], \"int64\") % (x - 1)");
}

MR_TEST(an_error_shows_its_expression)
{
    mr_eq_str(evaluate(1, "x => 1 + ((x) + 2) // (0 * x)"),
              "!integer division by zero in ((x) + 2) // (0 * x)");
    mr_eq_str(evaluate(1, "x => (1 //\n\t x) # why\n + 2"), "!integer division by zero in 1 // x");
    mr_eq_str(evaluate(1, "x => (size(\")(\") # )\n+ 1) //x"),
              "!integer division by zero in (size(\")(\") + 1) //x");
    mr_eq_str(evaluate(1, "x => (size(\"\\\\\") + size(\"\\\")\")) // x"),
              "!integer division by zero in (size(\"\\\\\") + size(\"\\\")\")) // x");
    mr_eq_str(evaluate(1,
                       "x => sum([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, "
                       "19, 20, 21, 22, 23, 24]) // x"),
              "!integer division by zero in sum([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "
              "15, 16, 17, 18, 19, 20, 21, 22, 23, ...");
}

MR_TEST(misfits_are_shown_with_both_shapes)
{
    mr_has_str(evaluate(1, "x => reshape([1, 2, 3], [2, -1])"),
               "reshape: 3 values of shape [3] do not fit shape [2, ?]");
    mr_has_str(evaluate(1, "x => reshape([[1, 2, 3]], [2])"),
               "reshape: 3 values of shape [1, 3] do not fit shape [2]");
    mr_eq_str(evaluate(2, "x => reshape(ones([x + 2]), [2])"),
              "[1.0, 1.0]; !reshape: 3 values of shape [3] do not fit shape [2] in "
              "reshape(ones([x + 2]), [2])");
    mr_has_str(evaluate(1, "x => concat([1], [[2]])"),
               "concat of tensors of different shapes, [1] and [1, 1]");
    mr_has_str(evaluate(2, "x => stack(ones([x]), ones([2]))"),
               "stack of tensors of different shapes, [0] and [2]");
    mr_has_str(evaluate(2, "x => zeros([x - 1])"),
               "axis 0 of a shape is -1; none may be negative in zeros([x - 1])");
}

MR_TEST(an_element_has_a_bounded_number_of_leaves)
{
    char text[1024] = "range(1)";
    size_t rows;
    for (int i = 0; i < 16; i++)
        strcat(text, ".map(x => (x, x))");
    digest("range(1).map(x => (x, x)).map(x => (x, x))", 0, &rows);
    mr_status st;
    mr_dataset *ds = mr_test_graph(text);
    mr_dataset_unref(ds);
    for (int i = 0; i < 14; i++)
        strcat(text, ".map(x => (x, x))");
    mr_code_is(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message,
               "its elements would have 131072 components, but at most 65536 are supported");
}
