/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy/initializer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/random_bits.h"

static const char *const names[MR_N_INITS] = {
    [MR_INIT_ZEROS] = "zeros",
    [MR_INIT_ONES] = "ones",
    [MR_INIT_CONSTANT] = "constant",
    [MR_INIT_GLOROT_UNIFORM] = "glorot_uniform",
    [MR_INIT_GLOROT_NORMAL] = "glorot_normal",
    [MR_INIT_HE_UNIFORM] = "he_uniform",
    [MR_INIT_HE_NORMAL] = "he_normal",
    [MR_INIT_LECUN_UNIFORM] = "lecun_uniform",
    [MR_INIT_LECUN_NORMAL] = "lecun_normal",
    [MR_INIT_RANDOM_UNIFORM] = "random_uniform",
    [MR_INIT_RANDOM_NORMAL] = "random_normal",
};

static double unit(uint64_t key, uint64_t i)
{
    return (double)(mr__mix_in(key, i) >> 11) * 0x1p-53;
}

/* The Box-Muller transform; draw `i` is a pure function of key. */
static double normal(uint64_t key, uint64_t i)
{
    double radius = sqrt(-2 * log(1 - unit(key, 2 * i)));
    return radius * cos(2 * 3.14159265358979323846 * unit(key, 2 * i + 1));
}

static void fill_uniform(uint64_t key, double low, double high, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(low + (high - low) * unit(key, i));
}

/* Values beyond two deviations are redrawn; dividing by the deviation of the truncated normal
 * distribution yields the requested deviation. */
static void fill_truncated(uint64_t key, double deviation, float *out, size_t n)
{
    double scale = deviation / 0.87962566103423978;
    for (size_t i = 0; i < n; i++) {
        double x;
        uint64_t draw = mr__mix_in(key, i);
        for (uint64_t k = 0; fabs(x = normal(draw, k)) > 2; k++)
            ;
        out[i] = (float)(scale * x);
    }
}

void mr_initialize(const mr_initializer *k, uint64_t seed, uint64_t stream, size_t fan_in,
                   size_t fan_out, float *out, size_t n)
{
    uint64_t key = mr__mix_in(mr__mix_in(0, seed), stream);
    double in = fan_in ? (double)fan_in : 1,
           both = fan_in + fan_out ? (double)(fan_in + fan_out) : 1;
    switch (k->kind) {
    case MR_INIT_ZEROS:
    case MR_INIT_ONES:
    case MR_INIT_CONSTANT:
    case MR_N_INITS:
        for (size_t i = 0; i < n; i++)
            out[i] = k->kind == MR_INIT_CONSTANT ? (float)k->a : k->kind == MR_INIT_ONES;
        break;
    case MR_INIT_GLOROT_UNIFORM:
        fill_uniform(key, -sqrt(6 / both), sqrt(6 / both), out, n);
        break;
    case MR_INIT_GLOROT_NORMAL:
        fill_truncated(key, sqrt(2 / both), out, n);
        break;
    case MR_INIT_HE_UNIFORM:
        fill_uniform(key, -sqrt(6 / in), sqrt(6 / in), out, n);
        break;
    case MR_INIT_HE_NORMAL:
        fill_truncated(key, sqrt(2 / in), out, n);
        break;
    case MR_INIT_LECUN_UNIFORM:
        fill_uniform(key, -sqrt(3 / in), sqrt(3 / in), out, n);
        break;
    case MR_INIT_LECUN_NORMAL:
        fill_truncated(key, sqrt(1 / in), out, n);
        break;
    case MR_INIT_RANDOM_UNIFORM:
        fill_uniform(key, k->a, k->b, out, n);
        break;
    case MR_INIT_RANDOM_NORMAL:
        for (size_t i = 0; i < n; i++)
            out[i] = (float)(k->a + k->b * normal(key, i));
        break;
    }
}

/* ---- parameters ---- */

static const mr_param constant_params[] = {{.name = "value",
                                            .type = MR_PT_F64,
                                            .flags = MR_P_OPTIONAL,
                                            .at = offsetof(mr_initializer, a),
                                            .doc = "The value."},
                                           {0}};
static const mr_param uniform_params[] = {{.name = "minval",
                                           .type = MR_PT_F64,
                                           .flags = MR_P_OPTIONAL,
                                           .at = offsetof(mr_initializer, a),
                                           .def.f = -0.05,
                                           .doc = "Least."},
                                          {.name = "maxval",
                                           .type = MR_PT_F64,
                                           .flags = MR_P_OPTIONAL,
                                           .at = offsetof(mr_initializer, b),
                                           .def.f = 0.05,
                                           .doc = "Most."},
                                          {0}};
