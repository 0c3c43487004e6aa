/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_BATCH_BUILDER_H
#define MR_PIPELINE_COLUMNS_BATCH_BUILDER_H
/* Rows on their way into one batch.
 *
 *     add add add ... finish  ->  one row with a new axis 0
 *
 * Rows are copied once: into memory of the stack, or straight into the consumer's segments if the
 * batch fills them to their end. Rows of other shapes than the first are noted and counted; finish
 * tells of the first of them. Zeroed memory is an empty stack. */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__batch_builder {
    mr_block rows;       /* placed: its columns are headers without data */
    size_t n;            /* rows taken, misfits included */
    size_t limit;        /* rows of a full batch */
    size_t capacity;     /* of `rows` */
    bool ragged;         /* set by the owner: shapes may differ, rows are kept as views */
    size_t most;         /* set by the owner: rows that there are for all batches; 0: not known */
    const mr_spec *spec; /* set by the owner: its leaves' names stand for columns in messages */
    bool placed;
    bool misfit; /* `error` is due */
    const mr_destination *destination;
    mr_status error;
} mr__batch_builder;

/* Takes rows [from, from + n) of src; with the first ones, limit and into (NULL: nowhere) are
 * set. */
mr_code mr__batch_builder_add(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                              size_t limit, const mr_destination *destination,
                              mr_status *st) MR_NODISCARD;
/* The same for a whole batch onto an empty stack, without a copy: columns stay as they came. */
mr_code mr__batch_builder_view(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
/* out = all rows as one; the stack is then empty, also on failure. */
mr_code mr__batch_builder_finish(mr__batch_builder *s, mr_block *out, mr_status *st) MR_NODISCARD;
/* Releases the rows. */
void mr__batch_builder_drop(mr__batch_builder *s);
void mr__batch_builder_reset(mr__batch_builder *s);

/* true if groups of rows of b need no copy. */
bool mr__can_group(const mr_block *b);
/* out = `groups` rows, each of n consecutive rows of src from `from` on. No copy. */
mr_code mr__group(mr_block *out, const mr_block *src, size_t from, size_t groups, size_t n,
                  mr_status *st) MR_NODISCARD;
/* Copies columns of out that fill the consumer's segments to their end into them. */
void mr__place(mr_block *out);
/* The spec of batches of elements `in`: axis 0 of `size` (-1: unknown).
 * errors   MR_INVALID_ARGUMENT: elements that cannot be batched */
mr_code mr__batched_spec(const mr_spec *in, int64_t size, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
/* The same for the rows of a batch: without axis 0. errors MR_INVALID_ARGUMENT: a scalar component,
 * components of unequal axis 0. *size = axis 0, -1: unknown. */
mr_code mr__unbatched_spec(const mr_spec *in, int64_t *size, mr_spec **out,
                           mr_status *st) MR_NODISCARD;
/* The same where unequal components are left to the elements: *size is then unknown. */
mr_code mr__rows_spec(const mr_spec *in, int64_t *size, mr_spec **out, mr_status *st) MR_NODISCARD;
#endif
