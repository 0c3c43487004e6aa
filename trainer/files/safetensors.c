/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory/alloc.h"
#include "trainer/files/json_file.h"
#include "trainer/files/safetensors_impl.h"
#include "trainer/files/saved_files.h"

/* The format's own limit on headers. */
enum { MAX_HEADER = 100000000, MAX_TENSORS = 1 << 20, LENGTH_BYTES = 8, CHECKSUM = 9 };

static const char metadata_key[] = "__metadata__", checksum_key[] = "crc32c",
                  format_key[] = "format";
/* Files of this format must have a checksum of all bytes; in the earlier format "millrace" a
 * checksum of the values is optional. */
static const char own_format[] = "millrace 2", no_checksum[] = "00000000";

struct mr_safetensors {
    mr_buffer *file;
    const unsigned char *bytes; /* contents of the file, in its buffer */
    size_t n;
    mr_named_tensor *tensors; /* in the order of their data; root owns the names */
    json_t *root;
};

static const struct {
    const char *name;
    mr_dtype dtype;
} dtypes[] = {{"F32", MR_FLOAT32}, {"F64", MR_FLOAT64}, {"F16", MR_FLOAT16}, {"BF16", MR_BFLOAT16},
              {"I64", MR_INT64},   {"I32", MR_INT32},   {"I16", MR_INT16},   {"I8", MR_INT8},
              {"U64", MR_UINT64},  {"U32", MR_UINT32},  {"U16", MR_UINT16},  {"U8", MR_UINT8},
              {"BOOL", MR_BOOL}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

uint64_t mr_named_tensor_bytes(const mr_named_tensor *t)
{
    uint64_t n = mr_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        n *= (uint64_t)t->shape[i];
    return n;
}

/* false: the size overflows. */
static bool count_bytes(const mr_named_tensor *t, uint64_t *bytes)
{
    bool fits = true;
    *bytes = mr_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0) {
            *bytes = 0;
            return true;
        }
    for (int i = 0; i < t->rank; i++)
        fits = fits && !__builtin_mul_overflow(*bytes, (uint64_t)t->shape[i], bytes);
    return fits && *bytes <= INT64_MAX;
}

/* ---- reading ---- */

static mr_code read_dtype(const json_t *v, mr_named_tensor *t, mr_status *st)
{
    if (!json_is_string(v))
        return mr_fail(st, MR_DATA_LOSS, "tensor %s has no dtype in the header", t->name);
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(json_string_value(v), dtypes[i].name) == 0) {
            t->dtype = dtypes[i].dtype;
            return MR_OK;
        }
    return mr_fail(st, MR_UNIMPLEMENTED, "tensor %s has dtype %s, which Millrace does not support",
                   t->name, json_string_value(v));
}

static mr_code read_shape(const json_t *v, mr_named_tensor *t, mr_status *st)
{
    if (!json_is_array(v))
        return mr_fail(st, MR_DATA_LOSS, "tensor %s has no shape in the header", t->name);
    if (json_array_size(v) > MR_MAX_RANK)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "tensor %s has %zu dimensions; Millrace supports up to %d", t->name,
                       json_array_size(v), MR_MAX_RANK);
    t->rank = (int)json_array_size(v);
    for (int i = 0; i < t->rank; i++) {
        const json_t *d = json_array_get(v, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return mr_fail(st, MR_DATA_LOSS, "tensor %s: dimension %d is not a size", t->name, i);
        t->shape[i] = json_integer_value(d);
    }
    return MR_OK;
}

/* Reads one tensor; its data are the bytes [from, to) of size. */
static mr_code read_tensor(mr_safetensors *f, const json_t *v, mr_named_tensor *t,
                           const unsigned char *data, uint64_t size, mr_status *st)
{
    uint64_t bytes;
    if (!json_is_object(v))
        return mr_fail(st, MR_DATA_LOSS, "the header's entry %s is not an object", t->name);
    MR_TRY(read_dtype(json_object_get(v, "dtype"), t, st));
    MR_TRY(read_shape(json_object_get(v, "shape"), t, st));
    const json_t *offsets = json_object_get(v, "data_offsets");
    const json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(a) || !json_is_integer(b) ||
        json_integer_value(a) < 0 || json_integer_value(b) < json_integer_value(a))
        return mr_fail(st, MR_DATA_LOSS, "tensor %s: data_offsets must be two positions in order",
                       t->name);
    uint64_t from = (uint64_t)json_integer_value(a), to = (uint64_t)json_integer_value(b);
    if (to > size)
        return mr_fail(st, MR_DATA_LOSS,
                       "tensor %s ends at byte %" PRIu64 " of the data, which has %" PRIu64
                       " bytes; the file is truncated",
                       t->name, to, size);
    if (!count_bytes(t, &bytes) || bytes != to - from)
        return mr_fail(st, MR_DATA_LOSS,
                       "tensor %s: its dtype and shape do not match the %" PRIu64
                       " bytes of its data",
                       t->name, to - from);
    t->data = data + from;
    (void)f;
    return MR_OK;
}

