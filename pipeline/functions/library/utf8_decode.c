/* SPDX-License-Identifier: Apache-2.0 */
/* utf8_decode(x): the code points of strings, a vector of any length each. */
#include "pipeline/functions/library/texts.h"
#include "pipeline/utf8.h"

struct params {
    char *errors;
};

enum { REPLACEMENT = 0xfffd };
static const char *const ways[] = {"strict", "replace", NULL};

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    if (x->rank < 0 || x->rank > 1)
        return mr_call_fail(c, st, 0, "utf8_decode expects a string or a vector of strings");
    c->out = *x;
    c->out.dtype = MR_INT32;
    c->out.ragged = x->rank == 1;
    c->out.shape[c->out.rank++] = -1;
    return MR_OK;
}

static int32_t *decode(const mr_bytes *s, int32_t *z)
{
    for (size_t at = 0; at < s->size; z++) {
        size_t n = mr__utf8_at(s->data + at, s->data + s->size, z);
        if (!n)
            *z = REPLACEMENT;
        at += n ? n : 1;
    }
    return z;
}

/* The offset of the first byte of s that is not valid UTF-8; the size of s: all are valid. */
static size_t bad_byte(const mr_bytes *s)
{
    size_t at = 0;
    for (int32_t point; at < s->size;) {
        size_t n = mr__utf8_at(s->data + at, s->data + s->size, &point);
        if (!n)
            break;
        at += n;
    }
    return at;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    const mr_bytes *v = x->data;
    bool strict = ((const struct params *)r->params)->errors[0] == 's';
    size_t per_row = mr_array_row_values(x), n = x->rows * per_row;
    mr_buffer *lengths = NULL;
    MR_TRY(mr_buffer_alloc(&lengths, n * sizeof(int64_t), st));
    int64_t *length = mr_buffer_data(lengths);
    for (size_t i = 0; i < n; i++) {
        length[i] = (int64_t)mr__utf8_count(&v[i]);
        size_t bad = strict ? bad_byte(&v[i]) : v[i].size;
        if (bad < v[i].size)
            mr_row_fail_at(r, i / per_row, 0, i % per_row, MR_INVALID_ARGUMENT,
                           "utf8_decode: byte %zu of the string is not valid UTF-8", bad);
    }
    void *values = NULL;
    mr_code rc = x->rank == 0 ? mr__vectors(MR_INT32, length, x->rows, out, &values, st)
                              : mr__lists(MR_INT32, length, x->rows, per_row, out, &values, st);
    int32_t *z = values;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        z = decode(&v[i], z);
    mr_buffer_unref(lengths);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "A string, or a vector of them."),
    MR_PARAM(struct params, errors, .def.s = "strict", .names = ways,
             .doc = "A byte that is not valid UTF-8 fails (strict), or becomes U+FFFD (replace)."),
    {0}};
const mr_function mr_function_utf8_decode = {
    .abi = MR_ABI_VERSION,
    .name = "utf8_decode",
    .doc = "The code points of each string, int32: a ragged axis.",
    .example = "from_tensor_slices([\"ab\", \"\\u20ac\"]).map(x => utf8_decode(x))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
