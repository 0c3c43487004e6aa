/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_STORE_INTERNAL_H
#define MR_PIPELINE_REMOTE_STORE_INTERNAL_H
/* Objects of a store for the libraries above this one, which write directories there. Waits end
 * with mr__cancel_of_thread.
 *
 * thread   any */
#include <stdbool.h>
#include <stdint.h>

#include "pipeline/status.h"

/* A name that is never a path. */
bool mr__store_is_url(const char *name);
/* MR_OK if files can be written to this name: a path, or a URL of a store that is written to.
 * errors   MR_UNIMPLEMENTED: another URL; MR_PERMISSION_DENIED: a graph of a service's client */
mr_code mr__store_check_writing(const char *name, mr_status *st) MR_NODISCARD;
/* MR_OK if the name is a path.
 * errors   MR_UNIMPLEMENTED: a URL */
mr_code mr__store_refuse_writing(const char *name, mr_status *st) MR_NODISCARD;

typedef mr_code (*mr__store_fn)(void *ctx, const char *url, int64_t size, mr_status *st);
/* Calls found for all objects whose URLs begin with the prefix, which is taken literally, in the
 * order of the store. There may be none.
 * errors   MR_INVALID_ARGUMENT: not a URL of a bucket; those of reading and of found */
mr_code mr__store_list(const char *prefix, mr__store_fn found, void *ctx,
                       mr_status *st) MR_NODISCARD;
/* errors: those of reading */
mr_code mr__store_has(const char *url, bool *there, mr_status *st) MR_NODISCARD;
/* Removes an object; it need not exist. */
mr_code mr__store_delete(const char *url, mr_status *st) MR_NODISCARD;
/* The next reader asks the store, whatever a listing said of the object. */
void mr__store_forget(const char *url);
#endif
