/* SPDX-License-Identifier: Apache-2.0 */
/* format("{} of {}", a, b): formats values as in Python. A field is {}, {0}, or has a format
 * after a colon: {:[<|>][+][0][width][.digits][d|x|f|e|g|s]}. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/functions/library/texts.h"
#include "pipeline/params/literal.h"

struct params {
    char *text;
};

enum { MOST_WIDTH = 1000 };

/* A piece of the text: literal text, then a field. */
typedef struct piece {
    const char *text; /* in params */
    size_t size;
    size_t input; /* SIZE_MAX: no field follows */
    char align, kind;
    bool plus, zero;
    int width, digits; /* digits -1: not given */
} piece;

struct plan {
    size_t n;
    piece v[];
};

static mr_code bad_field(const mr_call *c, const char *at, const char *why, mr_status *st)
{
    return mr_call_fail(c, st, -1, "format: byte %zu of the text: %s",
                        (size_t)(at - ((const struct params *)c->params)->text), why);
}

static bool read_number(const char **s, int *out)
{
    if (**s < '0' || **s > '9')
        return false;
    for (*out = 0; **s >= '0' && **s <= '9'; ++*s)
        if (*out <= MOST_WIDTH)
            *out = *out * 10 + (**s - '0');
    return true;
}

/* The text between { and }. */
static mr_code read_field(const mr_call *c, const char **s, size_t *next, piece *p, mr_status *st)
{
    int number;
    const char *begin = *s - 1;
    p->input = read_number(s, &number) ? (size_t)number : (*next)++;
    p->digits = -1;
    if (**s == ':') {
        ++*s;
        if (**s == '<' || **s == '>')
            p->align = *(*s)++;
        if (**s == '+') {
            p->plus = true;
            ++*s;
        }
        if (**s == '0') {
            p->zero = true;
            ++*s;
        }
        (void)read_number(s, &p->width);
        if (**s == '.') {
            ++*s;
            if (!read_number(s, &p->digits))
                return bad_field(c, begin, "the number of digits is missing after the point", st);
        }
        if (**s && strchr("dxfegs", **s))
            p->kind = *(*s)++;
    }
    if (**s != '}')
        return bad_field(c, begin,
                         "a field is {}, {0} or {:[<|>][+][0][width][.digits][d|x|f|e|g|s]}", st);
    ++*s;
    if (p->width > MOST_WIDTH || p->digits > MOST_WIDTH)
        return bad_field(c, begin, "a width or number of digits is over 1000", st);
    if (p->input >= c->n)
        return bad_field(c, begin, "there is no value for this field", st);
    mr_dtype t = c->in[p->input]->dtype;
    bool fits =
        !p->kind || (p->kind == 's'          ? t == MR_STRING
                     : strchr("dx", p->kind) ? mr_dtype_is_integer(t)
                                             : mr_dtype_is_integer(t) || mr_dtype_is_floating(t));
    if (!fits || (p->digits >= 0 && !p->kind && t != MR_STRING && !mr_dtype_is_floating(t)) ||
        (p->digits >= 0 && p->kind && strchr("dx", p->kind)))
        return bad_field(c, begin, "this format does not apply to the value's type", st);
    return MR_OK;
}

static mr_code read_pieces(const mr_call *c, struct plan *plan, mr_status *st)
{
    size_t next = 0;
    for (const char *s = ((const struct params *)c->params)->text; *s;) {
        piece *p = &plan->v[plan->n++];
        *p = (piece){.text = s, .input = SIZE_MAX, .digits = -1};
        s += strcspn(s, "{}");
        p->size = (size_t)(s - p->text);
        if (!*s)
            break;
        if (s[0] == s[1]) { /* a literal bracket */
            p->size++;
            s += 2;
        } else if (*s == '}')
            return bad_field(c, s, "a lone }; write }}", st);
        else {
            s++;
            MR_TRY(read_field(c, &s, &next, p, st));
        }
    }
    return MR_OK;
}

