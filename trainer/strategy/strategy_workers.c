/* SPDX-License-Identifier: Apache-2.0 */
/* How the processes of a multi_worker_mirrored strategy connect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/log.h"
#include "trainer/collective/ring/ring_mpi.h"
#include "trainer/strategy/strategy_impl.h"
#include "transport/wire/token_file.h"

enum { OWN_FACTS = 2 };

/* Environment variables define a process's task; one more, the address of mpirun's server, shows
 * that mpirun set them. */
static bool started_by_mpirun(const mr_cluster *c)
{
    return c->source == MR_CLUSTER_MPI && getenv("PMIX_RANK");
}

static mr_code choose(const mr_workers_opts *o, bool *mpi, mr_status *st)
{
    const char *name = o->communication ? o->communication : "auto";
    char why[256] = "the processes were not started by mpirun";
    bool suits = started_by_mpirun(o->cluster) && mr__mpi_is_there(why, sizeof why);
    *mpi = suits && strcmp(name, "ring") != 0 && strcmp(name, "nccl") != 0;
    if (strcmp(name, "auto") == 0 && o->cluster->source == MR_CLUSTER_MPI && !suits &&
        mr_cluster_is_chief(o->cluster))
        mr_log(MR_LOG_INFO, "processes sum without MPI: %s", why);
    if (strcmp(name, "auto") == 0 || strcmp(name, "ring") == 0 || strcmp(name, "nccl") == 0)
        return MR_OK; /* all processes decide on nccl once they are connected */
    if (strcmp(name, "mpi") != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "communication '%s' is not one of auto, ring, nccl and mpi", name);
    return suits ? MR_OK : mr_fail(st, MR_NOT_FOUND, "mpi: %s", why);
}

mr_code mr__workers_open(mr__ring **ring, mr__world **world, const mr_workers_opts *o,
                         size_t replicas, mr_status *st)
{
    mr__fact facts[MR__MAX_FACTS];
    char count[24], communication[32];
    bool mpi;
    mr__token token;
    MR_TRY(choose(o, &mpi, st));
    if (o->n_facts > MR__MAX_FACTS - OWN_FACTS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d facts to compare, found %zu",
                       MR__MAX_FACTS - OWN_FACTS, o->n_facts);
    snprintf(count, sizeof count, "%zu", replicas);
    facts[0] = (mr__fact){"number of replicas of a process", count};
    snprintf(communication, sizeof communication, "%s%s",
             o->communication ? o->communication : "auto", mpi ? " (by mpirun)" : "");
    facts[1] = (mr__fact){"communication", communication};
    for (size_t i = 0; i < o->n_facts; i++)
        facts[OWN_FACTS + i] = (mr__fact){o->facts[i].name, o->facts[i].value};
    const mr__world_opts opts = {
        .rendezvous = {.cluster = o->cluster,
                       .facts = facts,
                       .n_facts = (uint32_t)o->n_facts + OWN_FACTS,
                       .connect_timeout_s = o->connect_timeout_s > 0 ? o->connect_timeout_s : 60,
                       .cancel = o->cancel,
                       .token = &token,
                       .any_user = o->any_user},
        .peer_timeout_s = o->peer_timeout_s > 0 ? o->peer_timeout_s : 20};
    MR_TRY(mr__cluster_token_open(o->cluster_token_file, o->tls, &token, st));
    mr_code rc = mr__world_open(world, &opts, st);
    if (rc == MR_OK && mpi && token.tls && mr_cluster_is_chief(o->cluster))
        mr_log(MR_LOG_WARNING,
               "MPI sums values without TLS; --communication ring encrypts what it sends");
    mr__token_free(&token);
    MR_TRY(rc);
    return mpi ? mr__ring_open_mpi(ring, *world, st) : mr__ring_open(ring, *world, st);
}
