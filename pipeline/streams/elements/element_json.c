/* SPDX-License-Identifier: Apache-2.0 */
/* Written by hand and not through a JSON library, because the digits of floats are part of the
 * interface. */
#include "pipeline/streams/elements/element_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/base64.h"
#include "pipeline/params/float_digits.h"
#include "pipeline/params/spec.h"

static void print_base64(FILE *f, const unsigned char *s, size_t n)
{
    enum { BYTES = 768 };
    char text[BYTES / 3 * 4];
    for (size_t i = 0; i < n; i += BYTES)
        fwrite(text, 1, mr_base64_encode(s + i, n - i < BYTES ? n - i : BYTES, text), f);
}

void mr_json_string(FILE *f, const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (!mr_text_is_utf8(text, n)) {
        fputs("{\"b64\": \"", f);
        print_base64(f, s, n);
        fputs("\"}", f);
        return;
    }
    putc_unlocked('"', f);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = s[i];
        if (c == '"' || c == '\\')
            putc_unlocked('\\', f);
        if (c == '\n')
            fputs("\\n", f);
        else if (c == '\t')
            fputs("\\t", f);
        else if (c == '\r')
            fputs("\\r", f);
        else if (c < 0x20 || c == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", c);
            fputs(escape, f);
        } else
            putc_unlocked(c, f);
    }
    putc_unlocked('"', f);
}

/* Keys are strings: a key that is not UTF-8 is written as the text of a {"b64": ...} object. */
static void print_key(FILE *f, const char *name)
{
    size_t n = strlen(name);
    if (mr_text_is_utf8(name, n)) {
        mr_json_string(f, name, n);
        return;
    }
    fputs("\"{\\\"b64\\\": \\\"", f);
    print_base64(f, (const unsigned char *)name, n);
    fputs("\\\"}\"", f);
}

static void print_integer(FILE *f, bool negative, uint64_t v)
{
    char text[24], *at = text + sizeof text;
    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    if (negative)
        *--at = '-';
    fwrite_unlocked(at, 1, (size_t)(text + sizeof text - at), f);
}

