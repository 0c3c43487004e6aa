/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_JITTER_H
#define MR_TRANSPORT_SERVICE_JITTER_H
/* Random delays between retries. */
#include <stdint.h>

/* Returns 0.5 to 1.5 times d (>= 0), so that peers do not all retry at once; advances *random. */
static inline int64_t mr__jittered(uint64_t *random, int64_t d)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return d / 2 + (int64_t)((*random >> 33) % (uint64_t)(d + 1));
}
#endif
