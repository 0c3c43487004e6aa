/* SPDX-License-Identifier: Apache-2.0 */
/* parse_json(x, {name: feature, ...}): JSON objects (RFC 8259) to a record of tensors. Keys that
 * are not asked for are left out; null is as if the key were not there. What `show` prints is read:
 * bytes as {"b64": ".."}, and "nan", "inf", "-inf" among floats. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/base64.h"
#include "pipeline/functions/features.h"

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

static mr_code put_scalar(mr__sheet *s, size_t i, const json_t *v, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
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
        return mr_fail(st, MR_INVALID_ARGUMENT, "a list of %zu, where its shape has %lld", n,
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

mr_code mr__sheet_put_json(mr__sheet *s, const mr_bytes *text, const char **bad, mr_status *st)
{
    json_error_t error;
    char line[32] = "";
    json_t *v = json_loadb(text->size ? text->data : "", text->size,
                           JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
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
     .doc =
         "{\"name\": feature, ...} or name=feature, ... A feature is a dtype, with a shape after "
         "it ([3, 4]; [] for any length), or feature(dtype, shape=[..], default=v) where the key "
         "may be missing.",
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
