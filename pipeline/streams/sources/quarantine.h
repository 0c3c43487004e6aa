/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_QUARANTINE_H
#define MR_PIPELINE_STREAMS_SOURCES_QUARANTINE_H
/* Handles the damaged records of a TFRecord reader: counts and reports them, and keeps their bytes
 * in a folder if requested.
 *
 * thread   as an op's slots */
#include "pipeline/engine/op_iterator.h"
#include "pipeline/files/atomic_file.h"
#include "pipeline/formats/tfrecord/tfrecord.h"

typedef struct mr__quarantine {
    mr_tfrecord_read_opts opts; /* for the reader */
    mr_iter *it;
    int64_t most;         /* maximum number of damaged places to skip; -1: any number */
    const char *folder;   /* for the bytes; NULL: discard them */
    uint64_t skipped;     /* places skipped so far */
    mr_atomic_file *file; /* being written, or NULL */
} mr__quarantine;

/* folder is borrowed until close. */
void mr__quarantine_init(mr__quarantine *q, mr_iter *it, int64_t most, const char *folder);
void mr__quarantine_close(mr__quarantine *q);
#endif
