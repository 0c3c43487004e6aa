/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_CGROUP_H
#define MR_PIPELINE_SYSTEM_CGROUP_H
/* The limits that the process's control group sets, as a container does: cpu.max and memory.max of
 * version 2, cpu.cfs_quota_us and memory.limit_in_bytes of version 1. Those of the groups above it
 * count as well; the smallest applies.
 *
 * thread   any */
#include <stdint.h>

typedef struct mr__cgroup {
    int64_t memory_max; /* bytes; INT64_MAX: no limit */
    int cpus;           /* quota / period of cpu.max, rounded up; INT_MAX: no limit */
} mr__cgroup;

/* Reads the limits now. What cannot be read sets no limit. */
mr__cgroup mr__cgroup_read(void);
/* As they were when the process first asked; logs them then. */
const mr__cgroup *mr__cgroup_limits(void);
#endif
