/* SPDX-License-Identifier: Apache-2.0 */
/* Nested operators, which are evaluated in tiles, give what the same operators give one at a time:
 * expressions drawn at random, for all types of numbers and blocks around the size of a tile. A
 * registered function around every operator keeps it out of a tile. */
#include "pipeline/functions/descriptor.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

static size_t rows_passed;

static mr_code passed_type(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = *c->in[0];
    return MR_OK;
}

static mr_code passed_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    (void)st;
    rows_passed += r->rows;
    mr_array_slice(out, &r->in[0], 0, r->rows);
    return MR_OK;
}

static void register_passed(void)
{
    static const mr_param params[] = {MR_INPUT(mr_input_tensor, "x", "Anything."), {0}};
    static const mr_function passed = {.abi = MR_ABI_VERSION,
                                       .name = "passed",
                                       .doc = "The same.",
                                       .example = "range(3).map(x => passed(x))",
                                       .params = params,
                                       .type = passed_type,
                                       .run = passed_run};
    mr_status st;
    if (!mr_function_find("passed"))
        mr_ok(mr_function_register(&passed, &st), &st);
}

/* ---- expressions ---- */

/* An expression in tiles, and with each operator by itself. */
typedef struct pair {
    char tiled[800], single[1600];
} pair;

static void join(pair *to, const pair *a, const char *op, const char *b_tiled, const char *b_single)
{
    snprintf(to->tiled, sizeof to->tiled, "(%.380s %s %.380s)", a->tiled, op, b_tiled);
    snprintf(to->single, sizeof to->single, "passed(%.780s %s %.780s)", a->single, op, b_single);
}

static void draw_numbers(pair *to, int depth, bool floats, uint64_t *random)
{
    static const char *const leaves[] = {"x", "y", "x", "y", "t[0]", "passed(x)", "v", "y"};
    static const char *const operators[] = {"+", "-", "*", "*", "//", "%", "**", "/"};
    static const char *const constants[] = {"1", "2", "3", "7", "-1", "-6", "16", "0"};
    uint64_t d = mr_test_random(random);
    if (depth <= 0) {
        snprintf(to->tiled, sizeof to->tiled, "%s", leaves[d % 8]);
        snprintf(to->single, sizeof to->single, "%s", leaves[d % 8]);
        return;
    }
    pair a, b;
    const char *op = operators[d % (floats ? 8 : 7)];
    draw_numbers(&a, depth - 1 - (int)(d / 8 % 2), floats, random);
    draw_numbers(&b, depth - 2 + (int)(d / 16 % 2), floats, random);
    bool commutes = op[0] != '/' && op[0] != '%' && op[1] != '*';
    if (commutes ? d / 32 % 2 : d / 32 % 8) {
        snprintf(b.tiled, sizeof b.tiled, "%s", constants[d / 256 % 8]);
        snprintf(b.single, sizeof b.single, "%s", b.tiled);
        if (commutes && d / 2048 % 2) {
            join(to, &b, op, a.tiled, a.single);
            return;
        }
    }
    join(to, &a, op, b.tiled, b.single);
}

static void draw(pair *to, bool floats, uint64_t *random)
{
    static const char *const comparisons[] = {"==", "!=", "<", "<=", ">", ">="};
    static const char *const joins[] = {"==", "!=", "and", "or"};
    pair a, b, left, right;
    uint64_t d = mr_test_random(random);
    draw_numbers(&a, 1 + (int)(d % 5), floats, random);
    draw_numbers(&b, (int)(d / 8 % 3), floats, random);
    d /= 64;
    if (d % 3 == 0) {
        *to = a;
        return;
    }
    join(&left, &a, comparisons[d / 4 % 6], b.tiled, b.single);
    if (d % 3 == 1) {
        *to = left;
        return;
    }
    join(&right, &b, comparisons[d / 32 % 6], a.tiled, a.single);
    join(to, &left, joins[d / 256 % 4], right.tiled, right.single);
}

/* ---- comparing ---- */

typedef struct result {
    mr_code rc;
    mr_spec *spec;
    mr_block rows;
    mr_row_errors errors;
} result;

static void step(const char *body, const mr_spec *spec, const mr_block *in, result *r)
{
    char f[1700];
    mr_status st;
    snprintf(f, sizeof f, "%s", body);
    *r = (result){.errors = MR_ROW_ERRORS_EMPTY};
    r->rc = evaluate_step(f, spec, in, &r->spec, &r->rows, &r->errors, &st);
    if (r->rc != MR_OK && r->rc != MR_INVALID_ARGUMENT)
        mr_ok(r->rc, &st);
}