static mr_code type(mr_call *c, mr_status *st)
{
    size_t n = strlen(((const struct params *)c->params)->text);
    struct plan *p = c->plan = mr_calloc(1, sizeof *p + (n + 1) * sizeof *p->v);
    if (!p)
        return mr_fail_memory(st, n, "a text");
    MR_TRY(read_pieces(c, p, st));
    c->out = (mr_leaf){.dtype = MR_STRING};
    for (size_t i = 0; i < c->n; i++) {
        const mr_leaf *x = c->in[i];
        if (x->rank == 0 || c->out.rank < 0)
            continue;
        if (c->out.rank > 0 && x->rank >= 0 && x->rank != c->out.rank)
            return mr_call_fail(c, st, (int)i, "format: tensors of %d and %d axes", c->out.rank,
                                x->rank);
        c->out.rank = x->rank;
        memcpy(c->out.shape, x->shape, sizeof x->shape);
    }
    return MR_OK;
}

/* ---- running ---- */

static double number_at(const mr_array *a, size_t i)
{
    switch (a->dtype) {
    case MR_FLOAT16:
        return (double)mr_half_to_float(((const uint16_t *)a->data)[i]);
    case MR_BFLOAT16:
        return (double)mr_bfloat_to_float(((const uint16_t *)a->data)[i]);
    case MR_FLOAT32:
        return (double)((const float *)a->data)[i];
    case MR_FLOAT64:
        return ((const double *)a->data)[i];
    case MR_UINT64:
        return (double)((const uint64_t *)a->data)[i];
    default:
        return (double)mr__int_at(a, i);
    }
}

enum { ROOM = 2400 /* a number's text: 309 digits, or a width and digits of 1000 */ };

/* Shortest digits as in Python: with an exponent below 1e-4 and from 1e16 on, which has a sign
 * and at least two digits. */
static void as_python(char *text)
{
    size_t minus = *text == '-', n = strlen(text);
    char *e = strchr(text, 'e');
    if (e) {
        int power = (int)strtol(e + 1, NULL, 10);
        snprintf(e, ROOM - n, "e%+03d", power);
    } else if (strncmp(text + minus, "0.0000", 6) == 0) {
        char *from = text + minus + strspn(text + minus, "0."), *to = text + minus;
        int power = (int)(from - to) - 1;
        size_t digits = strlen(from);
        *to = *from;
        if (digits > 1) {
            memmove(to + 2, from + 1, digits - 1);
            to[1] = '.';
        }
        snprintf(to + digits + (digits > 1), 8, "e-%02d", power % 1000);
    }
}

