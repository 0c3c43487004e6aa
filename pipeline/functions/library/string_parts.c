/* SPDX-License-Identifier: Apache-2.0 */
/* substring, lower, upper, strip, lstrip, rstrip: as in Python, on bytes. Parts are views. */
#include <inttypes.h>

#include "pipeline/functions/library/texts.h"

static mr_code same_type(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = *c->in[0];
    return MR_OK;
}

/* ---- lower, upper ---- */

static const bool to_lower = false, to_upper = true;

static mr_code run_case(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    const mr_bytes *v = x->data;
    size_t n = x->rows * mr_array_row_values(x);
    const char first = *(const bool *)r->function->family ? 'a' : 'A';
    mr__texts t;
    MR_TRY(mr__texts_start(&t, x->rank, x->shape, x->rows, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        size_t begin = t.n;
        rc = mr__texts_put(&t, v[i].data, v[i].size, st);
        for (size_t k = begin; k < t.n; k++)
            if (t.v[k] >= first && t.v[k] < first + 26)
                t.v[k] = (char)(t.v[k] ^ 0x20);
        mr__texts_next(&t);
    }
    return mr__texts_finish(&t, rc, out, st);
}

/* ---- strip ---- */

enum { LEFT = 1, RIGHT = 2 };
static const int left = LEFT, right = RIGHT, both = LEFT | RIGHT;

static mr_code run_strip(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int sides = *(const int *)r->function->family;
    MR_TRY(mr_array_alloc(out, MR_STRING, x->rank, x->shape, x->rows, st));
    const mr_bytes *v = x->data;
    mr_bytes *z = out->data;
    size_t n = x->rows * mr_array_row_values(x);
    for (size_t i = 0; i < n; i++) {
        const char *begin = v[i].data;
        size_t size = v[i].size;
        for (; (sides & LEFT) && size && mr__is_space(*begin); begin++)
            size--;
        while ((sides & RIGHT) && size && mr__is_space(begin[size - 1]))
            size--;
        z[i] = (mr_bytes){begin, size};
    }
    return mr__hold_strings(out, r, 1, st);
}

/* ---- substring ---- */

struct substring {
    char *unit;
};

static mr_bytes part_of(const mr_bytes *s, int64_t start, int64_t length, bool chars)
{
    int64_t n = (int64_t)(chars ? mr__utf8_count(s) : s->size);
    start = start < -n ? 0 : start < 0 ? start + n : start > n ? n : start;
    length = length > n - start ? n - start : length;
    size_t from = (size_t)start, to = (size_t)(start + length);
    if (chars) {
        from = mr__utf8_offset(s, from);
        to = mr__utf8_offset(s, to);
    }
    return (mr_bytes){s->size ? s->data + from : NULL, to - from};
}

static mr_code type_substring(mr_call *c, mr_status *st)
{
    if (c->n > 2 && c->known[2] && mr__int_at(c->known[2], 0) < 0)
        return mr_call_fail(c, st, 2, "substring: the length must not be negative");
    return same_type(c, st);
}

static mr_code run_substring(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    bool chars = mr__unit_is_char(((const struct substring *)r->params)->unit);
    MR_TRY(mr_array_alloc(out, MR_STRING, x->rank, x->shape, r->rows, st));
    size_t n = mr_array_row_values(x);
    mr_bytes *z = out->data;
    for (size_t row = 0; row < r->rows; row++) {
        const mr_bytes *v = n ? mr__row_at(r, 0, row) : NULL;
        int64_t start = mr__int_at(&r->in[1], r->constant[1] ? 0 : row);
        int64_t length = r->n > 2 ? mr__int_at(&r->in[2], r->constant[2] ? 0 : row) : INT64_MAX;
        if (length < 0)
            mr_row_fail(r, row, MR_INVALID_ARGUMENT, "substring: the length is negative: %" PRId64,
                        length);
        for (size_t i = 0; i < n; i++)
            *z++ = part_of(&v[i], start, length < 0 ? 0 : length, chars);
    }
    return mr__hold_strings(out, r, 1, st);
}

/* ---- descriptors ---- */

static const mr_param single[] = {MR_INPUT(mr_input_strings, "x", "Strings."), {0}};
static const mr_param cut[] = {
    MR_INPUT(mr_input_strings, "x", "Strings."),
    MR_INPUT(mr_input_integer, "start", "Start of the part; negative ones count from the end."),
    {.name = "length",
     .doc = "The maximum length; default: up to the end.",
     .type = MR_PT_OWN,
     .kind = &mr_input_integer.param,
     .flags = MR_P_OPTIONAL},
    MR__UNIT_OPTION(struct substring),
    {0}};

#define OF_STRINGS(ident, how, data, says, shown)                                                  \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = #ident,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = single,                                                                          \
        .family = &data,                                                                           \
        .type = same_type,                                                                         \
        .run = how,                                                                                \
    }
OF_STRINGS(lower, run_case, to_lower,
           "The strings with A to Z in lower case; other bytes are unchanged.",
           "from_tensor_slices([\"Ab\", \"C\"]).map(x => lower(x))");
OF_STRINGS(upper, run_case, to_upper,
           "The strings with a to z in upper case; other bytes are unchanged.",
           "from_tensor_slices([\"Ab\", \"c\"]).map(x => upper(x))");
OF_STRINGS(strip, run_strip, both, "The strings without white space at both ends.",
           "from_tensor_slices([\" a b \", \"c\"]).map(x => strip(x))");
OF_STRINGS(lstrip, run_strip, left, "The strings without white space at their beginning.",
           "from_tensor_slices([\" a b \", \"c\"]).map(x => lstrip(x))");
OF_STRINGS(rstrip, run_strip, right, "The strings without white space at their end.",
           "from_tensor_slices([\" a b \", \"c\"]).map(x => rstrip(x))");
const mr_function mr_function_substring = {
    .abi = MR_ABI_VERSION,
    .name = "substring",
    .doc = "A part of each string; it is cut off at the string's ends.",
    .example = "from_tensor_slices([\"abcd\", \"ef\"]).map(x => substring(x, 1, 2))",
    .params = cut,
    .params_size = sizeof(struct substring),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_substring,
    .run = run_substring,
};
