/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WRITER_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WRITER_H
/* Files of records that get their names together, and files without the framing of records. Within
 * the formats room. */
#include "pipeline/files/atomic_file_impl.h"
#include "pipeline/formats/tfrecord/tfrecord.h"

/* Appends bytes as they are. errors as mr_tfrecord_writer_append */
mr_code mr__tfrecord_writer_put(mr_tfrecord_writer *w, const void *data, size_t n,
                                mr_status *st) MR_NODISCARD;
/* Replaces the first n bytes of what was written; not where it is compressed. Nothing but finish
 * may follow. errors as mr_tfrecord_writer_append */
mr_code mr__tfrecord_writer_replace_head(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st) MR_NODISCARD;
/* Writes what is left and closes the file, which keeps its partial name. Then only
 * mr_tfrecord_writer_close and mr_tfrecord_writer_abort may be called. */
mr_code mr__tfrecord_writer_finish(mr_tfrecord_writer *w, mr_status *st) MR_NODISCARD;
mr_atomic_file *mr__tfrecord_writer_file(mr_tfrecord_writer *w);
#endif