/* The digits of value i of a, with their sign. */
static size_t put_number(const piece *p, const mr_array *a, size_t i, char *text)
{
    double d = number_at(a, i);
    int digits = p->digits < 0 ? 6 : p->digits;
    bool whole_number = mr_dtype_is_integer(a->dtype) || a->dtype == MR_BOOL;
    if (whole_number && (!p->kind || strchr("dx", p->kind))) {
        int64_t v = mr__int_at(a, i);
        bool minus = v < 0 && a->dtype != MR_UINT64;
        uint64_t whole = minus ? 0 - (uint64_t)v : (uint64_t)v;
        return (size_t)snprintf(text, ROOM, p->kind == 'x' ? "%s%" PRIx64 : "%s%" PRIu64,
                                minus ? "-" : "", whole);
    }
    if (!isfinite(d))
        return (size_t)snprintf(text, ROOM, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
    if (!p->kind && p->digits < 0) {
        if (a->dtype == MR_FLOAT64)
            mr__literal_double(d, text);
        else
            mr__literal_float((float)d, text);
        as_python(text);
        return strlen(text);
    }
    const char *form = p->kind == 'f' ? "%.*f" : p->kind == 'e' ? "%.*e" : "%.*g";
    return (size_t)snprintf(text, ROOM, form, digits, d);
}

static mr_code put_padded(mr__texts *t, const piece *p, const char *s, size_t n, char align,
                          mr_status *st)
{
    size_t pad = (size_t)p->width > n ? (size_t)p->width - n : 0;
    bool sign = p->zero && n && (*s == '-' || *s == '+');
    if (sign)
        MR_TRY(mr__texts_put(t, s, 1, st));
    for (size_t i = 0; i < pad && (align == '>' || p->zero); i++)
        MR_TRY(mr__texts_put(t, p->zero ? "0" : " ", 1, st));
    MR_TRY(mr__texts_put(t, s + sign, n - sign, st));
    for (size_t i = 0; i < pad && align == '<' && !p->zero; i++)
        MR_TRY(mr__texts_put(t, " ", 1, st));
    return MR_OK;
}

static mr_code put_value(mr__texts *t, const piece *p, const mr_array *a, size_t i, mr_status *st)
{
    char text[ROOM + 1];
    if (a->dtype == MR_STRING) {
        const mr_bytes *s = (const mr_bytes *)a->data + i;
        size_t n = p->digits >= 0 && (size_t)p->digits < s->size ? (size_t)p->digits : s->size;
        return put_padded(t, p, s->size ? s->data : "", n, p->align ? p->align : '<', st);
    }
    bool plain = !p->align && !p->plus && !p->zero && p->width == 0;
    if (a->dtype == MR_BOOL && plain) /* else it is 1 or 0, as in Python */
        return mr__texts_put(t, mr__int_at(a, i) ? "True" : "False", mr__int_at(a, i) ? 4 : 5, st);
    size_t n = put_number(p, a, i, text + 1);
    bool plus = p->plus && text[1] != '-';
    text[0] = '+';
    return put_padded(t, p, plus ? text : text + 1, n + plus, p->align ? p->align : '>', st);
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct plan *plan = r->plan;
    const mr_array *like = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const mr_array *a = &r->in[i];
        bool fits = a->rank == 0 || !like || a->rank == like->rank;
        for (int d = 0; fits && like && d < a->rank; d++)
            fits = a->shape[d] == like->shape[d];
        if (!fits) {
            mr__fail_all(r, "format: tensors of different shapes");
            return mr__any_value(MR_STRING, r->rows, out, st);
        }
        if (a->rank > 0)
            like = a;
    }
    mr__texts t;
    MR_TRY(mr__texts_start(&t, like ? like->rank : 0, like ? like->shape : NULL, r->rows, st));
    size_t per_row = mr_array_row_values(&t.out), n = r->rows * per_row;
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        for (size_t k = 0; k < plan->n && rc == MR_OK; k++) {
            const piece *p = &plan->v[k];
            rc = mr__texts_put(&t, p->text, p->size, st);
            if (rc != MR_OK || p->input == SIZE_MAX)
                continue;
            const mr_array *a = &r->in[p->input];
            size_t row = r->constant[p->input] ? 0 : i / per_row;
            rc = put_value(&t, p, a, a->rank ? row * per_row + i % per_row : row, st);
        }
        mr__texts_next(&t);
    }
    return mr__texts_finish(&t, rc, out, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, text,
           .doc = "The text; {} is the next value, {0} the first, {{ and }} are braces."),
    {.name = "values",
     .doc = "Single values, or tensors of one shape, which the result then has.",
     .type = MR_PT_OWN,
     .kind = &mr_input_tensor.param,
     .flags = MR_P_OPTIONAL | MR_P_VARIADIC},
    {0}};
const mr_function mr_function_format = {
    .abi = MR_ABI_VERSION,
    .name = "format",
    .doc = "The text with the values filled in. Fields such as {:5.2f} set the format, as in "
           "Python: < or >, +, 0, a width, a point and digits, and one of d x f e g s.",
    .example = "range(3).map(x => format(\"{} of {:.1f}\", x, x / 2))",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .free_plan = mr_free,
    .run = run,
};
