/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_FAULT_H
#define MR_TESTS_FAULT_H
/* Failing allocations, system calls and completions, one after the other.
 *
 *     mr_fault_each_allocation(n) {
 *         mr_buffer *b = NULL;
 *         mr_status st;
 *         mr_fault_expect(mr_buffer_alloc(&b, 100, &st), &st);
 *         mr_buffer_unref(b);
 *     }
 *
 * The body runs first with n = 0 and no fault (it must succeed, and fills what lives as long as the
 * process), then with the first, second, ... call failing, until a run saw no fault. After each run
 * as many allocations must be alive and as many files open as before it; what the body owns must
 * therefore be gone at its end (`continue` is fine, `break` is not). In the short run of the tests
 * far calls are sampled from the seed; MR_FAULT_AT=n runs that n alone, which a failure names.
 *
 * Calls are counted over all threads; use one thread where n should mean the same in every run. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipeline/status.h"

typedef enum mr_fault_kind {
    MR_FAULT_ALLOCATION,
    MR_FAULT_SYSTEM_CALL, /* entries of mr__system: -1 and errno */
    MR_FAULT_COMPLETION   /* io_uring: a completion's result */
} mr_fault_kind;

/* In the short run of the tests: the first `calls` faults of the loops that follow are all tried,
 * of those after them a sample. 300 unless said. */
void mr_fault_exact(int64_t calls);

/* persistent: the n-th call and all after it fail. */
#define mr_fault_each_allocation(n) mr_fault_each(n, MR_FAULT_ALLOCATION, 0, false)
#define mr_fault_each(n, kind, err, persistent)                                                    \
    for (int64_t n = mr__fault_start(kind, err, persistent); mr__fault_step(&n);)
int64_t mr__fault_start(mr_fault_kind kind, int err, bool persistent);
bool mr__fault_step(int64_t *n);

/* Did a call fail on purpose since the run of the body began? */
bool mr_fault_seen(void);
/* No fault seen: rc must be MR_OK or MR_END. Else it may be those too (a fault that was made up
 * for) or an error with a message; of an allocation that is MR_RESOURCE_EXHAUSTED. */
#define mr_fault_expect(rc, st) mr__fault_expect(__FILE__, __LINE__, #rc, rc, st)
mr_code mr__fault_expect(const char *file, int line, const char *call, mr_code rc,
                         const mr_status *st);

/* Every call of the kind fails with this chance, drawn from the seed, until mr_fault_off: for runs
 * with many threads. */
void mr_fault_random(mr_fault_kind kind, int err, unsigned per_thousand, uint64_t seed);
/* Reads, and reads through io_uring, give 1 byte or more but seldom all, until mr_fault_off. */
void mr_fault_short_reads(uint64_t seed);
/* Nothing is in the page cache: reads that must not wait give EAGAIN, until mr_fault_off. */
void mr_fault_uncached(void);
/* io_uring cannot be set up (the error ENOSYS), until mr_fault_off. */
void mr_fault_no_uring(void);
void mr_fault_off(void);

/* Counts through the tables since they were first put in place. */
int64_t mr_fault_live_allocations(void);
int64_t mr_fault_open_files(void);
/* Puts the counting tables in place without any fault; the others do so by themselves. */
void mr_fault_count(void);
#endif
