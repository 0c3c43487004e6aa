/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_FOOTER_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_FOOTER_H
/* The footer of a Parquet file: its columns and the places of their chunks.
 *
 *   offset   size   meaning
 *   0        4      "PAR1"
 *   ...             chunks of columns, row group after row group
 *   -8-n     n      FileMetaData, in Thrift's compact protocol
 *   -8       4      n, little-endian
 *   -4       4      "PAR1"; "PARE" where the footer is encrypted
 *
 * A column is a leaf of the schema, which is a tree. Its path names the groups it is in; for a list
 * only the list itself, not the levels in it. So a leaf of groups in a list is a column of lists,
 * with the lengths of the other leaves': list<struct<a, b>> x has x.a and x.b, a map m its keys and
 * its values. Each value of a leaf has two levels. The definition level is the depth to which the
 * path to the leaf is present. The repetition level is the number of the previous value's lists
 * that continue; 0 begins a row.
 *
 * thread   immutable once it is read
 * source   parquet.thrift and LogicalTypes.md of apache/parquet-format 2.11 */
#include "pipeline/memory/array.h"

typedef enum mr__parquet_type {
    MR__PARQUET_BOOLEAN,
    MR__PARQUET_INT32,
    MR__PARQUET_INT64,
    MR__PARQUET_INT96,
    MR__PARQUET_FLOAT,
    MR__PARQUET_DOUBLE,
    MR__PARQUET_BYTE_ARRAY,
    MR__PARQUET_FIXED /* FIXED_LEN_BYTE_ARRAY */
} mr__parquet_type;

/* Codes of the format that writer and reader share. */
enum {
    MR__PARQUET_REQUIRED = 0,
    MR__PARQUET_OPTIONAL = 1,
    MR__PARQUET_REPEATED = 2,
    MR__PARQUET_PLAIN = 0,
    MR__PARQUET_PLAIN_DICTIONARY = 2,
    MR__PARQUET_RLE = 3,
    MR__PARQUET_BIT_PACKED = 4,
    MR__PARQUET_DELTA_BINARY_PACKED = 5,
    MR__PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    MR__PARQUET_DELTA_BYTE_ARRAY = 7,
    MR__PARQUET_RLE_DICTIONARY = 8,
    MR__PARQUET_BYTE_STREAM_SPLIT = 9,
    MR__PARQUET_DATA_PAGE = 0,
    MR__PARQUET_DICTIONARY_PAGE = 2,
    MR__PARQUET_DATA_PAGE_V2 = 3
};

enum { MR__PARQUET_LISTS = MR_MAX_RANK }; /* maximum depth of lists: the axes of a tensor */

#define MR__PARQUET_MAGIC     "PAR1"
#define MR__PARQUET_MOST_PAGE ((int64_t)1 << 30) /* uncompressed bytes of a page */

typedef struct mr__parquet_leaf {
    char *name; /* "a.b" */
    char *path; /* "a", "b": n_parts consecutive strings */
    size_t n_parts;
    mr__parquet_type type;
    int32_t size;       /* of FIXED */
    mr_dtype dtype;     /* of the column */
    int lists;          /* axes of a row; 0: it is a value */
    int max_definition; /* level of a value that is present */
    /* For each list, the definition level from which on it has an entry, or a null. */
    int in_list[MR__PARQUET_LISTS];
    uint32_t list[MR__PARQUET_LISTS]; /* its number; leaves within one list share it */
    bool nulls;                       /* of the type of columns that hold only nulls */
    const char *refusal; /* why it cannot be a column, as the end of a message; NULL: it can */
} mr__parquet_leaf;

typedef struct mr__parquet_chunk {
    int64_t begin, size; /* in the file: pages with their heads */
    int64_t values;      /* entries with levels */
    int64_t bytes;       /* of the pages, uncompressed */
    int32_t codec;
    /* Faults of old writers: pages of version 2 are compressed though they say that they are not;
     * `size` lacks the head of the dictionary, and has been made larger than the chunk may be. */
    bool always_compressed, padded;
    const char *refusal; /* why it cannot be read; NULL: it can */
} mr__parquet_chunk;

typedef struct mr__parquet_group {
    int64_t first, rows;       /* number of its first row in the file */
    mr__parquet_chunk *chunks; /* one for each leaf */
} mr__parquet_group;

typedef struct mr__parquet_footer {
    mr__parquet_leaf *leaves; /* in the order of the file */
    mr__parquet_group *groups;
    size_t n_leaves, n_groups, leaves_room, groups_room;
    int64_t rows;
} mr__parquet_footer;

/* Reads the n bytes of FileMetaData of a file whose chunks end at byte `end`. *out is overwritten
 * and owned.
 * errors   MR_DATA_LOSS: it is damaged
 *          MR_UNIMPLEMENTED: the file is encrypted */
mr_code mr__parquet_footer_read(const uint8_t *p, size_t n, int64_t end, mr__parquet_footer *out,
                                mr_status *st) MR_NODISCARD;
void mr__parquet_footer_reset(mr__parquet_footer *f); /* also for a zeroed one */
/* Why chunks of the leaf cannot be read; NULL: they can. */
const char *mr__parquet_footer_refusal(const mr__parquet_footer *f, size_t leaf);
#endif
