/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_HF_LIST_H
#define MR_PIPELINE_REMOTE_HF_LIST_H
/* Lists files of datasets of the hub.
 *
 * thread   any */
#include "pipeline/remote/object_list.h"

/* mr__object_list of an hf URL. */
mr_code mr__hf_list(const char *pattern, mr__object_list_fn found, void *ctx,
                    mr_status *st) MR_NODISCARD;
#endif
