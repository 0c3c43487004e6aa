/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_BATCH_BUILDER_H
#define MR_PIPELINE_COLUMNS_BATCH_BUILDER_H
/* Collects rows into one batch.
 *
 *     add add add ... finish  ->  one row with a new axis 0
 *
 * Rows are copied once: into memory of the stack, or straight into the consumer's segments if the
 * batch fills them completely. Rows whose shape differs from the first are counted but not copied;
 * finish reports the first of them. Zeroed memory is an empty stack. */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__batch_builder {
    mr_block rows;       /* placed: its columns are headers without data */
    size_t n;            /* rows taken, misfits included */
    size_t limit;        /* rows of a full batch */
    size_t capacity;     /* of `rows` */
    bool ragged;         /* set by the owner: shapes may differ, rows are kept as views */
    size_t most;         /* set by the owner: rows available for all batches; 0: not known */
    const mr_spec *spec; /* set by the owner: messages name columns by its leaves */
    bool placed;
    bool misfit; /* finish must return `error` */
    const mr_destination *destination;
    mr_status error;
} mr__batch_builder;

/* Takes rows [from, from + n) of src. The first call for a batch sets limit and destination (may be
 * NULL). */
mr_code mr__batch_builder_add(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                              size_t limit, const mr_destination *destination,
                              mr_status *st) MR_NODISCARD;
/* The same for a whole batch onto an empty stack, without a copy: its columns are views of src. */
mr_code mr__batch_builder_view(mr__batch_builder *s, const mr_block *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
/* out = all rows as one row; the stack is then empty, also on failure. */
mr_code mr__batch_builder_finish(mr__batch_builder *s, mr_block *out, mr_status *st) MR_NODISCARD;
/* Moves the rows collected so far to out, none of them a misfit; the stack is then empty, also on
 * failure. */
mr_code mr__batch_builder_take(mr__batch_builder *s, mr_block *out, mr_status *st) MR_NODISCARD;
/* Releases the rows. */
void mr__batch_builder_drop(mr__batch_builder *s);
void mr__batch_builder_reset(mr__batch_builder *s);

/* true: groups of rows of b need no copy. */
bool mr__can_group(const mr_block *b);
/* out = `groups` rows, each of n consecutive rows of src from `from` on. No copy. */
mr_code mr__group(mr_block *out, const mr_block *src, size_t from, size_t groups, size_t n,
                  mr_status *st) MR_NODISCARD;
/* Total size of the consumer's segments for a column. */
size_t mr__segment_bytes(const mr_destination *destination, size_t column);
/* Copies the columns of out that fill the consumer's segments completely into these. */
void mr__place(mr_block *out);
/* The spec of batches of elements `in`: axis 0 of `size` (-1: unknown).
 * errors   MR_INVALID_ARGUMENT: elements that cannot be batched */
mr_code mr__batched_spec(const mr_spec *in, int64_t size, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
/* The spec of the rows of batches `in`: without axis 0. *size = axis 0, -1: unknown. errors
 * MR_INVALID_ARGUMENT: a scalar component; lengths of axis 0 differ */
mr_code mr__unbatched_spec(const mr_spec *in, int64_t *size, mr_spec **out,
                           mr_status *st) MR_NODISCARD;
/* The same, but components whose lengths differ are left to be checked for each element: *size is
 * then -1. */
mr_code mr__rows_spec(const mr_spec *in, int64_t *size, mr_spec **out, mr_status *st) MR_NODISCARD;
#endif
