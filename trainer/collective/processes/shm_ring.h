/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_SHM_RING_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_SHM_RING_H
/* Shared memory of two processes on one machine: a ring of bytes from a writer to a reader, in a
 * sealed memfd. The writer creates it and sends the descriptor to the reader over a unix socket.
 *
 *     | written | read | asleep |      ring of MR__SHM_RING_BYTES bytes      |
 *
 * thread   one writer, one reader */
#include <stdatomic.h>
#include <stdint.h>
#include "pipeline/status.h"

enum { MR__SHM_RING_BYTES = 1 << 20 };

typedef struct mr__shm_ring {
    _Alignas(128) _Atomic uint64_t written; /* bytes since the beginning */
    _Alignas(128) _Atomic uint64_t read;
    /* Set by a side that waits for a wake-up byte on the socket. */
    _Alignas(128) _Atomic uint32_t reader_sleeps;
    _Alignas(128) _Atomic uint32_t writer_sleeps;
    _Alignas(4096) unsigned char ring[MR__SHM_RING_BYTES];
} mr__shm_ring;

/* The caller owns *fd, sends and closes it; *out is unmapped by mr__shm_ring_free.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__shm_ring_new(mr__shm_ring **out, int *fd, mr_status *st) MR_NODISCARD;
/* Maps the descriptor that a peer sent; the caller keeps fd.
 * errors   MR_DATA_LOSS: another size, or the file could still shrink */
mr_code mr__shm_ring_map(mr__shm_ring **out, int fd, mr_status *st) MR_NODISCARD;
void mr__shm_ring_free(mr__shm_ring *r); /* NULL: nothing */
#endif
