/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/device_doubles.h"
#include <stdatomic.h>
#include <string.h>
#include "tests/harness.h"
#include "trainer/device/cpu/device_cpu.h"
#include "trainer/device/math.h"

static mr_status st;

/* ---- counting */

static atomic_uint host_waits, allocations, blocks;

static mr_code counted_stream_synchronize(void *stream, mr_status *status)
{
    atomic_fetch_add(&host_waits, 1);
    return mr__device_cpu.stream_synchronize(stream, status);
}

static mr_code counted_event_synchronize(void *event, mr_status *status)
{
    atomic_fetch_add(&host_waits, 1);
    return mr__device_cpu.event_synchronize(event, status);
}

static mr_code counted_alloc(void *self, mr_memory kind, size_t bytes, void *stream, void **out,
                             mr_status *status)
{
    if (!stream)
        atomic_fetch_add(&allocations, 1);
    MR_TRY(mr__device_cpu.memory_alloc(self, kind, bytes, stream, out, status));
    atomic_fetch_add(&blocks, 1);
    return MR_OK;
}

static void counted_free(void *self, mr_memory kind, void *p, void *stream)
{
    atomic_fetch_sub(&blocks, 1);
    mr__device_cpu.memory_free(self, kind, p, stream);
}

unsigned test_host_waits(void)
{
    return atomic_load(&host_waits);
}

unsigned test_allocations(void)
{
    return atomic_load(&allocations);
}

unsigned test_blocks(void)
{
    return atomic_load(&blocks);
}

/* ---- strict: a bit that no address of a process has marks those of device memory */

static const uintptr_t MARK = (uintptr_t)1 << 60;

static void *unmark(const void *p)
{
    return (void *)((uintptr_t)p & ~MARK);
}

static mr_code strict_alloc(void *self, mr_memory kind, size_t bytes, void *stream, void **out,
                            mr_status *status)
{
    MR_TRY(mr__device_cpu.memory_alloc(self, kind, bytes, stream, out, status));
    if (kind == MR_MEMORY_DEVICE)
        *out = (void *)((uintptr_t)*out | MARK);
    return MR_OK;
}

/* As those of an accelerator. */
static void strict_properties(void *self, mr_device_properties *out)
{
    mr__device_cpu.properties(self, out);
    out->unified = out->host_kernels = false;
}

static void strict_free(void *self, mr_memory kind, void *p, void *stream)
{
    mr__device_cpu.memory_free(self, kind, unmark(p), stream);
}

static mr_code strict_copy(void *stream, void *dst, const void *src, size_t bytes,
                           mr_status *status)
{
    return mr__device_cpu.copy(stream, unmark(dst), unmark(src), bytes, status);
}

static mr_code strict_set(void *stream, void *dst, int byte, size_t bytes, mr_status *status)
{
    return mr__device_cpu.set(stream, unmark(dst), byte, bytes, status);
}

/* A pointer field of an operation: marked (or NULL) in, an address out. */
static void translate(const char *op, const char *field, void *place)
{
    uintptr_t p;
    memcpy(&p, place, sizeof p);
    if (p && !(p & MARK))
        mr_fail_test("%s of %s is not device memory", field, op);
    p &= ~MARK;
    memcpy(place, &p, sizeof p);
}

#define FIELD(f) translate(name, #f, &q.f);
#define STRICT(op, fields)                                                                         \
    static mr_code strict_##op(mr_stream *s, const mr_math_##op *p, mr_status *status)             \
    {                                                                                              \
        static const char name[] = #op;                                                            \
        mr_math_##op q = *p;                                                                       \
        fields return mr_device_math(cpu)->op(s, &q, status);                                      \
    }

static mr_device *cpu;

STRICT(fill, FIELD(dst))
STRICT(combine, FIELD(x) FIELD(y))
STRICT(product, FIELD(x) FIELD(z) FIELD(y))
STRICT(place, FIELD(x) FIELD(y))
STRICT(round_bfloat, FIELD(x) FIELD(y))
STRICT(cast, FIELD(src) FIELD(dst))
STRICT(sum, FIELD(x) FIELD(out))
STRICT(activate, FIELD(x) FIELD(y))
STRICT(activate_backward, FIELD(y) FIELD(dy) FIELD(dx))
STRICT(dropout, FIELD(x) FIELD(y))
STRICT(dense, FIELD(x) FIELD(w) FIELD(bias) FIELD(y))
STRICT(dense_backward_data, FIELD(dy) FIELD(w) FIELD(dx))
STRICT(dense_backward_weights, FIELD(x) FIELD(dy) FIELD(dw) FIELD(dbias))
STRICT(conv2d, FIELD(x) FIELD(kernel) FIELD(bias) FIELD(y))
STRICT(conv2d_backward_data, FIELD(dy) FIELD(kernel) FIELD(dx))
STRICT(conv2d_backward_weights, FIELD(x) FIELD(dy) FIELD(dkernel) FIELD(dbias))
STRICT(pool2d, FIELD(x) FIELD(y))
STRICT(pool2d_backward, FIELD(x) FIELD(y) FIELD(dy) FIELD(dx))
STRICT(moments, FIELD(x) FIELD(mean) FIELD(variance))
STRICT(normalize, FIELD(x) FIELD(mean) FIELD(variance) FIELD(gamma) FIELD(beta) FIELD(y))
STRICT(normalize_backward, FIELD(x) FIELD(mean) FIELD(variance) FIELD(gamma) FIELD(dy) FIELD(dx)
                               FIELD(dgamma) FIELD(dbeta))
