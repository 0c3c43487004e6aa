/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WALK_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WALK_H
/* The inner loop of reading TFRecords: from bytes in memory to views, both checksums verified. */
#include "pipeline/memory/array.h"

typedef enum mr__walk_end {
    MR__WALK_MORE,       /* the next record is not whole: `need` bytes are wanted */
    MR__WALK_FULL,       /* max_rows or max_bytes reached */
    MR__WALK_BAD_LENGTH, /* the next record's length is corrupted */
    MR__WALK_BAD_DATA    /* its data are */
} mr__walk_end;

typedef struct mr__walk {
    const uint8_t *at, *end; /* in, out: after the last good record */
    mr_bytes *views;         /* room for max_rows */
    size_t rows, max_rows;   /* rows: in, out */
    size_t max_bytes;        /* of payload, for those that follow; a first record is taken */
    uint64_t need;           /* out with MR__WALK_MORE */
} mr__walk;

mr__walk_end mr__tfrecord_walk(mr__walk *w);
#endif
