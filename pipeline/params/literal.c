/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/literal.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/params/expr.h"
#include "pipeline/params/float_digits.h"
#include "pipeline/splitmix.h"
#include "pipeline/utf8.h"

/* ---- growing text ---- */

static mr_code text_put(mr__text *t, const char *s, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(t->s, t->capacity, t->n + n + 1, MR_EXPR_MAX_TEXT, "the text of a graph", st));
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    return MR_OK;
}

mr_code mr__text_puts(mr__text *t, const char *s, mr_status *st)
{
    return text_put(t, s, strlen(s), st);
}

mr_code mr__text_finish(mr__text *t, char **out, mr_status *st)
{
    MR_TRY(text_put(t, "", 0, st));
    t->s[t->n] = '\0';
    *out = t->s;
    *t = (mr__text){0};
    return MR_OK;
}

/* ---- numbers ---- */

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double mr__literal_parse(const char *s, char **end)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale ? strtod_l(s, end, c_locale) : strtod(s, end);
}

static void shortest(mr_dtype t, double f, char *out)
{
    char d[MR_FLOAT_DIGITS];
    int exponent;
    if (isnan(f))
        strcpy(out, "(1e999 - 1e999)");
    else if (isinf(f))
        strcpy(out, f < 0 ? "-1e999" : "1e999");
    if (!isfinite(f))
        return;
    int n = (int)mr_float_digits(t, f, d, &exponent);
    if (signbit(f))
        *out++ = '-';
    if (exponent < -5 || exponent > 15)
        sprintf(out, "%c%s%.*se%d", d[0], n > 1 ? "." : "", n - 1, d + 1, exponent);
    else if (exponent < 0)
        sprintf(out, "0.%.*s%.*s", -exponent - 1, "00000", n, d);
    else {
        for (int i = 0; i <= exponent; i++)
            *out++ = i < n ? d[i] : '0';
        sprintf(out, ".%.*s", n > exponent + 1 ? n - exponent - 1 : 1,
                n > exponent + 1 ? d + exponent + 1 : "0");
    }
}

void mr__literal_double(double f, char *buf)
{
    shortest(MR_FLOAT64, f, buf);
}

void mr__literal_float(float f, char *buf)
{
    shortest(MR_FLOAT32, (double)f, buf);
    /* The shortest digits of one float, 7.038531e-26, yield another float when read as a double. */
    if ((float)mr__literal_parse(buf, NULL) != f)
        shortest(MR_FLOAT64, (double)f, buf);
}

/* ---- strings ---- */

mr_code mr__literal_string(mr__text *t, const char *s, size_t n, mr_status *st)
{
    static const char special[] = "\n\t\\\"", letters[] = "nt\\\"";
    const unsigned char *u = (const unsigned char *)s;
    MR_TRY(mr__text_puts(t, "\"", st));
    for (size_t i = 0; i < n;) {
        char out[8] = {s[i]};
        size_t length = 1;
        int32_t point;
        const char *hit = s[i] ? strchr(special, s[i]) : NULL;
        if (hit)
            length = (size_t)snprintf(out, sizeof out, "\\%c", letters[hit - special]);
        else if (u[i] >= 0x80 && (length = mr__utf8_at(s + i, s + n, &point)) > 0) {
            MR_TRY(text_put(t, s + i, length, st));
            i += length;
            continue;
        } else if (u[i] < 0x20 || u[i] >= 0x7f)
            length = (size_t)snprintf(out, sizeof out, "\\x%02x", u[i]);
        MR_TRY(text_put(t, out, length, st));
        i++;
    }
    return mr__text_puts(t, "\"", st);
}

/* ---- tensors ---- */

const void *mr__literal_values(const mr_array *a)
{
    return a->storage == MR_RAGGED ? ((const mr_row *)a->data)->data : a->data;
}

