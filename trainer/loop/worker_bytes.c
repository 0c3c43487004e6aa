/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/worker_bytes.h"
#include <string.h>
#include "pipeline/memory/alloc.h"

enum { FAILED = -1, ABSENT, FOUND };

mr_code mr__workers_agree(mr_strategy *s, const char *what, mr_code rc, bool found,
                          uint32_t version, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(s), own = mr_strategy_worker(s);
    const double mine[] = {rc != MR_OK ? FAILED : found ? FOUND : ABSENT, (double)version};
    double all[2 * MR_MAX_REPLICAS];
    mr_status why;
    if (workers == 1)
        return rc;
    if (workers > MR_MAX_REPLICAS)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "too many workers for a saved state");
    mr_code agreed =
        mr__world_exchange(mr__strategy_world(s), MR__CHANNEL_RESULTS, mine, 2, all, &why);
    if (rc != MR_OK) /* the others cannot know it better */
        return rc;
    for (size_t i = 0; i < workers && agreed == MR_OK; i++) {
        double theirs = all[2 * i];
        if (theirs == FAILED)
            agreed = mr_fail(&why, MR_FAILED_PRECONDITION,
                             "worker %zu could not read its %s; its own error says why", i, what);
        else if (theirs != mine[0])
            agreed = mr_fail(&why, MR_FAILED_PRECONDITION,
                             "worker %zu finds a %s, but worker %zu does not; use a directory that "
                             "all workers can read",
                             found ? own : i, what, found ? i : own);
        else if (all[2 * i + 1] != mine[1])
            agreed =
                mr_fail(&why, MR_FAILED_PRECONDITION,
                        "worker %zu finds another %s than worker %zu; use a directory that all "
                        "workers can read",
                        i, what, own);
    }
    if (agreed != MR_OK && st)
        *st = why;
    return agreed;
}

enum { BYTES_A_NUMBER = 4 };

/* Each number sent holds four bytes. */
mr_code mr__worker_bytes_exchange(mr__world *w, uint32_t channel, size_t workers,
                                  const mr__worker_bytes *own, mr__worker_bytes *all, mr_status *st)
{
    double sizes[MR_MAX_REPLICAS], mine = (double)own->size;
    size_t most = 0;
    if (workers > MR_MAX_REPLICAS)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "too many workers for a checkpoint");
    MR_TRY(mr__world_exchange(w, channel, &mine, 1, sizes, st));
    for (size_t i = 0; i < workers; i++) {
        all[i].size = (size_t)sizes[i];
        most = all[i].size > most ? all[i].size : most;
        if (!(all[i].bytes = mr_calloc(all[i].size + BYTES_A_NUMBER, 1)))
            return mr_fail_memory(st, all[i].size, "a position");
    }
    double *numbers = mr_calloc((workers + 1) * MR__MAX_VALUES, sizeof *numbers);
    mr_code rc = numbers ? MR_OK : mr_fail_memory(st, MR__MAX_VALUES, "positions");
    double *theirs = numbers ? numbers + MR__MAX_VALUES : NULL;
    for (size_t at = 0; at < most && rc == MR_OK; at += MR__MAX_VALUES * BYTES_A_NUMBER) {
        size_t left = (most - at + BYTES_A_NUMBER - 1) / BYTES_A_NUMBER;
        size_t n = left < MR__MAX_VALUES ? left : MR__MAX_VALUES;
        for (size_t i = 0; i < n; i++) {
            uint32_t word = 0;
            size_t from = at + i * BYTES_A_NUMBER;
            if (from < own->size)
                memcpy(&word, own->bytes + from,
                       own->size - from < BYTES_A_NUMBER ? own->size - from : BYTES_A_NUMBER);
            numbers[i] = (double)word;
        }
        rc = mr__world_exchange(w, channel, numbers, (uint32_t)n, theirs, st);
        for (size_t k = 0; k < workers && rc == MR_OK; k++)
            for (size_t i = 0; i < n && at + i * BYTES_A_NUMBER < all[k].size; i++) {
                uint32_t word = (uint32_t)theirs[k * n + i];
                memcpy(all[k].bytes + at + i * BYTES_A_NUMBER, &word, BYTES_A_NUMBER);
            }
    }
    mr_free(numbers);
    return rc;
}
