/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_RESYNC_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_RESYNC_H
/* Finding records again after damage. Within the formats room. */
#include "pipeline/formats/format.h"
#include "pipeline/formats/tfrecord/tfrecord.h"

/* A record longer than this is checked as it streams past before it gets memory, so that a wrong
 * length in a sparse file takes none. */
#define MR__TFRECORD_AT_ONCE ((uint64_t)64 << 20)

/* The same, or less where memory is limited. */
uint64_t mr__tfrecord_at_once(void);

/* Whether the checksum fits of a record whose `data` bytes begin `skip` bytes after in.at: reads
 * them without keeping them; the window stays where it is. Only where the file's size is known.
 * MR_END: the file has become shorter. */
mr_code mr__tfrecord_scan(mr_reader *r, uint64_t skip, uint64_t data, bool *good,
                          mr_status *st) MR_NODISCARD;

/* The bytes at in.at are no valid record, as `what` says: moves on to the next that is one, whose
 * checksums both fit, or to the end of the file, and reports what was passed. */
mr_code mr__tfrecord_resync(mr_reader *r, const mr_tfrecord_read_opts *o, const char *what,
                            mr_status *st) MR_NODISCARD;

/* As mr_origin.record_of: the record around p, in bytes that were read as above. */
const void *mr__tfrecord_of(const void *at, const void *p, int64_t *n);
#endif
