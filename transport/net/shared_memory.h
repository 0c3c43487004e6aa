/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_SHARED_MEMORY_H
#define MR_TRANSPORT_NET_SHARED_MEMORY_H
/* Memory that two processes of one host share: a memfd that can neither shrink nor grow, sent as a
 * descriptor over a unix socket. It has no name: the kernel frees it with the last of the two,
 * however they end.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include "pipeline/status.h"

typedef enum mr__shared_rights {
    MR__SHARED_BOTH_WRITE,
    MR__SHARED_OWNER_WRITES /* the peer can map it for reading only, where the kernel knows that */
} mr__shared_rights;

/* *map = `bytes` zero bytes, to be unmapped by mr__shared_memory_free; *fd is the caller's, to be
 * sent and closed.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__shared_memory_new(size_t bytes, mr__shared_rights rights, void **map, int *fd,
                              mr_status *st) MR_NODISCARD;
/* Maps what a peer sent; fd stays the caller's. OWNER_WRITES: for reading.
 * errors   MR_DATA_LOSS: of another size, or one that could still shrink */
mr_code mr__shared_memory_map(int fd, size_t bytes, mr__shared_rights rights, void **map,
                              mr_status *st) MR_NODISCARD;
void mr__shared_memory_free(void *map, size_t bytes); /* NULL: nothing */
/* The peer, given this descriptor, can map it for reading only. */
bool mr__shared_memory_is_read_only(int fd);

/* ---- one descriptor beside the bytes of a unix socket ---- */

typedef union mr__passing {
    size_t align; /* as struct cmsghdr */
    unsigned char bytes[CMSG_SPACE(sizeof(int))];
} mr__passing;

/* m, to be sent, carries fd; room lives until it is sent. */
void mr__pass_descriptor(struct msghdr *m, mr__passing *room, int fd);
/* m, to be received into, has room for one descriptor, and for no more. */
void mr__expect_descriptor(struct msghdr *m, mr__passing *room);
/* The descriptor that came with m, which is the caller's; -1: none. */
int mr__passed_descriptor(const struct msghdr *m);
#endif
