/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/element_example.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example.h"

struct mr_element_encoder {
    mr_spec *spec;
    size_t n;
    bool plain; /* a single scalar string */
    mr_example_value *features;
    mr_bytes *whole;  /* uint8 tensors: one string of all their bytes for each feature */
    void **converted; /* values of dtypes that lists do not support, one buffer per feature */
    size_t *converted_capacity;
    uint8_t *record;
    size_t capacity;
};

mr_code mr_element_encoder_new(mr_element_encoder **out, const mr_spec *spec, mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec);
    mr_element_encoder *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an encoder");
    e->spec = mr_spec_ref(spec);
    e->n = n;
    e->features = mr_calloc(n, sizeof *e->features);
    e->whole = mr_calloc(n, sizeof *e->whole);
    e->converted = mr_calloc(n, sizeof *e->converted);
    e->converted_capacity = mr_calloc(n, sizeof *e->converted_capacity);
    mr_code rc = MR_OK;
    if (!e->features || !e->whole || !e->converted || !e->converted_capacity)
        rc = mr_fail_memory(st, n * sizeof *e->features, "an encoder");
    const char *const *names = mr_spec_leaf_names(spec);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        mr_example_value *f = &e->features[i];
        f->name = names[i][0] ? names[i] : "value";
        f->name_size = strlen(f->name);
        if (leaf->dtype == MR_DATASET)
            rc =
                mr_fail(st, MR_INVALID_ARGUMENT,
                        "component '%s' is a dataset, which a record cannot hold; flatten it first",
                        f->name);
        else if (mr_dtype_is_floating(leaf->dtype))
            f->dtype = MR_FLOAT32;
        else if (leaf->dtype == MR_STRING || (leaf->dtype == MR_UINT8 && leaf->rank != 0))
            f->dtype = MR_STRING;
        else
            f->dtype = MR_INT64;
    }
    if (rc != MR_OK) {
        mr_element_encoder_free(e);
        return rc;
    }
    e->plain = n == 1 && mr_spec_kind_of(spec) == MR_SPEC_LEAF &&
               mr_spec_leaf(spec, 0)->dtype == MR_STRING && mr_spec_leaf(spec, 0)->rank == 0;
    *out = e;
    return MR_OK;
}

void mr_element_encoder_free(mr_element_encoder *e)
{
    if (!e)
        return;
    for (size_t i = 0; e->converted && i < e->n; i++)
        mr_free(e->converted[i]);
    mr_free(e->converted);
    mr_free(e->converted_capacity);
    mr_free(e->features);
    mr_free(e->whole);
    mr_free(e->record);
    mr_spec_unref(e->spec);
    mr_free(e);
}

static mr_code to_ints(const char *name, mr_dtype t, const void *from, int64_t *to, size_t n,
                       mr_status *st)
{
#define CONVERT(code, type)                                                                        \
    case code:                                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            to[i] = (int64_t)((const type *)from)[i];                                              \
        break
    switch (t) {
        CONVERT(MR_BOOL, uint8_t);
        CONVERT(MR_INT8, int8_t);
        CONVERT(MR_INT16, int16_t);
        CONVERT(MR_INT32, int32_t);
        CONVERT(MR_UINT8, uint8_t);
        CONVERT(MR_UINT16, uint16_t);
        CONVERT(MR_UINT32, uint32_t);
        CONVERT(MR_UINT64, uint64_t);
    default:
        break;
    }
#undef CONVERT
    for (size_t i = 0; t == MR_UINT64 && i < n; i++)
        if (to[i] < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "component '%s' holds %" PRIu64
                           ", but the integers of a record end at %" PRId64
                           "; cast it to another type",
                           name, ((const uint64_t *)from)[i], INT64_MAX);
    return MR_OK;
}

static void to_floats(mr_dtype t, const void *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = t == MR_FLOAT16    ? mr_half_to_float(((const uint16_t *)from)[i])
                : t == MR_BFLOAT16 ? mr_bfloat_to_float(((const uint16_t *)from)[i])
                                   : (float)((const double *)from)[i];
}

static mr_code fill(mr_element_encoder *e, size_t i, const mr_array *a, size_t row, mr_status *st)
{
    mr_example_value *f = &e->features[i];
    const void *values;
    size_t n = 1;
    if (a->storage == MR_RAGGED) {
        const mr_row *r = (const mr_row *)a->data + row;
        if (r->splits)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "component '%s' is ragged, which a record cannot hold", f->name);
        for (int d = 0; d < a->rank; d++)
            n *= (size_t)r->shape[d];
        values = r->data;
    } else {
        n = mr_array_row_values(a);
        values = mr_array_at(a, row);
    }
    if (f->dtype == MR_STRING && a->dtype == MR_UINT8) {
        e->whole[i] = (mr_bytes){values, n};
        f->values = &e->whole[i];
        f->n = 1;
        return MR_OK;
    }
    f->n = n;
    f->values = values;
    if (f->dtype == a->dtype)
        return MR_OK;
    MR_TRY(
        mr_grow(&e->converted[i], &e->converted_capacity[i], n, 8, SIZE_MAX / 8, "a feature", st));
    f->values = e->converted[i];
    if (f->dtype == MR_INT64)
        return to_ints(f->name, a->dtype, values, e->converted[i], n, st);
    to_floats(a->dtype, values, e->converted[i], n);
    return MR_OK;
}

mr_code mr_element_encode(mr_element_encoder *e, const mr_block *b, size_t row, mr_bytes *record,
                          mr_status *st)
{
    if (e->plain) {
        *record = *(const mr_bytes *)mr_array_at(&b->columns[0], row);
        return MR_OK;
    }
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(fill(e, i, &b->columns[i], row, st));
    size_t size = 0;
    MR_TRY(mr_example_encode(e->features, e->n, &e->record, &e->capacity, &size, st));
    *record = (mr_bytes){(const char *)e->record, size};
    return MR_OK;
}
