/* SPDX-License-Identifier: Apache-2.0 */
/* parse_csv(x, [feature, ...], sep=","): parses rows of CSV (RFC 4180) into a tuple, one
 * component per field. A quoted field may contain separators and line ends; a quote in it is
 * doubled. */
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/text/csv_reader.h"
#include "pipeline/functions/library/features.h"
#include "pipeline/functions/library/texts.h"

struct params {
    mr_exprs features;
    char *sep;
};

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *p = c->params;
    if (strlen(p->sep) != 1 || strchr("\"\r\n", *p->sep))
        return mr_call_fail(c, st, -1,
                            "parse_csv: the separator must be one byte, not a quote or line end");
    MR_TRY(mr__features_type(c, &p->features, true, st));
    const mr__features *f = c->plan;
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].ragged || f->v[i].rank > 0)
            return mr_call_fail(c, st, -1,
                                "parse_csv: field %zu is a single value and takes no shape", i + 1);
    return MR_OK;
}

static bool says(const char *s, size_t n, const char *lower)
{
    for (size_t i = 0; i < n && lower[i]; i++)
        if ((s[i] | 0x20) != lower[i])
            return false;
    return n == strlen(lower);
}

const char *mr__read_value(const char *s, size_t n, mr_dtype t, void *z)
{
    bool truth = says(s, n, "true") || (n == 1 && *s == '1');
    if (t != MR_BOOL)
        return mr__read_number(s, n, t, z);
    memcpy(z, &truth, sizeof truth);
    return truth || says(s, n, "false") || (n == 1 && *s == '0') ? NULL
                                                                 : "is neither true nor false";
}

mr_code mr__sheet_put_quoted(mr__sheet *s, size_t i, const mr_bytes *v, bool doubled, mr_status *st)
{
    MR_TRY(mr__sheet_put_bytes(s, i, v->data, v->size, st));
    if (!doubled)
        return MR_OK;
    char *text = s->text + s->n_text - v->size;
    size_t n = 0;
    for (size_t k = 0; k < v->size; k++) {
        text[n++] = text[k];
        k += text[k] == '"';
    }
    mr__sheet_shorten(s, i, n);
    return MR_OK;
}

static mr_code put_field(mr__sheet *s, size_t i, mr_bytes v, bool doubled, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
    char z[sizeof(uint64_t)];
    while (f->dtype != MR_STRING && v.size && mr__is_space(*v.data))
        v = (mr_bytes){v.data + 1, v.size - 1};
    while (f->dtype != MR_STRING && v.size && mr__is_space(v.data[v.size - 1]))
        v.size--;
    if (v.size == 0 && (f->preset || f->dtype != MR_STRING))
        return mr__sheet_put_missing(s, i, st);
    if (f->dtype == MR_STRING)
        return mr__sheet_put_quoted(s, i, &v, doubled, st);
    const char *why = mr__read_value(v.data, v.size, f->dtype, z);
    if (why)
        return mr_fail(st, MR_INVALID_ARGUMENT, "\"%.*s\" %s%s%s", (int)(v.size < 40 ? v.size : 40),
                       v.data, why, *why == 'd' ? " " : "",
                       *why == 'd' ? mr_dtype_name(f->dtype) : "");
    return mr__sheet_put(s, i, z, st);
}

/* *field: the one that failed, from 1; 0: the row as a whole. */
static mr_code put_row(mr__sheet *s, const mr_bytes *row, char sep, size_t *field, mr_status *st)
{
    const char *at = row->size ? row->data : "", *end = at + row->size;
    size_t n = 0;
    while (end > at && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    for (; at; n++) {
        mr_bytes v;
        bool doubled;
        *field = n + 1;
        const char *why = mr__csv_field(&at, end, sep, &v, &doubled);
        if (why)
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s", why);
        if (n < s->f->n)
            MR_TRY(put_field(s, n, v, doubled, st));
    }
    *field = 0;
    if (n != s->f->n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the row has %zu fields, not %zu", n, s->f->n);
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const mr_array *x = &r->in[0];
    size_t k = mr_array_row_values(x), n = r->rows * k;
    mr__sheet s;
    MR_TRY(mr__sheet_start(&s, r->plan, n, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        size_t field = 0;
        mr_status why;
        char place[32] = "";
        rc = put_row(&s, (const mr_bytes *)x->data + i, *p->sep, &field, &why);
        if (field)
            snprintf(place, sizeof place, "field %zu: ", field);
        if (rc == MR_RESOURCE_EXHAUSTED && st)
            *st = why;
        if (rc == MR_RESOURCE_EXHAUSTED)
            break;
        if (rc != MR_OK)
            mr_row_fail_at(r, i / k, 0, i % k, why.code, "parse_csv: %s%s", place, why.message);
        rc = mr__sheet_next(&s, rc == MR_OK, st);
    }
    if (rc == MR_OK)
        return mr__sheet_finish(&s, r->rows, k, out, st);
    mr__sheet_reset(&s);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "A row, or a vector of them."),
    {.name = "features",
     .doc =
         "[feature, ...]: a dtype for each field, or feature(dtype, default=v) if it may be empty.",
     .type = MR_PT_OWN,
     .kind = &mr_option_exprs,
     .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
     .at = offsetof(struct params, features)},
    {.name = "sep",
     .doc = "The separator between fields, one byte.",
     .type = MR_PT_STR,
     .def.s = ",",
     .at = offsetof(struct params, sep)},
    {0}};
const mr_function mr_function_parse_csv = {
    .abi = MR_ABI_VERSION,
    .name = "parse_csv",
    .doc = "The fields of CSV rows, as a tuple.",
    .example = "from_tensor_slices([\"1,a\", \"2,\\\"b,c\\\"\"]).map(x => parse_csv(x, [int64, "
               "bytes]))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = mr__features_free,
    .run = run,
};
