/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_LOOKUPS_H
#define MR_PIPELINE_STREAMS_LOOKUPS_H
/* For ops whose elements are elements of an indexed input 0 in another order: looks up several at a
 * time. Of a source, a few to a thousand elements are read ahead, about 1 MiB; of other inputs only
 * what is requested, because their functions run for each element.
 *
 * Zeroed memory is an object that holds nothing.
 *
 * thread   as an op's next */
#include "pipeline/engine/op_iterator.h"

enum { MR__MOST_LOOKUPS = 1024 };

typedef struct mr__lookups {
    size_t batch;  /* how many to look up next, at most; 0: the first few */
    mr_block rows; /* looked up, and not delivered from row `row` on */
    size_t row;
    uint64_t numbers[MR__MOST_LOOKUPS]; /* of the rows */
} mr__lookups;

/* Writes the numbers of up to `most` of the op's next elements; returns how many. 0: the end. */
typedef size_t mr__upcoming_fn(mr_iter *it, uint64_t *numbers, size_t most);

/* The op's next: rows, MR_END, or the error of an element. *done = the number of elements that it
 * consumed (1 for such an error), *last = the number of the last of them. */
mr_code mr__lookups_next(mr_iter *it, mr__lookups *l, size_t want, mr__upcoming_fn *upcoming,
                         mr_block *out, size_t *done, uint64_t *last, mr_status *st) MR_NODISCARD;
/* Forgets what was looked up. */
void mr__lookups_drop(mr__lookups *l);
/* mr_op.infer of an op that emits elements of input 0 by number: its spec.
 * errors   MR_INVALID_ARGUMENT: the input is not indexed */
mr_code mr__lookups_infer(const mr_dataset *self, const void *p, mr_spec **out,
                          mr_status *st) MR_NODISCARD;
#endif
