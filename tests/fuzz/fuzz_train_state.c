/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a checkpoint's state.json: what is accepted holds what restoring looks up. How many
 * totals a metric has, the metric says when it is restored. */
#include <jansson.h>
#include "trainer/exchange/checkpoint_state.h"
#include "trainer/files/json_file.h"
#include "trainer/loop/callback.h"
#include "trainer/loop/callback_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What callbacks take of it. Weights would be in a file that is not there. */
static void recall(const json_t *root)
{
    mr_callback c[2] = {{0}};
    mr__recalled r = {0};
    const mr_fit_opts o = {.callbacks = c, .n_callbacks = 2};
    if (mr_callback_parse(&c[0], "early_stopping(monitor=\"loss\")", NULL) == MR_OK &&
        mr_callback_parse(&c[1], "reduce_lr_on_plateau(monitor=\"loss\")", NULL) == MR_OK &&
        mr__recalled_load(&r, "nowhere", root, NULL, NULL) == MR_OK) {
        mr_code rc = mr__recall(&r, &o, NULL);
        if (rc != MR_OK && rc != MR_END)
            __builtin_trap();
    }
    mr__recalled_drop(&r);
    mr_callback_reset(&c[0]);
    mr_callback_reset(&c[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr__train_state s = {0};
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (mr__read_state(root, &s, NULL) == MR_OK) {
        if (s.epoch < 0 || s.step < 0 || s.workers < 1 || s.replicas < 1 || !s.optimizer)
            __builtin_trap();
        for (size_t r = 0; r < (size_t)s.replicas; r++)
            for (size_t i = 0; i < (size_t)s.n_metrics; i++) {
                const json_t *of = json_array_get(s.metric_totals, r);
                if (json_array_size(json_array_get(of, i)) == 0)
                    __builtin_trap();
            }
    }
    recall(root);
    json_decref(root);
    return 0;
}
