/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_URL_H
#define MR_PIPELINE_REMOTE_URL_H
/* Names of objects in stores and on the web.
 *
 *     https://host/path, http://host/path      any server
 *     s3://bucket/key                          Amazon S3 and servers of its protocol
 *     gs://bucket/key                          Google Cloud Storage
 *     hf://datasets/OWNER/NAME[@REVISION]/path the Hugging Face Hub
 *
 * A name that begins with one of these schemes is never a path.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>

#include "pipeline/memory/alloc.h"

typedef enum mr__url_kind {
    MR__URL_NONE,
    MR__URL_HTTP,
    MR__URL_S3,
    MR__URL_GS,
    MR__URL_HF
} mr__url_kind;

mr__url_kind mr__url_kind_of(const char *name);
static inline bool mr__is_url(const char *name)
{
    return mr__url_kind_of(name) != MR__URL_NONE;
}

/* MR_OK if the name of a file to write is a path, or the URL of a store that is written to.
 * errors   MR_UNIMPLEMENTED: another URL; MR_PERMISSION_DENIED: a graph of a service's client may
 *          not write there (--allow-writes) */
mr_code mr__url_check_writing(const char *name, mr_status *st) MR_NODISCARD;
/* MR_OK if the name of a file to write is a path.
 * errors   MR_UNIMPLEMENTED: a URL; MR_PERMISSION_DENIED: as above */
mr_code mr__url_refuse_writing(const char *name, mr_status *st) MR_NODISCARD;

/* text with all bytes percent-encoded but letters, digits, "-._~" and those of `keep`. Owned; NULL:
 * out of memory. */
char *mr__url_encode(const char *text, const char *keep);
/* Decodes percent-encoding in place. */
void mr__url_decode(char *text);
#endif
