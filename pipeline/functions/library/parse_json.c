/* SPDX-License-Identifier: Apache-2.0 */
/* parse_json(x, {name: feature, ...}): parses JSON objects (RFC 8259) into a record of tensors.
 * Other keys are ignored; null counts as a missing key. The output of `show` can be read: bytes
 * as {"b64": ".."}, and "nan", "inf", "-inf" among floats. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/base64.h"
#include "pipeline/functions/library/features.h"

struct params {
    mr_exprs features;
};

static mr_code type(mr_call *c, mr_status *st)
{
    return mr__features_type(c, &((const struct params *)c->params)->features, false, st);
}

static mr_code wrong(const char *wanted, const json_t *found, mr_status *st)
{
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a float",   "true",   "false",    "null"};
    return mr_fail(st, MR_INVALID_ARGUMENT, "expected %s, found %s", wanted,
                   names[json_typeof(found)]);
}

static mr_code put_base64(mr__sheet *s, size_t i, const json_t *text, mr_status *st)
{
    const char *v = json_string_value(text);
    size_t n = json_string_length(text), size;
    MR_TRY(mr__sheet_put_bytes(s, i, v, n, st)); /* room; the bytes replace the text there */
    if (!mr_base64_decode(v, n, s->text + s->n_text - n, &size))
        return mr_fail(st, MR_INVALID_ARGUMENT, "'%.40s' is not base64", v);
    mr__sheet_shorten(s, i, size);
    return MR_OK;
}

/* An integer out of int64's range is the text under this key in an object: see
 * mark_long_integers. */
#define LONG_INTEGER "\001"

static mr_code put_long_integer(mr__sheet *s, size_t i, const json_t *text, mr_status *st)
{
    mr_dtype t = s->f->v[i].dtype;
    const char *v = json_string_value(text);
    char z[sizeof(uint64_t)];
    const char *why = t == MR_BOOL ? "is not a bool" : mr__read_value(v, strlen(v), t, z);
    if (why)
        return mr_fail(st, MR_OUT_OF_RANGE, "%.40s does not fit %s", v, mr_dtype_name(t));
    return mr__sheet_put(s, i, z, st);
}

static mr_code put_scalar(mr__sheet *s, size_t i, const json_t *v, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
    const json_t *integer = json_object_size(v) == 1 ? json_object_get(v, LONG_INTEGER) : NULL;
    if (json_is_string(integer))
        return f->dtype == MR_STRING
                   ? mr_fail(st, MR_INVALID_ARGUMENT, "expected bytes, found an integer")
                   : put_long_integer(s, i, integer, st);
    const json_t *packed = json_object_size(v) == 1 ? json_object_get(v, "b64") : NULL;
    const char *text = json_string_value(v);
    if (json_is_integer(v) && f->dtype != MR_STRING)
        return mr__sheet_put_int(s, i, (int64_t)json_integer_value(v), st);
    if (json_is_real(v) && mr_dtype_is_floating(f->dtype))
        return mr__sheet_put_float(s, i, json_real_value(v), st);
    if (json_is_boolean(v) && f->dtype == MR_BOOL)
        return mr__sheet_put_int(s, i, json_is_true(v), st);
    if (text && f->dtype == MR_STRING)
        return mr__sheet_put_bytes(s, i, text, json_string_length(v), st);
    if (text && mr_dtype_is_floating(f->dtype) && strcmp(text, "nan") == 0)
        return mr__sheet_put_float(s, i, (double)NAN, st);
    if (text && mr_dtype_is_floating(f->dtype) &&
        (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0))
        return mr__sheet_put_float(s, i, *text == '-' ? -HUGE_VAL : HUGE_VAL, st);
    if (json_is_string(packed) && f->dtype == MR_STRING)
        return put_base64(s, i, packed, st);
    return wrong(f->dtype == MR_STRING ? "bytes" : mr_dtype_name(f->dtype), v, st);
}

/* v is axis `axis` of the feature. */
static mr_code put_axis(mr__sheet *s, size_t i, int axis, const json_t *v, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
    if (axis == (f->ragged ? 1 : f->rank))
        return put_scalar(s, i, v, st);
    if (!json_is_array(v))
        return wrong("a list", v, st);
    size_t n = json_array_size(v);
    if (!f->ragged && n != (size_t)f->shape[axis])
        return mr_fail(st, MR_INVALID_ARGUMENT, "a list of %zu, but its shape has %lld", n,
                       (long long)f->shape[axis]);
    for (size_t k = 0; k < n; k++)
        MR_TRY(put_axis(s, i, axis + 1, json_array_get(v, k), st));
    return MR_OK;
}

static mr_code put_object(mr__sheet *s, const json_t *object, const char **bad, mr_status *st)
{
    mr_code rc = MR_OK;
    for (size_t i = 0; i < s->f->n && rc == MR_OK; i++) {
        const json_t *v = json_object_get(object, s->f->v[i].name);
        *bad = s->f->v[i].name;
        rc = v && !json_is_null(v) ? put_axis(s, i, 0, v, st) : mr__sheet_put_missing(s, i, st);
    }
    return rc;
}

