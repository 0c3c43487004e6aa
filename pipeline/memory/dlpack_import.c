/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "pipeline/memory/import.h"

static bool dtype_of(const mr_dl_tensor *t, mr_dtype *out)
{
    static const struct known {
        uint8_t code, bits;
        mr_dtype dtype;
    } all[] = {{6, 8, MR_BOOL},    {0, 8, MR_INT8},     {0, 16, MR_INT16},    {0, 32, MR_INT32},
               {0, 64, MR_INT64},  {1, 8, MR_UINT8},    {1, 16, MR_UINT16},   {1, 32, MR_UINT32},
               {1, 64, MR_UINT64}, {2, 16, MR_FLOAT16}, {4, 16, MR_BFLOAT16}, {2, 32, MR_FLOAT32},
               {2, 64, MR_FLOAT64}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (t->code == all[i].code && t->bits == all[i].bits && t->lanes == 1) {
            *out = all[i].dtype;
            return true;
        }
    return false;
}

static mr_code check(const mr_dl_tensor *t, mr_dtype *dtype, size_t *bytes, mr_status *st)
{
    enum { HOST = 1, PINNED = 3 };
    if (t->device_type != HOST && t->device_type != PINNED)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a tensor in host memory, found one on DLPack device %" PRId32
                       ":%" PRId32 "; copy it to the host first",
                       t->device_type, t->device_id);
    if (t->ndim < 1 || t->ndim > MR_MAX_RANK + 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a tensor with 1 to %d axes, the first of which is the rows, "
                       "found %" PRId32,
                       MR_MAX_RANK + 1, t->ndim);
    if (!dtype_of(t, dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "unsupported DLPack type code %u with %u bits and %u lanes", t->code,
                       t->bits, t->lanes);
    *bytes = mr_dtype_size(*dtype);
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] < 0 || __builtin_mul_overflow(*bytes, (uint64_t)t->shape[d], bytes))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "axis %d of the tensor has the invalid size %" PRId64, d, t->shape[d]);
    return MR_OK;
}

/* True if the values are stored in C order without gaps. */
static bool is_dense(const mr_dl_tensor *t)
{
    int64_t stride = 1;
    for (int d = t->ndim - 1; t->strides && d >= 0; d--) {
        if (t->shape[d] != 1 && t->strides[d] != stride)
            return false;
        stride *= t->shape[d];
    }
    return true;
}

/* Copies the values of axes d and above, starting at `from`; returns the end of the copy. */
static char *gather(const mr_dl_tensor *t, int d, const char *from, char *to, size_t size)
{
    if (d == t->ndim) {
        memcpy(to, from, size);
        return to + size;
    }
    for (int64_t i = 0; i < t->shape[d]; i++)
        to = gather(t, d + 1, from + i * t->strides[d] * (int64_t)size, to, size);
    return to;
}

static void delete_tensor(void *ctx, void *data)
{
    mr_dl_managed_tensor *t = ctx;
    (void)data;
    if (t->deleter)
        t->deleter(t);
}

static void delete_versioned(void *ctx, void *data)
{
    mr_dl_versioned_tensor *t = ctx;
    (void)data;
    if (t->deleter)
        t->deleter(t);
}

/* Calls release(tensor, NULL) when the values are no longer needed. */
static mr_code import_tensor(mr_array *out, const mr_dl_tensor *t, void (*release)(void *, void *),
                             void *tensor, mr_status *st)
{
    mr_array a = {.storage = MR_DENSE};
    size_t bytes = 0;
    MR_TRY(check(t, &a.dtype, &bytes, st));
    size_t size = mr_dtype_size(a.dtype);
    char *data = bytes ? (char *)t->data + t->byte_offset : NULL;
    a.rows = (size_t)t->shape[0];
    a.rank = (int8_t)(t->ndim - 1);
    memcpy(a.shape, t->shape + 1, (size_t)a.rank * sizeof *a.shape);
    if (!bytes || (a.dtype != MR_BOOL && is_dense(t) && (uintptr_t)data % size == 0)) {
        MR_TRY(mr_buffer_wrap(&a.owner, data, bytes, true, release, tensor, st));
        a.data = data;
    } else {
        MR_TRY(mr_buffer_alloc(&a.owner, bytes, st));
        a.data = mr_buffer_data(a.owner);
        if (is_dense(t))
            memcpy(a.data, data, bytes);
        else
            gather(t, 0, data, a.data, size);
        for (size_t i = 0; a.dtype == MR_BOOL && i < bytes; i++) /* any nonzero byte is true */
            ((uint8_t *)a.data)[i] = ((uint8_t *)a.data)[i] != 0;
        release(tensor, NULL);
    }
    *out = a;
    return MR_OK;
}

mr_code mr_import_dlpack(mr_array *out, mr_dl_managed_tensor *tensor, mr_status *st)
{
    return import_tensor(out, &tensor->tensor, delete_tensor, tensor, st);
}

mr_code mr_import_dlpack_versioned(mr_array *out, mr_dl_versioned_tensor *tensor, mr_status *st)
{
    if (tensor->major != 1)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "expected a tensor of version 1 of DLPack, found version %" PRIu32
                       ".%" PRIu32,
                       tensor->major, tensor->minor);
    return import_tensor(out, &tensor->tensor, delete_versioned, tensor, st);
}
