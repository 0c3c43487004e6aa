/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_MERGE_ROWS_H
#define MR_PIPELINE_MEMORY_MERGE_ROWS_H
/* Puts rows that were looked up in several parts into the order in which they were asked for.
 *
 *     parts     0: a b c    1: an error    2: d
 *     places    (0, 2) (2, 0) (0, 0) (1, 0) ...     ->   c d a
 *
 * thread   as an op's slots */
#include "pipeline/memory/block.h"

typedef struct mr__part {
    mr_block rows;
    mr_code rc;      /* not MR_OK: of the row after them */
    mr_status error; /* with rc */
} mr__part;

typedef struct mr__row_place {
    uint32_t part, row;
} mr__row_place;

/* out = the rows at the first of n places, up to one that its part does not have, or whose shape
 * does not fit. If that is place 0, its part's error. */
mr_code mr__merge_rows(mr__part *parts, const mr__row_place *places, size_t n, mr_block *out,
                       mr_status *st) MR_NODISCARD;
/* Frees an array of n parts. NULL: nothing. */
void mr__parts_free(mr__part *parts, size_t n);
#endif
