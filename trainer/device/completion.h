/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LANDING_H
#define MR_TRAINER_LANDING_H
/* How the host learns that what it submitted to several streams has come to its end, without a call
 * that synchronises with a device: each stream calls back at that place.
 *
 * thread   expect: any; await: one at a time */
#include <pthread.h>
#include "trainer/device/device.h"

typedef struct mr__landing {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t under_way;
    double landed_at; /* mr_iter_now, when the last of it landed */
} mr__landing;

void mr__landing_init(mr__landing *l);
void mr__landing_destroy(mr__landing *l); /* nothing may be under way */
/* What is in the stream now is expected to land, when somebody has flushed the stream. */
mr_code mr__landing_expect(mr__landing *l, mr_stream *s, mr_status *st) MR_NODISCARD;
bool mr__landing_is_clear(mr__landing *l);
/* When the last of it landed, in mr_iter_now's seconds; of one that is not clear: infinity. */
double mr__landing_time(mr__landing *l);
/* Waits until all that was expected has landed. errors: that of one of the streams, after which it
 * never may */
mr_code mr__landing_await(mr__landing *l, mr_stream *const *streams, size_t n,
                          mr_status *st) MR_NODISCARD;
#endif
