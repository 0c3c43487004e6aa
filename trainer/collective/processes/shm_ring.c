/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/processes/shm_ring.h"

#include "transport/net/shared_memory.h"

mr_code mr__region_new(mr__region **out, int *fd, mr_status *st)
{
    void *p;
    MR_TRY(mr__shared_memory_new(sizeof **out, MR__SHARED_BOTH_WRITE, &p, fd, st));
    *out = p;
    return MR_OK;
}

mr_code mr__region_map(mr__region **out, int fd, mr_status *st)
{
    void *p;
    MR_TRY(mr__shared_memory_map(fd, sizeof **out, MR__SHARED_BOTH_WRITE, &p, st));
    *out = p;
    return MR_OK;
}

void mr__region_free(mr__region *r)
{
    mr__shared_memory_free(r, sizeof *r);
}
