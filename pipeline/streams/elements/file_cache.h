/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_FILE_CACHE_H
#define MR_PIPELINE_STREAMS_ELEMENTS_FILE_CACHE_H
/* Passes input 0 through and writes it to a file of elements (element_file.h); if the file is
 * complete it is read instead: cache("file"), snapshot and save.
 *
 *     WRITING --end of the input--> the file has its name
 *     READING                       the input is never opened
 *     PASSING                       nothing is written: another writer is active, or writing failed
 *
 * Errors are not written. The file is complete at the end of the input, or with as many elements as
 * the graph says that the input has; an iterator closed before leaves no file. A file has one
 * writer at a time, which holds the lock .NAME.lock in the same folder.
 *
 * A file that is read again says what it was made from (element_origin.h): of another graph, or of
 * files that have changed since, it is refused. */
#include "pipeline/streams/cursor.h"
#include "pipeline/streams/elements/element_file.h"
#include "pipeline/system/fork.h"

typedef enum mr__file_cache_mode {
    MR_FC_WRITING,
    MR_FC_READING,
    MR_FC_PASSING,
    MR_FC_ENDED
} mr__file_cache_mode;

/* What the iterators of an op know of its file: that it was found to be of this graph and of the
 * inputs as they are. Looking at each of them in every repetition would cost much. */
typedef struct mr__file_cache_shared {
    mr__lock lock; /* guards the rest */
    bool was_complete;
    bool restored; /* a position says so: what the input would yield now are other elements */
    bool checked;
    uint64_t device, inode; /* of the file that was checked, and when it was last written */
    int64_t size, seconds, nanoseconds;
} mr__file_cache_shared;
/* For mr_iter_shared. */
void mr__file_cache_init_shared(void *shared);
void mr__file_cache_destroy_shared(void *shared);
/* Whether the file was complete, as positions have it. */
bool mr__file_cache_was_complete(mr__file_cache_shared *s);
void mr__file_cache_restore_shared(mr__file_cache_shared *s, bool was_complete);

typedef struct mr__file_cache_opts {
    bool reuse;        /* read a complete file */
    bool pass_if_busy; /* pass through while another writer is active; else that is an error */
    bool strict;       /* compare the times of its inputs too */
    const char *graph; /* the fingerprint to record and compare, in hexadecimal digits; NULL or "":
                          that of the input */
    mr__file_cache_shared *shared; /* borrowed; NULL: the file is not read again */
} mr__file_cache_opts;

typedef struct mr__file_cache {
    mr_iter *it;
    mr__file_cache_opts o;
    char *path, *lock_path;
    mr__file_cache_mode mode;
    int lock; /* -1: not held */
    mr__element_writer *writer;
    mr__element_reader *reader;
    mr__inputs_read inputs; /* of the elements that are written */
    int64_t expected;       /* number of elements of the input; negative: not known */
    uint64_t rows;          /* written or read */
    mr_buffer *position;    /* the input's at its start; NULL: it cannot be read again */
    mr_block ahead;         /* next rows of the input, which could not be written */
} mr__file_cache;

/* Slots of an op whose state begins with an mr__file_cache. path: taken over (mr_free), also on
 * failure. */
mr_code mr__file_cache_open(mr_iter *it, char *path, const mr__file_cache_opts *opts,
                            mr_status *st) MR_NODISCARD;
/* The same for elements.mre in the folder `path`, or in its subfolder `own` if own is not NULL;
 * creates the folders. */
mr_code mr__file_cache_open_folder(mr_iter *it, const char *path, const char *own,
                                   const mr__file_cache_opts *opts, mr_status *st) MR_NODISCARD;
mr_code mr__file_cache_next(mr_iter *it, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
void mr__file_cache_close(mr_iter *it);
mr_code mr__file_cache_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__file_cache_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* For a descriptor whose state is just an mr__file_cache. */
#define MR__FILE_CACHE_SLOTS                                                                       \
    .iter_size = sizeof(mr__file_cache), .min_inputs = 1, .max_inputs = 1,                         \
    .role = MR_ROLE_BARRIER, .props = MR_OP_KEEPS_COUNT | MR_OP_OPENS_INPUTS | MR_OP_REMEMBERS,    \
    .next = mr__file_cache_next, .close = mr__file_cache_close, .save = mr__file_cache_save,       \
    .restore = mr__file_cache_restore

#define MR_ELEMENTS_FILE "elements.mre" /* in a separate folder */

/* For a check slot: path is set and not empty. */
mr_code mr__file_cache_check_path(const char *op, const char *path, mr_status *st) MR_NODISCARD;
/* For an infer slot: the element's spec, without datasets. What is in a file would decide what
 * runs. */
mr_code mr__file_cache_infer(const mr_dataset *self, const void *params, mr_spec **out,
                             mr_status *st) MR_NODISCARD;
/* spec has a component, at any depth, that is a dataset. */
bool mr__holds_datasets(const mr_spec *spec);
/* *out = folder/name; owned. */
mr_code mr__file_cache_path(const char *folder, const char *name, char **out,
                            mr_status *st) MR_NODISCARD;
#endif
