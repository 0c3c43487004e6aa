/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "pipeline/system/system.h"

/* If the file could shrink, it would crash the process that reads the memory. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static mr_code map_it(int fd, size_t bytes, int protection, void **map, mr_status *st)
{
    void *p = mr__sys->mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return mr_fail_errno(st, errno, "cannot map memory that is shared with a peer");
    *map = p;
    return MR_OK;
}

mr_code mr__shared_memory_new(size_t bytes, mr__shared_rights rights, void **map, int *fd,
                              mr_status *st)
{
    int made = mr__sys->memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return mr_fail_errno(st, errno, "cannot allocate memory to share with a peer");
    void *p = NULL;
    mr_code rc = MR_OK;
    if (mr__sys->ftruncate(made, (off_t)bytes) != 0)
        rc = mr_fail_errno(st, errno, "cannot allocate memory to share with a peer");
    if (rc == MR_OK)
        rc = map_it(made, bytes, PROT_READ | PROT_WRITE, &p, st);
    /* Kernels before 5.1 do not support this seal: the peer still maps it read-only. */
    if (rc == MR_OK && rights == MR__SHARED_OWNER_WRITES)
        (void)mr__sys->fcntl(made, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    if (rc == MR_OK && mr__sys->fcntl(made, F_ADD_SEALS, SEALS) != 0)
        rc = mr_fail_errno(st, errno, "cannot allocate memory to share with a peer");
    if (rc != MR_OK) {
        mr__shared_memory_free(p, bytes);
        mr__sys->close(made);
        return rc;
    }
    *map = p;
    *fd = made;
    return MR_OK;
}

mr_code mr__shared_memory_map(int fd, size_t bytes, mr__shared_rights rights, void **map,
                              mr_status *st)
{
    struct stat s;
    int seals = mr__sys->fcntl(fd, F_GET_SEALS, 0);
    bool fits = seals >= 0 && (seals & F_SEAL_SHRINK) && mr__sys->fstat(fd, &s) == 0 &&
                s.st_size == (off_t)bytes;
    if (!fits)
        return mr_fail(st, MR_DATA_LOSS,
                       "the memory that a peer shares has the wrong size or seals");
    return map_it(fd, bytes, rights == MR__SHARED_BOTH_WRITE ? PROT_READ | PROT_WRITE : PROT_READ,
                  map, st);
}

bool mr__shared_memory_is_read_only(int fd)
{
    int seals = mr__sys->fcntl(fd, F_GET_SEALS, 0);
    return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE);
}

void mr__shared_memory_free(void *map, size_t bytes)
{
    if (map)
        mr__sys->munmap(map, bytes);
}

void mr__pass_descriptor(struct msghdr *m, mr__passing *room, int fd)
{
    memset(room, 0, sizeof *room);
    m->msg_control = room;
    m->msg_controllen = sizeof *room;
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
}

void mr__expect_descriptor(struct msghdr *m, mr__passing *room)
{
    m->msg_control = room;
    /* Not CMSG_SPACE: its padding would admit a second descriptor, which would never be closed. */
    m->msg_controllen = CMSG_LEN(sizeof(int));
}

int mr__passed_descriptor(const struct msghdr *m)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(c), sizeof(int));
    return fd;
}
