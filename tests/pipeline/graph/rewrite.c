/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/rewrite.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/graph/sample_ops.h"

MR_ONE_THREAD;

struct visits {
    int sources, others;
};

/* Puts sample_pass(9) above every source. */
static mr_dataset *above_sources(void *ctx, mr_dataset *node)
{
    struct visits *v = ctx;
    if (mr_dataset_n_inputs(node) > 0) {
        v->others++;
        return node;
    }
    v->sources++;
    return sample_pass(node, 9);
}

MR_TEST(transform_visits_a_shared_node_once)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *ds = sample_join((mr_dataset *[]){mr_dataset_ref(s), s}, 2);
    struct visits v = {0};
    mr_dataset *out = mr_dataset_transform(ds, above_sources, &v);
    mr_eq_i64(v.sources, 1);
    mr_eq_i64(v.others, 1);
    mr_check(mr_dataset_input(out, 0) == mr_dataset_input(out, 1));
    mr_eq_str(sample_text(out),
              "sample_join(sample_source(1).sample_pass(9), sample_source(1).sample_pass(9))");
    mr_eq_str(sample_text(ds), "sample_join(sample_source(1), sample_source(1))");
    mr_dataset_unref(ds);
    mr_dataset_unref(out);
}

static mr_dataset *unchanged(void *ctx, mr_dataset *node)
{
    (void)ctx;
    return node;
}

MR_TEST(transform_without_change_gives_the_same_graph)
{
    mr_dataset *ds = sample_source(1, NULL);
    for (int i = 0; i < 100000; i++)
        ds = sample_pass(ds, 1);
    mr_dataset *out = mr_dataset_transform(ds, unchanged, NULL);
    mr_check(out == ds);
    mr_dataset_unref(ds);
    mr_dataset_unref(out);
}

static mr_code pair(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    (void)ctx;
    MR_TRY(mr_explain(e, "pair", "sample_join", st, "number %d", 2));
    *out = sample_join((mr_dataset *[]){mr_dataset_ref(ds), mr_dataset_ref(ds)}, 2);
    return MR_OK;
}

static mr_code pass(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    MR_TRY(mr_explain(e, "pass", NULL, st, "above %s", "all"));
    *out = sample_pass(mr_dataset_ref(ds), *(int64_t *)ctx);
    return MR_OK;
}

MR_TEST(a_pass_may_not_change_types_and_leaves_nothing_behind)
{
    mr_pass bad = {"pairs", "Pairs.", pair}, good = {"passes", "Passes.", pass};
    mr_dataset *ds = sample_source(1, NULL), *out = NULL;
    mr_explanation e = {0};
    mr_status st;
    int64_t n = 3;
    mr_ok(mr_pass_run(&good, &n, ds, &out, &e, &st), &st);
    mr_eq_str(sample_text(out), "sample_source(1).sample_pass(3)");
    mr_dataset_unref(out);
    out = NULL;
    mr_code_is(mr_pass_run(&bad, NULL, ds, &out, &e, &st), MR_INTERNAL, &st);
    mr_has_str(st.message, "from int64[] to (int64[], int64[])");
    mr_check(out == NULL);
    mr_eq_u64(e.n, 1);
    mr_eq_str(e.v[0].what, "pass");
    mr_eq_str(e.v[0].detail, "above all");
    mr_check(e.v[0].op == NULL);
    mr_explanation_reset(&e);
    mr_dataset_unref(ds);
}

MR_TEST(every_failed_allocation_is_all_or_nothing)
{
    mr_dataset *s = sample_source(1, NULL);
    mr_dataset *ds = sample_join((mr_dataset *[]){mr_dataset_ref(s), s}, 2);
    mr_pass good = {"passes", "Passes.", pass};
    int64_t one = 1;
    mr_fault_each_allocation(n)
    {
        struct visits v = {0};
        mr_explanation e = {0};
        mr_status st;
        mr_dataset *out = mr_dataset_transform(ds, above_sources, &v);
        (void)mr_fault_expect(mr_dataset_check(out, &st), &st);
        mr_dataset_unref(out);
        out = NULL;
        if (mr_fault_expect(mr_pass_run(&good, &one, ds, &out, &e, &st), &st) != MR_OK)
            mr_check(e.n == 0 && out == NULL);
        mr_dataset_unref(out);
        mr_explanation_reset(&e);
    }
    mr_dataset_unref(ds);
}
