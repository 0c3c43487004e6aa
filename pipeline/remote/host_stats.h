/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_HOST_STATS_H
#define MR_PIPELINE_REMOTE_HOST_STATS_H
/* What this process has requested from each host of URLs since it started.
 *
 * thread   any
 * since    0.2 */
#include <stddef.h>
#include <stdint.h>

#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of the time to the first byte. */
#define MR_HOST_BOUNDS 13

typedef struct mr_host_stats {
    char host[264];           /* "example.org", or with its port, "127.0.0.1:9000" */
    int64_t bytes;            /* of data; what was discarded is not counted */
    int64_t requests;         /* including retries and redirections */
    int64_t retries;          /* requests after a failed one, for the same bytes */
    int64_t open_connections; /* now */
    /* From the local cache, instead of the host: bytes; and how often a piece that was needed was
     * there, or had to be fetched first. */
    int64_t cached_bytes, cache_hits, cache_misses;
    /* From sending a request to the first byte of its answer: the sum, and how many were at most
     * mr_host_bounds[i] seconds but more than the bound before. The last number has no bound. */
    double first_byte_seconds;
    int64_t first_bytes[MR_HOST_BOUNDS + 1];
} mr_host_stats;

MR_API extern const double mr_host_bounds[MR_HOST_BOUNDS]; /* in seconds, rising */

/* Writes up to `capacity` hosts, in the order in which they were first used, and returns their
 * number. Hosts beyond 63 are counted together, as "other". */
MR_API size_t mr_host_stats_read(mr_host_stats *out, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
