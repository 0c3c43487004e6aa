/* SPDX-License-Identifier: Apache-2.0 */
/* parse_json(x, {name: feature, ...}): parses JSON objects (RFC 8259) into a record of tensors.
 * Other keys are ignored; null counts as a missing key. The output of `show` can be read: bytes
 * as {"b64": ".."}, and "nan", "inf", "-inf" among floats. A number becomes a float in one
 * rounding, from its digits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/base64.h"
#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/formats/text/json_scan.h"
#include "pipeline/functions/library/features.h"

struct params {
    mr_exprs features;
};

static mr_code type(mr_call *c, mr_status *st)
{
    return mr__features_type(c, &((const struct params *)c->params)->features, false, st);
}

/* An object as it is read into a sheet. */
struct reading {
    mr__sheet *sheet;
    mr__json json;
    const char *bad; /* the current feature or record */
    bool in_list;    /* within the objects of a list that the features describe as a record */
};

static const char *name_of(mr__json_kind kind, const mr_bytes *raw)
{
    static const char *const names[] = {
        [MR__JSON_NULL] = "null",   [MR__JSON_TRUE] = "true",
        [MR__JSON_FALSE] = "false", [MR__JSON_STRING] = "a string",
        [MR__JSON_LIST] = "a list", [MR__JSON_OBJECT] = "an object"};
    return kind != MR__JSON_NUMBER    ? names[kind]
           : mr__json_is_integer(raw) ? "an integer"
                                      : "a float";
}

/* The code of an error that the scanner has kept. */
static mr_code not_json(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "it is not JSON");
}

static mr_code wrong(struct reading *r, const char *wanted, mr__json_kind kind, mr_status *st)
{
    mr_bytes raw = {0};
    if (kind == MR__JSON_BAD || !mr__json_value(&r->json, &raw))
        return not_json(st);
    return mr_fail(st, MR_INVALID_ARGUMENT, "expected %s, found %s", wanted, name_of(kind, &raw));
}

/* ---- scalars ---- */

/* Puts a string without its escapes. */
static mr_code put_string(mr__sheet *s, size_t i, const mr__json_text *t, mr_status *st)
{
    size_t n;
    MR_TRY(mr__sheet_put_bytes(s, i, t->raw.data, t->raw.size, st)); /* room for the text */
    if (!mr__json_plain(t, s->text + s->n_text - t->raw.size, &n))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "its string is not Unicode: a byte that is not UTF-8, or half of a "
                       "surrogate pair");
    mr__sheet_shorten(s, i, n);
    return MR_OK;
}

static mr_code put_base64(mr__sheet *s, size_t i, const mr_bytes *v, mr_status *st)
{
    size_t size;
    MR_TRY(mr__sheet_put_bytes(s, i, v->data, v->size, st)); /* room; the bytes replace the text */
    if (!mr_base64_decode(v->data, v->size, s->text + s->n_text - v->size, &size))
        return mr_fail(st, MR_INVALID_ARGUMENT, "'%.*s' is not base64",
                       (int)(v->size < 40 ? v->size : 40), v->data);
    mr__sheet_shorten(s, i, size);
    return MR_OK;
}

/* true: the next value is {"b64": text}, and was read. false: it is not, and was not read. */
static bool read_packed(mr__json *j, mr_bytes *text)
{
    mr__json before = *j;
    mr__json_text key, value;
    mr__json_enter(j);
    bool good = mr__json_key(j, true, &key) && key.raw.size == 3 &&
                memcmp(key.raw.data, "b64", 3) == 0 && mr__json_peek(j) == MR__JSON_STRING &&
                mr__json_string(j, &value) && !value.escaped && !mr__json_key(j, false, &key) &&
                !j->wrong;
    if (good)
        *text = value.raw;
    else
        *j = before;
    return good;
}