static const mr_param normal_params[] = {{.name = "mean",
                                          .type = MR_PT_F64,
                                          .flags = MR_P_OPTIONAL,
                                          .at = offsetof(mr_initializer, a),
                                          .doc = "Mean."},
                                         {.name = "stddev",
                                          .type = MR_PT_F64,
                                          .flags = MR_P_OPTIONAL,
                                          .at = offsetof(mr_initializer, b),
                                          .def.f = 0.05,
                                          .doc = "Standard deviation."},
                                         {0}};
static const mr_param *const initializer_params[MR_N_INITS] = {
    [MR_INIT_CONSTANT] = constant_params,
    [MR_INIT_RANDOM_UNIFORM] = uniform_params,
    [MR_INIT_RANDOM_NORMAL] = normal_params};

static const mr_param l1_params[] = {
    MR_PARAM(mr_regularizer, l1, .def.f = 0.01, .max.f = 1e30, .doc = "Factor."), {0}};
static const mr_param l2_params[] = {
    MR_PARAM(mr_regularizer, l2, .def.f = 0.01, .max.f = 1e30, .doc = "Factor."), {0}};
static const mr_param l1_l2_params[] = {
    MR_PARAM(mr_regularizer, l1, .max.f = 1e30, .doc = "Factor of the sum of absolute values."),
    MR_PARAM(mr_regularizer, l2, .max.f = 1e30, .doc = "Factor of the sum of squares."),
    {0}};

static bool is_word(const mr_expr *e, const char *word)
{
    return (e->kind == MR_EX_STRING || e->kind == MR_EX_NAME || e->kind == MR_EX_CALL) &&
           strcmp(e->text, word) == 0;
}

/* Parses a field without pointers from the arguments of a name or call. */
static mr_code parse_into(void *field, size_t size, const char *name, const mr_param *params,
                          const mr_expr *e, mr_status *st)
{
    const mr_param_table t = {name, params, size};
    void *made = NULL;
    MR_TRY(mr_params_parse(&t, e, &made, st));
    memcpy(field, made, size);
    mr_params_free(&t, made);
    return MR_OK;
}

static mr_code parse_initializer(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    mr_initializer *k = field;
    char known[256] = "";
    for (int i = 0; i < MR_N_INITS; i++) {
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 names[i]);
        if (!is_word(e, names[i]))
            continue;
        MR_TRY(parse_into(k, sizeof *k, names[i], initializer_params[i], e, st));
        k->kind = (mr_initializer_kind)i;
        return MR_OK;
    }
    return mr_expr_fail_at(st, e, "%s must be an initializer: one of %s", p->name, known);
}

static mr_code parse_regularizer(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    static const struct {
        const char *name;
        const mr_param *params;
    } forms[] = {{"l1", l1_params}, {"l2", l2_params}, {"l1_l2", l1_l2_params}};
    if (e->kind == MR_EX_NONE)
        return MR_OK;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (is_word(e, forms[i].name))
            return parse_into(field, sizeof(mr_regularizer), forms[i].name, forms[i].params, e, st);
    return mr_expr_fail_at(st, e, "%s must be none, l1(v), l2(v) or l1_l2(v, v)", p->name);
}

static char *print_initializer(const void *field)
{
    const mr_initializer *k = field;
    if (k->kind == MR_INIT_CONSTANT)
        return mr_strf("constant(%.15g)", k->a);
    if (k->kind == MR_INIT_RANDOM_UNIFORM || k->kind == MR_INIT_RANDOM_NORMAL)
        return mr_strf("%s(%.15g, %.15g)", names[k->kind], k->a, k->b);
    return mr_strdup(names[k->kind]);
}

static char *print_regularizer(const void *field)
{
    const mr_regularizer *r = field;
    if (r->l1 > 0 && r->l2 > 0)
        return mr_strf("l1_l2(%.15g, %.15g)", r->l1, r->l2);
    if (r->l1 > 0 || r->l2 > 0)
        return mr_strf("%s(%.15g)", r->l1 > 0 ? "l1" : "l2", r->l1 > 0 ? r->l1 : r->l2);
    return mr_strdup("none");
}

const mr_param_kind mr_param_initializer = {
    .size = sizeof(mr_initializer), .parse = parse_initializer, .print = print_initializer};
const mr_param_kind mr_param_regularizer = {
    .size = sizeof(mr_regularizer), .parse = parse_regularizer, .print = print_regularizer};
