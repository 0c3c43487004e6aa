/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_OBJECT_RANGES_H
#define MR_PIPELINE_REMOTE_OBJECT_RANGES_H
/* Reads parts of remote objects, many at once. Parts of an object that are closer than 64 KiB are
 * fetched as one range.
 *
 * thread   any */
#include "pipeline/remote/transfer.h"

typedef struct mr__object_range {
    mr__object *object;
    int64_t offset;
    size_t size;
    uint8_t *data;  /* room for `size` bytes */
    size_t got;     /* out: less than size only at the end of the object or after a failure */
    mr_status *why; /* out: of a failure, owned (mr_free); else NULL */
} mr__object_range;

/* Reads all n parts, whose order it changes.
 * errors   MR_CANCELLED, MR_RESOURCE_EXHAUSTED: some parts were not read */
mr_code mr__object_ranges_read(mr__object_range *v, size_t n, mr_cancel *cancel,
                               mr_status *st) MR_NODISCARD;
/* Reads n bytes from `offset` on. *got: fewer only at the end of the object.
 * errors   those of mr__transfer_take, with URL and offset */
mr_code mr__object_read(mr__object *o, int64_t offset, void *data, size_t n, size_t *got,
                        mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* Makes the object known, by a small request unless it is known already.
 * errors   those of mr__transfer_take */
mr_code mr__object_need_known(mr__object *o, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* The same, of an object of which parts are needed.
 * errors   those of mr__transfer_take; MR_FAILED_PRECONDITION: its server sends no ranges */
mr_code mr__object_need_ranges(mr__object *o, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* What is known of an object: that a listing said, or else what its server says now.
 * errors   those of mr__object_open and of mr__transfer_take */
mr_code mr__object_look(const char *url, mr__object_info *out, mr_status *st) MR_NODISCARD;
/* Reads a document, at most `most` bytes and a NUL byte. Owned in *out, for mr_free.
 * errors   those of mr__transfer_take; MR_OUT_OF_RANGE: it is larger */
mr_code mr__object_read_whole(mr__object *o, size_t most, char **out, size_t *size,
                              mr_cancel *cancel, mr_status *st) MR_NODISCARD;
#endif
