/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX export but for what the file means, which readers.py asks onnxruntime. */
#include "trainer/model/onnx.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "trainer/model/model.h"

static mr_status st;

typedef struct made {
    mr_strategy *s;
    mr_model *m;
} made;

static made make(const char *text, int rank, const int64_t *shape)
{
    made x = {0};
    const char *const cpu = "cpu:0";
    mr_ok(mr_strategy_mirrored(&x.s, &(mr_strategy_opts){.devices = &cpu, .n_devices = 1}, &st),
          &st);
    mr_ok(mr_model_parse(&x.m, text, &st), &st);
    if (rank >= 0)
        mr_ok(mr_model_build(x.m, x.s, rank, shape, NULL, &st), &st);
    return x;
}

static void drop(made *x)
{
    mr_model_free(x->m);
    mr_strategy_free(x->s);
}

/* Is the text somewhere in the file? */
static bool mentions(const char *path, const char *text)
{
    char bytes[8192];
    FILE *f = fopen(path, "rb");
    mr_check(f != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return memmem(bytes, n, text, strlen(text)) != NULL;
}

MR_TEST(nodes_and_constants_have_the_names_of_layers_and_variables)
{
    const char *path = mr_test_path("m.onnx");
    made x = make("dense(3, name=\"first\").dense(2)", 1, (int64_t[]){4});
    mr_ok(mr_onnx_export(x.m, path, &st), &st);
    static const char *const words[] = {"first/kernel", "dense/bias", "MatMul",  "input",
                                        "output",       "batch",      "millrace"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        mr_test_context("%s", words[i]);
        mr_check(mentions(path, words[i]));
    }
    drop(&x);
}

/* ---- layers of a program's own ---- */

struct params {
    double factor;
};

static mr_code pass(const mr_layer_pass *p, mr_status *status)
{
    (void)p;
    (void)status;
    return MR_OK;
}

static mr_code multiply(const mr_layer *l, mr_onnx *g, mr_status *status)
{
    const float factor = (float)((const struct params *)l->params)->factor;
    const char *const name = mr_onnx_floats(g, 0, NULL, &factor);
    return mr_onnx_node(g, "Mul", &name, 1, NULL, 0, status);
}

static const mr_param table[] = {MR_ARG(struct params, factor, .doc = "What it multiplies by."),
                                 {0}};

#define LAYER(n, f)                                                                                \
    {                                                                                              \
        .is = {.abi = MR_ABI_VERSION,                                                              \
               .name = n,                                                                          \
               .doc = "Multiplies.",                                                               \
               .example = n "(2.0)",                                                               \
               .params = table,                                                                    \
               .params_size = sizeof(struct params)},                                              \
        .forward = pass, .backward = pass, .onnx = f                                               \
    }
static const mr_layer_desc times = LAYER("times", multiply), silent = LAYER("silent", NULL);

MR_TEST(layers_of_a_program_say_how_they_are_exported)
{
    const char *path = mr_test_path("m.onnx");
    mr_ok(mr_layer_register(&times, &st), &st);
    mr_ok(mr_layer_register(&silent, &st), &st);
    made x = make("times(3.0)", 1, (int64_t[]){2}),
         y = make("dense(2).silent(1.0)", 1, (int64_t[]){2});
    mr_ok(mr_onnx_export(x.m, path, &st), &st);
    mr_check(mentions(path, "Mul"));
    mr_code_is(mr_onnx_export(y.m, mr_test_path("y.onnx"), &st), MR_UNIMPLEMENTED, &st);
    mr_has_str(st.message, "layer silent");
    mr_check(access(mr_test_path("y.onnx"), F_OK) != 0);
    drop(&x);
    drop(&y);
}

MR_TEST(what_is_not_built_has_nothing_to_export)
{
    made x = make("dense(2)", -1, NULL);
    mr_code_is(mr_onnx_export(x.m, mr_test_path("m.onnx"), &st), MR_FAILED_PRECONDITION, &st);
    drop(&x);
    x = make("dense(2)", 1, (int64_t[]){2});
    mr_code_is(mr_onnx_export(x.m, mr_test_path("no/m.onnx"), &st), MR_NOT_FOUND, &st);
    drop(&x);
}

static const char everything[] =
    "conv2d(2, 2, activation=\"relu6\").batch_norm().max_pool(2).layer_norm().residual(dense(3), "
    "projection=true).flatten().dense(2)";

MR_TEST(memory_may_run_out)
{
    made x = make(everything, 3, (int64_t[]){5, 5, 1});
    mr_fault_each_allocation(n)
        mr_fault_expect(mr_onnx_export(x.m, mr_test_path("f.onnx"), &st), &st);
    drop(&x);
}

static const char tokens[] = "lookup([\"a\", \"b\"]).embedding(3, 2).flatten().dense(2)",
                  bins[] = "discretization([0.0, 1.0]).lookup([1, 2]).category_encoding(3)";

MR_TEST(memory_may_run_out_over_vocabularies)
{
    made x = make(tokens, 1, (int64_t[]){2}), y = make(bins, 1, (int64_t[]){2});
    mr_fault_each_allocation(n)
        mr_fault_expect(mr_onnx_export(x.m, mr_test_path("f.onnx"), &st), &st);
    mr_fault_each_allocation(k)
        mr_fault_expect(mr_onnx_export(y.m, mr_test_path("f.onnx"), &st), &st);
    mr_check(mentions(mr_test_path("f.onnx"), "ai.onnx.ml"));
    drop(&x);
    drop(&y);
}

MR_TEST(a_full_disk_leaves_the_file_before)
{
    made x = make(everything, 3, (int64_t[]){5, 5, 1});
    mr_ok(mr_onnx_export(x.m, mr_test_path("f.onnx"), &st), &st);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOSPC, true)
    {
        mr_fault_expect(mr_onnx_export(x.m, mr_test_path("f.onnx"), &st), &st);
        mr_fault_off();
        mr_check(mentions(mr_test_path("f.onnx"), "LayerNormalization"));
    }
    drop(&x);
}
