/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_EVENT_FILE_H
#define MR_TRAINER_FILES_EVENT_FILE_H
/* TensorBoard's event files: TFRecord files of Event messages, written during training.
 *
 *   Event   wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5
 *   Summary value = 1 (repeated)
 *   Value   tag = 1 (string), simple_value = 2 (float)
 *
 * thread   one */
#include "pipeline/status.h"

typedef struct mr__event_file mr__event_file;

/* Creates the directory and a new file in it. Returns owned. */
mr_code mr__event_file_open(mr__event_file **out, const char *directory,
                            mr_status *st) MR_NODISCARD;
/* Opens the file `name` in the directory again, and cuts it to `size` bytes. Returns owned.
 * errors   MR_FAILED_PRECONDITION: it is shorter · as open(2) and ftruncate(2) */
mr_code mr__event_file_reopen(mr__event_file **out, const char *directory, const char *name,
                              int64_t size, mr_status *st) MR_NODISCARD;
/* Its name in the directory, borrowed, and its size in bytes. */
const char *mr__event_file_name(const mr__event_file *f);
int64_t mr__event_file_size(const mr__event_file *f);
/* Makes what was added survive a power failure, if the file system can. */
void mr__event_file_sync(const mr__event_file *f);
/* The value is in the file when this returns. */
mr_code mr__event_file_add(mr__event_file *f, const char *tag, int64_t step, float value,
                           mr_status *st) MR_NODISCARD;
void mr__event_file_close(mr__event_file *f); /* NULL: nothing */
#endif
