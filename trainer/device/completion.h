/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_COMPLETION_H
#define MR_TRAINER_DEVICE_COMPLETION_H
/* Completion of work submitted to several streams, without a call that synchronises with a device:
 * each stream calls back when it gets there.
 *
 * thread   expect: any; await: one at a time */
#include <pthread.h>
#include "trainer/device/device.h"

typedef struct mr__completion {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t under_way;
    double done_at; /* mr_iter_now, when the last of it completed */
} mr__completion;

void mr__completion_init(mr__completion *c);
void mr__completion_destroy(mr__completion *c); /* no work may be in flight */
/* Expects the completion of all work submitted to s so far; the stream must be flushed. */
mr_code mr__completion_expect(mr__completion *c, mr_stream *s, mr_status *st) MR_NODISCARD;
bool mr__completion_is_done(mr__completion *c);
/* When the last of it completed, in mr_iter_now's seconds; infinity while work is in flight. */
double mr__completion_time(mr__completion *c);
/* Waits until all expected work has completed. errors: that of one of the streams, whose work may
 * then never complete */
mr_code mr__completion_await(mr__completion *c, mr_stream *const *streams, size_t n,
                             mr_status *st) MR_NODISCARD;
#endif