static mr_code put_number(mr__sheet *s, size_t i, const mr_bytes *raw, mr_status *st)
{
    mr_dtype t = s->f->v[i].dtype;
    char z[sizeof(uint64_t)];
    bool named = raw->data[raw->size - 1] > '9'; /* NaN, Infinity */
    int shown = (int)(raw->size < 40 ? raw->size : 40);
    if (named)
        return mr__sheet_put_float(s, i,
                                   *raw->data == 'N'   ? (double)NAN
                                   : *raw->data == '-' ? -HUGE_VAL
                                                       : HUGE_VAL,
                                   st);
    const char *why = mr__read_value(raw->data, raw->size, t, z); /* rounded once */
    if (why)
        return mr_fail(st, MR_OUT_OF_RANGE, "%.*s does not fit %s", shown, raw->data,
                       mr_dtype_name(t));
    return mr__sheet_put(s, i, z, st);
}

/* "nan", "inf" or "-inf", as show prints them. */
static bool named_float(const mr__json_text *t, double *v)
{
    static const struct {
        const char *name;
        double v;
    } names[] = {{"nan", (double)NAN}, {"inf", HUGE_VAL}, {"-inf", -HUGE_VAL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == t->raw.size &&
            memcmp(names[i].name, t->raw.data, t->raw.size) == 0) {
            *v = names[i].v;
            return true;
        }
    return false;
}

static mr_code put_scalar(struct reading *r, size_t i, mr_status *st)
{
    mr__sheet *s = r->sheet;
    const mr__feature *f = &s->f->v[i];
    mr__json *j = &r->json, before;
    bool floating = mr_dtype_is_floating(f->dtype);
    mr__json_kind kind = mr__json_peek(j);
    mr__json_text text;
    mr_bytes raw;
    double v;
    before = *j;
    if (f->raw && kind != MR__JSON_BAD)
        return mr__json_value(j, &raw) ? mr__sheet_put_bytes(s, i, raw.data, raw.size, st)
                                       : not_json(st);
    if (kind == MR__JSON_OBJECT && f->dtype == MR_STRING && read_packed(j, &raw))
        return put_base64(s, i, &raw, st);
    if (kind == MR__JSON_STRING && (f->dtype == MR_STRING || floating)) {
        if (!mr__json_string(j, &text))
            return not_json(st);
        if (f->dtype == MR_STRING)
            return put_string(s, i, &text, st);
        if (named_float(&text, &v))
            return mr__sheet_put_float(s, i, v, st);
    }
    if (kind == MR__JSON_NUMBER && f->dtype != MR_STRING) {
        if (!mr__json_value(j, &raw))
            return not_json(st);
        if (floating || mr__json_is_integer(&raw))
            return put_number(s, i, &raw, st);
    }
    if ((kind == MR__JSON_TRUE || kind == MR__JSON_FALSE) && f->dtype == MR_BOOL) {
        (void)mr__json_value(j, &raw);
        return mr__sheet_put_int(s, i, kind == MR__JSON_TRUE, st);
    }
    *j = before;
    return wrong(r, f->dtype == MR_STRING ? "bytes" : mr_dtype_name(f->dtype), kind, st);
}

/* ---- lists and records ---- */

/* The next value is axis `axis` of the feature. */
static mr_code put_axis(struct reading *r, size_t i, int axis, mr_status *st)
{
    const mr__feature *f = &r->sheet->f->v[i];
    if (axis == (f->ragged ? !r->in_list : f->rank))
        return put_scalar(r, i, st);
    mr__json_kind kind = mr__json_peek(&r->json);
    if (kind != MR__JSON_LIST)
        return wrong(r, "a list", kind, st);
    size_t n = 0, most = f->ragged ? SIZE_MAX : (size_t)f->shape[axis];
    mr_bytes raw;
    mr__json_enter(&r->json);
    for (; mr__json_item(&r->json, n == 0); n++)
        if (n < most)
            MR_TRY(put_axis(r, i, axis + 1, st));
        else if (!mr__json_value(&r->json, &raw))
            return not_json(st);
    if (r->json.wrong)
        return not_json(st);
    if (!f->ragged && n != most)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a list of %zu, but its shape has %lld", n,
                       (long long)f->shape[axis]);
    return MR_OK;
}

