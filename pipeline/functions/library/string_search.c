/* SPDX-License-Identifier: Apache-2.0 */
/* starts_with, ends_with, contains, find: search for a string in others. */
#include "pipeline/functions/library/texts.h"

struct find {
    char *unit;
};

typedef enum search { STARTS, ENDS, CONTAINS, FIND } search;
static const search starts = STARTS, ends = ENDS, contained = CONTAINS, found = FIND;

static bool is_at(const char *s, const mr_bytes *p)
{
    return p->size == 0 || memcmp(s, p->data, p->size) == 0;
}

/* The offset of the first occurrence of p in s; -1: not found. */
static int64_t first_of(const mr_bytes *s, const mr_bytes *p)
{
    if (p->size == 0)
        return 0;
    const char *at = s->size ? memmem(s->data, s->size, p->data, p->size) : NULL;
    return at ? at - s->data : -1;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_leaf *p = c->in[1];
    if (p->rank > 0)
        return mr_call_fail(c, st, 1, "%s: the string to search for must be one string",
                            c->function->name);
    c->out = *c->in[0];
    c->out.dtype = *(const search *)c->function->family == FIND ? MR_INT64 : MR_BOOL;
    return MR_OK;
}

static void look(search what, const mr_bytes *v, size_t n, const mr_bytes *p, bool *z)
{
    for (size_t i = 0; i < n; i++)
        z[i] = what == CONTAINS      ? first_of(&v[i], p) >= 0
               : v[i].size < p->size ? false
               : what == STARTS      ? is_at(v[i].data, p)
                                     : is_at(v[i].data + (v[i].size - p->size), p);
}

static void find_places(const mr_bytes *v, size_t n, const mr_bytes *p, bool chars, int64_t *z)
{
    for (size_t i = 0; i < n; i++) {
        z[i] = first_of(&v[i], p);
        if (chars && z[i] > 0)
            z[i] = (int64_t)mr__utf8_count(&(mr_bytes){v[i].data, (size_t)z[i]});
    }
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    search what = *(const search *)r->function->family;
    size_t n = mr_array_row_values(x);
    if (r->in[1].rank > 0) {
        mr__fail_all(r, "%s: the string to search for must be one string", r->function->name);
        return mr__any_value(what == FIND ? MR_INT64 : MR_BOOL, r->rows, out, st);
    }
    bool chars = what == FIND && mr__unit_is_char(((const struct find *)r->params)->unit);
    MR_TRY(mr_array_alloc(out, what == FIND ? MR_INT64 : MR_BOOL, x->rank, x->shape, r->rows, st));
    for (size_t row = 0; row < r->rows && n; row++) {
        const mr_bytes *v = mr__row_at(r, 0, row), *p = mr__row_at(r, 1, row);
        if (what == FIND)
            find_places(v, n, p, chars, mr_array_at(out, row));
        else
            look(what, v, n, p, mr_array_at(out, row));
    }
    return MR_OK;
}

static const mr_param sought[] = {MR_INPUT(mr_input_strings, "x", "Strings."),
                                  MR_INPUT(mr_input_strings, "p", "The string to search for."),
                                  {0}};
static const mr_param placed[] = {MR_INPUT(mr_input_strings, "x", "Strings."),
                                  MR_INPUT(mr_input_strings, "p", "The string to search for."),
                                  MR__UNIT_OPTION(struct find),
                                  {0}};

#define SEARCH(ident, called, what, table, size, says, shown)                                      \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = called,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = table,                                                                           \
        .params_size = size,                                                                       \
        .props = MR_FUNCTION_CONSTANTS,                                                            \
        .family = &what,                                                                           \
        .type = type,                                                                              \
        .run = run,                                                                                \
    }
SEARCH(starts_with, "starts_with", starts, sought, 0, "Whether each string begins with p.",
       "from_tensor_slices([\"abc\", \"b\"]).map(x => starts_with(x, \"ab\"))");
SEARCH(ends_with, "ends_with", ends, sought, 0, "Whether each string ends with p.",
       "from_tensor_slices([\"abc\", \"b\"]).map(x => ends_with(x, \"bc\"))");
SEARCH(contains, "contains", contained, sought, 0, "Whether each string contains p.",
       "from_tensor_slices([\"abc\", \"d\"]).map(x => contains(x, \"b\"))");
SEARCH(find_string, "find", found, placed, sizeof(struct find),
       "The position of the first p in each string, an int64; -1: not found.",
       "from_tensor_slices([\"abc\", \"d\"]).map(x => find(x, \"b\"))");
