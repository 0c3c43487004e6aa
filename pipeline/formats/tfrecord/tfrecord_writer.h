/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WRITER_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_WRITER_H
/* Parts of the TFRecord writer for sets of files that are renamed together and for files without
 * record framing. Private to the formats room. */
#include "pipeline/files/atomic_file_impl.h"
#include "pipeline/formats/tfrecord/tfrecord.h"

/* As mr_tfrecord_writer_open, for a URL if `upload` is not NULL. */
mr_code mr__tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                 const mr_tfrecord_writer_opts *opts, const mr__upload_opts *upload,
                                 mr_status *st) MR_NODISCARD;
/* Appends bytes without framing. errors as mr_tfrecord_writer_append */
mr_code mr__tfrecord_writer_put(mr_tfrecord_writer *w, const void *data, size_t n,
                                mr_status *st) MR_NODISCARD;
/* Replaces the first n bytes of the file; not if it is compressed. Only finish may follow. errors
 * as mr_tfrecord_writer_append */
mr_code mr__tfrecord_writer_replace_head(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st) MR_NODISCARD;
/* Flushes and closes the file, which keeps its partial name. Only mr_tfrecord_writer_close and
 * mr_tfrecord_writer_abort may follow. */
mr_code mr__tfrecord_writer_finish(mr_tfrecord_writer *w, mr_status *st) MR_NODISCARD;
mr_atomic_file *mr__tfrecord_writer_file(mr_tfrecord_writer *w);
#endif
