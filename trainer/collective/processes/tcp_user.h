/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_TCP_USER_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_TCP_USER_H
/* The user at the other end of a TCP connection from this host, by the kernel's table of sockets
 * (/proc/net/tcp).
 *
 * thread   any */
#include <stdbool.h>
#include <stdint.h>

/* True if the accepted connection fd comes from another host, or from a process on this host that
 * belongs to this process's user or to root. *user = the user of a process on this host, -1:
 * unknown. */
bool mr__tcp_peer_is_admitted(int fd, int64_t *user);
#endif
