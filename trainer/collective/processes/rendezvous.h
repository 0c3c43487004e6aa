/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_RENDEZVOUS_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_RENDEZVOUS_H
/* All processes of a job find each other, compare their arguments, and connect: every pair for
 * short messages, and each with the next rank for values.
 *
 *     rank 1 dials 0, rank 2 dials 0 and 1, ...      if TF_CONFIG lists all addresses
 *     all dial 0, which then sends all addresses     if only rank 0's is known
 *
 * Strangers are refused, with a reason, and named in the log; the wait for the peers continues. So
 * it does if a stranger answers at the address of a peer.
 *
 * thread   any */
#include <stdbool.h>
#include "pipeline/wait/cancel.h"
#include "shard/cluster/cluster.h"
#include "trainer/collective/processes/rank_messages.h"
#include "trainer/collective/processes/shm_ring.h"
#include "transport/wire/tls_session.h"

typedef struct mr__rendezvous_opts {
    const mr_cluster *cluster; /* at least 2 workers, one of them this process */
    const mr__fact *facts;     /* all must agree on them; borrowed during the call */
    uint32_t n_facts;
    double connect_timeout_s;
    mr_cancel *cancel;             /* NULL: none */
    const struct mr__token *token; /* what peers must show; NULL: nothing */
    bool any_user;                 /* processes of other users on this host are admitted */
    bool sockets_only;             /* use no shared memory, even on one machine */
} mr__rendezvous_opts;

typedef struct mr__member {
    char address[200];    /* for messages: as in TF_CONFIG, or as discovered */
    int fd;               /* short messages; nonblocking; -1: this process */
    mr__tls_session *tls; /* owned; NULL: in the clear */
} mr__member;

/* One direction between neighbours of the ring. */
typedef struct mr__ring_link {
    int fd;               /* TCP: the values; else a unix socket for wake-ups; nonblocking */
    mr__shm_ring *shm;    /* NULL: TCP */
    mr__tls_session *tls; /* owned; TCP: NULL: in the clear */
} mr__ring_link;
/* Closes and frees what it has, and leaves it with fd -1. */
void mr__ring_link_close(mr__ring_link *link);

typedef struct mr__rank_group {
    uint32_t rank, world;
    mr__member *members;      /* owned */
    mr__ring_link next, prev; /* to rank + 1, from rank - 1 */
} mr__rank_group;

/* errors   MR_DEADLINE_EXCEEDED: names the missing ranks · MR_FAILED_PRECONDITION: another version,
 *          world or fact on a peer, both named · MR_ALREADY_EXISTS: two processes of one rank, or
 *          the address is in use · MR_INVALID_ARGUMENT: an address, a job of one ·
 *          MR_PERMISSION_DENIED: a peer refuses this process, says why ·
 *          MR_CANCELLED · MR_UNAVAILABLE: a peer ended; with its error, if it sent one */
mr_code mr__rendezvous(const mr__rendezvous_opts *o, mr__rank_group *out,
                       mr_status *st) MR_NODISCARD;
/* Closes everything that was not moved out of it (fd -1, shm NULL). */
void mr__rank_group_reset(mr__rank_group *g);
#endif