bool mr__literal_int_at(const mr_array *a, size_t i, int64_t *out)
{
    const void *v = mr__literal_values(a);
    switch (a->dtype) {
    case MR_INT8:
        *out = ((const int8_t *)v)[i];
        return true;
    case MR_INT16:
        *out = ((const int16_t *)v)[i];
        return true;
    case MR_INT32:
        *out = ((const int32_t *)v)[i];
        return true;
    case MR_INT64:
        *out = ((const int64_t *)v)[i];
        return true;
    case MR_UINT8:
        *out = ((const uint8_t *)v)[i];
        return true;
    case MR_UINT16:
        *out = ((const uint16_t *)v)[i];
        return true;
    case MR_UINT32:
        *out = ((const uint32_t *)v)[i];
        return true;
    case MR_UINT64:
        *out = (int64_t)((const uint64_t *)v)[i];
        return *out >= 0;
    default:
        return false;
    }
}

bool mr__literal_double_at(const mr_array *a, size_t i, double *out)
{
    const void *v = mr__literal_values(a);
    int64_t integer;
    switch (a->dtype) {
    case MR_FLOAT16:
        *out = (double)mr_half_to_float(((const uint16_t *)v)[i]);
        return true;
    case MR_BFLOAT16:
        *out = (double)mr_bfloat_to_float(((const uint16_t *)v)[i]);
        return true;
    case MR_FLOAT32:
        *out = (double)((const float *)v)[i];
        return true;
    case MR_FLOAT64:
        *out = ((const double *)v)[i];
        return true;
    case MR_UINT64:
        *out = (double)((const uint64_t *)v)[i];
        return true;
    default:
        if (!mr__literal_int_at(a, i, &integer))
            return false;
        *out = (double)integer;
        return true;
    }
}

static size_t count_values(const mr_array *a)
{
    const int64_t *shape = mr_array_row_shape(a, 0);
    size_t n = 1;
    for (int d = 0; d < a->rank; d++)
        n *= (size_t)shape[d];
    return n;
}

/* True if literals, in a cast if needed, reproduce every value of a. */
static bool literals_say(const mr_array *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t integer;
        double f;
        if (mr_dtype_is_integer(a->dtype) && !mr__literal_int_at(a, i, &integer))
            return false;
        if (mr_dtype_is_floating(a->dtype) &&
            (!mr__literal_double_at(a, i, &f) || !(fabs(f) <= FLT_MAX) || (double)(float)f != f))
            return false;
    }
    return true;
}

static mr_code put_value(mr__text *t, const mr_array *a, size_t i, mr_status *st)
{
    char text[MR__DOUBLE_TEXT];
    double f;
    int64_t integer;
    if (a->dtype == MR_STRING) {
        const mr_bytes *b = (const mr_bytes *)mr__literal_values(a) + i;
        return mr__literal_string(t, b->data, b->size, st);
    }
    if (a->dtype == MR_BOOL)
        return mr__text_puts(t, ((const bool *)mr__literal_values(a))[i] ? "true" : "false", st);
    if (mr__literal_int_at(a, i, &integer))
        snprintf(text, sizeof text, "%" PRId64, integer);
    else {
        mr__literal_double_at(a, i, &f);
        mr__literal_float((float)f, text);
    }
    return mr__text_puts(t, text, st);
}

/* Prints the axes from `axis` on; *i is the number of values printed so far. */
static mr_code put_nested(mr__text *t, const mr_array *a, int axis, size_t *i, mr_status *st)
{
    if (axis == a->rank)
        return put_value(t, a, (*i)++, st);
    int64_t n = mr_array_row_shape(a, 0)[axis];
    MR_TRY(mr__text_puts(t, "[", st));
    for (int64_t k = 0; k < n; k++) {
        if (k)
            MR_TRY(mr__text_puts(t, ", ", st));
        MR_TRY(put_nested(t, a, axis + 1, i, st));
    }
    return mr__text_puts(t, "]", st);
}

static mr_code put_shape(mr__text *t, const mr_array *a, mr_status *st)
{
    char shape[MR_MAX_RANK * 24];
    mr_shape_format(a->rank, mr_array_row_shape(a, 0), shape, sizeof shape);
    return mr__text_puts(t, shape, st);
}

