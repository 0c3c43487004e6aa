/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_SERVERS_H
#define MR_TRAINER_SERVERS_SERVERS_H
/* The parameter servers and workers of a job, as seen by its coordinator. A lost parameter server
 * ends the job; a lost worker is awaited while the others continue.
 *
 * thread   one at a time per object */
#include "trainer/servers/server_connections.h"
#include "trainer/strategy/strategy.h"

typedef struct mr__servers {
    mr__server_connections all; /* parameter servers, then workers */
    size_t n_ps;
    mr__token token;   /* owned */
    char *partitioner; /* owned; NULL: none */
    bool keep;         /* they are not ended with the job */
    bool failed;
} mr__servers;

/* Connects to all parameter servers and at least one worker. Returns owned.
 * errors   MR_INVALID_ARGUMENT: the cluster lacks either; a task that cannot coordinate ·
 *          MR_DEADLINE_EXCEEDED: names the missing server · those of the token's file */
mr_code mr__servers_open(mr__servers **out, const mr_workers_opts *o, mr_status *st) MR_NODISCARD;
/* Ends the processes of a job that succeeded. NULL: nothing. */
void mr__servers_close(mr__servers *s);
/* The job failed, or was stopped: its processes keep running, so it can be restarted. NULL:
 * nothing. */
void mr__servers_failed(mr__servers *s);
#endif
