/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SOURCE_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SOURCE_H
/* Random access to the bytes of an Arrow file and to its messages. Only the requested bytes are
 * read, apart from those that the read-ahead of an uncached file has in flight. A pipe is read
 * forward only.
 *
 * thread   one at a time per object, except mr__arrow_input_head */
#include "pipeline/files/read_ahead.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_batch.h"

typedef struct mr__arrow_source {
    mr__read_ahead *file; /* borrowed */
    int64_t size;         /* -1: unknown */
    bool seekable;
    int64_t stands;  /* position of `file` */
    mr_buffer *slot; /* the last piece read ahead; NULL: none */
    uint8_t *slot_data;
    size_t slot_size;
    int64_t slot_at;
    uint8_t *head; /* the first bytes of a pipe, read before */
    size_t head_size;
    uint8_t first[8]; /* bytes of the file, after mr__arrow_source_is_file */
    size_t n_first;
} mr__arrow_source;

/* path: that of `file`. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__arrow_source_open(mr__arrow_source *s, mr__read_ahead *file, const char *path,
                              mr_status *st) MR_NODISCARD;
void mr__arrow_source_close(mr__arrow_source *s);
/* Reads up to n bytes at `at`; *got is less than n only at the end of the file.
 * errors   those of reading; MR_FAILED_PRECONDITION: a position of a pipe that was passed
 *          already */
mr_code mr__arrow_source_read(mr__arrow_source *s, int64_t at, void *to, size_t n, size_t *got,
                              mr_status *st) MR_NODISCARD;
/* *out = n bytes at `at`; memory grows with the bytes that exist.
 * errors   MR_DATA_LOSS: the file ends before */
mr_code mr__arrow_source_get(mr__arrow_source *s, int64_t at, uint64_t n, mr_buffer **out,
                             mr_status *st) MR_NODISCARD;
/* Reads the message at `at`: its metadata in *bytes, and the position of its body. MR_END: the
 * stream ends there, and *body is the position after its end. errors MR_DATA_LOSS */
mr_code mr__arrow_source_message(mr__arrow_source *s, int64_t at, mr_buffer **bytes,
                                 mr__arrow_message *m, int64_t *body, mr_status *st) MR_NODISCARD;

/* Whether the file begins like one with a footer. */
mr_code mr__arrow_source_is_file(mr__arrow_source *s, bool *out, mr_status *st) MR_NODISCARD;

/* For standard input that is a pipe: reads its first bytes, with the schema, into s and keeps them
 * for a later mr__arrow_source_open of "-". Close s as usual. */
mr_code mr__arrow_input_head(mr__arrow_source *s, mr_status *st) MR_NODISCARD;
#endif
