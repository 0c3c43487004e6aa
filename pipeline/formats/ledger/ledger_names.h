/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LEDGER_LEDGER_NAMES_H
#define MR_PIPELINE_FORMATS_LEDGER_LEDGER_NAMES_H
/* File names of a ledger, by source and file. Zeroed: empty.
 *
 * thread   one at a time per object */
#include "pipeline/memory/block.h"

typedef struct mr__ledger_file {
    uint64_t source, file;
    char *name;
} mr__ledger_file;

typedef struct mr__ledger_names {
    mr__ledger_file *v; /* sorted */
    size_t n, capacity;
} mr__ledger_names;

/* NULL: not found. */
const char *mr__ledger_names_find(const mr__ledger_names *x, uint64_t source, uint64_t file);
/* Adds the name of a file that has none yet. *added is borrowed until the next one is added. */
mr_code mr__ledger_names_add(mr__ledger_names *x, uint64_t source, uint64_t file, const char *name,
                             size_t size, const mr__ledger_file **added,
                             mr_status *st) MR_NODISCARD;
void mr__ledger_names_reset(mr__ledger_names *x);
#endif
