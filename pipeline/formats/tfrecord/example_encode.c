/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example_wire.h"

#define MAX_EXAMPLE ((size_t)INT32_MAX) /* limit of protobuf */

typedef struct sized {
    const mr_example_value *value;
    size_t packed, list, feature, entry; /* bytes of the packed values and of each message */
} sized;

static size_t varint_size(uint64_t v)
{
    size_t n = 1;
    for (; v >= 0x80; v >>= 7)
        n++;
    return n;
}

/* Tag, length and bytes. */
static size_t field_size(size_t n)
{
    return 1 + varint_size(n) + n;
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t n)
{
    if (n)
        memcpy(p, data, n);
    return p + n;
}

static uint8_t *put_head(uint8_t *p, uint8_t tag, size_t n)
{
    *p++ = tag;
    return mr__varint_put(p, n);
}

static int kind_of(mr_dtype t)
{
    return t == MR_INT64     ? MR__INT64_LIST
           : t == MR_FLOAT32 ? MR__FLOAT_LIST
           : t == MR_STRING  ? MR__BYTES_LIST
                             : 0;
}

static int by_name(const void *a, const void *b)
{
    const mr_example_value *x = ((const sized *)a)->value, *y = ((const sized *)b)->value;
    size_t n = x->name_size < y->name_size ? x->name_size : y->name_size;
    int order = n ? memcmp(x->name, y->name, n) : 0;
    return order ? order : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

/* false: too large. */
static bool measure(sized *s)
{
    const mr_example_value *v = s->value;
    const int64_t *ints = v->values;
    const mr_bytes *strings = v->values;
    s->packed = 0;
    if (v->n > MAX_EXAMPLE || v->name_size > MAX_EXAMPLE)
        return false;
    if (v->dtype == MR_STRING) {
        for (size_t i = 0; i < v->n; i++) {
            if (strings[i].size > MAX_EXAMPLE || s->packed > MAX_EXAMPLE)
                return false;
            s->packed += field_size(strings[i].size);
        }
        s->list = s->packed;
    } else {
        if (v->dtype == MR_FLOAT32)
            s->packed = 4 * v->n;
        else
            for (size_t i = 0; i < v->n; i++)
                s->packed += varint_size((uint64_t)ints[i]);
        s->list = v->n ? field_size(s->packed) : 0;
    }
    s->feature = field_size(s->list);
    s->entry = field_size(v->name_size) + field_size(s->feature);
    return s->entry <= MAX_EXAMPLE;
}

static uint8_t *put_entry(uint8_t *p, const sized *s)
{
    const mr_example_value *v = s->value;
    p = put_head(p, 0x0a, s->entry);
    p = put_head(p, 0x0a, v->name_size);
    p = put_bytes(p, v->name, v->name_size);
    p = put_head(p, 0x12, s->feature);
    p = put_head(p, (uint8_t)(kind_of(v->dtype) << 3 | 2), s->list);
    if (v->dtype == MR_STRING) {
        const mr_bytes *strings = v->values;
        for (size_t i = 0; i < v->n; i++) {
            p = put_head(p, 0x0a, strings[i].size);
            p = put_bytes(p, strings[i].data, strings[i].size);
        }
        return p;
    }
    if (!v->n)
        return p;
    p = put_head(p, 0x0a, s->packed);
    if (v->dtype == MR_FLOAT32)
        return put_bytes(p, v->values, s->packed);
    const int64_t *ints = v->values;
    for (size_t i = 0; i < v->n; i++)
        p = mr__varint_put(p, (uint64_t)ints[i]);
    return p;
}

static mr_code check(const mr_example_value *v, mr_status *st)
{
    if (kind_of(v->dtype))
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "feature %.*s: an Example holds int64, float32 and bytes, found %s",
                   (int)(v->name_size < 100 ? v->name_size : 100), v->name,
                   mr_dtype_name(v->dtype));
}

mr_code mr_example_encode(const mr_example_value *features, size_t n, uint8_t **buffer,
                          size_t *capacity, size_t *size, mr_status *st)
{
    sized few[16], *s = few;
    size_t all = 0;
    mr_code rc = MR_OK;
    if (n > sizeof few / sizeof *few && !(s = mr_calloc(n, sizeof *s)))
        return mr_fail_memory(st, n * sizeof *s, "an Example");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        rc = check(&features[i], st);
        s[i].value = &features[i];
        if (rc == MR_OK && (!measure(&s[i]) || (all += field_size(s[i].entry)) > MAX_EXAMPLE))
            rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "an Example of more than 2 GiB");
    }
    if (rc == MR_OK && n)
        qsort(s, n, sizeof *s, by_name);
    for (size_t i = 1; i < n && rc == MR_OK; i++)
        if (by_name(&s[i - 1], &s[i]) == 0)
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "feature %.*s appears twice",
                         (int)(s[i].value->name_size < 100 ? s[i].value->name_size : 100),
                         s[i].value->name);
    if (rc == MR_OK)
        rc = mr_grow((void **)buffer, capacity, *size + field_size(all), 1, SIZE_MAX / 2,
                     "an Example", st);
    if (rc == MR_OK) {
        uint8_t *p = put_head(*buffer + *size, 0x0a, all);
        for (size_t i = 0; i < n; i++)
            p = put_entry(p, &s[i]);
        *size = (size_t)(p - *buffer);
    }
    if (s != few)
        mr_free(s);
    return rc;
}
