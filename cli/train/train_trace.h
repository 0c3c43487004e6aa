/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_TRAIN_TRACE_H
#define MR_CLI_TRAIN_TRACE_H
/* train --trace: what the input pipeline and the trainer did, as one file of Chrome's trace
 * format. */
#include <millrace/trainer/loop/fit.h>

enum { TRAIN_TRACE_SPANS = 250000 }; /* of the trainer */

/* Whether the file can be written; nothing of it stays. */
mr_code train_trace_check(const char *path, mr_status *st) MR_NODISCARD;
/* In train_end. A line on stderr says it where spans were left out. */
mr_code train_trace_write(const char *path, const mr_train_event *e, mr_status *st) MR_NODISCARD;
#endif