/* Prints values that have no literal as raw bytes. */
static mr_code put_raw(mr__text *t, const mr_array *a, size_t n, mr_status *st)
{
    if (a->rank > 1)
        MR_TRY(mr__text_puts(t, "reshape(", st));
    MR_TRY(mr__text_puts(t, "decode_raw(", st));
    MR_TRY(mr__literal_string(t, mr__literal_values(a), n * mr_dtype_size(a->dtype), st));
    MR_TRY(mr__text_puts(t, ", \"", st));
    MR_TRY(mr__text_puts(t, mr_dtype_name(a->dtype), st));
    MR_TRY(mr__text_puts(t, a->rank == 0 ? "\")[0]" : "\")", st));
    if (a->rank <= 1)
        return MR_OK;
    MR_TRY(mr__text_puts(t, ", ", st));
    MR_TRY(put_shape(t, a, st));
    return mr__text_puts(t, ")", st);
}

static mr_code put_empty(mr__text *t, const mr_array *a, mr_status *st)
{
    if (a->dtype == MR_FLOAT32 && a->rank == 1)
        return mr__text_puts(t, "[]", st);
    MR_TRY(mr__text_puts(t, "zeros(", st));
    MR_TRY(put_shape(t, a, st));
    MR_TRY(mr__text_puts(t, ", \"", st));
    MR_TRY(mr__text_puts(t, mr_dtype_name(a->dtype), st));
    return mr__text_puts(t, "\")", st);
}

static uint64_t add_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * MR__GOLDEN;
        h ^= h >> 29;
    }
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * MR__GOLDEN;
    return mr__splitmix(h);
}

/* A resident tensor is memory of the caller: its type, shape and a hash of its values stand for it,
 * so that a position and a cache notice other values. */
static mr_code put_reference(mr__text *t, const mr_array *a, mr_status *st)
{
    char hash[24];
    const int64_t *splits = a->storage == MR_RAGGED ? ((const mr_row *)a->data)->splits : NULL;
    size_t n = count_values(a);
    uint64_t h = MR__FNV_BASIS;
    if (splits) {
        n = (size_t)splits[mr_array_row_shape(a, 0)[0]];
        for (int d = 2; d < a->rank; d++)
            n *= (size_t)mr_array_row_shape(a, 0)[d];
        h = add_bytes(h, splits, ((size_t)mr_array_row_shape(a, 0)[0] + 1) * sizeof *splits);
    }
    if (a->dtype == MR_STRING) {
        const mr_bytes *b = mr__literal_values(a);
        for (size_t i = 0; i < n; i++)
            h = add_bytes(h ^ b[i].size, b[i].data, b[i].size);
    } else
        h = add_bytes(h, mr__literal_values(a), n * mr_dtype_size(a->dtype));
    MR_TRY(mr__text_puts(t, "array(\"", st));
    MR_TRY(mr__text_puts(t, mr_dtype_name(a->dtype), st));
    if (a->rank)
        MR_TRY(put_shape(t, a, st));
    snprintf(hash, sizeof hash, "\", \"%016" PRIx64 "\")", h);
    return mr__text_puts(t, hash, st);
}

mr_code mr__literal_tensor(mr__text *t, const mr_array *a, mr_status *st)
{
    if (a->resident)
        return put_reference(t, a, st);
    if (a->storage == MR_RAGGED && ((const mr_row *)a->data)->splits)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a ragged tensor has no text form; the graph can be sent as protobuf");
    size_t n = count_values(a), i = 0;
    if (n == 0)
        return put_empty(t, a, st);
    if (!literals_say(a, n))
        return put_raw(t, a, n, st);
    bool cast = a->dtype != MR_INT64 && a->dtype != MR_FLOAT32 && a->dtype != MR_BOOL &&
                a->dtype != MR_STRING;
    if (cast)
        MR_TRY(mr__text_puts(t, "cast(", st));
    MR_TRY(put_nested(t, a, 0, &i, st));
    if (!cast)
        return MR_OK;
    MR_TRY(mr__text_puts(t, ", \"", st));
    MR_TRY(mr__text_puts(t, mr_dtype_name(a->dtype), st));
    return mr__text_puts(t, "\")", st);
}