STRICT(share_moments, FIELD(mean) FIELD(variance) FIELD(shift) FIELD(sums))
STRICT(joint_moments, FIELD(sums) FIELD(shift) FIELD(mean) FIELD(variance))
STRICT(joint_backward, FIELD(x) FIELD(mean) FIELD(variance) FIELD(gamma) FIELD(dy) FIELD(dgamma)
                           FIELD(dbeta) FIELD(n) FIELD(dx))
STRICT(gather, FIELD(ids) FIELD(table) FIELD(y) FIELD(fault))
STRICT(gather_backward, FIELD(ids) FIELD(dy) FIELD(dtable))
STRICT(encode, FIELD(ids) FIELD(y) FIELD(fault))
STRICT(loss, FIELD(x) FIELD(labels) FIELD(weights) FIELD(per_example) FIELD(gradient) FIELD(sum)
                 FIELD(fault))
STRICT(flag, FIELD(fault) FIELD(flag))
STRICT(penalty, FIELD(w) FIELD(out))
STRICT(penalty_backward, FIELD(w) FIELD(g))
STRICT(metric, FIELD(x) FIELD(labels) FIELD(total))
STRICT(curve, FIELD(x) FIELD(labels) FIELD(counts))
STRICT(sgd, FIELD(g) FIELD(w) FIELD(m) FIELD(skip))
STRICT(adam, FIELD(g) FIELD(w) FIELD(m) FIELD(v) FIELD(skip))
STRICT(rmsprop, FIELD(g) FIELD(w) FIELD(v) FIELD(a) FIELD(m) FIELD(skip))
STRICT(adagrad, FIELD(g) FIELD(w) FIELD(v) FIELD(skip))
STRICT(decay, FIELD(w) FIELD(skip))
STRICT(clip, FIELD(squares) FIELD(g))
STRICT(average, FIELD(sum) FIELD(count) FIELD(w) FIELD(skip))

static mr_code strict_reduce(mr_stream *s, const mr_math_reduce *p, mr_status *status)
{
    mr_math_reduce q = *p;
    for (size_t i = 0; i < q.n_in; i++)
        translate("reduce", "in", &q.in[i]);
    for (size_t i = 0; i < q.n_out; i++)
        translate("reduce", "out", &q.out[i]);
    return mr_device_math(cpu)->reduce(s, &q, status);
}

static const mr_math_table strict_math = {
    .size = sizeof(mr_math_table),
    .fill = strict_fill,
    .combine = strict_combine,
    .cast = strict_cast,
    .sum = strict_sum,
    .reduce = strict_reduce,
    .activate = strict_activate,
    .activate_backward = strict_activate_backward,
    .dropout = strict_dropout,
    .dense = strict_dense,
    .dense_backward_data = strict_dense_backward_data,
    .dense_backward_weights = strict_dense_backward_weights,
    .conv2d = strict_conv2d,
    .conv2d_backward_data = strict_conv2d_backward_data,
    .conv2d_backward_weights = strict_conv2d_backward_weights,
    .pool2d = strict_pool2d,
    .pool2d_backward = strict_pool2d_backward,
    .moments = strict_moments,
    .normalize = strict_normalize,
    .normalize_backward = strict_normalize_backward,
    .share_moments = strict_share_moments,
    .joint_moments = strict_joint_moments,
    .joint_backward = strict_joint_backward,
    .gather = strict_gather,
    .gather_backward = strict_gather_backward,
    .encode = strict_encode,
    .loss = strict_loss,
    .flag = strict_flag,
    .penalty = strict_penalty,
    .penalty_backward = strict_penalty_backward,
    .metric = strict_metric,
    .curve = strict_curve,
    .sgd = strict_sgd,
    .adam = strict_adam,
    .rmsprop = strict_rmsprop,
    .adagrad = strict_adagrad,
    .decay = strict_decay,
    .clip = strict_clip,
    .average = strict_average,
    .product = strict_product,
    .place = strict_place,
    .round_bfloat = strict_round_bfloat,
};

/* ---- apart */

static mr_code open_numbered(size_t index, void **self, mr_status *status)
{
    MR_TRY(mr__device_cpu.open(index, self, status));
    *self = (void *)(index + 1);
    return MR_OK;
}

static bool only_itself(void *self, void *other)
{
    return self == other;
}

void test_register_doubles(void)
{
    static mr_device_backend counting, strict, apart;
    counting = strict = apart = mr__device_cpu;
    apart.kind = "apart";
    apart.open = open_numbered;
    apart.reaches = only_itself;
    counting.kind = "counting";
    counting.stream_synchronize = counted_stream_synchronize;
    counting.event_synchronize = counted_event_synchronize;
    counting.memory_alloc = counted_alloc;
    counting.memory_free = counted_free;
    strict.kind = "strict";
    strict.properties = strict_properties;
    strict.memory_alloc = strict_alloc;
    strict.memory_free = strict_free;
    strict.copy = strict_copy;
    strict.set = strict_set;
    strict.launch = NULL; /* as on an accelerator */
    strict.math = &strict_math;
    mr_ok(mr_device_open(&cpu, "cpu:0", &st), &st);
    mr_ok(mr_device_backend_register(&counting, &st), &st);
    mr_ok(mr_device_backend_register(&strict, &st), &st);
    mr_ok(mr_device_backend_register(&apart, &st), &st);
}