static mr_code put_missing(struct reading *r, const mr__feature_node *node, mr_status *st)
{
    r->bad = node->path;
    if (node->lists)
        return MR_OK; /* an empty list */
    for (size_t i = 0; i < node->n; i++)
        MR_TRY(put_missing(r, &node->children[i], st));
    if (node->children)
        return MR_OK;
    if (r->in_list && r->sheet->f->v[node->first].ragged)
        return mr_fail(st, MR_INVALID_ARGUMENT, "it is missing in an object of the list");
    return mr__sheet_put_missing(r->sheet, node->first, st);
}

static const mr__feature_node *child_of(const mr__feature_node *node, const char *key, size_t n)
{
    size_t lo = 0, hi = node->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const char *name = node->children[mid].name;
        int order = strncmp(name, key, n);
        if (order == 0)
            order = name[n] != '\0';
        if (order == 0)
            return &node->children[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* The child that the key names, which may have escapes; NULL: none. */
static const mr__feature_node *find_child(const mr__feature_node *node, const mr__json_text *key)
{
    char plain[512];
    size_t n = key->raw.size;
    if (!key->escaped)
        return memchr(key->raw.data, '\0', n) ? NULL : child_of(node, key->raw.data, n);
    if (n > sizeof plain || !mr__json_plain(key, plain, &n) || memchr(plain, '\0', n))
        return NULL;
    return child_of(node, plain, n);
}

static mr_code put_node(struct reading *r, const mr__feature_node *node, mr_status *st);

/* The next value is an object. */
static mr_code put_object(struct reading *r, const mr__feature_node *node, mr_status *st)
{
    mr__sheet *s = r->sheet;
    uint64_t object = ++s->object;
    mr__json_text key;
    mr_bytes raw;
    mr__json_enter(&r->json);
    for (bool first = true; mr__json_key(&r->json, first, &key); first = false) {
        const mr__feature_node *child = find_child(node, &key);
        if (!child) {
            if (!mr__json_value(&r->json, &raw))
                return not_json(st);
            continue;
        }
        r->bad = child->path;
        if (s->seen[child->id] == object)
            return mr_fail(st, MR_INVALID_ARGUMENT, "a duplicate key: the object has it twice");
        s->seen[child->id] = object;
        MR_TRY(put_node(r, child, st));
    }
    if (r->json.wrong)
        return not_json(st);
    for (size_t i = 0; i < node->n; i++)
        if (s->seen[node->children[i].id] != object)
            MR_TRY(put_missing(r, &node->children[i], st));
    return MR_OK;
}

/* The next value is a record. */
static mr_code put_record_value(struct reading *r, const mr__feature_node *node, mr_status *st)
{
    mr__json_kind kind = mr__json_peek(&r->json);
    r->bad = node->path;
    return kind == MR__JSON_OBJECT ? put_object(r, node, st) : wrong(r, "an object", kind, st);
}

/* The next value is list `level` of the node's, from 0. An entry of the outermost list is an inner
 * list of the features that have two. */
static mr_code put_records(struct reading *r, const mr__feature_node *node, int level, bool outer,
                           mr_status *st)
{
    if (level == node->lists)
        return put_record_value(r, node, st);
    mr__json_kind kind = mr__json_peek(&r->json);
    mr_code rc = MR_OK;
    r->bad = node->path;
    if (kind != MR__JSON_LIST)
        return wrong(r, "a list", kind, st);
    mr__json_enter(&r->json);
    size_t n = 0, end = node->first + node->n_features;
    for (; rc == MR_OK && mr__json_item(&r->json, n == 0); n++) {
        for (size_t i = node->first; i < end && outer; i++)
            mr__sheet_begin_inner(r->sheet, i);
        rc = put_records(r, node, level + 1, false, st);
        for (size_t i = node->first; i < end && outer && rc == MR_OK; i++)
            rc = mr__sheet_end_inner(r->sheet, i, st);
        if (rc != MR_OK && !r->json.wrong && rc != MR_RESOURCE_EXHAUSTED)
            mr_status_prefix(st, "item %zu", n);
    }
    return rc == MR_OK && r->json.wrong ? not_json(st) : rc;
}

/* true: all features within the node are lists. */
static bool all_lists(const struct reading *r, const mr__feature_node *node)
{
    for (size_t i = 0; i < node->n_features; i++)
        if (!r->sheet->f->v[node->first + i].ragged || r->sheet->f->v[node->first + i].lists)
            return false;
    return true;
}

static mr_code put_node(struct reading *r, const mr__feature_node *node, mr_status *st)
{
    mr__json_kind kind = mr__json_peek(&r->json);
    const mr__feature *f = &r->sheet->f->v[node->first];
    bool raw = !node->children && f->raw && !f->ragged && f->rank == 0; /* null has a text too */
    mr_bytes text;
    mr_code rc = MR_OK;
    if (kind == MR__JSON_NULL && !raw) {
        (void)mr__json_value(&r->json, &text);
        return put_missing(r, node, st);
    }
    if (!node->children)
        return put_axis(r, node->first, 0, st);
    if (node->lists)
        return put_records(r, node, 0, !node->in_list, st);
    if (kind != MR__JSON_LIST || r->in_list || !all_lists(r, node))
        return put_record_value(r, node, st);
    /* {"role": bytes[]} of a list of objects: a list of the role of each */
    r->in_list = true;
    mr__json_enter(&r->json);
    for (size_t n = 0; rc == MR_OK && mr__json_item(&r->json, n == 0); n++)
        rc = put_record_value(r, node, st);
    r->in_list = false;
    return rc == MR_OK && r->json.wrong ? not_json(st) : rc;
}

static mr_code fail_text(const mr__json *j, mr_status *st)
{
    size_t line, column;
    char where[32] = "";
    mr__json_place(j, &line, &column);
    if (line > 1)
        snprintf(where, sizeof where, "line %zu, ", line);
    return mr_fail(st, MR_INVALID_ARGUMENT, "it is not JSON: %s at %scolumn %zu", j->wrong, where,
                   column);
}

/* Errors of the text take precedence: the rest of it is checked after an error of a value. */
static mr_code check_rest(struct reading *r, const mr_bytes *text, mr_code rc, mr_status *st)
{
    mr_bytes raw;
    if (rc == MR_RESOURCE_EXHAUSTED)
        return rc;
    mr__json_start(&r->json, text->data, text->size);
    if (mr__json_value(&r->json, &raw) && mr__json_end(&r->json))
        return rc;
    r->bad = NULL;
    return fail_text(&r->json, st);
}

mr_code mr__sheet_put_json(mr__sheet *s, const mr_bytes *text, const char **bad, mr_status *st)
{
    struct reading r = {.sheet = s};
    mr_code rc;
    mr__json_start(&r.json, text->data, text->size);
    const char *refusal = mr__utf_refusal(text->data, text->size);
    if (refusal)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s", refusal);
    else if (mr__json_peek(&r.json) == MR__JSON_LIST)
        /* Also the first line of a list of several lines, which is not JSON by itself. */
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "expected an object, as in {\"a\": 1}, not a list; write each object of a "
                     "file that is one list on a separate line");
    else {
        if (mr__json_peek(&r.json) == MR__JSON_OBJECT)
            rc = put_object(&r, &s->f->root, st);
        else
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "expected an object, as in {\"a\": 1}");
        if (rc == MR_OK && !mr__json_end(&r.json))
            rc = not_json(st);
        if (rc != MR_OK)
            rc = check_rest(&r, text, rc, st);
    }
    *bad = r.bad;
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
         "may be missing; the type json is the text of a value. {\"name\": feature, ...} is a "
         "record, and [{\"name\": feature, ...}] a list of records, each feature of which is a "
         "list.",
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
