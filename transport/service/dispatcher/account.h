/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_ACCOUNT_H
#define MR_TRANSPORT_SERVICE_ACCOUNT_H
/* The dispatcher's durable account: an SQLite database DIR/account.db, which one dispatcher at a
 * time holds. A thread of its own writes; all records that wait go into one transaction (group
 * commit), so an fsync is paid for many of them.
 *
 *     loop thread --record--> [waiting] --> writer thread --BEGIN ... COMMIT--> account.db-wal
 *                 <----------- durable(number), disk(why), posted to the loop
 *
 * Format (application_id 0x4d525341, user_version 2; WAL, synchronous=FULL):
 *   jobs      id, name, job (message Job)           all numbers are 64 bits, signed in the file
 *   streams   job, stream, generation, worker, elements, position, skip, ended, home, reader
 *   splits    job, split, stream                   dynamic: who was given it
 *   datasets  id, graph
 *   drains    worker, instance                     workers that are to end
 *
 * A stream's record takes the place of one of the same stream that still waits: however long the
 * disk is full, no more than two records a stream are kept in memory.
 *
 * thread   the loop's */
#include "transport/net/loop.h"
#include "transport/service/dispatcher/dispatcher.h"

typedef struct mr__account mr__account;

typedef struct mr__account_opts {
    const char *directory; /* made where it is not there; its parent must be */
    mr__loop *loop;
    /* All records up to `number` are durable. */
    void (*durable)(void *ctx, uint64_t number);
    /* The account cannot be written, and why; it is tried again until it can (NULL).
     * lost: a record could not be kept for want of memory: nothing after it ever becomes durable,
     * the dispatcher must start again. */
    void (*disk)(void *ctx, const mr_status *why, bool lost);
    void *ctx;
    uint64_t least_free; /* bytes free below which the disk counts as full; 0: 1 MiB */
    const char *vfs;     /* of SQLite; NULL: its default */
} mr__account_opts;

/* Opens it, makes it where there is none, and holds it until mr__account_free.
 * errors   MR_FAILED_PRECONDITION: another dispatcher holds it; written by a later version
 *          MR_DATA_LOSS: not an account, or a damaged one
 *          MR_RESOURCE_EXHAUSTED: memory, disk full; else what the system says of the directory */
mr_code mr__account_open(mr__account **out, const mr__account_opts *opts,
                         mr_status *st) MR_NODISCARD;
/* Gives what is recorded as JOB, STREAM, SPLIT, DATASET and DRAIN records: jobs, then their
 * streams, then splits in the order in which they were given; texts and bytes are borrowed during
 * the call. Ends with the first error of each.
 * errors   MR_DATA_LOSS, and those of each */
mr_code mr__account_load(mr__account *a,
                         mr_code (*each)(void *ctx, const mr__record *r, mr_status *st), void *ctx,
                         mr_status *st) MR_NODISCARD;
/* Starts the writer thread; records may be added from now on. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__account_start(mr__account *a, mr_status *st) MR_NODISCARD;
/* Adds a record; its number, from 1. */
uint64_t mr__account_record(mr__account *a, const mr__record *r);
/* Writes what waits, trying once more where the disk was full, and ends the thread; all records up
 * to *durable (NULL: nobody asks) are on disk. errors why not all are */
mr_code mr__account_finish(mr__account *a, uint64_t *durable, mr_status *st) MR_NODISCARD;
/* Lets the account go (after finish, where it was started); turns the loop where a report of the
 * writer is still on its way. NULL: nothing. */
void mr__account_free(mr__account *a);
#endif
