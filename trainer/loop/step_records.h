/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_STEP_RECORDS_H
#define MR_TRAINER_LOOP_STEP_RECORDS_H
/* The ledger of a training job: the identities of the records of each step travel with the step,
 * from all workers to the first one, which writes those of a step when it has been trained.
 *
 * thread   one */
#include "pipeline/formats/ledger/job_ledger_internal.h"
#include "shard/distribute/distribute.h"
#include "trainer/strategy/strategy_impl.h"

typedef struct mr__step_records mr__step_records;

/* s is borrowed. */
mr_code mr__step_records_new(mr__step_records **out, mr_strategy *s, mr_status *st) MR_NODISCARD;
/* For the iterator: it keeps names, which are read from it. */
mr_ledger *mr__step_records_names(mr__step_records *x);
/* Frees it, also on failure; NULL: no effect.
 * errors   as mr_ledger_close */
mr_code mr__step_records_close(mr__step_records *x, mr_status *st) MR_NODISCARD;

/* Begins to write in the first worker: a new ledger, whose job becomes `job`, or after `entries`
 * steps the one of that job. of_one_batch: all replicas of a step have slices of one batch. */
mr_code mr__step_records_begin(mr__step_records *x, const char *path, char job[MR__LEDGER_JOB],
                               int64_t entries, bool of_one_batch, mr_status *st) MR_NODISCARD;

/* Notes the records of this worker's replicas in a step that was fetched. */
mr_code mr__step_records_note(mr__step_records *x, const mr_step *step, mr_status *st) MR_NODISCARD;
/* Gathers what all have noted. first: the number of the first row of each replica of the job. All
 * workers call it for each step. */
mr_code mr__step_records_gather(mr__step_records *x, const int64_t *first,
                                mr_status *st) MR_NODISCARD;
/* The step gathered last is not trained. */
void mr__step_records_drop(mr__step_records *x);
/* The earliest step that was gathered and not dropped was trained. */
mr_code mr__step_records_trained(mr__step_records *x, mr_status *st) MR_NODISCARD;
/* For workers that make steps by themselves (parameter servers): notes the records of a step, as
 * bytes for mr__step_records_add. *out is borrowed until the next call. */
mr_code mr__step_records_pack(mr__step_records *x, const mr_step *step, const void **out,
                              size_t *size, mr_status *st) MR_NODISCARD;
/* Writes the records of a step that such a worker has trained.
 * errors   MR_DATA_LOSS: they make no sense · those of mr_ledger_add */
mr_code mr__step_records_add(mr__step_records *x, const void *from, size_t size,
                             mr_status *st) MR_NODISCARD;
/* Makes what was written durable. */
mr_code mr__step_records_sync(mr__step_records *x, mr_status *st) MR_NODISCARD;
#endif
