/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/graph/sample_ops.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/graph/fn.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_code infer_int(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    *out = mr_spec_scalar(MR_INT64);
    return *out ? MR_OK : mr_fail_memory(st, 100, "a spec");
}

static mr_code infer_join(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    mr_spec *few[8] = {0};
    size_t n = mr_dataset_n_inputs(self);
    for (size_t i = 0; i < n; i++)
        few[i] = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, i)));
    *out = mr_spec_tuple(few, n);
    return *out ? MR_OK : mr_fail_memory(st, 100, "a spec");
}

static mr_code infer_source(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    const struct sample_all *q = p;
    if (q->n == 99)
        return mr_fail(st, MR_INVALID_ARGUMENT, "ninety-nine does not fit");
    return infer_int(self, p, out, st);
}

static mr_code check_source(const void *p, mr_status *st)
{
    const struct sample_all *q = p;
    return q->n == -1 ? mr_fail(st, MR_INVALID_ARGUMENT, "-1 is refused") : MR_OK;
}

static int64_t count_source(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    return ((const struct sample_all *)p)->n;
}

static const char *const codecs[] = {"", "GZIP", "ZSTD", NULL};

static const mr_param source_table[] = {
    MR_ARG(struct sample_all, n, .min.i = -1, .max.i = 1000, .doc = "A number."),
    MR_OPT(struct sample_all, size, .min.i = 1, .max.i = INT64_MAX, .def.i = 5,
           .flags = MR_P_OPTIONAL, .doc = "Not 0."),
    MR_OPT(struct sample_all, depth, .min.i = 1, .max.i = 64, .def.i = MR_AUTO,
           .flags = MR_P_AUTO | MR_P_NONE, .doc = "Or auto."),
    MR_OPT(struct sample_all, seed, .has_at = offsetof(struct sample_all, o.has_seed),
           .doc = "Any."),
    MR_OPT(struct sample_all, flag, .doc = "Off."),
    MR_OPT(struct sample_all, order, .def.b = true, .doc = "On."),
    MR_OPT(struct sample_all, rate, .min.f = 0, .max.f = 1, .doc = "A share."),
    MR_OPT(struct sample_all, codec, .def.s = "", .names = codecs, .doc = "One of three."),
    MR_OPT(struct sample_all, fn, .doc = "A function."),
    MR_OPT(struct sample_all, value, .doc = "Anything."),
    MR_OPT(struct sample_all, sizes, .min.i = 1, .max.i = 100, .doc = "Numbers."),
    MR_OPT(struct sample_all, weights, .doc = "Numbers."),
    {0}};
static const mr_op source_op = {.abi = MR_ABI_VERSION,
                                .name = "sample_source",
                                .doc = "A sample.",
                                .example = "sample_source(1)",
                                .params = source_table,
                                .params_size = sizeof(struct sample_all),
                                .check = check_source,
                                .infer = infer_source,
                                .cardinality = count_source};

struct one {
    int64_t n;
};
static const mr_param pass_table[] = {MR_ARG(struct one, n, .doc = "A number."), {0}};
static const mr_op pass_op = {.abi = MR_ABI_VERSION,
                              .name = "sample_pass",
                              .doc = "A sample.",
                              .example = "sample_source(1).sample_pass(1)",
                              .params = pass_table,
                              .params_size = sizeof(struct one),
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .props = MR_OP_KEEPS_COUNT};
static const mr_op join_op = {.abi = MR_ABI_VERSION,
                              .name = "sample_join",
                              .doc = "A sample.",
                              .example = "sample_join(sample_source(1))",
                              .max_inputs = -1,
                              .min_inputs = 1,
                              .props = MR_OP_SOURCE_CALL,
                              .infer = infer_join};

struct files {
    mr_strs names;
};
static const mr_param files_table[] = {{.name = "names",
                                        .type = MR_PT_STRS,
                                        .flags = MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                                        .doc = "Files."},
                                       {0}};
static const mr_op files_op = {.abi = MR_ABI_VERSION,
                               .name = "sample_files",
                               .doc = "A sample.",
                               .example = "sample_files(\"a\")",
                               .params = files_table,
                               .params_size = sizeof(struct files),
                               .infer = infer_int};

struct values {
    mr_value v;
};
static const mr_param values_table[] = {
    {.name = "v", .type = MR_PT_VALUE, .flags = MR_P_POSITIONAL | MR_P_VARIADIC, .doc = "Values."},
    {0}};
