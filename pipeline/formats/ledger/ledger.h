/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LEDGER_LEDGER_H
#define MR_PIPELINE_FORMATS_LEDGER_LEDGER_H
/* Ledger of a run: the identities of the records that went into each step (or, without replicas,
 * each element). It is written during the run, so a run that was killed has a ledger too, without
 * its last 64 KiB.
 *
 * Iterators write it, distributed ones too (mr_iterator_opts.ledger); `millrace why` reads it.
 * docs/files.md specifies the format.
 *
 *     mr_ledger *l = NULL;
 *     mr_ledger_create("run.ledger", false, &l, &st);
 *     mr_iterator_open(&it, ds, &(mr_iterator_opts){.ledger = l}, &st);
 *     ...
 *     mr_iterator_close(it);
 *     mr_ledger_close(l, &st);
 *
 * since    0.1 */
#include "../../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- writing. thread any ---- */

typedef struct mr_ledger mr_ledger;

/* Creates a ledger and replaces a file of this name. steps: its entries are steps, not elements.
 * errors   as open(2), with the file; MR_UNAVAILABLE: another run, or another ledger of this
 *          process, is writing it */
MR_API mr_code mr_ledger_create(const char *path, bool steps, mr_ledger **out,
                                mr_status *st) MR_NODISCARD;
MR_API bool mr_ledger_takes_steps(const mr_ledger *l);
/* Adds the next entry, made of n records.
 * errors   as write(2), with the file; the ledger is then unusable, and every later call fails in
 *          the same way
 *          MR_INVALID_ARGUMENT: n is more than 2^26 */
MR_API mr_code mr_ledger_add(mr_ledger *l, const mr_identity *ids, size_t n,
                             mr_status *st) MR_NODISCARD;
/* Sets the file name of the records that have the source and file of `of`. Call it before they are
 * added. A repeated call has no effect.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_ledger_name(mr_ledger *l, const mr_identity *of, const char *name,
                              mr_status *st) MR_NODISCARD;
/* The name that was set for the source and file of `of`; NULL: none. Borrowed until close. */
MR_API const char *mr_ledger_name_set(mr_ledger *l, const mr_identity *of);
/* Flushes l and frees it, also on failure. NULL: no effect.
 * errors   as mr_ledger_add */
MR_API mr_code mr_ledger_close(mr_ledger *l, mr_status *st) MR_NODISCARD;

/* ---- reading. thread one at a time per object ---- */

typedef struct mr_ledger_reader mr_ledger_reader;

typedef struct mr_ledger_entry {
    int64_t number; /* from 0 */
    size_t n;
    const mr_identity *ids; /* valid until the next entry is read */
} mr_ledger_entry;

/* Opens a ledger.
 * errors   as open(2); MR_DATA_LOSS: not a ledger; MR_INVALID_ARGUMENT: another version */
MR_API mr_code mr_ledger_open(const char *path, mr_ledger_reader **out, mr_status *st) MR_NODISCARD;
MR_API bool mr_ledger_is_of_steps(const mr_ledger_reader *r);
/* Reads the next entry.
 * returns  MR_OK, MR_END, or MR_DATA_LOSS with file and offset: the ledger is damaged there, or the
 *          run that wrote it did not finish. The entries before remain valid */
MR_API mr_code mr_ledger_next(mr_ledger_reader *r, mr_ledger_entry *out,
                              mr_status *st) MR_NODISCARD;
/* Name of the file that a record read so far comes from; NULL: it has none. Borrowed until the next
 * entry is read. */
MR_API const char *mr_ledger_name_of(const mr_ledger_reader *r, const mr_identity *id);
MR_API void mr_ledger_reader_close(mr_ledger_reader *r); /* NULL: no effect */

#ifdef __cplusplus
}
#endif
#endif
