/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WARN_ONCE_H
#define MR_PIPELINE_WARN_ONCE_H
#include "pipeline/status.h"

/* Logs the warning, cut after 1,023 bytes, unless this process has logged the same text: training distributes its graph,
 * and opens its caches, again in every epoch. Private to the project.
 *
 * thread   any */
void mr__warn_once(const char *fmt, ...) MR_PRINTF(1, 2);
#endif
