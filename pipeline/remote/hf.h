/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_HF_H
#define MR_PIPELINE_REMOTE_HF_H
/* Datasets of the Hugging Face Hub: hf://datasets/OWNER/NAME[@REVISION]/path. A revision is
 * resolved to a commit once in the process, so that all files are those of one commit.
 *
 * source   Hub API endpoints (/api/datasets/.../revision, .../tree); huggingface_hub, "Environment
 *          variables" and hf_file_system
 * thread   any; waits with mr__cancel_of_thread */
#include "pipeline/remote/remote_object.h"

enum { MR__HF_COMMIT = 40 /* digits of a commit */ };

typedef struct mr__hf_name {
    char *repository; /* "OWNER/NAME" */
    char *revision;   /* without percent-encoding */
    const char *path; /* in the URL, after the slash */
} mr__hf_name;

/* *out: for mr__hf_name_reset; its path is in the URL.
 * errors   MR_INVALID_ARGUMENT, MR_RESOURCE_EXHAUSTED */
mr_code mr__hf_parse(const char *url, mr__hf_name *out, mr_status *st) MR_NODISCARD;
void mr__hf_name_reset(mr__hf_name *n);
/* HUB + middle + repository + "/" + what + "/" + revision + "/" + rest, encoded. Owned; NULL: out
 * of memory. */
char *mr__hf_address(const char *middle, const mr__hf_name *n, const char *what,
                     const char *revision, const char *rest);
/* errors   MR_NOT_FOUND, MR_PERMISSION_DENIED, MR_UNAVAILABLE, ...: of the hub, of no element;
 *          MR_CANCELLED */
mr_code mr__hf_resolve(const mr__hf_name *n, char id[MR__HF_COMMIT + 1],
                       mr_status *st) MR_NODISCARD;

/* Makes the target of a file; address (or NULL): of another document of the hub, instead. Owned
 * parts, for mr__object_target_reset, also after a failure.
 * errors   MR_INVALID_ARGUMENT; those of mr__hf_resolve; MR_RESOURCE_EXHAUSTED */
mr_code mr__hf_target(const char *url, const char *address, mr__object_target *out,
                      mr_status *st) MR_NODISCARD;
#endif
