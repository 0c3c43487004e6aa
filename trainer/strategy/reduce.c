/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed values between steps: creation and reduction (gather_values.c gathers them). None of
 * this is on a hot path, so values are read singly, through a switch over the dtype. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/tensor.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/strategy_impl.h"

mr_code mr_tensor_alloc(mr_array *t, mr_dtype dtype, int rank, const int64_t *shape, mr_status *st)
{
    return mr_array_alloc(t, dtype, rank, shape, 1, st);
}

mr_code mr_distributed_init(mr_distributed *d, const mr_strategy *s, mr_status *st)
{
    size_t n = mr_strategy_num_local_replicas(s);
    mr_array *values = mr_calloc(n, sizeof *values);
    if (!values)
        return mr_fail_memory(st, n * sizeof *values, "a distributed value");
    *d = (mr_distributed){.n = n, .values = values};
    return MR_OK;
}

mr_code mr_distributed_init_plain(mr_distributed *d, mr_array *t, mr_status *st)
{
    mr_array *values = mr_calloc(1, sizeof *values);
    if (!values) {
        mr_array_reset(t);
        return mr_fail_memory(st, sizeof *values, "a plain value");
    }
    mr_array_move(values, t);
    *d = (mr_distributed){.plain = true, .n = 1, .values = values};
    return MR_OK;
}

void mr_distributed_reset(mr_distributed *d)
{
    for (size_t i = 0; i < d->n; i++)
        mr_array_reset(&d->values[i]);
    mr_free(d->values);
    *d = (mr_distributed){0};
}

mr_code mr_strategy_distribute_values_from_function(
    mr_strategy *s, mr_code (*fn)(const mr_value_context *v, void *ctx, mr_array *out, mr_status *),
    void *ctx, mr_distributed *d, mr_status *st)
{
    *d = (mr_distributed){0};
    mr_distributed made;
    MR_TRY(mr_distributed_init(&made, s, st));
    for (size_t i = 0; i < made.n; i++) {
        mr_value_context v = {mr_strategy_first_replica_id(s) + i,
                              mr_strategy_num_replicas_in_sync(s)};
        mr_code rc = fn(&v, ctx, &made.values[i], st);
        if (rc == MR_OK && made.values[i].rows != 1)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "the function must return one tensor for replica %zu (an array of one "
                         "row), found %zu rows",
                         i, made.values[i].rows);
        if (rc != MR_OK) {
            mr_distributed_reset(&made);
            return rc;
        }
    }
    *d = made;
    return MR_OK;
}

void mr_strategy_local_results(const mr_strategy *s, const mr_distributed *d,
                               const mr_array **values, size_t *n)
{
    (void)s;
    *values = d->values;
    *n = d->n;
}

static bool is_number(mr_dtype t)
{
    return mr_dtype_is_integer(t) || mr_dtype_is_floating(t);
}

mr_code mr__check_values(const mr_strategy *s, const mr_distributed *d, bool any, const char *what,
                         mr_status *st)
{
    if (mr_replica_current())
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s was called inside a step; call it between steps", what);
    size_t n = mr_strategy_num_local_replicas(s);
    if (d->n != (d->plain ? 1 : n))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s needs a value for each of %zu replicas, found %zu", what, n, d->n);
    for (size_t i = 0; i < d->n; i++) {
        const mr_array *a = &d->values[i];
        bool fits = any ? a->dtype != MR_DATASET && a->storage != MR_RAGGED : is_number(a->dtype);
        if (a->rows != 1 || !fits || (a->storage != MR_DENSE && a->dtype != MR_STRING))
            return mr_fail(
                st, MR_INVALID_ARGUMENT,
                "%s needs one dense tensor%s per replica, found %zu of %s on replica %zu", what,
                any ? "" : " of numbers", a->rows, mr_dtype_name(a->dtype), i);
        if (a->dtype != d->values[0].dtype || a->rank != d->values[0].rank)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s needs the same dtype and rank on every replica, found %s of rank %d "
                           "on replica 0 and %s of rank %d on replica %zu",
                           what, mr_dtype_name(d->values[0].dtype), d->values[0].rank,
                           mr_dtype_name(a->dtype), a->rank, i);
    }
    return MR_OK;
}

static int64_t value_as_int(mr_dtype t, const void *data, size_t i)
{
    if (t == MR_INT64)
        return ((const int64_t *)data)[i];
    if (t == MR_UINT64)
        return (int64_t)((const uint64_t *)data)[i];
    return (int64_t)mr__value_as_double(t, data, i);
}

