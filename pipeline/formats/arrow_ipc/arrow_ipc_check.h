/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_CHECK_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_CHECK_H
/* What a record batch says of a column is checked before it is used: that buffers are as long as
 * the rows need, and that offsets do not go backwards or beyond what they lead into. Private to the
 * loading of batches.
 *
 * thread   one at a time per object */
#include "pipeline/formats/arrow_ipc/arrow_ipc_schema.h"

enum { MR__ARROW_BUFFERS = 3 };

/* A field in the batch at hand. */
typedef struct mr__arrow_loaded {
    bool left_out; /* nobody asked for it: its buffers are not read */
    int64_t length, null_count;
    size_t first_buffer, n_buffers; /* in the batch's list */
    const void *buffers[MR__ARROW_BUFFERS];
    size_t sizes[MR__ARROW_BUFFERS];
    struct ArrowArray a;
} mr__arrow_loaded;

/* column NULL: of the batch as a whole. */
mr_code mr__arrow_damaged(const char *column, const char *what, mr_status *st);
mr_code mr__arrow_check_validity(const mr__arrow_field *a, const mr__arrow_loaded *x,
                                 mr_status *st) MR_NODISCARD;
/* The fields on the way, v being those of the batch: `rows` entries of the first are used. indices:
 * it has those of a dictionary. The way begins with no struct. */
mr_code mr__arrow_check_way(const mr__arrow_schema *s, mr__arrow_loaded *v,
                            const mr__arrow_way *way, int64_t rows, bool indices,
                            mr_status *st) MR_NODISCARD;
bool mr__arrow_is_null(const mr__arrow_loaded *x, int64_t i);
/* *nulls is there, for so many rows. */
mr_code mr__arrow_need_nulls(uint32_t **nulls, size_t rows, mr_status *st) MR_NODISCARD;
/* Marks the rows that have a null on the way, or, alone, in its first field. */
mr_code mr__arrow_mark_nulls(const mr__arrow_schema *s, const mr__arrow_loaded *v,
                             const mr__arrow_way *way, bool alone, size_t rows, uint32_t mark,
                             uint32_t **nulls, mr_status *st) MR_NODISCARD;
#endif
