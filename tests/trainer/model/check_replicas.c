/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"
#include "trainer/model/check_replicas.h"
#include "trainer/strategy/strategy_impl.h"

MR_TEST(a_copy_with_another_bit_is_named)
{
    mr_status st;
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    const int64_t shape[] = {3};
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 3}, &st), &st);
    mr_ok(mr_model_parse(&m, "dense(2).dense(2)", &st), &st);
    mr_ok(mr_model_build(m, s, 1, shape, &(mr_model_opts){.seed = 1}, &st), &st);
    mr_ok(mr__check_replicas(m, 7, &st), &st);

    mr_variable *v = mr_model_variable(m, 2);
    float values[4], other;
    mr_ok(mr_variable_read(v, values, &st), &st);
    other = values[3] + 1e-6f;
    mr_ok(mr__replica_write(mr_strategy_replica(s, 1), mr_variable_copy(v, 1) + 3, &other,
                            sizeof other, &st),
          &st);
    mr_code_is(mr__check_replicas(m, 8, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, mr_variable_name(v));
    mr_has_str(st.message, "after step 8");
    mr_has_str(st.message, "replica 1");
    mr_has_str(st.message, "replica 0");

    mr_ok(mr_variable_assign(v, values, &st), &st);
    mr_ok(mr__check_replicas(m, 9, &st), &st);
    mr_model_free(m);
    mr_strategy_free(s);
}
