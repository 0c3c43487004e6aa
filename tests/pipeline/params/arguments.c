/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/params/param.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_status st;

/* A type of the table's owner that holds memory: a word, or a call of one integer. */
typedef struct own {
    char *word;
    int64_t n;
} own;

struct nested {
    int64_t n;
};

static mr_code parse_own(const mr_param *p, const mr_expr *e, void *field, mr_status *status)
{
    static const mr_param params[] = {MR_ARG(struct nested, n, .max.i = 9, .doc = "N."), {0}};
    own *o = field;
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL)
        return mr_expr_fail_at(status, e, "%s must be a word", p->name);
    if (e->kind == MR_EX_CALL) {
        const mr_param_table t = {e->text, params, sizeof(struct nested)};
        void *made = NULL;
        MR_TRY(mr_params_parse(&t, e, &made, status));
        o->n = ((struct nested *)made)->n;
        mr_params_free(&t, made);
    }
    o->word = mr_strdup(e->text);
    return o->word ? MR_OK : mr_fail_memory(status, 1, "a word");
}

static void clear_own(void *field)
{
    mr_free(((own *)field)->word);
}

static char *print_own(const void *field)
{
    const own *o = field;
    return mr_strf("%s(%d)", o->word, (int)o->n);
}

static const mr_param_kind own_kind = {
    .size = sizeof(own), .parse = parse_own, .clear = clear_own, .print = print_own};

struct all {
    int64_t units;
    double rate;
    bool bias;
    mr_tri order;
    char *mode;
    own own;
    mr_ints sizes;
};

static const char *const modes[] = {"fast", "slow", NULL};
static const mr_param params[] = {
    MR_ARG(struct all, units, .min.i = 1, .max.i = 99, .doc = "U."),
    MR_PARAM(struct all, rate, .def.f = 0.5, .max.f = 1, .doc = "R."),
    MR_PARAM(struct all, bias, .def.b = true, .doc = "B."),
    MR_PARAM(struct all, order, .doc = "O."),
    MR_PARAM(struct all, mode, .def.s = "fast", .names = modes, .doc = "M."),
    MR_PARAM_OWN(struct all, own, own_kind, .def.s = "usual(7)", .doc = "W."),
    {.name = "sizes",
     .doc = "S.",
     .type = MR_PT_INTS,
     .flags = MR_P_OPTIONAL | MR_P_VARIADIC,
     .at = offsetof(struct all, sizes),
     .min.i = -1,
     .max.i = 50},
    {0}};
static const mr_param_table table = {"thing", params, sizeof(struct all)};

static mr_code parse(const char *text, struct all **out)
{
    const mr_expr *e = NULL;
    void *made = NULL;
    MR_TRY(mr_expr_parse(text, strlen(text), &e, &st));
    mr_code rc = mr_params_parse(&table, e, &made, &st);
    mr_expr_unref(e);
    *out = made;
    return rc;
}

MR_TEST(arguments_fill_the_struct_that_the_table_describes)
{
    struct all *x = NULL;
    mr_ok(mr_params_check(&table, &st), &st);
    mr_ok(parse("thing(3)", &x), &st);
    mr_eq_i64(x->units, 3);
    mr_eq_f64(x->rate, 0.5, 0);
    mr_check(x->bias && x->order == MR_DEFAULT && x->sizes.n == 0);
    mr_eq_str(x->mode, "fast");
    mr_eq_str(x->own.word, "usual");
    mr_eq_i64(x->own.n, 7);
    mr_params_free(&table, x);
    mr_ok(parse("before.thing(3, 1, false, true, \"slow\", other(2), 4, [5, -1], 6)", &x), &st);
    mr_eq_f64(x->rate, 1, 0);
    mr_check(!x->bias && x->order == MR_YES);
    mr_eq_str(x->mode, "slow");
    mr_eq_str(x->own.word, "other");
    mr_eq_i64(x->own.n, 2);
    mr_eq_u64(x->sizes.n, 4);
    mr_check(x->sizes.v[1] == 5 && x->sizes.v[2] == -1 && x->sizes.v[3] == 6);
    mr_params_free(&table, x);
    mr_ok(parse("thing(own=word, sizes=[], order=false, units=9)", &x), &st);
    mr_check(x->order == MR_NO && x->units == 9 && x->sizes.n == 0);
    mr_eq_str(x->own.word, "word");
    mr_params_free(&table, x);
}

