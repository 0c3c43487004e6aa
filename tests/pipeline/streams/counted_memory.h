/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_PIPELINE_STREAMS_COUNTED_MEMORY_H
#define MR_TESTS_PIPELINE_STREAMS_COUNTED_MEMORY_H
/* Counts the bytes that the library has. */

/* From here on, for the whole process. */
void mr_count_memory(void);
/* Bytes now, and the most since the last mr_restart_peak. */
long long mr_live_memory(void);
long long mr_peak_memory(void);
void mr_restart_peak(void);
#endif
