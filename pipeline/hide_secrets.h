/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_HIDE_SECRETS_H
#define MR_PIPELINE_HIDE_SECRETS_H
/* URLs may contain secrets: a password before the host, and the signature of a presigned URL in its
 * query. Every message, log line and location of an error passes through this function.
 *
 * What is stored, and compared later, has nothing in their place: mr_text_drop_secrets of status.h.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces these parts of all URLs in text by "...", in place; room is the size of the array, and
 * what no longer fits is cut. room 0: by as many dots, so that the rest stays where it is. Text
 * without "://" is not changed. */
void mr__hide_secrets(char *text, size_t room);

/* The query of a URL, to its end, has a parameter that signs it. */
bool mr__is_signed_query(const char *query);
/* A hash of the parameters that may tell objects apart: not of those that sign, come with a
 * signature or are secret. 0: no such parameter. */
uint64_t mr__query_hash(const char *query);
#endif
