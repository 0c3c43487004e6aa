/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BLOCK_H
#define MR_PIPELINE_MEMORY_BLOCK_H
/* What moves between ops: 1 or more consecutive elements, stored by column, one column for each
 * leaf of the element's spec (depth first). The struct is the caller's memory; what it refers to is
 * reference-counted.
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

/* Where a row came from: stable over threads, batches, workers and machines. */
typedef struct mr_identity {
    uint64_t source;  /* number of the source in the text of the graph, from the left and from 0,
                         without those in functions; of one in a function, a hash of its number
                         there and of the identities of the element that the function was called
                         for */
    uint64_t file;    /* index in the source's whole list of files, also where workers share it; 0
                         for sources without files */
    uint64_t ordinal; /* number of the element within the file or source, from 0 */
    uint64_t epoch;   /* how often the source was opened before in this iterator (one in a function:
                         in this call of it) */
} mr_identity;

/* Optional identity column: row r was made from ids[offsets[r]..offsets[r+1]), or from ids[r] alone
 * where offsets is NULL. owner keeps both alive; NULL ids: not asked for. */
typedef struct mr_identities {
    const mr_identity *ids;
    const uint64_t *offsets;
    mr_buffer *owner;
} mr_identities;

/* Where the consumer wants rows to land. For each column the segments are filled one after the
 * other, each to its end, with the bytes of the wanted rows in row order. An op that copies may
 * write there and return the column as MR_PLACED; an op that does not leaves `destination` alone. A
 * column is placed whole or not at all, from the first segment on; there may be more room. */
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
    const mr_destination *destination; /* in: a wish, borrowed during the call; NULL: anywhere */
    mr_buffer *position; /* out, where the iterator was opened with positions: the state after the
                            last row, for mr_iterator_restore; NULL otherwise */
    const char *const *names; /* a path for each column ("label", "0", "0/image"), set on blocks of
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

/* Releases all rows; keeps the array of columns for reuse. `destination` is left as it is. */
MR_API void mr_block_clear(mr_block *b);
/* Releases everything. */
MR_API void mr_block_reset(mr_block *b);
/* dst takes over src's rows, columns, ids and position; src becomes empty. dst's are
 * released; its `destination` stays. */
MR_API void mr_block_move(mr_block *dst, mr_block *src);

/* Clears b and gives it n empty columns to fill in. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_block_prepare(mr_block *b, size_t n_columns, mr_status *st) MR_NODISCARD;

/* The column called name, or NULL. */
MR_API const mr_array *mr_block_column(const mr_block *b, const char *name);

/* dst = views of rows [from, from + n) of src. dst is cleared first; dst != src. */
MR_API mr_code mr_block_slice(mr_block *dst, const mr_block *src, size_t from, size_t n,
                              mr_status *st) MR_NODISCARD;

/* Builders, as mr_array_start/append (identities go along). `capacity` rows must be the same number
 * in all calls for one dst. */
MR_API bool mr_block_fits(const mr_block *dst, const mr_block *src);
MR_API mr_code mr_block_start(mr_block *dst, const mr_block *like, size_t capacity,
                              mr_status *st) MR_NODISCARD;
MR_API mr_code mr_block_append(mr_block *dst, const mr_block *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
MR_API mr_code mr_block_append_rows(mr_block *dst, const mr_block *src, const uint32_t *index,
                                    size_t n, mr_status *st) MR_NODISCARD;

/* Payload bytes of all columns. */
MR_API size_t mr_block_payload_bytes(const mr_block *b);

/* Identities: all of them NULL-safe (no identities in, none out).
 * take    dst = rows [from, from+n) of src (a view)
 * group   dst = lists joined, every n rows one
 * ungroup dst = every row of n rows got src's row i
 * join    dst row r = a row r followed by b row r (zip) */
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
