/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_INTERNAL_H
#define MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_INTERNAL_H
/* What sources need of an index besides its records.
 *
 * thread   any */
#include "pipeline/formats/tfrecord/record_index.h"

/* The mark of the TFRecord file that the index was compared with, as in mr_file_opts; 0: not
 * known. */
uint64_t mr__record_index_mark(const mr_record_index *ix);
#endif