static void store(mr_dtype t, void *data, size_t i, double f, uint64_t u)
{
    switch (t) {
    case MR_INT8:
    case MR_UINT8:
        ((uint8_t *)data)[i] = (uint8_t)u;
        break;
    case MR_INT16:
    case MR_UINT16:
        ((uint16_t *)data)[i] = (uint16_t)u;
        break;
    case MR_INT32:
    case MR_UINT32:
        ((uint32_t *)data)[i] = (uint32_t)u;
        break;
    case MR_INT64:
    case MR_UINT64:
        ((uint64_t *)data)[i] = u;
        break;
    case MR_FLOAT16:
        ((uint16_t *)data)[i] = mr_float_to_half((float)f);
        break;
    case MR_BFLOAT16:
        ((uint16_t *)data)[i] = mr_float_to_bfloat((float)f);
        break;
    case MR_FLOAT32:
        ((float *)data)[i] = (float)f;
        break;
    case MR_FLOAT64:
        ((double *)data)[i] = f;
        break;
    default:
        break;
    }
}

static bool same_shape(const mr_array *a, const mr_array *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* Marks the axes that are summed over; fails on one that is out of range or duplicate. */
static mr_code mark_axes(const mr_axes *axes, int rank, bool *gone, mr_status *st)
{
    memset(gone, 0, MR_MAX_RANK * sizeof *gone);
    if (rank == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a scalar has no axis to reduce over; leave the axis out");
    if (axes->n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the tuple of axes is empty; leave it out to reduce "
                       "elementwise over replicas");
    for (size_t i = 0; i < axes->n; i++) {
        int64_t a = axes->axes[i] < 0 ? axes->axes[i] + rank : axes->axes[i];
        if (a < 0 || a >= rank)
            return mr_fail(st, MR_INVALID_ARGUMENT, "axis %" PRId64 " of a tensor of rank %d",
                           axes->axes[i], rank);
        if (gone[a])
            return mr_fail(st, MR_INVALID_ARGUMENT, "axis %" PRId64 " is given twice",
                           axes->axes[i]);
        gone[a] = true;
    }
    return MR_OK;
}

typedef struct sums {
    double *f;
    uint64_t *u;
    size_t n;
} sums;

/* Adds each value of a, `times` times, to the output at its coordinates along the other axes. */
static void add_values(sums *s, const mr_array *a, const bool *gone, size_t times)
{
    size_t n = mr_array_row_values(a);
    int64_t at[MR_MAX_RANK] = {0};
    bool whole = mr_dtype_is_integer(a->dtype);
    for (size_t i = 0; i < n; i++) {
        size_t place = 0;
        for (int k = 0; k < a->rank; k++)
            if (!gone[k])
                place = place * (size_t)a->shape[k] + (size_t)at[k];
        if (whole)
            s->u[place] += times * (uint64_t)value_as_int(a->dtype, a->data, i);
        s->f[place] += (double)times * mr__value_as_double(a->dtype, a->data, i);
        for (int k = a->rank - 1; k >= 0 && ++at[k] == a->shape[k]; k--)
            at[k] = 0;
    }
}

/* The shape of the result, and the number of values of each tensor that are summed into one of
 * it. */
static int left_shape(const mr_array *a, const bool *gone, int64_t *shape, size_t *summed)
{
    int rank = 0;
    *summed = 1;
    for (int k = 0; k < a->rank; k++) {
        if (gone[k])
            *summed *= (size_t)a->shape[k];
        else
            shape[rank++] = a->shape[k];
    }
    return rank;
}

/* Adds the other workers' sums and counts. */
static mr_code add_workers(mr_strategy *s, sums *x, size_t *total, mr_status *st)
{
    mr__ring *ring = mr__strategy_ring(s);
    double counts[] = {(double)*total};
    if (!ring)
        return MR_OK;
    MR_TRY(mr__ring_all_reduce(ring, MR__RING_SUM, MR_FLOAT64, x->f, x->n, st));
    MR_TRY(mr__ring_all_reduce(ring, MR__RING_SUM, MR_INT64, x->u, x->n, st));
    MR_TRY(mr__ring_all_reduce(ring, MR__RING_SUM, MR_FLOAT64, counts, 1, st));
    *total = (size_t)counts[0];
    return MR_OK;
}

mr_code mr_strategy_reduce(mr_strategy *s, mr_reduce_op op, const mr_distributed *d,
                           const mr_axes *axes, mr_array *out, mr_status *st)
{
    size_t replicas = mr_strategy_num_replicas_in_sync(s);
    bool gone[MR_MAX_RANK] = {0};
    MR_TRY(mr__check_values(s, d, false, "reduce", st));
    const mr_array *first = &d->values[0];
    if (axes)
        MR_TRY(mark_axes(axes, first->rank, gone, st));
    if (d->plain && !axes && op == MR_REDUCE_SUM && replicas > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a plain value cannot be summed over replicas without an axis: it is one "
                       "value, not one per replica");
    if (d->plain && !axes) {
        mr_array_slice(out, first, 0, 1);
        return MR_OK;
    }
    int64_t shape[MR_MAX_RANK];
    size_t summed, total = 0;
    int rank = left_shape(first, gone, shape, &summed);
    for (size_t i = 0; i < d->n; i++) {
        int64_t other[MR_MAX_RANK];
        left_shape(&d->values[i], gone, other, &summed);
        total += axes ? summed : 1;
        if (memcmp(other, shape, (size_t)rank * sizeof *shape) != 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "replica %zu differs in shape from replica 0%s",
                           i,
                           axes ? " outside the reduced axes"
                                : "; pass the axis of the batch to sum over it first");
    }
    if (d->plain)
        total *= replicas;
    bool mean = op == MR_REDUCE_MEAN;
    mr_dtype t = mean && mr_dtype_is_integer(first->dtype) ? MR_FLOAT64 : first->dtype;
    mr_array made;
    MR_TRY(mr_tensor_alloc(&made, t, rank, shape, st));
    sums x = {.n = mr_array_row_values(&made)};
    x.f = mr_calloc(x.n, sizeof *x.f);
    x.u = mr_calloc(x.n, sizeof *x.u);
    if (!x.f || !x.u) {
        mr_free(x.f);
        mr_free(x.u);
        mr_array_reset(&made);
        return mr_fail_memory(st, x.n * sizeof *x.f, "a reduced value");
    }
    for (size_t i = 0; i < d->n; i++)
        add_values(&x, &d->values[i], gone, d->plain ? replicas : 1);
    mr_code rc = d->plain ? MR_OK : add_workers(s, &x, &total, st);
    for (size_t i = 0; i < x.n && rc == MR_OK; i++)
        store(t, made.data, i, mean ? x.f[i] / (double)total : x.f[i], x.u[i]);
    mr_free(x.f);
    mr_free(x.u);
    if (rc == MR_OK)
        *out = made;
    else
        mr_array_reset(&made);
    return rc;
}

static mr_code check_loss(const mr_array *a, const char *what, mr_status *st)
{
    if (a->rows != 1 || a->storage != MR_DENSE || !is_number(a->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s must be a dense tensor of numbers, found %zu of %s", what, a->rows,
                       mr_dtype_name(a->dtype));
    return MR_OK;
}

static mr_code fail_weights(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "weights must have the shape of the losses, be [n] or [n, 1] for losses of n "
                   "rows, or a scalar");
}

mr_code mr_compute_average_loss(const mr_array *per_example, const mr_array *sample_weight,
                                int64_t global_batch_size, double *loss, mr_status *st)
{
    const mr_array *l = per_example, *w = sample_weight;
    MR_TRY(check_loss(l, "the loss", st));
    if (l->rank == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the loss is a scalar; pass one loss per example (do not average it)");
    if (global_batch_size < -1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the global batch size must not be negative, found %" PRId64,
                       global_batch_size);
    if (global_batch_size == -1) {
        const mr_replica *r = mr_replica_current();
        if (mr__in_cross_replica_context())
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the size of the global batch is unknown between steps; pass it, or "
                           "call this inside a step");
        size_t n = r ? mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)) : 1;
        global_batch_size = l->shape[0] * (int64_t)n;
    }
    size_t n = mr_array_row_values(l), per_weight = 1;
    if (w) {
        MR_TRY(check_loss(w, "the weight", st));
        bool same = w->rank == l->rank && same_shape(w, l);
        bool rows = w->rank >= 1 && w->rank <= 2 && w->shape[0] == l->shape[0] &&
                    (w->rank == 1 || w->shape[1] == 1);
        if (!same && !rows && w->rank > 0)
            return fail_weights(st);
        per_weight = same || n == 0 ? 1 : w->rank == 0 ? n : n / (size_t)l->shape[0];
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double x = mr__value_as_double(l->dtype, l->data, i);
        sum += w ? x * mr__value_as_double(w->dtype, w->data, i / per_weight) : x;
    }
    *loss = global_batch_size == 0 ? 0 : sum / (double)global_batch_size;
    return MR_OK;
}

mr_code mr_scale_regularization_loss(const mr_array *loss, double *scaled, mr_status *st)
{
    MR_TRY(check_loss(loss, "the loss", st));
    if (mr__in_cross_replica_context())
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a regularization loss is scaled inside a step, on each replica");
    const mr_replica *r = mr_replica_current();
    double sum = 0;
    for (size_t i = 0; i < mr_array_row_values(loss); i++)
        sum += mr__value_as_double(loss->dtype, loss->data, i);
    *scaled = r ? sum / (double)mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)) : sum;
    return MR_OK;
}
