/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_HOST_TABLE_H
#define MR_CLI_HOST_TABLE_H
/* The hosts of URLs in the output of bench and top. */
#include <millrace/pipeline/remote/host_stats.h>

/* Leaves what the n hosts did since `before`; open connections stay those of now. */
void host_table_since(mr_host_stats *now, size_t n, const mr_host_stats *before, size_t n_before);
/* Prints the member "hosts" of an object, after a comma. */
void host_table_json(const mr_host_stats *v, size_t n);
/* Prints a table, unless there are no hosts. */
void host_table_text(const mr_host_stats *v, size_t n);
/* The hosts of this process: owned, for mr_free, *n of them; NULL: none, or out of memory. */
mr_host_stats *host_table_own(size_t *n);
#endif
