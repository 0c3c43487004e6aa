/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_RECORD_LOOKUP_H
#define MR_PIPELINE_STREAMS_SOURCES_RECORD_LOOKUP_H
/* Elements by number of files whose records have known places: those with an index, and those of
 * records of one length. The records of one call are read together.
 *
 * thread   as an op's slots */
#include "pipeline/files/read_scattered.h"
#include "pipeline/streams/sources/file_source.h"

/* Where record `number` of the source's files is. */
typedef struct mr__record_place {
    size_t file;
    int64_t record; /* number in the file */
    int64_t offset;
    size_t size;
} mr__record_place;

typedef struct mr__record_lookup {
    mr__scattered *files;          /* NULL: not opened yet */
    const mr__record_set *records; /* borrowed */
    void (*find)(const mr_iter *it, uint64_t number, mr__record_place *out);
    /* *view = the record of the bytes that were read, without its framing. Errors without a place.
     * NULL: all bytes. */
    mr_code (*check)(const mr__record_place *place, const uint8_t *data, mr_bytes *view,
                     mr_status *st);
    struct mr__zstd_record_rows *frames; /* decompresses the records; NULL: they are as they are */
} mr__record_lookup;

/* out = the records of the first of n numbers, as op->at. */
mr_code mr__record_lookup_at(mr_iter *it, mr__record_lookup *l, const uint64_t *index, size_t n,
                             mr_block *out, mr_status *st) MR_NODISCARD;
void mr__record_lookup_close(mr__record_lookup *l);
#endif
