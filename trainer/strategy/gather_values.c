/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the values of all replicas, including those of other processes: each process concatenates
 * its own, then all exchange and concatenate them. */
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/strategy/strategy.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"

/* Tensors in the order of concatenation. */
typedef struct pieces {
    const mr_array *at;
    size_t n, copies; /* each is repeated this many times */
    int64_t axis;
    const char *what; /* "replica", "worker" */
} pieces;

/* Keeps the memory that strings point to as long as the array that now refers to it. */
static mr_code hold_strings(const mr_array *made, const pieces *p, mr_status *st)
{
    for (size_t i = 0; i < p->n && made->dtype == MR_STRING; i++)
        if (p->at[i].owner)
            MR_TRY(mr_buffer_hold(made->owner, p->at[i].owner, st));
    return MR_OK;
}

static mr_code check_shapes(const pieces *p, int64_t at, int64_t *shape, mr_status *st)
{
    const mr_array *first = &p->at[0];
    memcpy(shape, first->shape, sizeof first->shape);
    shape[at] = 0;
    for (size_t i = 0; i < p->n; i++) {
        for (int k = 0; k < first->rank; k++)
            if (k != at && p->at[i].shape[k] != first->shape[k])
                return mr_fail(st, MR_INVALID_ARGUMENT,
                               "%s %zu differs in shape from %s 0 outside axis %" PRId64, p->what,
                               i, p->what, p->axis);
        shape[at] += (int64_t)p->copies * p->at[i].shape[at];
    }
    return MR_OK;
}

static void copy_pieces(const pieces *p, int64_t at, mr_array *made)
{
    size_t outer = 1, inner = mr_dtype_size(made->dtype);
    char *to = made->data;
    for (int k = 0; k < at; k++)
        outer *= (size_t)made->shape[k];
    for (int k = (int)at + 1; k < made->rank; k++)
        inner *= (size_t)made->shape[k];
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < p->n * p->copies; i++) {
            const mr_array *a = &p->at[i / p->copies];
            size_t bytes = (size_t)a->shape[at] * inner;
            if (bytes > 0)
                memcpy(to, (const char *)a->data + o * bytes, bytes);
            to += bytes;
        }
}

static mr_code join(const pieces *p, mr_array *out, mr_status *st)
{
    const mr_array *first = &p->at[0];
    int64_t shape[MR_MAX_RANK], at = p->axis < 0 ? p->axis + first->rank : p->axis;
    if (first->rank == 0 && p->n * p->copies == 1) {
        mr_array_slice(out, first, 0, 1);
        return MR_OK;
    }
    if (first->rank == 0 || at < 0 || at >= first->rank)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "gather along axis %" PRId64 " needs tensors that have it, found rank %d",
                       p->axis, first->rank);
    mr_array made;
    MR_TRY(check_shapes(p, at, shape, st));
    MR_TRY(mr_tensor_alloc(&made, first->dtype, first->rank, shape, st));
    copy_pieces(p, at, &made);
    mr_code rc = hold_strings(&made, p, st);
    if (rc == MR_OK)
        *out = made;
    else
        mr_array_reset(&made);
    return rc;
}

/* ---- several processes */

/* Header of a process's part, sent before the values. */
typedef struct part {
    int64_t failed, dtype, rank, text; /* failed: it has no values; text: bytes of all strings */
    int64_t shape[MR_MAX_RANK];
} part;

/* false: too large for an array. */
static bool count_bytes(const part *p, size_t *n)
{
    *n = mr_dtype_size((mr_dtype)p->dtype);
    for (int64_t i = 0; i < p->rank; i++)
        if (p->shape[i] < 0 || __builtin_mul_overflow(*n, (size_t)p->shape[i], n))
            return false;
    return *n <= SIZE_MAX / 2 && p->text >= 0;
}

/* Parts must be of the same type; shapes are compared when they are concatenated. */
static mr_code check_parts(const part *parts, size_t n, mr_status *st)
{
    for (size_t w = 0; w < n; w++) {
        const part *p = &parts[w];
        if (p->failed)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "worker %zu could not gather its values; see its own error message", w);
        if (p->dtype != parts[0].dtype || p->rank != parts[0].rank)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "gather needs the same dtype and rank on every worker, found %s of rank "
                           "%" PRId64 " on worker 0 and %s of rank %" PRId64 " on worker %zu",
                           mr_dtype_name((mr_dtype)parts[0].dtype), parts[0].rank,
                           mr_dtype_name((mr_dtype)p->dtype), p->rank, w);
    }
    return MR_OK;
}

/* Copies the text of all strings, concatenated. */
static void copy_text(const mr_array *a, char *to)
{
    const mr_bytes *s = a->data;
    for (size_t i = 0; i < mr_array_row_values(a); to += s[i++].size)
        if (s[i].size > 0)
            memcpy(to, s[i].data, s[i].size);
}

static size_t text_bytes(const mr_array *a)
{
    const mr_bytes *s = a->data;
    size_t n = 0;
    for (size_t i = 0; a->dtype == MR_STRING && i < mr_array_row_values(a); i++)
        n += s[i].size;
    return n;
}

/* Allocates memory for the bytes of all processes, copies this process's into it, and exchanges
 * them. */
typedef struct exchange {
    mr__ring *ring;
    size_t worker, workers;
    size_t *sizes; /* per worker */
    mr_buffer *all;
} exchange;