/* The end of the number at p, and whether it is an integer that may exceed int64. */
static const char *number_end(const char *p, const char *end, bool *is_long)
{
    const char *begin = p;
    bool whole = true;
    for (; p < end && (strchr("+-.eE", *p) || (*p >= '0' && *p <= '9')) && *p; p++)
        whole = whole && *p != '.' && *p != 'e' && *p != 'E';
    *is_long = whole && p - begin >= 19; /* the digits of the largest */
    return p;
}

/* Replaces long integers in text by objects, because the parser refuses them, while Python and
 * others write integers of any size. Owned; NULL: out of memory. */
static char *mark_long_integers(const mr_bytes *text, size_t *size)
{
    static const char head[] = "{\"\\u0001\":\"", tail[] = "\"}";
    const char *p = text->data, *end = p + text->size;
    size_t most = text->size + (text->size / 19 + 1) * (sizeof head + sizeof tail);
    char *out = mr_malloc(most), *to = out;
    bool within = false, is_long;
    while (out && p < end) {
        if (within || !((*p >= '0' && *p <= '9') || *p == '-')) {
            if (within && *p == '\\' && p + 1 < end)
                *to++ = *p++;
            else if (*p == '"')
                within = !within;
            *to++ = *p++;
            continue;
        }
        const char *stop = number_end(p, end, &is_long);
        if (is_long)
            to = stpcpy(to, head);
        memcpy(to, p, (size_t)(stop - p));
        to += stop - p;
        if (is_long)
            to = stpcpy(to, tail);
        p = stop;
    }
    *size = (size_t)(to - out);
    return out;
}

static json_t *parse(const mr_bytes *text, json_error_t *error)
{
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY };
    json_t *v = json_loadb(text->size ? text->data : "", text->size, FLAGS, error);
    if (v || json_error_code(error) != json_error_numeric_overflow)
        return v;
    json_error_t second;
    size_t size;
    char *marked = mark_long_integers(text, &size);
    v = marked ? json_loadb(marked, size, FLAGS, &second) : NULL;
    if (!marked || (!v && json_error_code(&second) == json_error_out_of_memory))
        error->text[sizeof error->text - 1] = (char)json_error_out_of_memory;
    mr_free(marked);
    return v;
}

mr_code mr__sheet_put_json(mr__sheet *s, const mr_bytes *text, const char **bad, mr_status *st)
{
    json_error_t error;
    char line[32] = "";
    json_t *v = parse(text, &error);
    mr_code rc;
    *bad = NULL;
    if (!v && error.line > 1)
        snprintf(line, sizeof line, "line %d, ", error.line);
    if (!v && json_error_code(&error) == json_error_out_of_memory)
        rc = mr_fail_memory(st, text->size, "a JSON object");
    else if (!v)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "it is not JSON: %s at %scolumn %d", error.text, line,
                     error.column);
    else if (!json_is_object(v))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "expected an object, as in {\"a\": 1}");
    else
        rc = put_object(s, v, bad, st);
    json_decref(v);
    return rc;
}

static mr_code put_record(const mr_rows *r, mr__sheet *s, size_t i, mr_status *st)
{
    const mr_array *x = &r->in[0];
    size_t k = mr_array_row_values(x);
    const char *bad;
    mr_status why;
    mr_code rc = mr__sheet_put_json(s, (const mr_bytes *)x->data + i, &bad, &why);
    if (rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    if (rc != MR_OK)
        mr_row_fail_at(r, i / k, 0, i % k, why.code, "parse_json: %s%.80s%s%s",
                       bad ? "feature " : "", bad ? bad : "", bad ? ": " : "", why.message);
    return mr__sheet_next(s, rc == MR_OK, st);
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr__features *f = r->plan;
    size_t k = mr_array_row_values(&r->in[0]), n = r->rows * k;
    mr__sheet s;
    MR_TRY(mr__sheet_start(&s, f, n, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = put_record(r, &s, i, st);
    if (rc == MR_OK)
        return mr__sheet_finish(&s, r->rows, k, out, st);
    mr__sheet_reset(&s);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "A JSON object, or a vector of them."),
    {.name = "features",
     .doc = "{\"name\": feature, ...} or name=feature, ... A feature is a dtype, with a shape "
            "after it ([3, 4]; [] for any length), or feature(dtype, shape=[..], default=v) if the "
            "key may be missing.",
     .type = MR_PT_OWN,
     .kind = &mr_option_exprs,
     .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
     .at = offsetof(struct params, features)},
    {0}};
const mr_function mr_function_parse_json = {
    .abi = MR_ABI_VERSION,
    .name = "parse_json",
    .doc = "The values of JSON objects, as a record.",
    .example = "from_tensors(\"{\\\"a\\\": 1, \\\"b\\\": [2.5]}\").map(x => parse_json(x, {\"a\": "
               "int64, \"b\": float32[]}))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = mr__features_free,
    .run = run,
};
