/* SPDX-License-Identifier: Apache-2.0 */
/* regex_replace, regex_match, regex_search: regular expressions of PCRE2 on bytes; a pattern
 * that begins with (*UTF) works on characters. Patterns are compiled when the graph is built. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "pipeline/functions/library/texts.h"
#include "pipeline/system/late_library.h"

#define PCRE2(X)                                                                                   \
    X(pcre2_code_free)                                                                             \
    X(pcre2_general_context_free)                                                                  \
    X(pcre2_general_context_create)                                                                \
    X(pcre2_compile_context_create)                                                                \
    X(pcre2_compile)                                                                               \
    X(pcre2_compile_context_free)                                                                  \
    X(pcre2_get_error_message)                                                                     \
    X(pcre2_jit_compile)                                                                           \
    X(pcre2_pattern_info)                                                                          \
    X(pcre2_match)                                                                                 \
    X(pcre2_match_data_create)                                                                     \
    X(pcre2_match_data_free)                                                                       \
    X(pcre2_get_ovector_pointer)                                                                   \
    X(pcre2_match_data_create_from_pattern)
static struct {
    PCRE2(MR__LATE_MEMBER)
} pcre2;
static mr__late_library library = MR__LATE_LIBRARY("regular expressions are matched",
                                                   "libpcre2-8.so.0", "libpcre2-8-0", PCRE2, pcre2);

struct params {
    char *pattern, *rewrite;
    bool global;
};

struct plan {
    pcre2_general_context *memory;
    pcre2_code *code;
    bool utf;
};

static void *allocate(size_t bytes, void *ctx)
{
    (void)ctx;
    return mr_malloc(bytes);
}

static void release(void *p, void *ctx)
{
    (void)ctx;
    mr_free(p);
}

static void free_plan(void *plan)
{
    struct plan *p = plan;
    pcre2.pcre2_code_free(p->code);
    pcre2.pcre2_general_context_free(p->memory);
    mr_free(p);
}

/* true: the function matches whole strings. */
static const bool whole = true, anywhere = false;

/* In a rewrite, only \0 to \9 and \\ have a special meaning. */
static mr_code check_rewrite(const mr_call *c, const char *s, uint32_t groups, mr_status *st)
{
    for (; *s; s++) {
        if (*s != '\\')
            continue;
        s++;
        if (*s == '\\')
            continue;
        if (*s < '0' || *s > '9')
            return mr_call_fail(c, st, -1,
                                "%s: in the rewrite \\ must precede a digit or another \\",
                                c->function->name);
        if ((uint32_t)(*s - '0') > groups)
            return mr_call_fail(c, st, -1, "%s: the rewrite has \\%c, the pattern %u groups",
                                c->function->name, *s, groups);
    }
    return MR_OK;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *o = c->params;
    const bool *match = c->function->family;
    uint32_t flags = match && *match ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0, groups = 0, all = 0;
    MR_TRY(mr__late_library_need(&library, st));
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    if (!p || !(p->memory = pcre2.pcre2_general_context_create(allocate, release, NULL)))
        return mr_fail_memory(st, sizeof *p, "a pattern");
    pcre2_compile_context *context = pcre2.pcre2_compile_context_create(p->memory);
    if (!context)
        return mr_fail_memory(st, sizeof *p, "a pattern");
    int error = 0;
    PCRE2_SIZE at = 0;
    p->code = pcre2.pcre2_compile((PCRE2_SPTR)o->pattern, PCRE2_ZERO_TERMINATED, flags, &error, &at,
                                  context);
    pcre2.pcre2_compile_context_free(context);
    if (!p->code && error == PCRE2_ERROR_HEAP_FAILED)
        return mr_fail_memory(st, strlen(o->pattern), "a pattern");
    if (!p->code) {
        PCRE2_UCHAR why[160] = "";
        pcre2.pcre2_get_error_message(error, why, sizeof why);
        return mr_call_fail(c, st, -1, "%s: byte %zu of the pattern: %s", c->function->name,
                            (size_t)at, (const char *)why);
    }
    /* If code generation is not allowed, the pattern is interpreted. */
    (void)pcre2.pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    pcre2.pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    pcre2.pcre2_pattern_info(p->code, PCRE2_INFO_ALLOPTIONS, &all);
    p->utf = all & PCRE2_UTF;
    c->out = *c->in[0];
    if (match)
        c->out.dtype = MR_BOOL;
    return match ? MR_OK : check_rewrite(c, o->rewrite, groups, st);
}

/* pcre2_match, again without compiled code where its stack is too small. */
static int match(const struct plan *p, const mr_bytes *s, size_t at, uint32_t options,
                 pcre2_match_data *found)
{
    PCRE2_SPTR text = (PCRE2_SPTR)(s->size ? s->data : "");
    int n = pcre2.pcre2_match(p->code, text, s->size, at, options, found, NULL);
    return n == PCRE2_ERROR_JIT_STACKLIMIT
               ? pcre2.pcre2_match(p->code, text, s->size, at, options | PCRE2_NO_JIT, found, NULL)
               : n;
}

/* A match failed: for lack of memory, or because of this string. */
static mr_code failed(const mr_rows *r, size_t i, int error, mr_status *st)
{
    size_t per_row = mr_array_row_values(&r->in[0]);
    PCRE2_UCHAR why[160] = "";
    if (error == PCRE2_ERROR_NOMEMORY)
        return mr_fail_memory(st, sizeof why, "a match");
    pcre2.pcre2_get_error_message(error, why, sizeof why);
    mr_row_fail_at(r, i / per_row, 0, i % per_row, MR_INVALID_ARGUMENT, "%s: %s", r->function->name,
                   (const char *)why);
    return MR_OK;
}

