/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SOURCE_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SOURCE_H
/* Bytes of an Arrow file at any offset, and the messages in them. Only what is asked for is read,
 * but for what the read-ahead of an uncached file has in flight. A pipe is read forwards.
 *
 * thread   one at a time per object, but for mr__arrow_input_head */
#include "pipeline/files/read_ahead.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_batch.h"

typedef struct mr__arrow_source {
    mr__read_ahead *file; /* borrowed */
    int64_t size;         /* -1: not known */
    bool seekable;
    int64_t stands;  /* where `file` goes on */
    mr_buffer *slot; /* the last piece that was read ahead; NULL: none */
    uint8_t *slot_data;
    size_t slot_size;
    int64_t slot_at;
    uint8_t *head; /* bytes of a pipe that were read before; its first ones */
    size_t head_size;
    uint8_t first[8]; /* bytes of the file, after mr__arrow_source_is_file */
    size_t n_first;
} mr__arrow_source;

/* path: what `file` was opened as. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__arrow_source_open(mr__arrow_source *s, mr__read_ahead *file, const char *path,
                              mr_status *st) MR_NODISCARD;
void mr__arrow_source_close(mr__arrow_source *s);
/* Reads up to n bytes at `at`; *got is less only at the end of the file.
 * errors   those of reading; MR_FAILED_PRECONDITION: before what was read of a pipe */
mr_code mr__arrow_source_read(mr__arrow_source *s, int64_t at, void *to, size_t n, size_t *got,
                              mr_status *st) MR_NODISCARD;
/* *out = n bytes at `at`; memory grows with what is there.
 * errors   MR_DATA_LOSS: the file ends before */
mr_code mr__arrow_source_get(mr__arrow_source *s, int64_t at, uint64_t n, mr_buffer **out,
                             mr_status *st) MR_NODISCARD;
/* The message at `at`: its metadata, which *bytes are, and where its body begins. MR_END: the
 * stream ends there. errors MR_DATA_LOSS */
mr_code mr__arrow_source_message(mr__arrow_source *s, int64_t at, mr_buffer **bytes,
                                 mr__arrow_message *m, int64_t *body, mr_status *st) MR_NODISCARD;

/* Whether the file begins as one with a footer does. */
mr_code mr__arrow_source_is_file(mr__arrow_source *s, bool *out, mr_status *st) MR_NODISCARD;

/* Standard input is a pipe: s is its first bytes, with the schema, which are kept for a later
 * mr__arrow_source_open of "-". Close it as any. */
mr_code mr__arrow_input_head(mr__arrow_source *s, mr_status *st) MR_NODISCARD;
#endif
