/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_ACCOUNT_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_ACCOUNT_H
/* The dispatcher's durable account: an SQLite database DIR/account.db, locked by one dispatcher at
 * a time. A separate thread writes it; all pending records go into one transaction (group commit),
 * so that they share an fsync.
 *
 *     loop thread --record--> [waiting] --> writer thread --BEGIN ... COMMIT--> account.db-wal
 *                 <----------- durable(number), disk(why), posted to the loop
 *
 * Format (application_id 0x4d525341, user_version 2; WAL, synchronous=FULL):
 *   jobs      id, name, job (message Job)           all numbers are 64 bits, signed in the file
 *   streams   job, stream, generation, worker, elements, position, skip, ended, home, reader
 *   splits    job, split, stream                   dynamic: the stream it was assigned to
 *   datasets  id, graph
 *   drains    worker, instance                     workers that must end
 *
 * A stream's record replaces a pending record of the same stream: even if the disk is full for
 * long, at most two records per stream are in memory.
 *
 * thread   the loop's */
#include "transport/net/loop.h"
#include "transport/service/dispatcher/dispatcher.h"

typedef struct mr__account mr__account;

typedef struct mr__account_opts {
    const char *directory; /* created if it does not exist; its parent must exist */
    mr__loop *loop;
    /* All records up to `number` are durable. */
    void (*durable)(void *ctx, uint64_t number);
    /* The account cannot be written because of `why`; writing is retried until it succeeds (why is
     * NULL). lost: a record was lost because memory ran out: no later record ever becomes durable,
     * and the dispatcher must restart. */
    void (*disk)(void *ctx, const mr_status *why, bool lost);
    void *ctx;
    uint64_t least_free; /* free bytes below which the disk counts as full; 0: 1 MiB */
    const char *vfs;     /* of SQLite; NULL: its default */
} mr__account_opts;

/* Opens the account, creates it if it does not exist, and locks it until mr__account_free.
 * errors   MR_FAILED_PRECONDITION: locked by another dispatcher; written by a later version
 *          MR_DATA_LOSS: not an account, or a damaged one
 *          MR_RESOURCE_EXHAUSTED: memory, disk full; else the system's error for the directory */
mr_code mr__account_open(mr__account **out, const mr__account_opts *opts,
                         mr_status *st) MR_NODISCARD;
/* Calls `each` with the contents as JOB, STREAM, SPLIT, DATASET and DRAIN records: jobs, then their
 * streams, then splits in the order of their assignment; strings and bytes are borrowed during the
 * call. Stops at the first error of `each`.
 * errors   MR_DATA_LOSS, and those of `each` */
mr_code mr__account_load(mr__account *a,
                         mr_code (*each)(void *ctx, const mr__record *r, mr_status *st), void *ctx,
                         mr_status *st) MR_NODISCARD;
/* Starts the writer thread; records may be added from now on. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__account_start(mr__account *a, mr_status *st) MR_NODISCARD;
/* Adds a record; returns its number, from 1. */
uint64_t mr__account_record(mr__account *a, const mr__record *r);
/* Writes the pending records, with one more try if the disk was full, and ends the thread.
 * *durable (may be NULL) = the number of the last record on disk. errors why later ones are not */
mr_code mr__account_finish(mr__account *a, uint64_t *durable, mr_status *st) MR_NODISCARD;
/* Frees and unlocks the account (after finish, if it was started); turns the loop while a report of
 * the writer is pending. NULL: nothing. */
void mr__account_free(mr__account *a);
#endif
