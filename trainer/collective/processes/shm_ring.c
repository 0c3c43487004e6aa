/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/processes/shm_ring.h"

#include "transport/net/shared_memory.h"

mr_code mr__shm_ring_new(mr__shm_ring **out, int *fd, mr_status *st)
{
    void *p;
    MR_TRY(mr__shared_memory_new(sizeof **out, MR__SHARED_BOTH_WRITE, &p, fd, st));
    *out = p;
    return MR_OK;
}

mr_code mr__shm_ring_map(mr__shm_ring **out, int fd, mr_status *st)
{
    void *p;
    MR_TRY(mr__shared_memory_map(fd, sizeof **out, MR__SHARED_BOTH_WRITE, &p, st));
    *out = p;
    return MR_OK;
}

void mr__shm_ring_free(mr__shm_ring *r)
{
    mr__shared_memory_free(r, sizeof *r);
}
