/* SPDX-License-Identifier: Apache-2.0 */
/* Positions: whatever the bytes, restoring ends with MR_OK or an error, and a run that continues
 * from there stays within memory. The first byte picks the graph. */
#include <string.h>
#include <zlib.h>

#include "pipeline/engine/iterator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const graphs[] = {
    "range(20).shuffle(5, seed=1).batch(3)",
    "range(6).flat_map(x => range(x)).prefetch(2)",
    "from_tensor_slices([\"a\", \"bc\", \"\"]).repeat(2).window(2, shift=1).flat_map(w => w)",
    "range(9).interleave(x => range(3), cycle_length=2, num_parallel_calls=2).cache().repeat(2)",
    "zip(range(5), range(10).map(x => 10 // (x - 3))).ignore_errors().padded_batch(2)",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9)
        return 0;
    const char *text = graphs[data[0] % (sizeof graphs / sizeof *graphs)];
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    if (mr_dataset_from_text(text, strlen(text), NULL, &ds, NULL) != MR_OK ||
        mr_iterator_open(&it, ds, &opts, NULL) != MR_OK) {
        mr_dataset_unref(ds);
        return 0;
    }
    /* The checksum is made right, so that what follows it is reached. */
    uint8_t *copy = mr_memdup(data + 1, size - 1);
    if (copy) {
        uint32_t sum = (uint32_t)crc32_z(0, copy + 8, size - 9);
        for (int i = 0; i < 4; i++)
            copy[4 + i] = (uint8_t)(sum >> (8 * i));
        memcpy(copy, "MRP4", 4);
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        if (mr_iterator_restore(it, copy, size - 1, &st) == MR_OK)
            for (int i = 0; i < 50 && mr_iterator_next(it, 4, &b, &st) != MR_END; i++)
                ;
        mr_block_reset(&b);
    }
    mr_free(copy);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return 0;
}
