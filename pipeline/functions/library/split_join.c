/* SPDX-License-Identifier: Apache-2.0 */
/* split and join. The parts of one string are a vector of any length; those of a vector of
 * strings form a ragged row. */
#include "pipeline/functions/library/texts.h"

struct split {
    char *sep;
    int64_t maxsplit;
};

static mr_code type_split(mr_call *c, mr_status *st)
{
    const struct split *p = c->params;
    const mr_leaf *x = c->in[0];
    if (p->sep && !*p->sep)
        return mr_call_fail(c, st, -1, "split: the separator is empty");
    if (x->rank < 0 || x->rank > 1)
        return mr_call_fail(c, st, 0, "split expects a string or a vector of strings");
    c->out = *x;
    c->out.ragged = x->rank == 1;
    c->out.shape[c->out.rank++] = -1;
    return MR_OK;
}

/* The next part of s from *at on; *left: number of splits still allowed. false: no more parts. */
static bool next_part(const mr_bytes *s, const struct split *p, size_t n_sep, size_t *at,
                      int64_t *left, mr_bytes *part)
{
    const char *v = s->data;
    size_t end = s->size;
    if (!p->sep) {
        while (*at < end && mr__is_space(v[*at]))
            ++*at;
        if (*at >= end)
            return false;
        size_t to = *at;
        while (to < end && !mr__is_space(v[to]))
            to++;
        if (*left == 0) /* the rest, unchanged */
            to = end;
        *part = (mr_bytes){v + *at, to - *at};
        *at = to;
    } else {
        if (*at > end)
            return false;
        const char *to = *left && *at < end ? memmem(v + *at, end - *at, p->sep, n_sep) : NULL;
        size_t n = to ? (size_t)(to - v) - *at : end - *at;
        *part = (mr_bytes){end ? v + *at : NULL, n};
        *at = to ? *at + n + n_sep : end + 1;
    }
    *left -= *left > 0;
    return true;
}

static mr_code run_split(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct split *p = r->params;
    const mr_array *x = &r->in[0];
    const mr_bytes *v = x->data;
    size_t per_row = mr_array_row_values(x), n = x->rows * per_row;
    size_t n_sep = p->sep ? strlen(p->sep) : 0, at;
    int64_t left;
    mr_buffer *lengths = NULL;
    mr_bytes part;
    MR_TRY(mr_buffer_alloc(&lengths, n * sizeof(int64_t), st));
    int64_t *length = mr_buffer_data(lengths);
    for (size_t i = 0; i < n; i++) {
        length[i] = 0;
        for (at = 0, left = p->maxsplit; next_part(&v[i], p, n_sep, &at, &left, &part);)
            length[i]++;
    }
    void *values;
    mr_code rc = x->rank == 0 ? mr__vectors(MR_STRING, length, x->rows, out, &values, st)
                              : mr__lists(MR_STRING, length, x->rows, per_row, out, &values, st);
    mr_bytes *z = rc == MR_OK ? values : NULL;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        for (at = 0, left = p->maxsplit; next_part(&v[i], p, n_sep, &at, &left, z);)
            z++;
    mr_buffer_unref(lengths);
    return rc == MR_OK ? mr__hold_strings(out, r, 1, st) : rc;
}

/* ---- join ---- */

struct join {
    char *sep;
};

static mr_code type_join(mr_call *c, mr_status *st)
{
    c->out = *c->in[0];
    if (c->out.rank == 0)
        return mr_call_fail(c, st, 0, "join of one string; it has no axis");
    if (c->out.rank > 0)
        c->out.rank--;
    return MR_OK;
}

static mr_code run_join(const mr_rows *r, mr_array *out, mr_status *st)
{
    const char *sep = ((const struct join *)r->params)->sep;
    const mr_array *x = &r->in[0];
    if (x->rank == 0) {
        mr__fail_all(r, "join of one string; it has no axis");
        return mr__any_value(MR_STRING, r->rows, out, st);
    }
    const mr_bytes *v = x->data;
    size_t n = (size_t)x->shape[x->rank - 1], n_sep = strlen(sep);
    mr__texts t;
    MR_TRY(mr__texts_start(&t, x->rank - 1, x->shape, x->rows, st));
    size_t lines = x->rows * mr_array_row_values(&t.out);
    mr_code rc = MR_OK;
    for (size_t i = 0; i < lines && rc == MR_OK; i++) {
        for (size_t k = 0; k < n && rc == MR_OK; k++, v++) {
            if (k)
                rc = mr__texts_put(&t, sep, n_sep, st);
            if (rc == MR_OK)
                rc = mr__texts_put(&t, v->data, v->size, st);
        }
        mr__texts_next(&t);
    }
    return mr__texts_finish(&t, rc, out, st);
}

/* ---- descriptors ---- */

static const mr_param splits[] = {
    MR_INPUT(mr_input_strings, "x", "A string, or a vector of them."),
    MR_PARAM_WITH(struct split, sep, MR_P_OPTIONAL | MR_P_NONE,
                  .doc = "The separator; none: runs of white space."),
    MR_PARAM(struct split, maxsplit, .def.i = -1, .min.i = -1, .max.i = INT64_MAX,
             .doc = "The maximum number of splits; the rest is the last part. -1: no limit."),
    {0}};
static const mr_param joins[] = {
    MR_INPUT(mr_input_strings, "x", "A tensor of strings of one axis or more."),
    MR_PARAM(struct join, sep, .def.s = "", .doc = "The separator to put between them."),
    {0}};

const mr_function mr_function_split = {
    .abi = MR_ABI_VERSION,
    .name = "split",
    .doc = "The parts of each string, as in Python: a ragged axis.",
    .example = "from_tensor_slices([\"a b\", \"c\"]).map(x => split(x))",
    .params = splits,
    .params_size = sizeof(struct split),
    .type = type_split,
    .run = run_split,
};
const mr_function mr_function_join = {
    .abi = MR_ABI_VERSION,
    .name = "join",
    .doc = "The strings along the last axis joined into one.",
    .example = "from_tensor_slices([\"a\", \"b\"]).map(x => join([x, \"c\"], sep=\"-\"))",
    .params = joins,
    .params_size = sizeof(struct join),
    .type = type_join,
    .run = run_join,
};
