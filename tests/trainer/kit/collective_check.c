/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/collective_check.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16 };

typedef struct check {
    mr_collective_call call;
    size_t first, total; /* this process's first rank; all */
    char *in[MOST], *out[MOST];
    size_t out_bytes;
    atomic_int late;
    int seen[MOST];
} check;

/* Whole numbers, few enough for every dtype to add up without rounding. */
static int number(size_t rank, size_t i)
{
    return (int)((i * 7 + rank * 3) % 11) - 5;
}

static void set(mr_dtype t, void *p, size_t i, double v)
{
    if (t == MR_FLOAT16)
        ((uint16_t *)p)[i] = mr_float_to_half((float)v);
    else if (t == MR_BFLOAT16)
        ((uint16_t *)p)[i] = mr_float_to_bfloat((float)v);
    else if (t == MR_FLOAT32)
        ((float *)p)[i] = (float)v;
    else if (t == MR_FLOAT64)
        ((double *)p)[i] = v;
    else if (t == MR_INT32)
        ((int32_t *)p)[i] = (int32_t)v;
    else
        ((int64_t *)p)[i] = (int64_t)v;
}

static double reduced(const check *x, size_t i)
{
    double sum = 0, max = -100, min = 100;
    for (size_t r = 0; r < x->total; r++) {
        double v = number(r, i);
        sum += v;
        max = v > max ? v : max;
        min = v < min ? v : min;
    }
    switch (x->call.reduction) {
    case MR_REDUCTION_MEAN:
        return x->call.dtype == MR_FLOAT64 ? sum / (double)x->total
                                           : (double)((float)sum / (float)x->total);
    case MR_REDUCTION_MAX:
        return max;
    case MR_REDUCTION_MIN:
        return min;
    default:
        return sum;
    }
}

/* What rank `rank` must have in the end, at `to`; where nothing is given to it, what was there. */
static void expect(const check *x, size_t rank, char *to)
{
    const mr_collective_call *c = &x->call;
    if (c->op == MR_REDUCE && rank != c->root) {
        memset(to, 7, x->out_bytes);
        return;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (c->op == MR_BROADCAST)
            set(c->dtype, to, i, number(c->root, i));
        else if (c->op != MR_ALL_GATHER)
            set(c->dtype, to, i, reduced(x, i));
        for (size_t r = 0; r < x->total && c->op == MR_ALL_GATHER; r++)
            set(c->dtype, to, r * c->count + i, number(r, i));
    }
}

static mr_code run_one(mr_replica *r, void *ctx, mr_status *st)
{
    check *x = ctx;
    size_t id = mr_replica_id(r), bytes = x->call.count * mr_dtype_size(x->call.dtype);
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *s = mr_replica_stream(r);
    mr_collective_call call = x->call;
    void *in, *out;
    uint64_t ticket;
    MR_TRY(mr_replica_scratch(r, bytes, &in, st));
    MR_TRY(mr_replica_scratch(r, x->out_bytes, &out, st));
    MR_TRY(mr_stream_copy(s, in, x->in[id], bytes, st));
    MR_TRY(mr_stream_set(s, out, 7, x->out_bytes, st));
    call.in = in;
    call.out = out;
    MR_TRY(mr_collective_begin(c, id, s, &call, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    return mr_stream_copy(s, x->out[id], out, x->out_bytes, st);
}

static mr_code check_one(mr_strategy *s, check *x, mr_status *st)
{
    static const char *const ops[] = {"all-reduce", "reduce", "broadcast", "all-gather"};
    const mr_collective_call *c = &x->call;
    size_t n = mr_strategy_num_local_replicas(s), size = mr_dtype_size(c->dtype);
    x->out_bytes = c->count * size * (c->op == MR_ALL_GATHER ? x->total : 1);
    char *want = malloc(x->out_bytes + 1);
    for (size_t r = 0; r < n; r++) {
        x->in[r] = malloc(c->count * size + 1);
        x->out[r] = malloc(x->out_bytes + 1);
        for (size_t i = 0; i < c->count; i++)
            set(c->dtype, x->in[r], i, number(x->first + r, i));
    }
    mr_code rc = mr_strategy_run(s, run_one, x, st);
    for (size_t r = 0; r < n; r++) {
        expect(x, x->first + r, want);
        if (rc == MR_OK && memcmp(want, x->out[r], x->out_bytes) != 0)
            rc = mr_fail(st, MR_INTERNAL, "%s %d of %zu values of %s from %zu is wrong on rank %zu",
                         ops[c->op], (int)c->reduction, c->count, mr_dtype_name(c->dtype), c->root,
                         x->first + r);
        free(x->in[r]);
        free(x->out[r]);
    }
    free(want);
    return rc;
}

static void come_late(void *ctx)
{
    usleep(20000);
    atomic_store(&((check *)ctx)->late, 1);
}

typedef struct look {
    check *x;
    size_t id;
} look;

static void look_now(void *ctx)
{
    look *l = ctx;
    l->x->seen[l->id] = atomic_load(&l->x->late);
}

static mr_code meet_at_barrier(mr_replica *r, void *ctx, mr_status *st)
{
    static look looks[MOST];
    check *x = ctx;
    size_t id = mr_replica_id(r);
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_stream *s = mr_replica_stream(r);
    const mr_collective_call barrier = {.op = MR_BARRIER};
    uint64_t ticket;
    looks[id] = (look){x, id};
    if (id == 0)
        MR_TRY(mr_stream_host_call(s, come_late, x, st));
    MR_TRY(mr_collective_begin(c, id, s, &barrier, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    return mr_stream_host_call(s, look_now, &looks[id], st);
}

mr_code test_collective(mr_strategy *s, mr_status *st)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16,
                                     MR_FLOAT64, MR_INT32,   MR_INT64};
    static const size_t counts[] = {1, 0, 37, 20000};
    check x = {.first = mr_strategy_first_replica_id(s),
               .total = mr_strategy_num_replicas_in_sync(s)};
    size_t done = 0;
    for (size_t t = 0; t < 6; t++)
        for (int op = MR_ALL_REDUCE; op < MR_BARRIER; op++)
            for (int k = 0; k < (op == MR_ALL_REDUCE || op == MR_REDUCE ? 4 : 1); k++) {
                x.call = (mr_collective_call){.op = (mr_collective_op)op,
                                              .reduction = (mr_reduction)k,
                                              .dtype = types[t],
                                              .count = counts[done % 4],
                                              .root = done % x.total};
                if (k != MR_REDUCTION_MEAN || t < 4)
                    MR_TRY(check_one(s, &x, st));
                done++;
            }
    x.call = (mr_collective_call){.op = MR_BARRIER};
    MR_TRY(mr_strategy_run(s, meet_at_barrier, &x, st));
    for (size_t r = 0; r < mr_strategy_num_local_replicas(s); r++)
        if (!x.seen[r])
            return mr_fail(st, MR_INTERNAL, "replica %zu passed the barrier too early", r);
    return MR_OK;
}
