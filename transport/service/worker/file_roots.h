/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_ROOTS_H
#define MR_TRANSPORT_SERVICE_ROOTS_H
/* The directories below which a worker opens files, whatever names graphs have: symbolic links and
 * ".." are followed first, and what was opened is looked at again.
 *
 * For a whole process: it replaces entries of the table of system calls.
 *
 * thread   mr__roots_set before there are others; the rest any */
#include "pipeline/status.h"
#include "pipeline/system/system.h"

/* *out = a table for mr__system_set, with which files are opened, listed and looked at only below
 * these; NULL where n is 0: anywhere.
 * errors   MR_NOT_FOUND, ...: one of them is not there, names it */
mr_code mr__roots_set(const char *const *roots, size_t n, const mr__system **out,
                      mr_status *st) MR_NODISCARD;
/* Where an error comes from a file outside of them, says so. */
void mr__roots_explain(mr_status *st);
#endif
