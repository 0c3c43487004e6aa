/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_FAULT_CALLS_H
#define MR_TESTS_FAULT_CALLS_H
/* Tables of system calls that ask a test first, for what the plans of fault.h do not do: it says
 * which calls fail, and with what, or ends the process there.
 *
 *     static bool fails(const char *call) { errno = EIO; return strcmp(call, "fsync") == 0; }
 *     mr__system table = *mr__system_real();
 *     mr_fault_calls(&table, "open fsync", fails);
 *     mr__system_set(&table); */
#include <stdbool.h>

#include "pipeline/system/system.h"

/* true: the call fails with the errno that is set. */
typedef bool (*mr_call_fails)(const char *call);

/* The calls of *table that `names` has, with blanks between, ask `fails`, and else are the real
 * ones. A close that fails has closed the file all the same. A process has one `fails` only. */
void mr_fault_calls(mr__system *table, const char *names, mr_call_fails fails);
#endif
