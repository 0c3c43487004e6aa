/* SPDX-License-Identifier: Apache-2.0 */
/* First layers that take numbers of any type: what a model makes of bytes and class numbers. */
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/loop/fit.h"

static mr_status st;

/* What the model predicts for three rows of two numbers each. */
static mr_code predict(const char *model, mr_dtype t, const void *rows, predicted *out)
{
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_status why;
    batches b = {.rows = 3,
                 .batch = 2,
                 .n_columns = 1,
                 .columns = {{.dtype = t, .rows = 1, .rank = 2, .shape = {3, 2}}}};
    b.columns[0].data = (void *)(uintptr_t)rows;
    mr_test_context("%s", model);
    out->n = 0;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_ok(mr_model_parse(&m, model, &st), &st);
    mr_dataset *ds = test_batches(&b);
    mr_code rc = mr_predict(s, m, ds, test_take, out, NULL, &why);
    st = why;
    mr_dataset_unref(ds);
    mr_model_free(m);
    mr_strategy_free(s);
    return rc;
}

static const uint8_t bytes[] = {0, 255, 51, 3, 3, 3};
static const int64_t ids[] = {0, 2, 1, 1, 3, 0};

static void check(const char *model, mr_dtype t, const void *rows, const float *want, size_t n)
{
    predicted g;
    mr_ok(predict(model, t, rows, &g), &st);
    mr_eq_u64(g.n, n);
    for (size_t i = 0; i < n; i++)
        mr_eq_f64(g.values[i], want[i], 1e-6);
}

MR_TEST(bytes_and_numbers_become_floats_on_the_device)
{
    static const float scaled[] = {-1, 50, 9.2f, -0.4f, -0.4f, -0.4f},
                       plain[] = {0, 255, 51, 3, 3, 3}, normal[] = {-1.5f, 63, 24, 0, 0, 0},
                       hot[] = {1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1},
                       counts[] = {1, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 1},
                       each[] = {1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0,
                                 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0};
    check("rescaling(0.2, offset=-1.0)", MR_UINT8, bytes, scaled, 6);
    check("reshape(1, 2).rescaling(0.2, -1.0).flatten()", MR_UINT8, bytes, scaled, 6);
    check("cast()", MR_UINT8, bytes, plain, 6);
    check("normalization([3.0, 3.0], [4.0, 16.0])", MR_UINT8, bytes, normal, 6);
    check("category_encoding(4)", MR_INT64, ids, hot, 12);
    check("category_encoding(4, output_mode=\"count\")", MR_INT64, ids, counts, 12);
    check("category_encoding(4, output_mode=\"one_hot\")", MR_INT64, ids, each, 24);
    check("reshape(2, 1).category_encoding(4, \"one_hot\")", MR_INT64, ids, each, 24);
}

MR_TEST(an_embedding_is_the_rows_of_its_table)
{
    predicted g;
    mr_ok(predict("embedding(4, 3, embeddings_initializer=\"ones\")", MR_INT64, ids, &g), &st);
    mr_eq_u64(g.n, 18);
    for (size_t i = 0; i < 18; i++)
        mr_eq_f64(g.values[i], 1, 0);
    mr_ok(predict("embedding(4, 3)", MR_INT64, ids, &g), &st);
    mr_eq_mem(g.values, g.values + 15, 3 * sizeof(float)); /* both the row 0 */
    mr_eq_mem(g.values + 6, g.values + 9, 3 * sizeof(float));
    mr_check(memcmp(g.values, g.values + 3, 3 * sizeof(float)) != 0);
}

MR_TEST(a_residual_adds_its_input)
{
    static const float x[] = {1, -2, 3, 0.5f, 0, 4}, twice[] = {2, -4, 6, 1, 0, 8},
                       squashed[] = {2, -2, 6, 1, 0, 8}, thrice[] = {4, -8 / 3.0f, 12, 2, 0, 16};
    check("residual(activation(\"linear\"))", MR_FLOAT32, x, twice, 6);
    check("residual(activation(\"relu\"))", MR_FLOAT32, x, squashed, 6);
    check("residual(residual(activation(\"relu\")).activation(\"relu\")).residual(rescaling("
          "0.3333333333333333))",
          MR_FLOAT32, x, thrice, 6);
}

MR_TEST(numbers_that_are_no_class_are_named)
{
    predicted g;
    mr_code_is(predict("embedding(3, 2)", MR_INT64, ids, &g), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "number 3 in row 0 of the features is not one of the 3 (0 to 2)");
    mr_code_is(predict("category_encoding(2)", MR_INT64, ids, &g), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "number 2 in row 0 of the features");
}

MR_TEST(other_models_refuse_numbers)
{
    predicted g;
    mr_code_is(predict("dense(2)", MR_UINT8, bytes, &g), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "in a map of the pipeline, cast(x, \"float32\") / 255.0, or begin an "
                           "untrained model with cast() or rescaling(");
    mr_code_is(predict("flatten().dense(2).cast()", MR_UINT8, bytes, &g), MR_INVALID_ARGUMENT, &st);
    mr_code_is(predict("normalization([1.0, 2.0, 3.0], [1.0])", MR_UINT8, bytes, &g),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "mean has 3 values, expected 1 or 2");
}
