/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_STAGING_H
#define MR_TRAINER_STRATEGY_STAGING_H
/* Copies the steps of a distributed iterator to every replica's device memory, without a thread
 * that waits for copies.
 *
 * A ring of `depth` slots; a slot has, for each replica and column, pinned memory and device memory
 * for that replica's slice of one global batch:
 *
 *     host      fill pinned ........... (next slot) ...
 *     copy stream    wait(released) copy record(arrived)
 *     compute stream                              wait(arrived) step record(released)
 *
 * A host call at the end of the copies in the copy stream reports their completion. If device
 * memory is host memory there are no copies: both memories of a slot are the same, and the host
 * call follows the step that reads it.
 *
 * Once the size of a full batch is known, the pipeline's last copying op fills pinned memory in
 * place (mr_block.destination). The iterator decides which rows a replica gets: the last replicas
 * may get few rows or none. */
#include "shard/distribute/distribute.h"
#include "trainer/strategy/strategy.h"

typedef struct mr__staging mr__staging;

/* Whether the host fills the memory that the devices of s read. */
bool mr__staging_is_direct(mr_strategy *s);
mr_code mr__staging_new(mr__staging **out, mr_strategy *s, size_t depth,
                        mr_status *st) MR_NODISCARD;
/* Waits until every step that reads a slot has run; NULL: nothing. */
void mr__staging_free(mr__staging *g);

/* Waits until the next slot's pinned memory may be written, and returns where to put the rows (a
 * segment for each replica); NULL: anywhere. Borrowed until put. errors: a failed device's */
mr_code mr__staging_reserve(mr__staging *g, const mr_destination **destination,
                            mr_status *st) MR_NODISCARD;
/* Puts one step, a batch for each replica, into the reserved slot and starts the copies. The blocks
 * of step may be cleared afterwards. *slot is the slot's number until depth more steps were put.
 * errors   MR_INVALID_ARGUMENT: columns that are not dense or have different batch sizes */
mr_code mr__staging_put(mr__staging *g, const mr_step *step, size_t *slot,
                        mr_status *st) MR_NODISCARD;

/* Number of rows that replica r has in a slot. */
size_t mr__staging_replica_rows(const mr__staging *g, size_t slot, size_t r);
/* If other workers have rows of the slot's batch too: the number of the first row of each replica
 * (mr_dist_dataset_number_rows), and of all rows. */
void mr__staging_number_rows(mr__staging *g, size_t slot, const int64_t *first, size_t rows);
/* Number of rows of the global batch in a slot; number of replica r's first row in it. */
size_t mr__staging_rows(const mr__staging *g, size_t slot);
int64_t mr__staging_first_row(const mr__staging *g, size_t slot, size_t r);
size_t mr__staging_n_columns(const mr__staging *g);
/* *t = replica r's rows of a column, in device memory; borrowed until the slot is released. */
void mr__staging_tensor(const mr__staging *g, size_t slot, size_t r, size_t column, mr_array *t);

/* Brackets the work of replica r that reads the slot: acquire makes its compute stream wait for the
 * copies; release allows refilling the slot once the stream has run the work. */
mr_code mr__staging_acquire(mr__staging *g, size_t slot, size_t r, mr_status *st) MR_NODISCARD;
mr_code mr__staging_release(mr__staging *g, size_t slot, size_t r, mr_status *st) MR_NODISCARD;
/* Bytes of rows that the pipeline has written in place so far. */
uint64_t mr__staging_placed_bytes(const mr__staging *g);
#endif