static mr_code exchange_bytes(exchange *x, const mr_array *own, bool text, mr_status *st)
{
    size_t total = 0, before = 0;
    for (size_t w = 0; w < x->workers; w++) {
        before += w < x->worker ? x->sizes[w] : 0;
        total += x->sizes[w];
    }
    MR_TRY(mr_buffer_alloc(&x->all, total > 0 ? total : 1, st));
    char *to = (char *)mr_buffer_data(x->all) + before;
    if (text)
        copy_text(own, to);
    else if (x->sizes[x->worker] > 0)
        memcpy(to, own->data, x->sizes[x->worker]);
    return mr__ring_all_gather(x->ring, mr_buffer_data(x->all), x->sizes, st);
}

/* Makes the strings of all workers point to the received text: their pointers are those of the
 * sending processes. */
static mr_code point_at_text(mr_array *arrays, const mr_buffer *text, size_t workers, mr_status *st)
{
    char *at = mr_buffer_data(text);
    size_t left = mr_buffer_size(text);
    for (size_t w = 0; w < workers; w++) {
        mr_bytes *s = arrays[w].data;
        for (size_t i = 0; i < mr_array_row_values(&arrays[w]); i++) {
            if (s[i].size > left)
                return mr_fail(st, MR_DATA_LOSS, "the strings of worker %zu do not fit their size",
                               w);
            s[i].data = at;
            at += s[i].size;
            left -= s[i].size;
        }
    }
    return MR_OK;
}

static mr_code join_parts(exchange *x, const part *parts, mr_array *arrays, const mr_array *own,
                          int64_t axis, mr_array *out, mr_status *st)
{
    mr_buffer *values = NULL;
    for (size_t w = 0; w < x->workers; w++)
        if (!count_bytes(&parts[w], &x->sizes[w]))
            return mr_fail(st, MR_DATA_LOSS, "worker %zu sent a tensor with an impossible shape",
                           w);
    mr_code rc = exchange_bytes(x, own, false, st);
    values = x->all;
    x->all = NULL;
    char *at = values ? mr_buffer_data(values) : NULL;
    for (size_t w = 0; w < x->workers && rc == MR_OK; w++) {
        arrays[w] = (mr_array){.dtype = own->dtype,
                               .storage = own->storage,
                               .rank = own->rank,
                               .rows = 1,
                               .data = at,
                               .owner = values};
        memcpy(arrays[w].shape, parts[w].shape, sizeof arrays[w].shape);
        at += x->sizes[w];
        x->sizes[w] = (size_t)parts[w].text;
    }
    if (rc == MR_OK && own->dtype == MR_STRING) {
        rc = exchange_bytes(x, own, true, st);
        if (rc == MR_OK)
            rc = point_at_text(arrays, x->all, x->workers, st);
        if (rc == MR_OK)
            rc = mr_buffer_hold(values, x->all, st);
        mr_buffer_unref(x->all);
        x->all = NULL;
    }
    const pieces all = {arrays, x->workers, 1, axis, "worker"};
    if (rc == MR_OK)
        rc = join(&all, out, st);
    mr_buffer_unref(values);
    return rc;
}

/* own NULL: this process has failed, and informs the others. */
static mr_code gather_workers(mr_strategy *s, const mr_array *own, int64_t axis, mr_array *out,
                              mr_status *st)
{
    exchange x = {.ring = mr__strategy_ring(s),
                  .worker = mr_strategy_worker(s),
                  .workers = mr_strategy_num_workers(s)};
    part *parts = mr_calloc(x.workers, sizeof *parts);
    mr_array *arrays = mr_calloc(x.workers, sizeof *arrays);
    x.sizes = mr_calloc(x.workers, sizeof *x.sizes);
    mr_code rc = MR_OK;
    if (!parts || !arrays || !x.sizes) {
        mr_status why;
        rc = mr_fail_memory(&why, x.workers * sizeof *arrays, "a gathered value");
        mr_strategy_abandon(s, &why); /* the others wait for this process's part */
        if (st)
            *st = why;
    } else {
        part *mine = &parts[x.worker];
        mine->failed = !own;
        if (own) {
            *mine =
                (part){.dtype = own->dtype, .rank = own->rank, .text = (int64_t)text_bytes(own)};
            memcpy(mine->shape, own->shape, sizeof mine->shape);
        }
        for (size_t w = 0; w < x.workers; w++)
            x.sizes[w] = sizeof *parts;
        rc = mr__ring_all_gather(x.ring, parts, x.sizes, st);
        if (rc == MR_OK)
            rc = check_parts(parts, x.workers, st);
        if (rc == MR_OK && own)
            rc = join_parts(&x, parts, arrays, own, axis, out, st);
    }
    mr_free(parts);
    mr_free(arrays);
    mr_free(x.sizes);
    return rc;
}

mr_code mr_strategy_gather(mr_strategy *s, const mr_distributed *d, int64_t axis, mr_array *out,
                           mr_status *st)
{
    bool workers = mr_strategy_num_workers(s) > 1 && !d->plain;
    mr_array own;
    mr_code rc = mr__check_values(s, d, true, "gather", st);
    if (mr_replica_current())
        return rc;
    const pieces p = {d->values, d->n, d->plain ? mr_strategy_num_replicas_in_sync(s) : 1, axis,
                      "replica"};
    if (workers && rc == MR_OK && d->values[0].rank == 0)
        rc =
            mr_fail(st, MR_INVALID_ARGUMENT,
                    "gather along axis %" PRId64 " needs tensors that have it, found rank 0", axis);
    if (rc == MR_OK)
        rc = join(&p, &own, st);
    if (!workers) {
        if (rc == MR_OK)
            *out = own;
        return rc;
    }
    mr_code all = gather_workers(s, rc == MR_OK ? &own : NULL, axis, out, rc == MR_OK ? st : NULL);
    if (rc != MR_OK)
        return rc;
    mr_array_reset(&own);
    return all;
}
