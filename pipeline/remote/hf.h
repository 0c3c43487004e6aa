/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_HF_H
#define MR_PIPELINE_REMOTE_HF_H
/* Datasets of the Hugging Face Hub: hf://datasets/OWNER/NAME[@REVISION]/path. A revision is
 * resolved to a commit once in the process, so that all files are those of one commit.
 *
 * source   Hub API endpoints (/api/datasets/.../revision, .../tree); huggingface_hub, "Environment
 *          variables" and hf_file_system
 * thread   any; waits with mr__remote_cancel */
#include "pipeline/remote/object_list.h"

/* Makes the target of a file; address (or NULL): of another document of the hub, instead. Owned
 * parts, for mr__object_target_reset, also after a failure.
 * errors   MR_INVALID_ARGUMENT; those of reading the revision; MR_RESOURCE_EXHAUSTED */
mr_code mr__hf_target(const char *url, const char *address, mr__object_target *out,
                      mr_status *st) MR_NODISCARD;
/* mr__object_list of a pattern. */
mr_code mr__hf_list(const char *pattern, mr__object_list_fn found, void *ctx,
                    mr_status *st) MR_NODISCARD;
#endif
