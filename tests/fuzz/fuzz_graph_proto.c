/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the protobuf form of a graph. One that is taken travels again to the same bytes, and
 * to the same text where it has one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/graph/dataset.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_dataset *ds = NULL, *back = NULL;
    void *bytes = NULL, *again = NULL;
    size_t n = 0, m = 0;
    mr_status st;
    small_memory();
    if (mr_dataset_from_proto(data, size, &ds, &st) != MR_OK) {
        if (!st.message[0])
            abort();
        return 0;
    }
    if (mr_dataset_to_proto(ds, &bytes, &n, &st) != MR_OK ||
        mr_dataset_from_proto(bytes, n, &back, &st) != MR_OK ||
        mr_dataset_to_proto(back, &again, &m, &st) != MR_OK)
        abort();
    if (n != m || memcmp(bytes, again, n) != 0)
        abort();
    char *text = NULL, *same = NULL;
    if (mr_dataset_to_text(ds, &text, NULL) == MR_OK &&
        (mr_dataset_to_text(back, &same, NULL) != MR_OK || strcmp(text, same) != 0))
        abort();
    mr_free(text);
    mr_free(same);
    mr_free(bytes);
    mr_free(again);
    mr_dataset_unref(ds);
    mr_dataset_unref(back);
    return 0;
}