static void print_signed(FILE *f, int64_t v)
{
    print_integer(f, v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

/* Integers below 10^6 in full; other numbers as C's %g, with the digits needed to read them
 * back. */
static void print_float(FILE *f, mr_dtype t, double v)
{
    if (!isfinite(v)) {
        fputs(isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"", f);
        return;
    }
    if (v == trunc(v) && fabs(v) < 1e6) {
        print_integer(f, signbit(v), (uint64_t)fabs(v));
        fwrite_unlocked(".0", 1, 2, f);
        return;
    }
    char digits[MR_FLOAT_DIGITS], text[40], *at = text;
    int exponent, n = (int)mr_float_digits(t, v, digits, &exponent);
    if (signbit(v))
        *at++ = '-';
    int point = exponent < -4 || exponent >= n ? 1 : exponent + 1; /* digits before the point */
    if (point < 1) {
        memcpy(at, "0.000", (size_t)(2 - point));
        at += 2 - point;
        point = n;
    }
    memcpy(at, digits, (size_t)point);
    at += point;
    if (n > point) {
        *at++ = '.';
        memcpy(at, digits + point, (size_t)(n - point));
        at += n - point;
    }
    if (exponent < -4 || exponent >= n)
        at += sprintf(at, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent == n - 1) {
        memcpy(at, ".0", 2);
        at += 2;
    }
    fwrite_unlocked(text, 1, (size_t)(at - text), f);
}

void mr_json_double(FILE *f, double v)
{
    print_float(f, MR_FLOAT64, v);
}

void mr_json_float(FILE *f, float v)
{
    print_float(f, MR_FLOAT32, (double)v);
}

static void print_value(FILE *f, mr_dtype t, const void *values, size_t i)
{
    switch (t) {
    case MR_BOOL:
        fputs(((const uint8_t *)values)[i] ? "true" : "false", f);
        break;
    case MR_INT8:
        print_signed(f, ((const int8_t *)values)[i]);
        break;
    case MR_INT16:
        print_signed(f, ((const int16_t *)values)[i]);
        break;
    case MR_INT32:
        print_signed(f, ((const int32_t *)values)[i]);
        break;
    case MR_INT64:
        print_signed(f, ((const int64_t *)values)[i]);
        break;
    case MR_UINT8:
        print_integer(f, false, ((const uint8_t *)values)[i]);
        break;
    case MR_UINT16:
        print_integer(f, false, ((const uint16_t *)values)[i]);
        break;
    case MR_UINT32:
        print_integer(f, false, ((const uint32_t *)values)[i]);
        break;
    case MR_UINT64:
        print_integer(f, false, ((const uint64_t *)values)[i]);
        break;
    case MR_FLOAT16:
        print_float(f, t, (double)mr_half_to_float(((const uint16_t *)values)[i]));
        break;
    case MR_BFLOAT16:
        print_float(f, t, (double)mr_bfloat_to_float(((const uint16_t *)values)[i]));
        break;
    case MR_FLOAT32:
        print_float(f, t, (double)((const float *)values)[i]);
        break;
    case MR_FLOAT64:
        print_float(f, t, ((const double *)values)[i]);
        break;
    case MR_STRING: {
        const mr_bytes *s = (const mr_bytes *)values + i;
        mr_json_string(f, s->data, s->size);
        break;
    }
    case MR_DATASET:
    case MR_N_DTYPES:
        break;
    }
}

/* A tensor of `rank` axes from value *at on, as nested arrays. splits (NULL: none): the lengths of
 * axis 1, whose entries begin at *at. */
static void print_tensor(FILE *f, mr_dtype t, const void *values, int rank, const int64_t *shape,
                         const int64_t *splits, size_t *at)
{
    if (rank == 0) {
        print_value(f, t, values, (*at)++);
        return;
    }
    putc_unlocked('[', f);
    for (int64_t i = 0; i < shape[0]; i++) {
        if (i)
            fwrite_unlocked(", ", 1, 2, f);
        if (splits) {
            int64_t inner[MR_MAX_RANK];
            memcpy(inner, shape + 1, (size_t)(rank - 1) * sizeof *inner);
            inner[0] = splits[i + 1] - splits[i];
            print_tensor(f, t, values, rank - 1, inner, NULL, at);
        } else
            print_tensor(f, t, values, rank - 1, shape + 1, NULL, at);
    }
    putc_unlocked(']', f);
}

static mr_code print_dataset(FILE *f, mr_dataset *ds, const mr_iterator_opts *opts, mr_status *st)
{
    if (mr_dataset_cardinality(ds) == MR_INFINITE)
        return mr_fail(
            st, MR_FAILED_PRECONDITION,
            "an element is a dataset that never ends: take(n) of it, or flat_map it; "
            "random numbers of an element are random_uniform() or random_int(low, high)");
    mr_iterator_opts inner = *opts;
    inner.positions = false;
    inner.watch = false;
    mr_iterator *it = NULL;
    MR_TRY(mr_iterator_open(&it, ds, &inner, st));
    fputs("{\"dataset\": [", f);
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    bool first = true;
    while ((rc = mr_iterator_next(it, 1024, &b, st)) == MR_OK)
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++) {
            if (!first)
                fputs(", ", f);
            first = false;
            rc = mr_json_element(f, mr_iterator_spec(it), &b, i, opts, st);
        }
    mr_block_reset(&b);
    mr_iterator_close(it);
    fputs("]}", f);
    return rc == MR_END ? MR_OK : rc;
}

static mr_code print_leaf(FILE *f, const mr_array *a, size_t row, const mr_iterator_opts *opts,
                          mr_status *st)
{
    size_t at = 0;
    if (a->storage == MR_DATASETS)
        return print_dataset(f, ((mr_dataset **)a->data)[row], opts, st);
    if (a->storage == MR_RAGGED) {
        const mr_row *r = (const mr_row *)a->data + row;
        print_tensor(f, a->dtype, r->data, a->rank, r->shape, r->splits, &at);
    } else
        print_tensor(f, a->dtype, mr_array_at(a, row), a->rank, a->shape, NULL, &at);
    return MR_OK;
}

static void print_index(FILE *f, size_t i)
{
    char key[24];
    snprintf(key, sizeof key, "\"%zu\"", i);
    fputs(key, f);
}

static mr_code print_tree(FILE *f, const mr_spec *spec, const mr_array *columns, size_t row,
                          const mr_iterator_opts *opts, mr_status *st)
{
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF)
        return print_leaf(f, columns, row, opts, st);
    putc_unlocked('{', f);
    for (size_t i = 0; i < mr_spec_n_children(spec); i++) {
        const char *name = mr_spec_child_name(spec, i);
        if (i)
            fputs(", ", f);
        if (name)
            print_key(f, name);
        else
            print_index(f, i);
        fputs(": ", f);
        MR_TRY(print_tree(f, mr_spec_child(spec, i), columns + mr_spec_first_leaf(spec, i), row,
                          opts, st));
    }
    putc_unlocked('}', f);
    return MR_OK;
}

mr_code mr_json_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                        const mr_iterator_opts *opts, mr_status *st)
{
    return print_tree(f, spec, b->columns, row, opts, st);
}
