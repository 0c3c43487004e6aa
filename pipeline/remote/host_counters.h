/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_HOST_COUNTERS_H
#define MR_PIPELINE_REMOTE_HOST_COUNTERS_H
/* The counters that mr_host_stats_read reads. A host's counters stay as long as the process.
 *
 * thread   any */
#include <stdatomic.h>

#include "pipeline/remote/host_stats.h"

typedef struct mr__host {
    char name[sizeof((mr_host_stats *)0)->host];
    atomic_int_fast64_t bytes, requests, retries, open_connections, first_byte_us;
    atomic_int_fast64_t cached_bytes, cache_hits, cache_misses;
    atomic_int_fast64_t first_bytes[MR_HOST_BOUNDS + 1];
} mr__host;

/* The counters of a URL's host. */
mr__host *mr__host_of(const char *url);
static inline void mr__host_add(atomic_int_fast64_t *counter, int64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed); /* it orders nothing */
}
/* An answer began this long after its request was sent. */
void mr__host_answered(mr__host *h, int64_t microseconds);
#endif
