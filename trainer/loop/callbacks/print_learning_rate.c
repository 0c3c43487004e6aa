/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the learning rate after each epoch. */
#include <inttypes.h>
#include <stdio.h>
#include "trainer/loop/callback_impl.h"

struct state {
    const void *params;
};

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *st)
{
    char rate[40], text[128], json[128];
    (void)ctx;
    (void)st;
    mr__number_text(mr_optimizer_learning_rate(e->optimizer), rate, sizeof rate);
    snprintf(text, sizeof text, "Learning rate for epoch %" PRId64 " is %s", e->epoch, rate);
    snprintf(json, sizeof json, "{\"epoch\": %" PRId64 ", \"learning_rate\": %s}", e->epoch, rate);
    mr__print_line(e, text, json);
    return MR_OK;
}

const mr_callback_desc mr__callback_print_learning_rate = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "print_learning_rate",
           .doc = "Prints the learning rate after each epoch.",
           .example = "print_learning_rate()"},
    .calls = {.epoch_end = epoch_end},
    .state_size = sizeof(struct state),
};
