/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_SHARED_MEMORY_H
#define MR_TRANSPORT_NET_SHARED_MEMORY_H
/* Memory shared by two processes on one host: a memfd that can neither shrink nor grow, sent as a
 * descriptor over a unix socket. It has no name: the kernel frees it when both processes have
 * ended, however they end.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include "pipeline/status.h"

typedef enum mr__shared_rights {
    MR__SHARED_BOTH_WRITE,
    MR__SHARED_OWNER_WRITES /* the peer can only map it read-only, if the kernel supports that */
} mr__shared_rights;

/* *map = `bytes` zero bytes; unmap with mr__shared_memory_free. *fd belongs to the caller, who
 * sends it and closes it.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__shared_memory_new(size_t bytes, mr__shared_rights rights, void **map, int *fd,
                              mr_status *st) MR_NODISCARD;
/* Maps the memory that a peer sent; fd still belongs to the caller. OWNER_WRITES: read-only.
 * errors   MR_DATA_LOSS: it has another size, or could still shrink */
mr_code mr__shared_memory_map(int fd, size_t bytes, mr__shared_rights rights, void **map,
                              mr_status *st) MR_NODISCARD;
void mr__shared_memory_free(void *map, size_t bytes); /* NULL: nothing */
/* True if a peer that receives this descriptor can only map it read-only. */
bool mr__shared_memory_is_read_only(int fd);

/* ---- one descriptor together with the bytes of a unix socket ---- */

typedef union mr__passing {
    size_t align; /* as struct cmsghdr */
    unsigned char bytes[CMSG_SPACE(sizeof(int))];
} mr__passing;

/* Attaches fd to m, which is to be sent; room must live until then. */
void mr__pass_descriptor(struct msghdr *m, mr__passing *room, int fd);
/* Prepares m for receiving exactly one descriptor. */
void mr__expect_descriptor(struct msghdr *m, mr__passing *room);
/* The descriptor received with m; it belongs to the caller. -1: none. */
int mr__passed_descriptor(const struct msghdr *m);
#endif
