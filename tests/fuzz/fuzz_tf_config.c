/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as TF_CONFIG. */
#include "shard/cluster/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_cluster c = {0};
    int64_t rank;
    if (mr_cluster_from_tf_config(&c, (const char *)data, size, NULL) == MR_OK)
        (void)!mr_cluster_worker(&c, &rank, NULL);
    (void)mr_cluster_hash(&c);
    mr_cluster_reset(&c);
    return 0;
}