static const unsigned char *end_of(const mr_named_tensor *t)
{
    return (const unsigned char *)t->data + mr_named_tensor_bytes(t);
}

static int by_data(const void *x, const void *y)
{
    const mr_named_tensor *a = x, *b = y;
    if (a->data != b->data)
        return a->data < b->data ? -1 : 1;
    const unsigned char *p = end_of(a), *q = end_of(b); /* tensors without values come first */
    return p < q ? -1 : p > q ? 1 : strcmp(a->name, b->name);
}

/* Checks that tensors are contiguous and fill the data. */
static mr_code check_order(const mr_safetensors *f, const unsigned char *data, uint64_t size,
                           mr_status *st)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < f->n; i++) {
        const mr_named_tensor *t = &f->tensors[i];
        if (t->data != at)
            return mr_fail(st, MR_DATA_LOSS,
                           "tensor %s begins at byte %td of the data, expected "
                           "%td, where the previous one ends",
                           t->name, (const unsigned char *)t->data - data, at - data);
        at = end_of(t);
    }
    if ((uint64_t)(at - data) != size)
        return mr_fail(st, MR_DATA_LOSS,
                       "%" PRIu64 " bytes follow the last tensor's; the file is damaged",
                       size - (uint64_t)(at - data));
    return MR_OK;
}

static mr_code check_metadata(const json_t *m, mr_status *st)
{
    const char *key;
    json_t *v;
    if (m && !json_is_object(m))
        return mr_fail(st, MR_DATA_LOSS, "%s is not an object", metadata_key);
    json_object_foreach((json_t *)(uintptr_t)m, key, v)
    {
        if (!json_is_string(v))
            return mr_fail(st, MR_DATA_LOSS, "%s: %s is not a string", metadata_key, key);
    }
    return MR_OK;
}

/* Offset of the checksum's eight digits `sum` in n bytes of a header in this writer's form; n: not
 * found. */
static size_t find_digits(const char *header, size_t n, const char *sum)
{
    char text[sizeof checksum_key + CHECKSUM + 8];
    size_t size = (size_t)snprintf(text, sizeof text, "\"%s\":\"%.8s\"", checksum_key, sum);
    const char *at = memmem(header, n, text, size);
    return at ? (size_t)(at - header) + size - CHECKSUM : n;
}

/* The CRC-32C of the file, whose data are its last `size` bytes, with zeros for its digits. */
static uint32_t sum_of_file(const mr_safetensors *f, const unsigned char *data, size_t size,
                            const char *digits)
{
    size_t header = (size_t)(data - f->bytes), n = strlen(no_checksum);
    size_t at = find_digits((const char *)f->bytes, header, digits);
    if (at == header)
        return ~mr_crc32c(f->bytes, header); /* never equals the checksum */
    uint32_t crc = mr_crc32c_extend(mr_crc32c(f->bytes, at), no_checksum, n);
    return mr_crc32c_extend(crc, f->bytes + at + n, header - at - n + size);
}

/* Files of other programs have none. */
static mr_code check_sum(const mr_safetensors *f, const unsigned char *data, size_t size,
                         mr_status *st)
{
    const char *want = mr_safetensors_metadata(f, checksum_key),
               *format = mr_safetensors_metadata(f, format_key);
    bool own = format && strcmp(format, own_format) == 0;
    char have[CHECKSUM];
    if (!want)
        return own ? mr_fail(st, MR_DATA_LOSS,
                             "the header has no CRC-32C, which files of this format have; the file "
                             "is damaged")
                   : MR_OK;
    snprintf(have, sizeof have, "%08" PRIx32,
             own ? sum_of_file(f, data, size, want) : mr_crc32c(data, size));
    if (strcmp(want, have) == 0)
        return MR_OK;
    return mr_fail(st, MR_DATA_LOSS,
                   "the %s the CRC-32C %s, but the header says %.16s; the file is damaged",
                   own ? "file has" : "values have", have, want);
}

