/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_VALUES_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_VALUES_H
/* Decoders of the numbers and values in Parquet pages, a few values at a time. Each decoder stops
 * at the end of its bytes. It does not trust counts stored in the bytes; if it returns fewer values
 * than requested, the caller reports the error.
 *
 * thread   one at a time per object
 * source   Encodings.md of apache/parquet-format 2.11 */
#include "pipeline/memory/array.h"

/* Runs of one number, and groups of eight packed in bits (RLE / bit-packing hybrid):
 *
 *   varint   n << 1       and the number, in whole bytes: n times that one
 *            n << 1 | 1   and n * 8 numbers of `width` bits, the lowest bits first */
typedef struct mr__hybrid {
    const uint8_t *at, *end;
    int width;      /* bits of a number, 0 to 32 */
    uint64_t left;  /* numbers left in the current run */
    bool packed;    /* the run is a bit-packed group */
    uint32_t value; /* of a repeated run */
    uint64_t bit;   /* of a group: position of the next number, from `group` on */
    const uint8_t *group;
    bool old; /* MR__PARQUET_BIT_PACKED: no runs, highest bits first */
} mr__hybrid;

/* old: n numbers in the deprecated bit-packed encoding. false: not enough bytes. */
bool mr__hybrid_start(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width);
bool mr__hybrid_start_old(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width, size_t n,
                          const uint8_t **after);
/* Up to n numbers; returns their count. */
size_t mr__hybrid_get(mr__hybrid *h, uint32_t *out, size_t n);

/* Differences, block after block (DELTA_BINARY_PACKED):
 *
 *   head    varint values of a block, varint parts of a block, varint values in all, zigzag first
 *   block   zigzag minimum difference, a byte for each part: its bits; the parts: differences, less
 *           the minimum, of that width, the lowest bits first */
typedef struct mr__delta {
    const uint8_t *at, *end;
    uint64_t total, left;           /* values in all, and those left */
    uint64_t block, parts, of_part; /* values of a block, its parts, values of a part */
    uint64_t value, least;
    const uint8_t *widths;  /* of the parts of the current block */
    uint64_t part, in_part; /* the current part, and the values taken of it */
    bool first, bad;
} mr__delta;

bool mr__delta_start(mr__delta *d, const uint8_t *p, const uint8_t *end);
size_t mr__delta_get(mr__delta *d, int64_t *out, size_t n);
/* End of the bytes that the numbers take; NULL: they are damaged. */
const uint8_t *mr__delta_end(const mr__delta *d);

/* The values of a page. */
/* Fails with MR_DATA_LOSS, "a damaged page: " and what. */
mr_code mr__damaged_page(const char *what, mr_status *st);

typedef struct mr__parquet_values mr__parquet_values;
struct mr__parquet_values {
    /* Decodes up to n values to out: of the physical type, mr_bytes for BYTE_ARRAY and FIXED, bools
     * for BOOLEAN. MR_OK with *got < n if the page has no more values, or if strings would take
     * much memory at once (*got > 0 then).
     * errors   MR_DATA_LOSS: says what is wrong; *got values are valid */
    mr_code (*get)(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st);
    const uint8_t *at, *end;
    size_t size; /* bytes of a value; for FIXED, its length */
    bool text;   /* values are mr_bytes */
    mr__hybrid runs;
    mr__delta lengths, suffixes;
    uint64_t bit;           /* of bools */
    size_t n, next;         /* BYTE_STREAM_SPLIT: values in all, and the next one */
    const void *dictionary; /* values, in the form that `get` returns */
    size_t n_dictionary;
    char *last; /* DELTA_BYTE_ARRAY: the previous string, owned */
    size_t last_size, last_room;
    mr_buffer *made; /* bytes of the strings made last; holders of strings keep a reference */
};

/* Starts decoding values encoded as `encoding` from p to end, at most `values` of them. type: an
 * mr__parquet_type. *v is overwritten, except dictionary and n_dictionary.
 * errors   MR_DATA_LOSS, MR_UNIMPLEMENTED */
mr_code mr__parquet_values_start(mr__parquet_values *v, int encoding, int type, size_t size,
                                 const uint8_t *p, const uint8_t *end, size_t values,
                                 mr_status *st) MR_NODISCARD;
void mr__parquet_values_reset(mr__parquet_values *v); /* also for a zeroed one */
#endif
