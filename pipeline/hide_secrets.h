/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_HIDE_SECRETS_H
#define MR_PIPELINE_HIDE_SECRETS_H
/* URLs may contain secrets: a password before the host, and the signature of a presigned URL in its
 * query. Every message, log line and location of an error passes through this function.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>

/* Replaces these parts of all URLs in text by "...", in place; room is the size of the array, and
 * what no longer fits is cut. Text without "://" is not changed. */
void mr__hide_secrets(char *text, size_t room);

/* The query of a URL, to its end, has a parameter that signs it. */
bool mr__is_signed_query(const char *query);
/* Removes the queries of presigned http and https URLs in text, in place: from what is stored and
 * compared later, since each signing makes another query. */
void mr__drop_signed_queries(char *text);
#endif
