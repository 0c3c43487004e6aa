/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WALK_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WALK_H
/* The inner loop of TFRecord reading: turns bytes in memory into views and verifies both
 * checksums. */
#include "pipeline/memory/array.h"

typedef enum mr__walk_end {
    MR__WALK_MORE,       /* the next record is incomplete: `need` bytes are required */
    MR__WALK_FULL,       /* max_rows or max_bytes reached */
    MR__WALK_BAD_LENGTH, /* the length of the next record is corrupted */
    MR__WALK_BAD_DATA    /* the data of the next record is corrupted */
} mr__walk_end;

typedef struct mr__walk {
    const uint8_t *at, *end; /* in, out: past the last valid record */
    mr_bytes *views;         /* room for max_rows */
    size_t rows, max_rows;   /* rows: in, out */
    size_t max_bytes;        /* of payload; the first record is always taken */
    uint64_t need;           /* out with MR__WALK_MORE */
} mr__walk;

mr__walk_end mr__tfrecord_walk(mr__walk *w);
#endif
