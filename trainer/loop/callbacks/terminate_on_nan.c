/* SPDX-License-Identifier: Apache-2.0 */
/* Ends training with an error at the first loss that is not a number. */
#include <inttypes.h>
#include <math.h>
#include "trainer/loop/callback_impl.h"

struct state {
    const void *params;
};

static mr_code batch_result(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)ctx;
    if (isfinite(e->loss))
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "the loss is %s at step %" PRId64 " of epoch %" PRId64
                   "; lower the learning rate, or look for values in the data that are not numbers",
                   isnan(e->loss) ? "NaN" : "infinite", e->step, e->epoch);
}

const mr_callback_desc mr__callback_terminate_on_nan = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "terminate_on_nan",
           .doc = "Ends training with an error when the loss of a step is NaN or infinite.",
           .example = "terminate_on_nan()"},
    .calls = {.batch_result = batch_result},
    .state_size = sizeof(struct state),
};
