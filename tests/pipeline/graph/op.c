/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/op.h"

#include <string.h>

#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

MR_TEST(built_in_ops_are_sorted_and_found)
{
    size_t i = 0;
    for (; mr_op_at(i); i++) {
        const mr_op *op = mr_op_at(i);
        mr_check(mr_op_find(op->name, strlen(op->name)) == op);
        if (i > 0)
            mr_check(strcmp(mr_op_at(i - 1)->name, op->name) < 0);
    }
    mr_check(mr_op_at(i + 1) == NULL);
    mr_check(mr_op_find("no_such_op", 10) == NULL);
    mr_check(mr_op_find("", 0) == NULL);
}

MR_TEST(names_are_compared_in_full)
{
    const mr_op *op = sample_op("sample_pass");
    mr_check(mr_op_find("sample_passport", 11) == op);
    mr_check(mr_op_find("sample_passport", 15) == NULL);
    mr_check(mr_op_find("sample_pas", 10) == NULL);
}

MR_TEST(registering_twice_is_refused)
{
    mr_status st;
    mr_code_is(mr_op_register(sample_op("sample_pass"), &st), MR_ALREADY_EXISTS, &st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    (void)out;
    return mr_fail(st, MR_INTERNAL, "never called");
}

static int64_t count(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)p;
    return in[0];
}

struct params {
    int64_t a, b;
};

static void refused(const mr_op *op, const char *why)
{
    mr_status st;
    mr_code_is(mr_op_register(op, &st), MR_INVALID_ARGUMENT, NULL);
    mr_has_str(st.message, why);
}

static mr_code parse_own(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    (void)p;
    (void)e;
    (void)field;
    (void)st;
    return MR_OK;
}
static const mr_param_kind own = {.size = 4, .parse = parse_own};

MR_TEST(bad_descriptors_are_refused_with_the_reason)
{
    mr_param one[] = {MR_ARG(struct params, a, .doc = "A."), {0}};
    const mr_op good = {.abi = MR_ABI_VERSION,
                        .name = "never_registered",
                        .doc = "D.",
                        .example = "e",
                        .params = one,
                        .params_size = sizeof(struct params),
                        .infer = infer};
    mr_op op = good;
    op.abi = 77;
    refused(&op, "ABI version 77");
    op = good;
    op.name = "Bad";
    refused(&op, "[a-z]");
    op = good;
    op.doc = "";
    refused(&op, "doc");
    op = good;
    op.max_inputs = 1;
    op.min_inputs = 2;
    refused(&op, "inputs");
    one[0].doc = NULL;
    refused(&good, "no doc");
    one[0].doc = "A.";
    one[0].at = sizeof(struct params);
    refused(&good, "outside the params struct");
    one[0] = (mr_param){.name = "b", .doc = "B.", .type = MR_PT_I64, .def.i = 7, .max.i = 9};
    refused(&good, "a default other than 0 although 0 is legal");
    one[0].min.i = 8;
    refused(&good, "outside its range");
    one[0] = (mr_param){.name = "k", .doc = "K.", .type = MR_PT_OWN, .kind = &own};
    refused(&good, "a custom type");
}

MR_TEST(traits_need_what_they_are_about)
{
    const mr_param none[] = {{0}};
    const mr_op good = {.abi = MR_ABI_VERSION,
                        .name = "never_registered",
                        .doc = "D.",
                        .example = "e",
                        .params = none,
                        .min_inputs = 1,
                        .max_inputs = 1};
    mr_op op = good;
    op.min_inputs = 0;
    refused(&op, "slot or trait that needs one"); /* no infer */
    op.infer = infer;
    op.props = MR_OP_KEEPS_COUNT;
    refused(&op, "slot or trait that needs one");
    op.props = MR_OP_REORDERS;
    refused(&op, "MR_P_SHUFFLES");
    op = good;
    op.max_inputs = 2;
    op.props = MR_OP_REORDERS;
    refused(&op, "nor a source with a parameter MR_P_SHUFFLES");
    op = good;
    op.props = MR_OP_RANDOM;
    refused(&op, "without a parameter seed");
    op.props = MR_OP_READS_AHEAD;
    refused(&op, "without a parameter buffer_size");
    op.props = MR_OP_SHARDS;
    refused(&op, "without a parameter num_shards");
    op.props = MR_OP_KEEPS_COUNT;
    op.cardinality = count;
    refused(&op, "two cardinalities");
    op = good;
    op.props = 1u << 31;
    refused(&op, "no MR_OP_ names");
    op = good;
    op.role = (mr_role)(MR_ROLE_PARALLEL + 1);
    refused(&op, "a role that does not exist");
    refused(NULL, "the op is NULL");
}

MR_TEST(an_op_that_passes_its_input_on_needs_neither_infer_nor_cardinality)
{
    mr_dataset *ds = sample_pass(sample_source(7, NULL), 1);
    mr_check(mr_spec_equal(mr_dataset_spec(ds), mr_dataset_spec(mr_dataset_input(ds, 0))));
    mr_eq_i64(mr_dataset_cardinality(ds), 7);
    mr_check(!mr_dataset_op(ds)->infer && !mr_dataset_op(ds)->cardinality);
    mr_dataset_unref(ds);
}
