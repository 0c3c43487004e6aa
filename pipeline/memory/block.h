/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BLOCK_H
#define MR_PIPELINE_MEMORY_BLOCK_H
/* A block: consecutive elements (1 or more), stored by column, as ops exchange them. Each leaf of
 * the element's spec is a column (in depth-first order). The struct is in the caller's memory; its
 * contents are reference-counted.
 *
 *     mr_block b = MR_BLOCK_EMPTY;
 *     while ((rc = mr_iterator_next(it, 1024, &b, &st)) == MR_OK) use(&b);   // each call reuses b
 *     mr_block_reset(&b);
 *
 * thread   one at a time per object
 * since    0.1 */
#include "array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The origin of a row: the same for any number of threads, batch size, workers and machines. */
typedef struct mr_identity {
    uint64_t source;  /* number of the source in the text of the graph, counted from 0 and from the
                         left, sources in functions excluded. For a source in a function, a hash of
                         its number there and of the identities of the element that the function
                         was called for */
    uint64_t file;    /* index in the source's complete list of files, even if workers share the
                         files; 0 for sources without files */
    uint64_t ordinal; /* number of the element within the file or source, from 0 */
    uint64_t epoch;   /* how many times this iterator opened the source before (for a source in a
                         function: how many times this call of the function did) */
} mr_identity;

/* Optional identity column: row r was made from ids[offsets[r]..offsets[r+1]), or from ids[r] alone
 * if offsets is NULL. owner keeps both alive. ids is NULL if identities were not requested. */
typedef struct mr_identities {
    const mr_identity *ids;
    const uint64_t *offsets;
    mr_buffer *owner;
} mr_identities;

/* Memory of the consumer to which an op may write the rows that it returns. An op that copies
 * rows may write a column there and return it as MR_PLACED; an op that does not copy ignores
 * `destination`. The bytes of a column are written in row order, from the start of its first
 * segment on, and each segment is filled to its end before the next one. A column is placed
 * entirely or not at all; it need not fill all of its segments. */
typedef struct mr_segment {
    void *data;
    size_t bytes;
} mr_segment;
typedef struct mr_destination {
    size_t n_columns, n_segments;
    const mr_segment *segments; /* segments[column * n_segments + i] */
} mr_destination;

typedef struct mr_block {
    size_t rows;
    size_t n_columns;
    mr_array *columns;
    size_t columns_capacity;
    mr_identities ids;
    const mr_destination *destination; /* in: preferred memory for the rows, borrowed during the
                                          call; NULL: anywhere */
    mr_buffer *position;      /* out, if the iterator was opened with positions: the state after the
                            last row, for mr_iterator_restore; otherwise NULL */
    const char *const *names; /* the path of each column ("label", "0", "0/image"), set by
                                 mr_iterator_next; valid until the iterator is closed */
} mr_block;

#ifdef __cplusplus
#define MR_BLOCK_EMPTY                                                                             \
    mr_block                                                                                       \
    {                                                                                              \
    }
#else
#define MR_BLOCK_EMPTY                                                                             \
    {                                                                                              \
        0                                                                                          \
    }
#endif

/* Releases all rows; keeps the array of columns for reuse. `destination` is unchanged. */
MR_API void mr_block_clear(mr_block *b);
/* Releases everything. */
MR_API void mr_block_reset(mr_block *b);
/* Moves rows, columns, ids and position of src to dst and releases those of dst. src becomes empty;
 * `destination` of both is unchanged. */
MR_API void mr_block_move(mr_block *dst, mr_block *src);

/* Clears b and adds n_columns empty columns for the caller to fill.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_block_prepare(mr_block *b, size_t n_columns, mr_status *st) MR_NODISCARD;

/* The column whose path (mr_block.names) is `name`; NULL: not found. */
MR_API const mr_array *mr_block_column(const mr_block *b, const char *name);

/* Clears dst and makes it a view of rows [from, from + n) of src. dst != src. */
MR_API mr_code mr_block_slice(mr_block *dst, const mr_block *src, size_t from, size_t n,
                              mr_status *st) MR_NODISCARD;

/* mr_array_fits, mr_array_start, mr_array_append and mr_array_append_rows for all columns and the
 * identities of a block. */
MR_API bool mr_block_fits(const mr_block *dst, const mr_block *src);
MR_API mr_code mr_block_start(mr_block *dst, const mr_block *like, size_t capacity,
                              mr_status *st) MR_NODISCARD;
MR_API mr_code mr_block_append(mr_block *dst, const mr_block *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
MR_API mr_code mr_block_append_rows(mr_block *dst, const mr_block *src, const uint32_t *index,
                                    size_t n, mr_status *st) MR_NODISCARD;

/* Payload bytes of all columns. */
MR_API size_t mr_block_payload_bytes(const mr_block *b);

/* These build identities in *dst, which is overwritten. Without identities in src, dst has none.
 * alloc    one identity for each of `rows` rows, for the caller to write to *ids
 * take     a view of rows [from, from + n) of src
 * group    the lists of every n of src's `rows` rows joined into one; the last group may be shorter
 * ungroup  n rows, each with the identities of row i of src
 * join     row r has the identities of row r of a, then those of row r of b (zip). If only one of
 *          the two has identities, dst has a view of these; if neither has, dst has none */
MR_API mr_code mr_identities_alloc(mr_identities *dst, size_t rows, mr_identity **ids,
                                   mr_status *st) MR_NODISCARD;
MR_API void mr_identities_take(mr_identities *dst, const mr_identities *src, size_t from, size_t n);
MR_API mr_code mr_identities_group(mr_identities *dst, const mr_identities *src, size_t rows,
                                   size_t n, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_identities_ungroup(mr_identities *dst, const mr_identities *src, size_t i,
                                     size_t n, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_identities_join(mr_identities *dst, const mr_identities *a,
                                  const mr_identities *b, size_t rows, mr_status *st) MR_NODISCARD;
MR_API void mr_identities_reset(mr_identities *x);

#ifdef __cplusplus
}
#endif
#endif
