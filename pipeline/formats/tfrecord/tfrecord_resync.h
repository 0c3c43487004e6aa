/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_RESYNC_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_RESYNC_H
/* Finds the next valid record after damage. Private to the formats room. */
#include "pipeline/formats/format.h"
#include "pipeline/formats/tfrecord/tfrecord.h"

/* A longer record is checked as it streams past before memory is allocated for it, so that a wrong
 * length in a sparse file costs no memory. */
#define MR__TFRECORD_AT_ONCE ((uint64_t)64 << 20)

/* The same limit, lower if memory is limited. */
uint64_t mr__tfrecord_at_once(void);

/* Checks the checksum of a record whose `data` bytes begin `skip` bytes after in.at, without
 * keeping them; the window does not move. Requires a known file size. MR_END: the file has become
 * shorter. */
mr_code mr__tfrecord_scan(mr_reader *r, uint64_t skip, uint64_t data, bool *good,
                          mr_status *st) MR_NODISCARD;

/* The bytes at in.at are not a valid record, for the reason `what`: advances to the next record
 * whose checksums are both valid, or to the end of the file, and reports the range passed. */
mr_code mr__tfrecord_resync(mr_reader *r, const mr_tfrecord_read_opts *o, const char *what,
                            mr_status *st) MR_NODISCARD;

/* As mr_origin.record_of: the record that contains p, in bytes read as above. */
const void *mr__tfrecord_of(const void *at, const void *p, int64_t *n);
#endif