static mr_code run_match(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct plan *p = r->plan;
    const mr_array *x = &r->in[0];
    size_t n = x->rows * mr_array_row_values(x);
    pcre2_match_data *found = pcre2.pcre2_match_data_create(1, p->memory);
    mr_code rc = found ? MR_OK : mr_fail_memory(st, sizeof *p, "a match");
    if (rc == MR_OK)
        rc = mr_array_alloc(out, MR_BOOL, x->rank, x->shape, x->rows, st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        int m = match(p, (const mr_bytes *)x->data + i, 0, 0, found);
        ((bool *)out->data)[i] = m >= 0;
        if (m < 0 && m != PCRE2_ERROR_NOMATCH)
            rc = failed(r, i, m, st);
    }
    pcre2.pcre2_match_data_free(found);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static mr_code put_rewrite(mr__texts *t, const char *rewrite, const mr_bytes *s,
                           const PCRE2_SIZE *groups, int n_groups, mr_status *st)
{
    for (const char *c = rewrite; *c; c++) {
        int g = c[0] == '\\' && c[1] != '\\' ? c[1] - '0' : -1;
        c += *c == '\\';
        if (g < 0)
            MR_TRY(mr__texts_put(t, c, 1, st));
        else if (g < n_groups && groups[2 * g] != PCRE2_UNSET && s->size)
            MR_TRY(
                mr__texts_put(t, s->data + groups[2 * g], groups[2 * g + 1] - groups[2 * g], st));
    }
    return MR_OK;
}

/* Replaces in string i; an empty match adjacent to the previous match counts, as in Python. */
static mr_code replace(const mr_rows *r, size_t i, pcre2_match_data *found, mr__texts *t,
                       mr_status *st)
{
    const struct plan *p = r->plan;
    const struct params *o = r->params;
    const mr_bytes *s = (const mr_bytes *)r->in[0].data + i;
    const PCRE2_SIZE *v = pcre2.pcre2_get_ovector_pointer(found);
    const uint32_t not_empty = PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED;
    size_t at = 0, copied = 0;
    uint32_t options = 0;
    while (true) {
        int m = match(p, s, at, options, found);
        if (m == PCRE2_ERROR_NOMATCH && options) { /* only the empty match here */
            at++;
            while (p->utf && at < s->size && (s->data[at] & 0xc0) == 0x80)
                at++;
            options = 0;
            continue;
        }
        if (m == PCRE2_ERROR_NOMATCH)
            break;
        if (m < 0)
            return failed(r, i, m, st);
        if (v[0] < copied || v[1] < v[0])
            return failed(r, i, PCRE2_ERROR_INTERNAL, st);
        MR_TRY(mr__texts_put(t, s->size ? s->data + copied : NULL, v[0] - copied, st));
        MR_TRY(put_rewrite(t, o->rewrite, s, v, m, st));
        at = copied = v[1];
        options = v[0] == v[1] ? not_empty : 0;
        if (!o->global || (options && at == s->size))
            break;
    }
    return mr__texts_put(t, s->size ? s->data + copied : NULL, s->size - copied, st);
}

static mr_code run_replace(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct plan *p = r->plan;
    const mr_array *x = &r->in[0];
    size_t n = x->rows * mr_array_row_values(x);
    pcre2_match_data *found = pcre2.pcre2_match_data_create_from_pattern(p->code, p->memory);
    if (!found)
        return mr_fail_memory(st, sizeof *p, "a match");
    mr__texts t;
    mr_code rc = mr__texts_start(&t, x->rank, x->shape, x->rows, st);
    if (rc == MR_OK) {
        for (size_t i = 0; i < n && rc == MR_OK; i++) {
            rc = replace(r, i, found, &t, st);
            mr__texts_next(&t);
        }
        rc = mr__texts_finish(&t, rc, out, st);
    }
    pcre2.pcre2_match_data_free(found);
    return rc;
}

#define PATTERN                                                                                    \
    MR_INPUT(mr_input_strings, "x", "Strings."),                                                   \
        MR_ARG(struct params, pattern, .doc = "The regular expression, in PCRE2 syntax.")
static const mr_param matched[] = {PATTERN, {0}};
static const mr_param replaced[] = {
    PATTERN,
    MR_ARG(struct params, rewrite,
           .doc = "The replacement: \\1 to \\9 are the groups, \\0 the whole match."),
    MR_PARAM(struct params, global, .def.b = true,
             .doc = "Replaces every match, not only the first."),
    {0}};

const mr_function mr_function_regex_replace = {
    .abi = MR_ABI_VERSION,
    .name = "regex_replace",
    .doc = "The strings with matches of the pattern replaced.",
    .example = "from_tensor_slices([\"ab\", \"c\"]).map(x => regex_replace(x, \"a(.)\", "
               "\"\\\\1-\"))",
    .params = replaced,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = free_plan,
    .run = run_replace,
};
const mr_function mr_function_regex_match = {
    .abi = MR_ABI_VERSION,
    .name = "regex_match",
    .doc = "Whether the pattern matches each whole string.",
    .example = "from_tensor_slices([\"a1\", \"b\"]).map(x => regex_match(x, \"[a-z][0-9]\"))",
    .params = matched,
    .params_size = sizeof(struct params),
    .family = &whole,
    .type = type,
    .free_plan = free_plan,
    .run = run_match,
};
const mr_function mr_function_regex_search = {
    .abi = MR_ABI_VERSION,
    .name = "regex_search",
    .doc = "Whether the pattern matches anywhere in each string.",
    .example = "from_tensor_slices([\"a1\", \"b\"]).map(x => regex_search(x, \"[0-9]\"))",
    .params = matched,
    .params_size = sizeof(struct params),
    .family = &anywhere,
    .type = type,
    .free_plan = free_plan,
    .run = run_match,
};
