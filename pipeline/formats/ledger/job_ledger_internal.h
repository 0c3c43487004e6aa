/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LEDGER_JOB_LEDGER_INTERNAL_H
#define MR_PIPELINE_FORMATS_LEDGER_JOB_LEDGER_INTERNAL_H
/* The ledger of a training job, which one process writes for all, and which a run that resumes the
 * job continues. It has the name of the job, as if that were the name of file 2^64 - 1 of source
 * 2^64 - 1, so that every reader of ledgers can read it. For the trainer. */
#include "pipeline/formats/ledger/ledger.h"

enum { MR__LEDGER_JOB = 17 /* bytes of the name of a job, 16 hexadecimal digits */ };

/* A ledger without a file: it keeps the names of files and drops entries. For iterators of
 * processes that do not write. */
mr_code mr__ledger_of_names(mr_ledger **out, mr_status *st) MR_NODISCARD;
/* Creates the ledger of a new job, whose name becomes `job`. Replaces a file of this name. */
mr_code mr__ledger_create_job(const char *path, char job[MR__LEDGER_JOB], mr_ledger **out,
                              mr_status *st) MR_NODISCARD;
/* Replaces the ledger of this job by a copy that ends after `entries` entries, to be continued.
 * errors   as open(2); MR_FAILED_PRECONDITION: there is no ledger, or that of another job, or a
 *          shorter one; MR_UNAVAILABLE: another run is writing it. It is left as it is */
mr_code mr__ledger_continue_job(const char *path, const char *job, int64_t entries, mr_ledger **out,
                                mr_status *st) MR_NODISCARD;
/* Locks the open ledger until it is closed, if its file system has locks. kind: of flock(2).
 * errors   MR_UNAVAILABLE: another run is writing it */
mr_code mr__ledger_lock(const char *path, int fd, int kind, mr_status *st) MR_NODISCARD;
/* Makes everything that was added durable. */
mr_code mr__ledger_sync(mr_ledger *l, mr_status *st) MR_NODISCARD;
#endif
