/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/reduce_dataset.h"

#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"

static const char squares[] = "range(1, 6).map(x => x * x).batch(2)";

static mr_code reduce(const char *text, const char *init_text, const char *fn_text,
                      const mr_iterator_opts *opts, mr_block *out, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_value init = {0};
    mr_fn *fn = mr_fn_text(fn_text);
    mr_spec *spec = NULL;
    mr_code rc = fn ? MR_OK : mr_fail_memory(st, 0, "a function");
    if (rc == MR_OK)
        rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_value_from_text(init_text, strlen(init_text), &init, st);
    if (rc == MR_OK)
        rc = mr_reduce_spec(ds, &init, fn, &spec, st);
    if (rc == MR_OK)
        rc = mr_reduce(ds, &init, fn, opts, out, st);
    if (rc == MR_OK)
        mr_eq_u64(mr_spec_n_leaves(spec), out->n_columns);
    mr_spec_unref(spec);
    mr_value_reset(&init);
    mr_fn_unref(fn);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(the_last_state_comes_out)
{
    static const int64_t rows[] = {1, 3, 1024}, threads[] = {0, 1, 4};
    for (int way = 0; way < 9; way++) {
        mr_iterator_opts opts = {
            .block_rows = rows[way % 3], .threads = threads[way / 3], .has_threads = true};
        mr_block out = MR_BLOCK_EMPTY;
        mr_status st;
        mr_ok(reduce(squares, "(0, 100)", "(s, x) => (s[0] + sum(x), s[1] - 1)", &opts, &out, &st),
              &st);
        mr_eq_u64(out.rows, 1);
        mr_eq_u64(out.n_columns, 2);
        mr_eq_i64(*(const int64_t *)out.columns[0].data, 55);
        mr_eq_i64(*(const int64_t *)out.columns[1].data, 97);
        mr_block_reset(&out);
    }
}

MR_TEST(without_elements_it_is_the_first_state)
{
    mr_block out = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(reduce("range(0)", "[4, 5]", "(s, x) => s + x", NULL, &out, &st), &st);
    mr_eq_i64(((const int64_t *)out.columns[0].data)[1], 5);
    mr_block_reset(&out);
}

MR_TEST(the_first_error_ends_it)
{
    mr_block out = MR_BLOCK_EMPTY;
    mr_status st;
    mr_ok(reduce("range(3)", "0", "(s, x) => s + x", NULL, &out, &st), &st);
    mr_eq_u64(out.rows, 1); /* and none after an error */
    mr_code_is(reduce("range(-3, 3).map(x => 6 // x)", "0", "(s, x) => s + x", NULL, &out, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "zero");
    mr_eq_u64(out.rows, 0);
    mr_code_is(reduce("range(5)", "0", "(s, x) => s + 6 // (x - 2)", NULL, &out, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_eq_u64(out.rows, 0);
    mr_block_reset(&out);
}

MR_TEST(types_are_checked)
{
    mr_block out = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code_is(reduce("range(5)", "0", "(s, x) => \"a\"", NULL, &out, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "state");
    mr_code_is(reduce("range(5)", "(0", "(s, x) => s", NULL, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(reduce("range(5)", "n", "(s, x) => s", NULL, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(reduce("range(5)", "0", "7", NULL, &out, &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(every_allocation_may_fail)
{
    mr_fault_each_allocation(n)
    {
        mr_block out = MR_BLOCK_EMPTY;
        mr_status st;
        if (mr_fault_expect(reduce(squares, "[0]", "(s, x) => concat(s, x)", NULL, &out, &st),
                            &st) == MR_OK)
            mr_eq_u64(out.rows, 1);
        mr_block_reset(&out);
    }
}
