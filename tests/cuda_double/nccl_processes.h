/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_CUDA_DOUBLE_NCCL_PROCESSES_H
#define MR_TESTS_CUDA_DOUBLE_NCCL_PROCESSES_H
/* Ranks of several processes of one machine. The process that made the id listens on a socket of no
 * file, by a name that the id says; the others send it their values, and it sends back the result.
 *
 * As with NCCL, what waits for a lost process waits until it is aborted, and another call may say
 * earlier that something is wrong. */
#include <nccl.h>
#include "tests/cuda_double/double.h"

enum { CD_RANKS = 16 };

typedef struct cd_peers cd_peers;
typedef struct cd_peers_sum {
    uint64_t number, n;
    uint32_t type, op;
    uint64_t bytes;
} cd_peers_sum;

void cd_peers_make_id(ncclUniqueId *id);
cd_peers *cd_peers_new(const ncclUniqueId *id, int n);
/* Starts to look for the others; `local` has a bit for each rank of this process. */
void cd_peers_meet(cd_peers *p, uint32_t local);
/* ncclInProgress: not all are there; ncclRemoteError: one is gone. Does not wait. */
ncclResult_t cd_peers_state(cd_peers *p);
/* in[0..n) of all ranks, those of this process given; false: aborted, there is no result. */
bool cd_peers_reduce(cd_peers *p, const cd_peers_sum *s, const void **in,
                     void (*reduce)(const void *arg, const void *const *in, int n, void *out),
                     const void *arg, void *result);
/* Ends all waits for another process. */
void cd_peers_abort(cd_peers *p);
/* No sums are left but those that were aborted. */
void cd_peers_close(cd_peers *p);
#endif
