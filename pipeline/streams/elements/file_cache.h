/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_FILE_CACHE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_FILE_CACHE_H
/* Input 0 passed through and written to a file of elements (element_file.h) on the way; where the
 * file is complete it is read instead: cache("file"), snapshot and save.
 *
 *     WRITING --end of the input--> the file has its name
 *     READING                       the input is never opened
 *     PASSING                       nothing is written: somebody else does, or writing failed
 *
 * Errors are not written. Who goes away before the end of the input leaves no file. One writer of a
 * file at a time: its lock is .NAME.lock beside it. */
#include "pipeline/streams/cursor.h"
#include "pipeline/streams/elements/element_file.h"

typedef enum mr__file_cache_mode {
    MR_FC_WRITING,
    MR_FC_READING,
    MR_FC_PASSING,
    MR_FC_ENDED
} mr__file_cache_mode;

typedef struct mr__file_cache {
    mr_iter *it;
    bool reuse;        /* a complete file is read */
    bool pass_if_busy; /* where somebody else writes it; else that is an error */
    char *path, *lock_path;
    mr__file_cache_mode mode;
    int lock; /* -1: not held */
    mr__element_writer *writer;
    mr__element_reader *reader;
    uint64_t rows;       /* written or read */
    mr_buffer *position; /* the input's at its start; NULL: it cannot be read again */
    mr_block ahead;      /* rows of the input that come next: writing them failed */
} mr__file_cache;

/* Slots of an op whose state begins with an mr__file_cache. path: taken over (mr_free), also on
 * failure. */
mr_code mr__file_cache_open(mr_iter *it, char *path, bool reuse, bool pass_if_busy,
                            mr_status *st) MR_NODISCARD;
/* The same for elements.mre in the folder `path`, or (own not NULL) in the folder `own` below it;
 * folders are made. */
mr_code mr__file_cache_open_folder(mr_iter *it, const char *path, const char *own, bool reuse,
                                   bool pass_if_busy, mr_status *st) MR_NODISCARD;
mr_code mr__file_cache_next(mr_iter *it, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
void mr__file_cache_close(mr_iter *it);
mr_code mr__file_cache_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_cache_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* In a descriptor, where that is all of the state. */
#define MR__FILE_CACHE_SLOTS                                                                       \
    .iter_size = sizeof(mr__file_cache), .min_inputs = 1, .max_inputs = 1,                         \
    .role = MR_ROLE_BARRIER, .props = MR_OP_KEEPS_COUNT | MR_OP_OPENS_INPUTS | MR_OP_REMEMBERS,    \
    .next = mr__file_cache_next, .close = mr__file_cache_close, .save = mr__file_cache_save,       \
    .restore = mr__file_cache_restore

#define MR_ELEMENTS_FILE "elements.mre" /* in a folder of its own */

/* Of a check slot: path is there, and not empty. */
mr_code mr__file_cache_check_path(const char *op, const char *path, mr_status *st) MR_NODISCARD;
/* *out = folder/name; owned. */
mr_code mr__file_cache_path(const char *folder, const char *name, char **out,
                            mr_status *st) MR_NODISCARD;
#endif
