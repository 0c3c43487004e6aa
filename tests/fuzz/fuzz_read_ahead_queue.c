/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a read-ahead queue: whatever the bytes, restoring ends with MR_OK or an error, and a
 * run that continues from there, and is saved again, stays within memory. The first byte says what
 * the rows are and whether the input can be read again. */
#include <string.h>

#include "pipeline/engine/run.h"
#include "pipeline/streams/read_ahead_queue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const graphs[] = {
    "range(9)",
    "from_tensor_slices([\"a\", \"bc\", \"\"])",
    "range(5).map(x => (ones([x]), 6 // x))",
    "range(5).window(2)",
};

/* An op that drives a queue over its input. */
static const uint8_t *bytes;
static size_t n_bytes;

static mr_code drive(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__queue *q = it->state;
    mr__queue_open(q, it, it->inputs[0]);
    mr_state_r r = {.at = bytes, .end = bytes + n_bytes};
    mr_code rc = mr__queue_restore(q, it->spec, &r, st);
    mr_state_w w = {0};
    for (int i = 0; rc == MR_OK && i < 20; i++) {
        mr_code got = mr__queue_next(q, want, out, NULL);
        if (got == MR_END)
            break;
        w.size = 0;
        rc = mr__queue_save(q, 0, &w, st);
    }
    if (rc == MR_OK && w.size) {
        r = (mr_state_r){.at = w.data, .end = w.data + w.size};
        rc = mr__queue_restore(q, it->spec, &r, st);
    }
    mr__state_w_reset(&w);
    mr__queue_reset(q);
    return rc == MR_OK ? MR_END : rc;
}

static const mr_op op_drive = {
    .abi = MR_ABI_VERSION,
    .name = "drive",
    .doc = "Restores a queue.",
    .example = "none",
    .iter_size = sizeof(mr__queue),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .next = drive,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = graphs[data[0] % (sizeof graphs / sizeof *graphs)];
    mr_dataset *input = NULL;
    mr_iterator *it = NULL;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    bytes = data + 1;
    n_bytes = size - 1;
    if (mr_dataset_from_text(text, strlen(text), NULL, &input, NULL) != MR_OK)
        return 0;
    mr_dataset *ds = mr_dataset_new(&op_drive, NULL, &input, 1);
    if (mr_iterator_open(&it, ds, &opts, NULL) == MR_OK) {
        mr_block b = MR_BLOCK_EMPTY;
        mr_code rc = mr_iterator_next(it, 3, &b, NULL);
        mr_block_reset(&b);
        (void)rc;
    }
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return 0;
}