/* The texts of all parameters, in order. */
static const char *texts(const struct all *x)
{
    static char all[256];
    all[0] = '\0';
    for (const mr_param *p = params; p->name; p++) {
        char *text;
        size_t n = strlen(all);
        mr_ok(mr_param_text(p, x, &text, &st), &st);
        snprintf(all + n, sizeof all - n, "%s%s", n ? " " : "", text);
        mr_free(text);
    }
    return all;
}

MR_TEST(values_have_a_text)
{
    struct all *x = NULL;
    mr_ok(parse("thing(3)", &x), &st);
    mr_eq_str(texts(x), "3 0.5 true none \"fast\" usual(7) []");
    mr_params_free(&table, x);
    mr_ok(parse("thing(3, 1e-1, false, true, \"slow\", other(2), 4, [5, -1], 6)", &x), &st);
    mr_eq_str(texts(x), "3 0.1 false true \"slow\" other(2) [4, 5, -1, 6]");
    mr_params_free(&table, x);

    const double numbers[] = {0.25, -3, 1e300};
    const mr_bytes words[] = {{"a", 1}, {"", 0}};
    const struct {
        mr_floats f;
        mr_strs s;
        char *none;
        mr_value v;
    } more = {.f = {(double *)(uintptr_t)numbers, 3}, .s = {(mr_bytes *)(uintptr_t)words, 2, NULL}};
    const mr_param p[] = {
        {.name = "f", .type = MR_PT_FLOATS},
        {.name = "s", .type = MR_PT_STRS, .at = sizeof(mr_floats)},
        {.name = "n", .type = MR_PT_STR, .at = sizeof(mr_floats) + sizeof(mr_strs)},
        {.name = "v", .type = MR_PT_VALUE}};
    static const char *const want[] = {"[0.25, -3, 1e+300]", "[\"a\", \"\"]", "none", NULL};
    for (size_t i = 0; i < 4; i++) {
        mr_fault_each_allocation(n)
        {
            char *text = NULL;
            if (mr_fault_expect(mr_param_text(&p[i], &more, &text, &st), &st) == MR_OK)
                mr_check(want[i] ? text && strcmp(text, want[i]) == 0 : !text);
            mr_free(text);
        }
    }
}

MR_TEST(bad_arguments_are_named_and_pointed_at)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"thing()", "column 1: thing: expected units, which is missing"},
                 {"thing(0)", "column 7: thing: units must be at least 1, not 0"},
                 {"thing(100)", "at most 99"},
                 {"thing(1.5)", "units must be an integer, not 1.5"},
                 {"thing(1, 2)", "column 10: thing: rate must be at most 1, not 2"},
                 {"thing(1, units=2)", "column 16: thing: units is given twice"},
                 {"thing(1, colour=2)", "no parameter 'colour'; it has units, rate, bias"},
                 {"thing(1, mode=\"quick\")", "mode must be \"fast\" or \"slow\", not \"quick\""},
                 {"thing(1, bias=1)", "bias must be true or false, not 1"},
                 {"thing(1, own=3)", "column 14: own must be a word"},
                 {"thing(1, own=other(10))", "column 20: other: n must be at most 9, not 10"},
                 {"thing(1, own=other)", "\0"},
                 {"thing(1, sizes=[1, 60])", "sizes must be at most 50, not 60"},
                 {"thing(1, rate=x)", "column 15: expected a number, a string"},
                 {"thing(1, 1, true, true, \"fast\", w, 3, [[4]])", "sizes must be"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct all *x = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code rc = parse(cases[i].text, &x);
        if (!*cases[i].says) {
            mr_ok(rc, &st);
            mr_params_free(&table, x);
            continue;
        }
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(x == NULL);
    }
}

MR_TEST(every_failed_allocation_leaves_nothing)
{
    mr_fault_each_allocation(n)
    {
        struct all *x = NULL;
        mr_code rc = parse("thing(3, mode=\"slow\", own=other(2), sizes=[1, 2, 3])", &x);
        mr_fault_expect(rc, &st);
        if (rc == MR_OK)
            mr_params_free(&table, x);
    }
}
