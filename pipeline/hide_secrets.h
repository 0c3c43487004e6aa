/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_HIDE_SECRETS_H
#define MR_PIPELINE_HIDE_SECRETS_H
/* URLs may contain secrets: a password before the host, and the signature of a presigned URL in its
 * query. Every message, log line and location of an error passes through this function.
 *
 * thread   any */
#include <stddef.h>

/* Replaces these parts of all URLs in text by "...", in place; room is the size of the array, and
 * what no longer fits is cut. Text without "://" is not changed. */
void mr__hide_secrets(char *text, size_t room);
#endif