static const mr_op values_op = {.abi = MR_ABI_VERSION,
                                .name = "sample_values",
                                .doc = "A sample.",
                                .example = "sample_values(1)",
                                .params = values_table,
                                .params_size = sizeof(struct values),
                                .infer = infer_int};

static void register_all(void)
{
    const mr_op *ops[] = {&source_op, &pass_op, &join_op, &files_op, &values_op};
    mr_status st;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        mr_ok(mr_op_register(ops[i], &st), &st);
}

void sample_ops(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_all);
}

const mr_op *sample_op(const char *name)
{
    sample_ops();
    const mr_op *op = mr_op_find(name, strlen(name));
    mr_check(op != NULL);
    return op;
}

mr_dataset *sample_source(int64_t n, const sample_opts *o)
{
    struct sample_all p = {.n = n};
    if (o)
        p.o = *o;
    sample_ops();
    return mr_dataset_new(&source_op, &p, NULL, 0);
}

mr_dataset *sample_pass(mr_dataset *input, int64_t n)
{
    sample_ops();
    return mr_dataset_new(&pass_op, &(struct one){n}, &input, 1);
}

mr_dataset *sample_join(mr_dataset *const *inputs, size_t n)
{
    sample_ops();
    return mr_dataset_new(&join_op, NULL, inputs, n);
}

mr_dataset *sample_files(const char *const *names, const bool *is_path, size_t n)
{
    mr_bytes v[8];
    bool path[8];
    for (size_t i = 0; i < n; i++) {
        v[i] = (mr_bytes){names[i], strlen(names[i])};
        path[i] = is_path && is_path[i];
    }
    sample_ops();
    struct files p = {{v, n, is_path ? path : NULL}};
    return mr_dataset_new(&files_op, &p, NULL, 0);
}

mr_dataset *sample_values(mr_value v)
{
    return sample_with("sample_values", "v", v, NULL);
}

mr_dataset *sample_with(const char *name, const char *param, mr_value v, mr_dataset *input)
{
    const mr_op *op = sample_op(name);
    mr_value values[16] = {0};
    size_t i = 0;
    for (; op->params[i].name && strcmp(op->params[i].name, param) != 0; i++)
        ;
    mr_check(op->params[i].name != NULL);
    if (i > 0)
        values[0] = (mr_value){.kind = MR_V_INT, .i = 1};
    values[i] = v;
    mr_dataset *ds = mr_dataset_from_values(op, values, &input, input ? 1 : 0);
    mr_value_reset(&values[i]);
    return ds;
}

mr_value sample_tuple(mr_value *items, size_t n)
{
    mr_value v = {.kind = MR_V_TUPLE, .n = n, .items = mr_calloc(n + 1, sizeof *v.items)};
    mr_check(v.items != NULL);
    memcpy(v.items, items, n * sizeof *items);
    return v;
}

mr_value sample_string(const char *s)
{
    return (mr_value){.kind = MR_V_STRING, .s = mr_strdup(s), .size = strlen(s)};
}

mr_value sample_tensor(mr_dtype t, int rank, const int64_t *shape, const void *data)
{
    mr_value v = {.kind = MR_V_TENSOR};
    mr_status st;
    mr_ok(mr_array_alloc(&v.tensor, t, rank, shape, 1, &st), &st);
    memcpy(v.tensor.data, data, mr_array_row_bytes(&v.tensor));
    return v;
}

mr_fn *sample_fn(const char *text)
{
    const mr_expr *e = NULL;
    mr_fn *fn = NULL;
    mr_status st;
    mr_ok(mr_expr_parse(text, strlen(text), &e, &st), &st);
    mr_ok(mr__fn_of_expr(e, NULL, NULL, 0, &fn, &st), &st);
    mr_expr_unref(e);
    return fn;
}

const char *sample_text(const mr_dataset *ds)
{
    static char *texts[4];
    static int next;
    mr_status st;
    mr_free(texts[next % 4]);
    texts[next % 4] = NULL;
    mr_ok(mr_dataset_to_text(ds, &texts[next % 4], &st), &st);
    return texts[next++ % 4];
}

const char *sample_error(const mr_dataset *ds)
{
    static mr_status st;
    mr_check(mr_dataset_check(ds, &st) != MR_OK);
    return st.message;
}
