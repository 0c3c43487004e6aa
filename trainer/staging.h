/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STAGING_H
#define MR_TRAINER_STAGING_H
/* From global batches to every replica's device memory, without a thread that waits for a copy.
 *
 * A ring of `depth` slots; a slot has, for each replica and column, pinned memory and device memory
 * for that replica's rows of one global batch:
 *
 *     host      fill pinned ........... (next slot) ...
 *     copy stream    wait(released) copy record(arrived)
 *     compute stream                              wait(arrived) step record(released)
 *
 * The pipeline's last copying op fills pinned memory in place (mr_block.into) once the size of a
 * full batch is known; a smaller batch is cut again where it lies. Replica k of N gets rows
 * [k w, (k + 1) w) of B, w = ceil(B / N): late ones may get few rows or none. */
#include "pipeline/memory/block.h"
#include "trainer/strategy.h"

typedef struct mr__staging mr__staging;

mr_code mr__staging_new(mr__staging **out, mr_strategy *s, size_t depth,
                        mr_status *st) MR_NODISCARD;
/* Waits until everything handed over has run; NULL: nothing. */
void mr__staging_free(mr__staging *g);

/* Makes the next slot's pinned memory free to be written and says where rows should land; NULL:
 * anywhere. Borrowed until put. */
mr_code mr__staging_reserve(mr__staging *g, const mr_into **into, mr_status *st) MR_NODISCARD;
/* One element, a global batch (a block of one row), into the slot reserved: cuts it into slices and
 * starts the copies. b may be let go afterwards. *slot names it until it comes round again.
 * errors   MR_INVALID_ARGUMENT: columns that are not dense or not batched alike */
mr_code mr__staging_put(mr__staging *g, const mr_block *b, size_t *slot,
                        mr_status *st) MR_NODISCARD;

/* Rows of the global batch in a slot; replica r's first row in it. */
size_t mr__staging_rows(const mr__staging *g, size_t slot);
int64_t mr__staging_first_row(const mr__staging *g, size_t slot, size_t r);
size_t mr__staging_n_columns(const mr__staging *g);
/* *t = replica r's rows of a column, in device memory; borrowed while the slot is its own. */
void mr__staging_tensor(const mr__staging *g, size_t slot, size_t r, size_t column, mr_array *t);

/* Around the submission of the step that reads the slot: makes the compute streams wait for its
 * copies; gives it back when they are through. */
void mr__staging_hand_over(mr__staging *g, size_t slot);
void mr__staging_give_back(mr__staging *g, size_t slot);
/* Bytes of rows that the pipeline wrote in place so far. */
uint64_t mr__staging_placed_bytes(const mr__staging *g);
#endif
