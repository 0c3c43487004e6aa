/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_VALUES_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_VALUES_H
/* Numbers and values as the pages of Parquet files encode them, taken out a few at a time. Each
 * decoder stops at the end of its bytes; that fewer came than were asked for is the caller's error
 * to report, and nothing is believed of what the bytes say about their own number.
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
    uint64_t left;  /* numbers of the run at hand */
    bool packed;    /* it is a group */
    uint32_t value; /* else */
    uint64_t bit;   /* of the group: where the next one begins, from `group` on */
    const uint8_t *group;
    bool old; /* MR__PARQUET_BIT_PACKED: no runs, highest bits first */
} mr__hybrid;

/* old: numbers packed the old way, n of them. false: there are not as many. */
bool mr__hybrid_start(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width);
bool mr__hybrid_start_old(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width, size_t n,
                          const uint8_t **after);
/* Up to n numbers; returns how many. */
size_t mr__hybrid_get(mr__hybrid *h, uint32_t *out, size_t n);

/* Differences, block after block (DELTA_BINARY_PACKED):
 *
 *   head    varint values of a block, varint parts of a block, varint values in all, zigzag first
 *   block   zigzag least difference, a byte for each part: its bits; the parts: differences, less
 *           the least one, of as many bits, the lowest bits first */
typedef struct mr__delta {
    const uint8_t *at, *end;
    uint64_t total, left;           /* values in all, and those to come */
    uint64_t block, parts, of_part; /* values of a block, its parts, values of a part */
    uint64_t value, least;
    const uint8_t *widths;  /* of the parts of the block at hand */
    uint64_t part, in_part; /* the part at hand, and values taken of it */
    bool first, bad;
} mr__delta;

bool mr__delta_start(mr__delta *d, const uint8_t *p, const uint8_t *end);
size_t mr__delta_get(mr__delta *d, int64_t *out, size_t n);
/* Where the bytes end that the numbers take; NULL: they are damaged. */
const uint8_t *mr__delta_end(const mr__delta *d);

/* The values of a page. */
typedef struct mr__parquet_values mr__parquet_values;
struct mr__parquet_values {
    /* Up to n values to out: of the physical type, mr_bytes of BYTE_ARRAY and FIXED, bools of
     * BOOLEAN; MR_OK with *got < n where the page has no more, or where strings would take much
     * memory at once (*got > 0 then).
     * errors   MR_DATA_LOSS: says what is wrong; *got values are good */
    mr_code (*get)(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st);
    const uint8_t *at, *end;
    size_t size; /* bytes of a value; of FIXED, its length */
    bool text;   /* values are mr_bytes */
    mr__hybrid runs;
    mr__delta lengths, suffixes;
    uint64_t bit;           /* of bools */
    size_t n, next;         /* BYTE_STREAM_SPLIT: values in all, and the next one */
    const void *dictionary; /* values, as `get` gives them */
    size_t n_dictionary;
    char *last; /* DELTA_BYTE_ARRAY: the string before, owned */
    size_t last_size, last_room;
    mr_buffer *made; /* bytes of the strings that were made last; borrowed by who holds them */
};

/* Values encoded as `encoding` from p to end, at most `values` of them. type: an mr__parquet_type.
 * *v is overwritten, but for dictionary and n_dictionary.
 * errors   MR_DATA_LOSS, MR_UNIMPLEMENTED */
mr_code mr__parquet_values_start(mr__parquet_values *v, int encoding, int type, size_t size,
                                 const uint8_t *p, const uint8_t *end, size_t values,
                                 mr_status *st) MR_NODISCARD;
void mr__parquet_values_reset(mr__parquet_values *v); /* also of a zeroed one */
#endif
