/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_ALARM_H
#define MR_TRANSPORT_NET_ALARM_H
/* Wakes a loop when a cancel object is triggered, also by a signal handler. It is a pair of
 * sockets; triggering shuts one of them down.
 *
 * thread   the loop's */
#include "pipeline/wait/cancel.h"
#include "transport/net/loop.h"

typedef struct mr__alarm mr__alarm;
struct mr__alarm {
    mr__socket socket; /* first */
    void (*rings)(mr__alarm *a);
    mr_cancel *cancel;
    mr_cancel_waiter waiter;
    int fd; /* the end that is shut down; -1: none */
    bool is_set, is_cleared;
    char room[8];
};

/* Calls a->rings (set by the owner) once cancel is triggered; cancel NULL: never.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__alarm_set(mr__alarm *a, mr__loop *l, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* Stops the alarm. The loop must turn until a->is_set is false. */
void mr__alarm_clear(mr__alarm *a);
#endif