static mr_code read_tensors(mr_safetensors *f, const unsigned char *data, uint64_t size,
                            mr_status *st)
{
    const char *name;
    json_t *v;
    MR_TRY(check_metadata(json_object_get(f->root, metadata_key), st));
    if (json_object_size(f->root) > MAX_TENSORS)
        return mr_fail(st, MR_DATA_LOSS, "more than %d tensors", MAX_TENSORS);
    f->tensors = mr_calloc(json_object_size(f->root) + 1, sizeof *f->tensors);
    if (!f->tensors)
        return mr_fail_memory(st, json_object_size(f->root) * sizeof *f->tensors, "tensors");
    json_object_foreach(f->root, name, v)
    {
        if (strcmp(name, metadata_key) == 0)
            continue;
        f->tensors[f->n] = (mr_named_tensor){.name = name};
        MR_TRY(read_tensor(f, v, &f->tensors[f->n], data, size, st));
        f->n++;
    }
    qsort(f->tensors, f->n, sizeof *f->tensors, by_data);
    MR_TRY(check_order(f, data, size, st));
    return check_sum(f, data, (size_t)size, st);
}

static mr_code read_all(mr_safetensors *f, size_t size, mr_status *st)
{
    json_error_t error;
    if (size < LENGTH_BYTES)
        return mr_fail(st, MR_DATA_LOSS,
                       "the file has %zu bytes, too few for a safetensors file; it is truncated",
                       size);
    uint64_t n = mr__load_le(f->bytes, LENGTH_BYTES);
    if (n > MAX_HEADER || (size > LENGTH_BYTES && f->bytes[LENGTH_BYTES] != '{'))
        return mr_fail(st, MR_DATA_LOSS,
                       "this is not a safetensors file: it does not begin with "
                       "the length of a header and the header");
    if (n > size - LENGTH_BYTES)
        return mr_fail(st, MR_DATA_LOSS,
                       "the header has %" PRIu64
                       " bytes, but only %zu follow; the file is truncated",
                       n, size - LENGTH_BYTES);
    f->root = json_loadb((const char *)f->bytes + LENGTH_BYTES, (size_t)n, JSON_REJECT_DUPLICATES,
                         &error);
    if (!f->root)
        return mr_fail(st, MR_DATA_LOSS, "the header is not JSON: %s", error.text);
    if (!json_is_object(f->root))
        return mr_fail(st, MR_DATA_LOSS, "the header is not an object");
    return read_tensors(f, f->bytes + LENGTH_BYTES + n, size - LENGTH_BYTES - n, st);
}

/* Takes over file. */
static mr_code take(mr_safetensors **out, mr_buffer *file, size_t size, mr_status *st)
{
    mr_safetensors *f = mr_calloc(1, sizeof *f);
    if (!f) {
        mr_buffer_unref(file);
        return mr_fail_memory(st, sizeof *f, "a safetensors file");
    }
    f->file = file;
    f->bytes = mr_buffer_data(file);
    mr_code rc = read_all(f, size, st);
    if (rc == MR_OK)
        *out = f;
    else
        mr_safetensors_close(f);
    return rc;
}

mr_code mr_safetensors_parse(mr_safetensors **out, const void *bytes, size_t size, mr_status *st)
{
    mr_buffer *copy;
    MR_TRY(mr_buffer_alloc(&copy, size, st));
    if (size)
        memcpy(mr_buffer_data(copy), bytes, size);
    return take(out, copy, size, st);
}

mr_code mr_safetensors_open(mr_safetensors **out, const char *path, mr_status *st)
{
    mr_buffer *file;
    size_t size;
    MR_TRY(mr_file_read_buffer(path, &mr__of_saved, &file, &size, st));
    mr_code rc = take(out, file, size, st);
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    return rc;
}

void mr_safetensors_close(mr_safetensors *f)
{
    if (!f)
        return;
    json_decref(f->root);
    mr_free(f->tensors);
    mr_buffer_unref(f->file);
    mr_free(f);
}

size_t mr_safetensors_count(const mr_safetensors *f)
{
    return f->n;
}

const mr_named_tensor *mr_safetensors_at(const mr_safetensors *f, size_t i)
{
    return &f->tensors[i];
}

const mr_named_tensor *mr_safetensors_find(const mr_safetensors *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

const char *mr_safetensors_metadata(const mr_safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->root, metadata_key), key));
}

/* ---- writing ---- */

static const char *dtype_text(mr_dtype t)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == t)
            return dtypes[i].name;
    return NULL;
}

