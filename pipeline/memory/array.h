/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ARRAY_H
#define MR_PIPELINE_MEMORY_ARRAY_H
/* One column of a block: rows of one dtype.
 *
 *   storage    data points to                                  shape of a row
 *   DENSE      rows * prod(shape) values, contiguous           the same for all: shape[0..rank)
 *   BYTES      rows * prod(shape) mr_bytes views (MR_STRING)   the same for all
 *   RAGGED     one mr_row a row: its own values and shape      row.shape[0..rank)
 *   DATASETS   one reference a row                             scalar
 *   PLACED     nothing: the rows lie in the consumer's segments (block.destination), DENSE there
 *
 * `owner` keeps all of it alive: what mr_bytes and mr_row point at (values, splits) lies in buffers
 * that the owner holds (mr_buffer_hold), not in the owner's own bytes; only shapes may. An array is
 * a small value: slicing copies the struct and takes one reference. Rows of an array may be written
 * only while its owner is writable.
 *
 * thread   any for reading; see buffer.h for writing
 * since    0.1 */
#include "buffer.h"
#include "dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_RANK 8

typedef struct mr_bytes {
    const char *data; /* may be NULL if size is 0 */
    size_t size;
} mr_bytes;

/* A row of a RAGGED column. Values are contiguous. If `splits` is set, the row is itself ragged:
 * its shape is [n, -1, inner...], and entry i holds inner rows splits[i]..splits[i+1] of the
 * values. */
typedef struct mr_row {
    const void *data;      /* values: mr_bytes for MR_STRING */
    const int64_t *shape;  /* rank dimensions */
    const int64_t *splits; /* NULL, or shape[0] + 1 offsets from 0, in units of one inner row */
} mr_row;

typedef enum mr_storage { MR_DENSE, MR_BYTES, MR_RAGGED, MR_DATASETS, MR_PLACED } mr_storage;

typedef struct mr_array {
    mr_dtype dtype;
    mr_storage storage;
    bool resident; /* data lives as long as the dataset: holding a view of it costs nothing */
    int8_t rank;
    size_t rows;
    int64_t shape[MR_MAX_RANK]; /* of one row; unused for RAGGED */
    void *data;
    mr_buffer *owner; /* a reference; NULL only if data outlives every use */
} mr_array;

/* Values in one row of a non-ragged array; its bytes as they lie in data. */
MR_API size_t mr_array_row_values(const mr_array *a);
MR_API size_t mr_array_row_bytes(const mr_array *a);
/* Payload bytes of rows [from, from + n): what the user would count (the length of strings). */
MR_API size_t mr_array_payload_bytes(const mr_array *a, size_t from, size_t n);

/* Address of row i of a DENSE or BYTES array. */
MR_API void *mr_array_at(const mr_array *a, size_t i);

/* An array with room for `rows` rows in a fresh buffer; a->rows = rows, values undefined.
 * storage is DENSE, or BYTES for MR_STRING. *a is overwritten. errors MR_RESOURCE_EXHAUSTED (also
 * when the size overflows) */
MR_API mr_code mr_array_alloc(mr_array *a, mr_dtype t, int rank, const int64_t *shape, size_t rows,
                              mr_status *st) MR_NODISCARD;
/* The same for RAGGED (mr_row per row, zeroed) and DATASETS (references, zeroed,
 * released with it). */
MR_API mr_code mr_array_alloc_ragged(mr_array *a, mr_dtype t, int rank, size_t rows,
                                     mr_status *st) MR_NODISCARD;
MR_API mr_code mr_array_alloc_datasets(mr_array *a, size_t rows, mr_status *st) MR_NODISCARD;
/* Where the shape of row i of a RAGGED array from mr_array_alloc_ragged may be put: rank values in
 * the array's own buffer. The row's shape pointer is still the caller's to set. */
MR_API int64_t *mr_array_shape_slot(const mr_array *a, size_t i);

/* dst = rows [from, from + n) of src: a view with its own reference. dst is overwritten. */
MR_API void mr_array_slice(mr_array *dst, const mr_array *src, size_t from, size_t n);
/* Releases the reference and empties a. */
MR_API void mr_array_reset(mr_array *a);
/* dst takes over what src had; src becomes empty. dst is overwritten. */
MR_API void mr_array_move(mr_array *dst, mr_array *src);

/* true if rows of both can lie in one array: dtype and rank agree, and the shape unless one is
 * RAGGED. */
MR_API bool mr_array_fits(const mr_array *a, const mr_array *b);

/* Builds an array of up to `capacity` rows by appending rows of others. Start: mr_array_start(dst,
 * like, capacity) takes dtype, storage and shape from `like` and has 0 rows. Appending copies dense
 * values and copies views of strings and ragged rows (holding their targets); a DENSE row appended
 * to a RAGGED array becomes a ragged row. A dense dst that meets a RAGGED source becomes RAGGED
 * itself, with the same capacity. dst->rows + n must not exceed capacity, which the caller keeps,
 * and mr_array_fits must hold. On failure dst keeps its rows. */
MR_API mr_code mr_array_start(mr_array *dst, const mr_array *like, size_t capacity,
                              mr_status *st) MR_NODISCARD;
MR_API mr_code mr_array_append(mr_array *dst, const mr_array *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
/* Appends src's rows index[0..n), in that order (with prefetching). */
MR_API mr_code mr_array_append_rows(mr_array *dst, const mr_array *src, const uint32_t *index,
                                    size_t n, mr_status *st) MR_NODISCARD;

/* dst = src's rows as ragged rows (a RAGGED src: as it is). */
MR_API mr_code mr_array_to_ragged(mr_array *dst, const mr_array *src, mr_status *st) MR_NODISCARD;
/* dst = src as DENSE or BYTES if all its rows have one shape; a dense src: as it is. Rows of ragged
 * rows (splits) never are.
 * errors   MR_INVALID_ARGUMENT: rows differ in shape; *bad_row (NULL allowed) is the first that
 *          differs from row 0 */
MR_API mr_code mr_array_to_dense(mr_array *dst, const mr_array *src, size_t *bad_row,
                                 mr_status *st) MR_NODISCARD;

/* Groups rows: every n rows become one row with a new axis 0 of length n. src is DENSE or BYTES and
 * src->rows a multiple of n (n > 0). No copy. dst is overwritten with a view. */
MR_API void mr_array_group(mr_array *dst, const mr_array *src, size_t n);
/* The opposite, for one row: row i of src, its axis 0 becoming rows. Rank >= 1. DENSE and BYTES: a
 * view; a RAGGED row: DENSE, or RAGGED if it has splits. */
MR_API mr_code mr_array_ungroup(mr_array *dst, const mr_array *src, size_t i,
                                mr_status *st) MR_NODISCARD;
/* Shape of row i (rank dimensions; -1 where a ragged row is ragged). */
MR_API const int64_t *mr_array_row_shape(const mr_array *a, size_t i);

#ifdef __cplusplus
}
#endif
#endif
