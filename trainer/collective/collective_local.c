/* SPDX-License-Identifier: Apache-2.0 */
/* The engines for replicas of one process. hierarchical_copy, for devices that can access each
 * other's memory: each rank's stream sums a share of the range over all ranks, in rank order, and
 * writes it to all. reduction_to_one_device: the first rank's stream sums all of it; memory that it
 * cannot access is copied through the host. */
#include <stdio.h>
#include <string.h>
#include "trainer/collective/collective_impl.h"
#include "trainer/device/math.h"

enum { SPLIT_FLOATS = 16384, LINE_FLOATS = 16 }; /* shorter sums are not worth all streams */

bool mr__devices_of_one_kind(mr_device *const *devices, size_t n, char *why, size_t size)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(mr_device_kind(devices[i]), mr_device_kind(devices[0])) != 0) {
            snprintf(why, size, "%s and %s are of different kinds", mr_device_name(devices[0]),
                     mr_device_name(devices[i]));
            return false;
        }
    return true;
}

static bool reach_each_other(mr_device *const *devices, size_t n, char *why, size_t size)
{
    if (!mr__devices_of_one_kind(devices, n, why, size))
        return false;
    for (size_t i = 0; i < n * n; i++)
        if (!mr_device_reaches(devices[i / n], devices[i % n])) {
            snprintf(why, size, "%s cannot reach the memory of %s", mr_device_name(devices[i / n]),
                     mr_device_name(devices[i % n]));
            return false;
        }
    return true;
}

static mr_code open(mr_device *const *devices, size_t n, void **self, mr_status *st)
{
    (void)devices;
    (void)n;
    (void)st;
    *self = NULL;
    return MR_OK;
}

static void close(void *self)
{
    (void)self;
}

static float *at(const mr_collective_call *c, size_t from)
{
    return (float *)c->out + from;
}

/* Sums [from, to) of all ranks on one stream. If there are more ranks than an operation supports,
 * the first accumulates the sum, and all others get it at the end. */
static mr_code sum_share(mr_stream *s, const mr_collective_call *calls, size_t n, size_t from,
                         size_t to, mr_status *st)
{
    const mr_math_table *m = mr_device_math(s->device);
    bool at_once = n <= MR_MATH_REDUCE;
    mr_math_reduce o = {.n = to - from};
    size_t r = 1;
    do {
        o.in[0] = o.out[0] = at(&calls[0], from);
        o.n_in = 1;
        while (r < n && o.n_in < MR_MATH_REDUCE)
            o.in[o.n_in++] = at(&calls[r++], from);
        for (o.n_out = 1; at_once && o.n_out < n; o.n_out++)
            o.out[o.n_out] = at(&calls[o.n_out], from);
        MR_TRY(m->reduce(s, &o, st));
    } while (r < n);
    for (r = 1; !at_once && r < n;) {
        o.in[0] = at(&calls[0], from);
        o.n_in = 1;
        for (o.n_out = 0; r < n && o.n_out < MR_MATH_REDUCE;)
            o.out[o.n_out++] = at(&calls[r++], from);
        MR_TRY(m->reduce(s, &o, st));
    }
    return MR_OK;
}

static mr_code submit(void *self, const mr_collective_call *calls, size_t n, uint64_t rotation,
                      mr_status *st)
{
    (void)self;
    size_t count = calls[0].count;
    if (count < SPLIT_FLOATS)
        return sum_share(calls[rotation % n].stream, calls, n, 0, count, st);
    size_t share = (count / n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    for (size_t r = 0; r < n; r++) {
        size_t from = r * share < count ? r * share : count;
        size_t to = r + 1 == n || from + share > count ? count : from + share;
        if (to > from)
            MR_TRY(sum_share(calls[r].stream, calls, n, from, to, st));
    }
    return MR_OK;
}

static mr_code submit_to_one(void *self, const mr_collective_call *calls, size_t n,
                             uint64_t rotation, mr_status *st)
{
    (void)self;
    (void)rotation;
    return sum_share(calls[0].stream, calls, n, 0, calls[0].count, st);
}

const mr_collective_backend mr__collective_one_device = {
    .abi = MR_COLLECTIVE_ABI,
    .name = "reduction_to_one_device",
    .suits = mr__devices_of_one_kind,
    .open = open,
    .close = close,
    .submit = submit_to_one,
    .split = SIZE_MAX,
    .touches_peers = true,
};

const mr_collective_backend mr__collective_local = {
    .abi = MR_COLLECTIVE_ABI,
    .name = "hierarchical_copy",
    .suits = reach_each_other,
    .open = open,
    .close = close,
    .submit = submit,
    .split = SPLIT_FLOATS,
    .touches_peers = true,
};
