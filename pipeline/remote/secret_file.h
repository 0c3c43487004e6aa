/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_SECRET_FILE_H
#define MR_PIPELINE_REMOTE_SECRET_FILE_H
/* Files and variables that have credentials. They are those of this process, also where a client
 * of a worker named the data.
 *
 * thread   any */
#include "pipeline/memory/alloc.h"

/* *text: the file's first MiB and a NUL byte, owned, for mr__secret_free; NULL if it does not
 * exist.
 * errors   as open(2) and read(2), with the name in the message; MR_RESOURCE_EXHAUSTED */
mr_code mr__secret_file_read(const char *path, char **text, mr_status *st) MR_NODISCARD;
/* The same without white space at the end, for a file that has one token. */
mr_code mr__secret_line_read(const char *path, char **text, mr_status *st) MR_NODISCARD;
/* *to: a copy of a part of credentials, owned, for mr__secret_free.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__secret_copy(char **to, const char *from, mr_status *st) MR_NODISCARD;
void mr__secret_free(char *text); /* overwrites it; NULL: no-op */

/* The variable, or NULL if it is not set or empty. */
const char *mr__variable(const char *name);
/* The file of certificates for requests: what `first` (or NULL) or SSL_CERT_FILE names, or NULL. */
const char *mr__authorities(const char *first);
#endif
