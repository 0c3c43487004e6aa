/* SPDX-License-Identifier: Apache-2.0 */
/* unique_values(x): each value once, in the order of first occurrence. Rows differ in their
 * number of values, so the result is a vector of any length. */
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/functions/library/elementwise.h"

static mr_code type(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = (mr_leaf){.dtype = c->in[0]->dtype, .rank = 1, .shape = {-1}};
    return MR_OK;
}

/* A value as bits that are equal if the values are: both zeros have the same bits. false: a NaN,
 * which equals nothing. */
static bool value_bits(mr_dtype t, const void *at, uint64_t *bits)
{
    double d = 0;
    float f = 0;
    uint16_t h = 0;
    *bits = 0;
    switch (t) {
    case MR_FLOAT64:
        memcpy(&d, at, sizeof d);
        if (d != 0)
            memcpy(bits, at, sizeof d);
        return d == d;
    case MR_FLOAT32:
        memcpy(&f, at, sizeof f);
        if (f != 0)
            memcpy(bits, at, sizeof f);
        return f == f;
    case MR_FLOAT16:
    case MR_BFLOAT16:
        memcpy(&h, at, sizeof h);
        f = t == MR_FLOAT16 ? mr_half_to_float(h) : mr_bfloat_to_float(h);
        *bits = f != 0 ? h : 0;
        return f == f;
    default:
        memcpy(bits, at, mr_dtype_size(t));
        return true;
    }
}

static uint64_t mixed(uint64_t h)
{
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 33;
}

/* A hash table of the indices of values seen, open addressing, at most half full. */
typedef struct seen {
    uint32_t *slots; /* place + 1; 0: free */
    size_t mask;
} seen;

/* true: value i of x did not occur before. */
static bool is_new(const seen *s, mr_dtype t, const char *x, size_t size, size_t i)
{
    const char *at = x + i * size;
    const mr_bytes *string = (const mr_bytes *)(const void *)at;
    uint64_t bits = 0, other;
    if (t != MR_STRING && !value_bits(t, at, &bits))
        return true;
    size_t k = (size_t)(t == MR_STRING ? mixed(mr__fnv1a(MR__FNV_BASIS, string->data, string->size))
                                       : mixed(bits)) &
               s->mask;
    for (; s->slots[k]; k = (k + 1) & s->mask) {
        const char *there = x + (s->slots[k] - 1) * size;
        const mr_bytes *b = (const mr_bytes *)(const void *)there;
        if (t == MR_STRING ? b->size == string->size &&
                                 (!b->size || memcmp(b->data, string->data, b->size) == 0)
                           : value_bits(t, there, &other) && other == bits)
            return false;
    }
    s->slots[k] = (uint32_t)i + 1;
    return true;
}

/* The indices of each row's values, contiguous in `places`, and their number in lengths. */
static void find_unique(const mr_array *x, const seen *s, uint32_t *places, int64_t *lengths)
{
    size_t n = mr_array_row_values(x), size = mr_dtype_size(x->dtype), at = 0;
    for (size_t r = 0; r < x->rows; r++) {
        const char *row = n ? mr_array_at(x, r) : NULL;
        size_t first = at;
        memset(s->slots, 0, (s->mask + 1) * sizeof *s->slots);
        for (size_t i = 0; i < n; i++)
            if (is_new(s, x->dtype, row, size, i))
                places[at++] = (uint32_t)i;
        lengths[r] = (int64_t)(at - first);
    }
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    size_t n = mr_array_row_values(x), size = mr_dtype_size(x->dtype), room = 4;
    if (n >= UINT32_MAX / 4) {
        mr__fail_all(r, "unique_values of more than %u values", UINT32_MAX / 4);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    while (room < 2 * n)
        room *= 2;
    mr_buffer *slots = NULL, *places = NULL, *lengths = NULL;
    mr_code rc = mr_buffer_alloc(&slots, room * sizeof(uint32_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&places, r->rows * n * sizeof(uint32_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&lengths, r->rows * sizeof(int64_t), st);
    if (rc == MR_OK) {
        const seen s = {mr_buffer_data(slots), room - 1};
        find_unique(x, &s, mr_buffer_data(places), mr_buffer_data(lengths));
    }
    void *values = NULL;
    if (rc == MR_OK)
        rc = mr__vectors(x->dtype, mr_buffer_data(lengths), r->rows, out, &values, st);
    if (rc == MR_OK) {
        const uint32_t *place = mr_buffer_data(places);
        const int64_t *length = mr_buffer_data(lengths);
        char *z = values;
        for (size_t row = 0; row < r->rows; row++)
            for (int64_t i = 0; i < length[row]; i++, z += size)
                memcpy(z, (const char *)x->data + (row * n + *place++) * size, size);
        if (x->dtype == MR_STRING && x->owner)
            rc = mr_buffer_hold_all(out->owner, x->owner, st);
        if (rc != MR_OK)
            mr_array_reset(out);
    }
    mr_buffer_unref(slots);
    mr_buffer_unref(places);
    mr_buffer_unref(lengths);
    return rc;
}

static const mr_param table[] = {MR_INPUT(mr_input_tensor, "x", "Any tensor."), {0}};
const mr_function mr_function_unique_values = {
    .abi = MR_ABI_VERSION,
    .name = "unique_values",
    .doc = "Each value once, in the order of first appearance: a vector. Every NaN is kept.",
    .example = "range(3).map(x => unique_values([x, 1, x]))",
    .params = table,
    .type = type,
    .run = run,
};
