/* SPDX-License-Identifier: Apache-2.0 */
/* pad(x, pad_width, mode="constant", constant_values=0): pads each axis on both sides, as in
 * numpy. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

enum { CONSTANT, EDGE, REFLECT, SYMMETRIC };
static const char *const modes[] = {"constant", "edge", "reflect", "symmetric", NULL};

struct params {
    char *mode;
};

static int mode_of(const struct params *p)
{
    for (int i = 0; i < SYMMETRIC; i++)
        if (strcmp(p->mode, modes[i]) == 0)
            return i;
    return SYMMETRIC;
}

/* The padding: [n] or n for both sides of all axes, [before, after], or a pair for each axis.
 * Returns NULL, or a description of the error. */
static const char *read_widths(const mr_array *w, int rank, int64_t (*widths)[2])
{
    size_t n = mr_array_row_values(w);
    bool pairs = w->rank == 2 && w->shape[1] == 2 && w->shape[0] == rank;
    if (!pairs && (w->rank > 1 || n == 0 || n > 2))
        return "pad_width is n, [before, after] or a pair for each axis";
    for (int d = 0; d < rank; d++)
        for (int k = 0; k < 2; k++) {
            int64_t v = mr__int_at(w, pairs ? (size_t)(2 * d + k) : n == 2 ? (size_t)k : 0);
            if (v < 0)
                return "pad_width is negative";
            widths[d][k] = v;
        }
    return NULL;
}

/* reflect and symmetric repeat values of x as often as needed, so x must not be empty. */
static bool can_extend(int mode, int64_t n, const int64_t *widths)
{
    return mode == CONSTANT || n > 0 || (widths[0] == 0 && widths[1] == 0);
}

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    int64_t widths[MR_MAX_RANK][2];
    c->out = *x;
    if (c->n > 2 && c->in[2]->rank > 0)
        return mr_call_fail(c, st, 2, "pad: constant_values is one value");
    if (x->rank == 0)
        return mr_call_fail(c, st, 0, "pad of a scalar; it has no axis");
    const char *why = c->known[1] && x->rank > 0 ? read_widths(c->known[1], x->rank, widths) : NULL;
    if (why)
        return mr_call_fail(c, st, 1, "pad: %s", why);
    for (int d = 0; d < x->rank; d++)
        if (!c->known[1] || x->shape[d] < 0 ||
            __builtin_add_overflow(x->shape[d], widths[d][0], &c->out.shape[d]) ||
            __builtin_add_overflow(c->out.shape[d], widths[d][1], &c->out.shape[d]))
            c->out.shape[d] = -1;
    return MR_OK;
}

/* The index in x's axis of n values for place i, which may be outside; -1: the constant. */
static int64_t place(int mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == CONSTANT)
        return -1;
    if (mode == EDGE || (mode == REFLECT && n == 1))
        return i < 0 ? 0 : n - 1;
    int64_t period = mode == REFLECT ? 2 * (n - 1) : 2 * n;
    i %= period;
    i += i < 0 ? period : 0;
    return i < n ? i : mode == REFLECT ? period - i : period - 1 - i;
}

typedef struct padding {
    int mode, rank;
    size_t size;
    const int64_t *from, *to; /* shapes */
    int64_t (*widths)[2];
    const void *value;
} padding;

static void fill(const padding *p, char *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * p->size, p->value, p->size);
}

static void pad_axis(const padding *p, int d, const char *from, char *to)
{
    size_t inner_from = 1, inner_to = 1;
    for (int k = d + 1; k < p->rank; k++) {
        inner_from *= (size_t)p->from[k];
        inner_to *= (size_t)p->to[k];
    }
    int64_t n = p->from[d], before = p->widths[d][0];
    for (int64_t i = 0; i < p->to[d]; i++, to += inner_to * p->size) {
        if (d == p->rank - 1 && i == before && n > 0) {
            memcpy(to, from, (size_t)n * p->size);
            to += (size_t)(n - 1) * p->size;
            i += n - 1;
            continue;
        }
        int64_t at = place(p->mode, i - before, n);
        const char *source = from + (size_t)(at < 0 ? 0 : at) * inner_from * p->size;
        if (at < 0)
            fill(p, to, inner_to);
        else if (d < p->rank - 1)
            pad_axis(p, d + 1, source, to);
        else
            memcpy(to, source, p->size);
    }
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    static const uint64_t zeros[2];
    const mr_array *x = &r->in[0];
    int64_t widths[MR_MAX_RANK][2], shape[MR_MAX_RANK];
    int mode = mode_of(r->params);
    const char *why = x->rank ? read_widths(&r->in[1], x->rank, widths) : "a scalar has no axis";
    for (int d = 0; d < x->rank && !why; d++) {
        if (__builtin_add_overflow(x->shape[d], widths[d][0], &shape[d]) ||
            __builtin_add_overflow(shape[d], widths[d][1], &shape[d]))
            why = "too many values";
        else if (!can_extend(mode, x->shape[d], widths[d]))
            why = "an axis without values cannot be extended";
    }
    if (why) {
        mr__fail_all(r, "pad: %s", why);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank, shape, r->rows, st));
    padding p = {mode, x->rank, mr_dtype_size(x->dtype), x->shape, shape, widths, zeros};
    for (size_t row = 0; row < r->rows && mr_array_row_values(out); row++) {
        if (r->n > 2)
            p.value = mr__row_at(r, 2, row);
        pad_axis(&p, 0, mr__row_at(r, 0, row), mr_array_at(out, row));
    }
    return mr__hold_strings(out, r, r->n, st);
}

static const mr_param table[] = {
    MR_INPUT_WITH(mr_input_tensor, "x", MR_P_ALIKE, "A tensor of one axis or more."),
    MR_INPUT_WITH(mr_input_integers, "pad_width", MR_P_DECIDES_SHAPE,
                  "How many to add: n, [before, after], or a pair for each axis."),
    {.name = "mode",
     .doc = "What is added: constant_values, the outermost value (edge), or the values mirrored "
            "without it (reflect) or including it (symmetric).",
     .type = MR_PT_STR,
     .def.s = "constant",
     .names = modes,
     .at = offsetof(struct params, mode)},
    {.name = "constant_values",
     .doc = "The value to add, of the type of x; default: 0, false or \"\".",
     .type = MR_PT_OWN,
     .kind = &mr_input_tensor.param,
     .flags = MR_P_OPTIONAL | MR_P_ALIKE},
    {0}};
const mr_function mr_function_pad = {
    .abi = MR_ABI_VERSION,
    .name = "pad",
    .doc = "The tensor with values added before and after each axis.",
    .example = "range(3).map(x => pad([x, 1], [1, 2]))",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .run = run,
};
