/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_INPUTS_READ_H
#define MR_PIPELINE_ENGINE_INPUTS_READ_H
/* Records the files that the ops and functions below an iterator read, and the patterns that they
 * match. An op that keeps elements in a file keeps this record too, so that they are not read after
 * the files that they were made from have changed.
 *
 *     cache                            mr__iter_record_inputs
 *       map(f => read_file(f))         mr__iter_note_file: "a.jpg", 812 bytes, when it was written
 *         list_files                   mr__iter_note_pattern: "*.jpg"
 *
 * thread   notes: any; the rest: one at a time per object */
#include <pthread.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/hash_index.h"

typedef struct mr__noted_input {
    char *name;                         /* of a URL without its secrets */
    bool pattern;                       /* of file names; the fields below are those of a file */
    int64_t size, seconds, nanoseconds; /* in bytes; when it was last written */
} mr__noted_input;

/* Zeroed memory is an empty record. */
typedef struct mr__inputs_read {
    pthread_mutex_t lock; /* guards the rest */
    bool ready;           /* the lock is initialized */
    mr__noted_input *v;
    size_t n, capacity;
    mr__hash_index index; /* of v, by name */
} mr__inputs_read;

/* Size and time of a regular file into *out; false: it is not one, or cannot be
 * looked at. */
bool mr__look_at_input(const char *path, mr__noted_input *out);

/* The op of `it` writes a file that only the end of its input completes, or no longer does. A
 * consumer that has taken all elements need not ask for the end: the engine does, unless the input
 * waits for an outside producer. */
void mr__iter_waits_for_end(mr_iter *it, bool does);
/* From now on tasks pull `it`, and only the op above it knows when it may be pulled otherwise.
 * true: it may wait for an outside producer, so the tasks need separate threads. */
bool mr__iter_pulled_by_tasks(mr_iter *it) MR_NODISCARD;

/* From now on, what is read below `it` is recorded in r (zeroed, or used before) until `it` is
 * closed or another record is set; r NULL: nothing is. Call it before inputs are opened. */
void mr__iter_record_inputs(mr_iter *it, mr__inputs_read *r);
void mr__inputs_read_reset(mr__inputs_read *r);

/* Notes a file that is about to be read for `it`. Names of no regular file are ignored, each name
 * is noted once. */
mr_code mr__iter_note_file(const mr_iter *it, const char *path, mr_status *st) MR_NODISCARD;
/* Notes a pattern. *added = true: a record did not have it; note the files that match it too. */
mr_code mr__iter_note_pattern(const mr_iter *it, const char *pattern, bool *added,
                              mr_status *st) MR_NODISCARD;
/* true: what is read below an iterator above `it` is recorded. */
bool mr__iter_is_recorded(const mr_iter *it);
/* Notes what another record has, of elements that are read from a file. */
mr_code mr__iter_note_again(const mr_iter *it, const mr__noted_input *input,
                            mr_status *st) MR_NODISCARD;
#endif
