/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/batches.h"
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"

static const batches *data;

typedef struct state {
    size_t at, number;
} state;

static size_t row_bytes(const mr_array *a)
{
    return mr_array_row_bytes(a) / data->rows;
}

static bool place(const mr_block *out, size_t c, const char *from, size_t bytes)
{
    const mr_destination *destination = out->destination;
    size_t room = 0;
    if (!destination || data->never_place || destination->n_columns != (size_t)data->n_columns)
        return false;
    const mr_segment *s = destination->segments + c * destination->n_segments;
    for (size_t i = 0; i < destination->n_segments; i++)
        room += s[i].bytes;
    if (room < bytes)
        return false;
    for (size_t i = 0; bytes > 0; i++) {
        size_t n = s[i].bytes < bytes ? s[i].bytes : bytes;
        memcpy(s[i].data, from, n);
        from += n;
        bytes -= n;
    }
    return true;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    (void)want;
    state *s = it->state;
    if (s->at == data->rows)
        return MR_END;
    if (data->read)
        ++*data->read;
    size_t n = data->rows - s->at < data->batch ? data->rows - s->at : data->batch;
    if (++s->number == data->fail_at)
        return mr_fail(st, MR_DATA_LOSS, "batch %zu is broken", s->number);
    MR_TRY(mr_block_prepare(out, (size_t)data->n_columns, st));
    for (int c = 0; c < data->n_columns; c++) {
        const mr_array *a = &data->columns[c];
        int64_t shape[MR_MAX_RANK];
        memcpy(shape, a->shape, sizeof shape);
        shape[0] = (int64_t)n;
        const char *from = (const char *)a->data + s->at * row_bytes(a);
        if (place(out, (size_t)c, from, n * row_bytes(a))) {
            out->columns[c] =
                (mr_array){.dtype = a->dtype, .storage = MR_PLACED, .rank = a->rank, .rows = 1};
            memcpy(out->columns[c].shape, shape, sizeof shape);
            continue;
        }
        MR_TRY(mr_array_alloc(&out->columns[c], a->dtype, a->rank, shape, 1, st));
        memcpy(out->columns[c].data, from, n * row_bytes(a));
    }
    out->rows = 1;
    s->at += n;
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    mr_spec *children[3];
    for (int c = 0; c < data->n_columns; c++) {
        int64_t shape[MR_MAX_RANK];
        memcpy(shape, data->columns[c].shape, sizeof shape);
        shape[0] = -1;
        children[c] = mr_spec_tensor(data->columns[c].dtype, data->columns[c].rank, shape);
    }
    *out = mr_spec_tuple(children, (size_t)data->n_columns);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a spec");
}

static const mr_op op_batches = {
    .abi = MR_ABI_VERSION,
    .name = "test_batches",
    .doc = "Batches from memory.",
    .example = "test_batches()",
    .iter_size = sizeof(state),
    .infer = infer,
    .next = next,
};

mr_dataset *test_batches(const batches *b)
{
    data = b;
    return mr_dataset_new(&op_batches, NULL, NULL, 0);
}

void test_fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mr_test_random(&seed) % 2001) / 1000 - 1;
}

mr_code test_take(void *ctx, const mr_array *p, mr_status *st)
{
    predicted *g = ctx;
    size_t n = mr_array_row_values(p);
    (void)st;
    memcpy(g->values + g->n, p->data, n * sizeof(float));
    g->n += n;
    return MR_OK;
}

mr_strategy *open_strategy(size_t n)
{
    mr_strategy *s = NULL;
    mr_status st;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = n}, &st), &st);
    return s;
}

mr_code test_to_device(mr_replica *r, const void *host, size_t bytes, void **out, mr_status *st)
{
    MR_TRY(mr_replica_scratch(r, bytes, out, st));
    return mr_stream_copy(mr_replica_stream(r), *out, host, bytes, st);
}

void test_read(mr_strategy *s, size_t r, const void *device, size_t bytes, void *out)
{
    mr_stream *stream = NULL;
    mr_status st;
    mr_device *d = mr_replica_device(mr_strategy_replica(s, r));
    mr_ok(mr_stream_new(&stream, d, MR_STREAM_COMPUTE, &st), &st);
    mr_ok(mr_stream_copy(stream, out, device, bytes, &st), &st);
    mr_ok(mr_stream_synchronize(stream, &st), &st);
    mr_stream_free(stream);
}

void test_read_copy(mr_strategy *s, mr_variable *v, size_t r, float *out)
{
    test_read(s, r, mr_variable_copy(v, r), mr_variable_size(v) * sizeof *out, out);
}

void test_hide_accelerators(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
}
