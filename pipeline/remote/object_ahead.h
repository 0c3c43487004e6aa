/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_OBJECT_AHEAD_H
#define MR_PIPELINE_REMOTE_OBJECT_AHEAD_H
/* Reads parts of an object that are known in advance and each read from front to back, such as the
 * column chunks of a Parquet row group. Their beginnings are requested at once, what follows as
 * room becomes free; parts closer than 64 KiB are requested as one.
 *
 *     parts     [a.............]   [b]  [c]      [d........]
 *     pieces    |a1  |a2  |a3  |   |b    c |     |d1  |d2  |    order: a1 b d1 a2 d2 a3
 *
 * thread   one at a time */
#include "pipeline/remote/transfer.h"

typedef struct mr__object_ahead mr__object_ahead;
typedef struct mr__object_part {
    int64_t from, to; /* not empty */
} mr__object_part;

/* Starts to read the n parts, whose order it changes. Keeps a reference to the object.
 * errors   MR_RESOURCE_EXHAUSTED; those of mr__transfer_start */
mr_code mr__object_ahead_open(mr__object_ahead **out, mr__object *o, mr__object_part *parts,
                              size_t n, mr_status *st) MR_NODISCARD;
void mr__object_ahead_close(mr__object_ahead *a); /* NULL: no-op */
/* As mr__object_read. What was read before, or is in no part, is requested when it is read. */
mr_code mr__object_ahead_read(mr__object_ahead *a, int64_t offset, void *data, size_t n,
                              size_t *got, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
#endif
