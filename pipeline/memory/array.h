/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ARRAY_H
#define MR_PIPELINE_MEMORY_ARRAY_H
/* One column of a block: rows of one dtype.
 *
 *   storage    data points to                                  shape of a row
 *   DENSE      rows * prod(shape) values, contiguous           the same for all: shape[0..rank)
 *   BYTES      rows * prod(shape) mr_bytes views (MR_STRING)   the same for all
 *   RAGGED     one mr_row per row: its values and shape        row.shape[0..rank)
 *   DATASETS   one reference per row                           scalar
 *   PLACED     nothing: the rows are in the consumer's segments (block.destination), DENSE there
 *
 * `owner` keeps everything alive: the targets of mr_bytes and mr_row (values, splits) are in
 * buffers that the owner holds (mr_buffer_hold), never in the owner's own bytes; only shapes may be
 * there. An array is a small value: slicing copies the struct and takes one reference. Rows may be
 * written only while the owner is writable.
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

/* A row of a RAGGED column. Its values are contiguous. If `splits` is set, the row is itself
 * ragged: its shape is [n, -1, inner...], and entry i consists of inner rows
 * [splits[i], splits[i + 1]). */
typedef struct mr_row {
    const void *data;      /* values: mr_bytes for MR_STRING */
    const int64_t *shape;  /* rank dimensions */
    const int64_t *splits; /* NULL, or shape[0] + 1 offsets from 0, in units of one inner row */
} mr_row;

typedef enum mr_storage { MR_DENSE, MR_BYTES, MR_RAGGED, MR_DATASETS, MR_PLACED } mr_storage;

typedef struct mr_array {
    mr_dtype dtype;
    mr_storage storage;
    bool resident; /* data lives as long as the dataset, so keeping a view of it costs nothing. Set
                      in a constant of a graph, it makes text show the array as a reference */
    int8_t rank;
    size_t rows;
    int64_t shape[MR_MAX_RANK]; /* of one row; unused for RAGGED */
    void *data;
    mr_buffer *owner; /* owned reference; NULL only if data outlives every use */
} mr_array;

/* Number of values in one row of a non-ragged array, and their size in `data`. */
MR_API size_t mr_array_row_values(const mr_array *a);
MR_API size_t mr_array_row_bytes(const mr_array *a);
/* Payload bytes of rows [from, from + n): for strings, their lengths rather than their views. */
MR_API size_t mr_array_payload_bytes(const mr_array *a, size_t from, size_t n);

/* Address of row i of a DENSE or BYTES array. */
MR_API void *mr_array_at(const mr_array *a, size_t i);

/* Makes *a an array of `rows` rows in a new buffer, with undefined values. Storage is DENSE, or
 * BYTES for MR_STRING. *a is overwritten.
 * errors   MR_RESOURCE_EXHAUSTED: out of memory, or the size overflows */
MR_API mr_code mr_array_alloc(mr_array *a, mr_dtype t, int rank, const int64_t *shape, size_t rows,
                              mr_status *st) MR_NODISCARD;
/* The same for RAGGED (one zeroed mr_row per row) and DATASETS (zeroed references, which the array
 * releases). */
MR_API mr_code mr_array_alloc_ragged(mr_array *a, mr_dtype t, int rank, size_t rows,
                                     mr_status *st) MR_NODISCARD;
MR_API mr_code mr_array_alloc_datasets(mr_array *a, size_t rows, mr_status *st) MR_NODISCARD;
/* Space for the shape of row i in the buffer of an array from mr_array_alloc_ragged: rank values.
 * The caller still sets the row's shape pointer. */
MR_API int64_t *mr_array_shape_slot(const mr_array *a, size_t i);

/* True if the holder of `a` may write the values of row `row` (of a DENSE array: of all rows),
 * since nothing else can see them: the memory is not wrapped read-only, resident, or lent to
 * another process, no other array, block or cache has a reference to it, and no other row shares
 * it. False for BYTES, DATASETS and PLACED, and where this is not known. since 0.2 */
MR_API bool mr_array_writable(const mr_array *a, size_t row);

/* Makes dst a view of rows [from, from + n) of src, with its own reference. dst is overwritten. */
MR_API void mr_array_slice(mr_array *dst, const mr_array *src, size_t from, size_t n);
/* Releases the reference and empties a. */
MR_API void mr_array_reset(mr_array *a);
/* Moves src to dst, which is overwritten; src becomes empty. */
MR_API void mr_array_move(mr_array *dst, mr_array *src);

/* True if one array can hold rows of both: they agree in dtype, rank and, unless one is RAGGED,
 * shape. */
MR_API bool mr_array_fits(const mr_array *a, const mr_array *b);

/* Builds an array of up to `capacity` rows from rows of others. mr_array_start makes dst an array
 * of 0 rows with the dtype, storage and shape of `like`. Appending copies dense values, and for
 * strings and ragged rows copies the views and holds their targets. A DENSE row appended to a
 * RAGGED array becomes a ragged row. A dense dst becomes RAGGED, with the same capacity, when a
 * RAGGED source is appended. The caller ensures dst->rows + n <= capacity and mr_array_fits(dst,
 * src). On failure dst keeps its rows. */
MR_API mr_code mr_array_start(mr_array *dst, const mr_array *like, size_t capacity,
                              mr_status *st) MR_NODISCARD;
MR_API mr_code mr_array_append(mr_array *dst, const mr_array *src, size_t from, size_t n,
                               mr_status *st) MR_NODISCARD;
/* Appends rows index[0], ..., index[n - 1] of src in this order, prefetching them. */
MR_API mr_code mr_array_append_rows(mr_array *dst, const mr_array *src, const uint32_t *index,
                                    size_t n, mr_status *st) MR_NODISCARD;

/* Makes dst a RAGGED view of src's rows. */
MR_API mr_code mr_array_to_ragged(mr_array *dst, const mr_array *src, mr_status *st) MR_NODISCARD;
/* Makes dst a DENSE or BYTES array of src's rows, which must have the same shape and no splits. A
 * src that is not RAGGED is viewed, a RAGGED one copied.
 * errors   MR_INVALID_ARGUMENT: rows differ in shape or are themselves ragged; *bad_row (NULL
 *          allowed) is the first row that has splits or differs from row 0 */
MR_API mr_code mr_array_to_dense(mr_array *dst, const mr_array *src, size_t *bad_row,
                                 mr_status *st) MR_NODISCARD;

/* Groups each n consecutive rows into one row with a new axis 0 of length n. src is DENSE or BYTES
 * and src->rows a multiple of n > 0. dst is overwritten with a view; nothing is copied. */
MR_API void mr_array_group(mr_array *dst, const mr_array *src, size_t n);
/* The inverse for one row: axis 0 of row i of src (rank >= 1) becomes the rows of dst, a view. A
 * RAGGED row becomes DENSE or BYTES, or RAGGED if it has splits. */
MR_API mr_code mr_array_ungroup(mr_array *dst, const mr_array *src, size_t i,
                                mr_status *st) MR_NODISCARD;
/* Shape of row i: rank dimensions, -1 for the axis that splits make ragged. */
MR_API const int64_t *mr_array_row_shape(const mr_array *a, size_t i);

#ifdef __cplusplus
}
#endif
#endif
