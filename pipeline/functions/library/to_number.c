/* SPDX-License-Identifier: Apache-2.0 */
/* to_number(x, dtype): parses decimal numbers. Integers are parsed exactly, floats by strtod in
 * the C locale; only white space may follow the number. */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "pipeline/functions/library/features.h"
#include "pipeline/functions/library/texts.h"

struct params {
    mr_dtype dtype;
};

enum { LONGEST = 1000 /* bytes of a number */ };

static mr_code type(mr_call *c, mr_status *st)
{
    mr_dtype t = ((const struct params *)c->params)->dtype;
    if (!mr_dtype_is_integer(t) && !mr_dtype_is_floating(t))
        return mr_call_fail(c, st, -1, "to_number makes numbers, not %s", mr_dtype_name(t));
    c->out = *c->in[0];
    c->out.dtype = t;
    return MR_OK;
}

/* Returns NULL, or a description of the error. */
static const char *read_integer(const char *s, size_t n, mr_dtype t, void *z)
{
    bool is_unsigned = t >= MR_UINT8 && t <= MR_UINT64, minus = n && *s == '-';
    unsigned bits = (unsigned)mr_dtype_size(t) * 8;
    uint64_t most = is_unsigned ? UINT64_MAX >> (64 - bits) : (UINT64_C(1) << (bits - 1)) - !minus;
    uint64_t v = 0;
    if (n && (*s == '-' || *s == '+')) {
        s++;
        n--;
    }
    if (n == 0)
        return "is not an integer";
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)(unsigned char)s[i] - '0';
        if (digit > 9)
            return "is not an integer";
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v) || v > most)
            return "does not fit";
    }
    if (minus && is_unsigned && v)
        return "does not fit";
    v = minus ? 0 - v : v;
    memcpy(z, &v, bits / 8); /* little-endian: the low bytes come first */
    return NULL;
}

static locale_t plain; /* the C locale's numbers; 0: the allocation failed */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static const char *read_float(const char *s, size_t n, mr_dtype t, void *z)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    char text[LONGEST + 1], *end;
    if (n == 0 || n > LONGEST || memchr(s, 'x', n) || memchr(s, 'X', n) || memchr(s, '(', n) ||
        mr__is_space(*s))
        return "is not a number";
    memcpy(text, s, n);
    text[n] = '\0';
    double d = 0;
    float f = 0;
    if (t != MR_FLOAT32)
        d = plain ? strtod_l(text, &end, plain) : strtod(text, &end);
    else
        f = plain ? strtof_l(text, &end, plain) : strtof(text, &end);
    if (end != text + n)
        return "is not a number";
    uint16_t h = t == MR_FLOAT16 ? mr_double_to_half(d) : mr_double_to_bfloat(d);
    const void *v = t == MR_FLOAT64 ? (const void *)&d : t == MR_FLOAT32 ? (const void *)&f : &h;
    memcpy(z, v, mr_dtype_size(t));
    d = t == MR_FLOAT64   ? d
        : t == MR_FLOAT32 ? (double)f
        : t == MR_FLOAT16 ? (double)mr_half_to_float(h)
                          : (double)mr_bfloat_to_float(h);
    /* "inf" in any case; digits must not become it unseen. */
    return isinf(d) && !memchr(text, 'i', n) && !memchr(text, 'I', n) ? "does not fit" : NULL;
}

const char *mr__read_number(const char *s, size_t n, mr_dtype t, void *z)
{
    return mr_dtype_is_integer(t) ? read_integer(s, n, t, z) : read_float(s, n, t, z);
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    mr_dtype t = ((const struct params *)r->params)->dtype;
    size_t per_row = mr_array_row_values(x), n = x->rows * per_row, size = mr_dtype_size(t);
    mr_code rc = mr_array_alloc(out, t, x->rank, x->shape, x->rows, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        const mr_bytes *v = (const mr_bytes *)x->data + i;
        const char *s = v->data, *end = s + v->size;
        while (s < end && mr__is_space(*s))
            s++;
        while (s < end && mr__is_space(end[-1]))
            end--;
        void *z = (char *)out->data + i * size;
        const char *why = mr__read_number(s, (size_t)(end - s), t, z);
        if (!why)
            continue;
        memset(z, 0, size);
        mr_row_fail_at(r, i / per_row, 0, i % per_row, MR_INVALID_ARGUMENT,
                       "to_number: \"%.*s\" %s%s%s", (int)(v->size < 60 ? v->size : 60),
                       v->size ? v->data : "", why, *why == 'd' ? " " : "",
                       *why == 'd' ? mr_dtype_name(t) : "");
    }
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "Strings; white space around the number is ignored."),
    {.name = "dtype",
     .doc = "The type of the numbers.",
     .type = MR_PT_OWN,
     .kind = &mr_option_dtype,
     .flags = MR_P_OPTIONAL,
     .def.s = "float32",
     .at = offsetof(struct params, dtype)},
    {0}};
const mr_function mr_function_to_number = {
    .abi = MR_ABI_VERSION,
    .name = "to_number",
    .doc = "The decimal numbers in the strings. Fails for a string that is not a number or is too "
           "large for the dtype; floats may be \"inf\" and \"nan\".",
    .example = "from_tensor_slices([\"1.5\", \"-2e3\"]).map(x => to_number(x, \"float32\"))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