static void reset(result *r)
{
    mr_spec_unref(r->spec);
    mr_block_reset(&r->rows);
    mr_row_errors_reset(&r->errors);
}

static void check_same(const result *a, const result *b)
{
    mr_eq_u64((uint64_t)a->rc, (uint64_t)b->rc);
    mr_eq_u64(a->errors.n, b->errors.n);
    for (size_t i = 0; i < a->errors.n; i++)
        mr_eq_u64(a->errors.v[i].row, b->errors.v[i].row);
    mr_eq_u64(a->rows.rows, b->rows.rows);
    if (!a->rows.rows)
        return;
    const mr_array *x = &a->rows.columns[0], *y = &b->rows.columns[0];
    mr_check(mr_array_fits(x, y) && x->storage == MR_DENSE && y->storage == MR_DENSE);
    mr_check(memcmp(x->data, y->data, x->rows * mr_array_row_bytes(x)) == 0);
}

/* (x, y, t, v): numbers of the type at both ends and around 0, a tuple and a vector of them. */
static void make_input(const char *dtype, size_t rows, result *to)
{
    char f[400];
    mr_status st;
    mr_block in = MR_BLOCK_EMPTY;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    result first;
    mr_ok(evaluate_integers(0, rows, &in, &st), &st);
    step("i => ((-9223372036854775807 - 1 if i % 5 == 0 else i * 6364136223846793005 + 1442695) "
         "if i % 3 == 0 else i * 7 % 50 - 20, i % 9 - 3)",
         spec, &in, &first);
    snprintf(f, sizeof f,
             "(a, b) => (cast(a, \"%s\"), cast(b, \"%s\"), (cast(b + 1, \"%s\"), b), "
             "cast([a, b, 3], \"%s\"))",
             dtype, dtype, dtype, dtype);
    step(f, first.spec, &first.rows, to);
    mr_eq_u64(to->rows.rows, rows);
    reset(&first);
    mr_block_reset(&in);
    mr_spec_unref(spec);
}

MR_TEST(nested_operators_give_what_single_ones_give)
{
    static const char *const dtypes[] = {"int8",    "int16",   "int32",  "int64",
                                         "uint8",   "uint16",  "uint32", "uint64",
                                         "float16", "float32", "float64"};
    static const size_t blocks[] = {1, 15, 17, 1023, 1024, 1025, 2600};
    uint64_t random = mr_test_seed();
    size_t ran = 0, failed = 0;
    register_passed();
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        for (int i = 0; i < (mr_test_long() ? 2000 : 60); i++) {
            result in, tiled, single;
            pair e;
            char f[1700];
            draw(&e, strchr(dtypes[k], 'f') != NULL, &random);
            mr_test_context("%s of %s", e.tiled, dtypes[k]);
            make_input(dtypes[k], blocks[mr_test_random(&random) % 7], &in);
            snprintf(f, sizeof f, "(x, y, t, v) => %s", e.tiled);
            step(f, in.spec, &in.rows, &tiled);
            snprintf(f, sizeof f, "(x, y, t, v) => %s", e.single);
            step(f, in.spec, &in.rows, &single);
            check_same(&tiled, &single);
            ran += tiled.rows.rows > 0;
            failed += tiled.errors.n > 0;
            reset(&in);
            reset(&tiled);
            reset(&single);
        }
    mr_test_context("%s", "");
    mr_check(ran > 200 && failed > 10);
}

/* Rows of several shapes do not fit a tile; what is known of them is not computed again. */
MR_TEST(rows_of_several_shapes_are_evaluated_once)
{
    register_passed();
    rows_passed = 0;
    mr_eq_str(evaluate(4, "x => passed(ones([x % 3])) * 2.0 + 1.0"), "[]; [3.0]; [3.0, 3.0]; []");
    mr_eq_u64(rows_passed, 4);
    mr_eq_str(evaluate(3, "x => (ones([x]) * 2.0 + 1.0, passed(x) * 2 + 1)"),
              "([], 1); ([3.0], 3); ([3.0, 3.0], 5)");
    mr_eq_u64(rows_passed, 7);
}

MR_TEST(captured_values_are_operands)
{
    static const char text[] = "range(3).flat_map(x => range(4).map(y => (y * 3 + x) % 4 - x))";
    mr_status st;
    mr_dataset *ds;
    mr_iterator *it;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    for (int64_t x = 0; x < 3; x++)
        for (int64_t y = 0; y < 4; y++) {
            mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
            mr_eq_i64(*(const int64_t *)b.columns[0].data, (y * 3 + x) % 4 - x);
        }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
