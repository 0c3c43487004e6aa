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
/* The value is in the file when this returns. */
mr_code mr__event_file_add(mr__event_file *f, const char *tag, int64_t step, float value,
                           mr_status *st) MR_NODISCARD;
void mr__event_file_close(mr__event_file *f); /* NULL: nothing */
#endif