static mr_code describe(json_t *root, const mr_named_tensor *t, uint64_t *at, mr_status *st)
{
    uint64_t bytes;
    if (t->rank < 0 || t->rank > MR_MAX_RANK || !dtype_text(t->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "tensor %s has a dtype or rank that cannot be written", t->name);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "tensor %s: dimension %d is negative", t->name,
                           i);
    if (!count_bytes(t, &bytes))
        return mr_fail(st, MR_INVALID_ARGUMENT, "tensor %s is too large", t->name);
    if (json_object_get(root, t->name) || strcmp(t->name, metadata_key) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "two tensors are called %s", t->name);
    json_t *shape = json_array(), *entry;
    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_text(t->dtype), "shape", shape,
                      "data_offsets", (json_int_t)*at, (json_int_t)(*at + bytes));
    *at += bytes;
    if (!entry)
        return mr_fail_memory(st, 0, "a safetensors header");
    if (json_object_set_new(root, t->name, entry) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the name of a tensor is not UTF-8");
    return MR_OK;
}

/* Replaces the header's zeros by the checksum of the file. */
static void put_checksum(char *header, size_t size, const mr_named_tensor *tensors, size_t n)
{
    char text[CHECKSUM];
    uint32_t crc = mr_crc32c(header, size);
    for (size_t i = 0; i < n; i++)
        crc = mr_crc32c_extend(crc, tensors[i].data, mr_named_tensor_bytes(&tensors[i]));
    snprintf(text, sizeof text, "%08" PRIx32, crc);
    memcpy(header + find_digits(header, size, no_checksum), text, sizeof text - 1);
}

static mr_code make_header(const mr_named_tensor *tensors, size_t n, char **out, size_t *size,
                           mr_status *st)
{
    uint64_t at = 0;
    size_t length = 0;
    char *text = NULL, *header = NULL;
    json_t *root = json_pack("{s:{s:s, s:s}}", metadata_key, format_key, own_format, checksum_key,
                             no_checksum);
    mr_code rc = root ? MR_OK : mr_fail_memory(st, 0, "a safetensors header");
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = describe(root, &tensors[i], &at, st);
    if (rc == MR_OK && !(text = mr__json_text(root, JSON_COMPACT, &length)))
        rc = mr_fail_memory(st, 0, "a safetensors header");
    json_decref(root);
    if (rc != MR_OK)
        return rc;
    size_t padded = (length + 7) / 8 * 8;
    if (padded > MAX_HEADER)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "too many tensors for one safetensors file");
    else if (!(header = mr_malloc(LENGTH_BYTES + padded)))
        rc = mr_fail_memory(st, padded, "a safetensors header");
    if (rc == MR_OK) {
        mr__store_le(header, padded, LENGTH_BYTES);
        memcpy(header + LENGTH_BYTES, text, length);
        memset(header + LENGTH_BYTES + length, ' ', padded - length);
        *out = header;
        *size = LENGTH_BYTES + padded;
        put_checksum(header, *size, tensors, n);
    }
    mr_free(text);
    return rc;
}

static mr_code put(mr_atomic_file *f, const mr_named_tensor *tensors, size_t n, mr_status *st)
{
    char *header;
    size_t size;
    MR_TRY(make_header(tensors, n, &header, &size, st));
    mr_code rc = mr_atomic_file_put(f, header, size, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = mr_atomic_file_put(f, tensors[i].data, mr_named_tensor_bytes(&tensors[i]), st);
    mr_free(header);
    return rc;
}

mr_code mr_safetensors_write(const char *path, const mr_named_tensor *tensors, size_t n,
                             mr_status *st)
{
    mr_atomic_file *f;
    MR_TRY(mr_atomic_file_open(&f, path, NULL, st));
    return mr_atomic_file_close(f, put(f, tensors, n, st), st);
}

mr_code mr__save_tensors(const char *directory, const char *name, const mr_named_tensor *t,
                         size_t n, mr_status *st)
{
    mr_atomic_file *f;
    char *path = mr__path_in(directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr_atomic_file_open(&f, path, &mr__of_new_directory, st);
    if (rc == MR_OK)
        rc = mr_atomic_file_close(f, put(f, t, n, st), st);
    mr_free(path);
    return rc;
}

mr_code mr__load_tensors(const char *directory, const char *name, mr_safetensors **out,
                         mr_status *st)
{
    char *path = mr__path_in(directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr_safetensors_open(out, path, st);
    mr_free(path);
    return rc;
}
