/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the ops of a graph, one per line, with what is known of each before it runs. */
#include "explain_graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/pipeline/graph/op.h>
#include <millrace/pipeline/memory/alloc.h>

/* An op of a graph, in text order; the inputs of an op with several are one level deeper. */
typedef struct line {
    char *op, *spec; /* its call, without its inputs; the type of its elements */
    int depth;
    int64_t count, held, bytes;
    char note[80];
    char mark; /* '+': only this graph has the op; '-': only the other graph has it; ' ': both */
} line;
struct explained {
    line *v;
    size_t n, capacity;
};

enum {
    MOST_LINES = 1 << 16,
    MOST_DEPTH = 1000,
    WIDEST_OP = 52, /* columns of the table; longer entries are cut */
    WIDEST_SPEC = 40,
    MOST_COMPARED = 2000
};

void explained_free(explained *x)
{
    for (size_t i = 0; x && i < x->n; i++) {
        mr_free(x->v[i].op);
        mr_free(x->v[i].spec);
    }
    if (x)
        mr_free(x->v);
    mr_free(x);
}

/* *out = ".batch(4)" of a method, "range(3)" of a source; an op of several inputs: "zip(...)". */
static mr_code call_text(const mr_dataset *ds, char **out, mr_status *st)
{
    size_t n = mr_dataset_n_inputs(ds);
    char *text = NULL, *input = NULL;
    if (n > 1) {
        const mr_op *op = mr_dataset_op(ds);
        bool call = op->props & MR_OP_SOURCE_CALL;
        *out = mr_strf("%s%s(...)", call ? "" : ".", op->name);
        return *out ? MR_OK : mr_fail_memory(st, strlen(op->name), "an explanation");
    }
    MR_TRY(mr_dataset_to_text(ds, &text, st));
    mr_code rc = n ? mr_dataset_to_text(mr_dataset_input(ds, 0), &input, st) : MR_OK;
    size_t common = rc == MR_OK && n ? strlen(input) : 0;
    if (common && strncmp(text, input, common) == 0)
        memmove(text, text + common, strlen(text + common) + 1);
    mr_free(input);
    if (rc != MR_OK)
        mr_free(text);
    else {
        mr_text_drop_secrets(text);
        *out = text;
    }
    return rc;
}

static mr_code spec_text(const mr_dataset *ds, char **out, mr_status *st)
{
    const mr_spec *spec = mr_dataset_spec(ds);
    size_t size = mr_spec_format(spec, NULL, 0) + 1;
    *out = mr_malloc(size);
    if (!*out)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for an explanation");
    mr_spec_format(spec, *out, size);
    return MR_OK;
}

static mr_code add_line(explained *x, const mr_dataset *ds, int depth, mr_status *st)
{
    MR_TRY(MR_GROW(x->v, x->capacity, x->n + 1, MOST_LINES, "an explanation", st));
    line *l = &x->v[x->n++];
    *l = (line){.depth = depth, .count = mr_dataset_cardinality(ds), .mark = ' '};
    mr_dataset_held(ds, &l->held, &l->bytes);
    mr_dataset_note(ds, l->note, sizeof l->note);
    MR_TRY(call_text(ds, &l->op, st));
    return spec_text(ds, &l->spec, st);
}

/* Lists the ops from the source to ds; iterative along a chain, which may be of any length. */
static mr_code add_chain(explained *x, const mr_dataset *ds, int depth, mr_status *st)
{
    const mr_dataset **chain = NULL;
    size_t n = 0, capacity = 0;
    if (depth > MOST_DEPTH)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "cannot explain a graph that nests ops of several inputs more than %d deep",
                       MOST_DEPTH);
    mr_code rc = MR_OK;
    for (const mr_dataset *at = ds; at && rc == MR_OK;
         at = mr_dataset_n_inputs(at) == 1 ? mr_dataset_input(at, 0) : NULL) {
        rc = MR_GROW(chain, capacity, n + 1, MOST_LINES, "an explanation", st);
        if (rc == MR_OK)
            chain[n++] = at;
    }
    const mr_dataset *first = rc == MR_OK ? chain[n - 1] : NULL;
    for (size_t i = 0; first && i < mr_dataset_n_inputs(first) && rc == MR_OK; i++)
        rc = add_chain(x, mr_dataset_input(first, i), depth + 1, st);
    while (rc == MR_OK && n > 0)
        rc = add_line(x, chain[--n], depth, st);
    mr_free(chain);
    return rc;
}

mr_code explained_new(const mr_dataset *ds, explained **out, mr_status *st)
{
    explained *x = mr_calloc(1, sizeof *x);
    if (!x)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for an explanation");
    mr_code rc = add_chain(x, ds, 0, st);
    if (rc == MR_OK)
        *out = x;
    else
        explained_free(x);
    return rc;
}

/* ---- what changed ---- */

static bool same_line(const line *a, const line *b)
{
    return a->depth == b->depth && strcmp(a->op, b->op) == 0;
}

/* Inserts lines of `a` into `x` before line `at`, with their mark. */
static mr_code insert(explained *x, size_t at, const line *a, mr_status *st)
{
    MR_TRY(MR_GROW(x->v, x->capacity, x->n + 1, 2 * MOST_LINES, "an explanation", st));
    line gone = {.op = mr_strdup(a->op), .depth = a->depth, .mark = '-'};
    if (!gone.op)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for an explanation");
    memmove(x->v + at + 1, x->v + at, (x->n - at) * sizeof *x->v);
    x->v[at] = gone;
    x->n++;
    return MR_OK;
}

mr_code explained_compare(explained *x, const explained *before, mr_status *st)
{
    size_t n = before->n, m = x->n, w = m + 1;
    if (n > MOST_COMPARED || m > MOST_COMPARED)
        return MR_OK;
    /* common[i * w + j]: length of the longest common subsequence of before[i..) and x[j..) */
    uint16_t *common = mr_calloc((n + 1) * w, sizeof *common);
    if (!common)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for an explanation");
    for (size_t i = n; i-- > 0;)
        for (size_t j = m; j-- > 0;) {
            uint16_t a = common[(i + 1) * w + j], b = common[i * w + j + 1];
            common[i * w + j] = same_line(&before->v[i], &x->v[j])
                                    ? (uint16_t)(common[(i + 1) * w + j + 1] + 1)
                                    : (a > b ? a : b);
        }
    mr_code rc = MR_OK;
    size_t i = 0, j = 0, at = 0;
    while (rc == MR_OK && (i < n || j < m))
        if (i < n && j < m && same_line(&before->v[i], &x->v[at])) {
            i++;
            j++;
            at++;
        } else if (i < n && (j == m || common[(i + 1) * w + j] >= common[i * w + j + 1])) {
            rc = insert(x, at++, &before->v[i++], st);
        } else {
            x->v[at++].mark = '+';
            j++;
        }
    mr_free(common);
    return rc;
}

/* ---- printing ---- */

static void format_count(int64_t n, char *out, size_t size)
{
    if (n >= 0)
        snprintf(out, size, "%" PRId64, n);
    else
        snprintf(out, size, "%s", n == MR_INFINITE ? "without end" : "unknown");
}

static void format_bytes(int64_t n, char *out, size_t size)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)n / 1024;
    size_t unit = 0;
    while (v >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        unit++;
    }
    if (n < 1024)
        snprintf(out, size, "%" PRId64 " B", n);
    else
        snprintf(out, size, "%.1f %s", v, units[unit]);
}

static void format_memory(const line *l, char *out, size_t size)
{
    char bytes[32];
    if (l->held == 0)
        snprintf(out, size, "a block");
    else if (l->held == MR_UNKNOWN_COUNT)
        snprintf(out, size, "tuned while running");
    else if (l->held == MR_INFINITE)
        snprintf(out, size, "all elements");
    else if (l->bytes < 0)
        snprintf(out, size, "%" PRId64 " element%s", l->held, l->held == 1 ? "" : "s");
    else {
        format_bytes(l->bytes, bytes, sizeof bytes);
        snprintf(out, size, "%" PRId64 " element%s, %s", l->held, l->held == 1 ? "" : "s", bytes);
    }
}

/* Prints text in at most `most` columns, shortened with a trailing "…"; returns the number of
 * columns. */
static int print_cut(const char *text, int most)
{
    int columns = 0, before_last = 0;
    for (const char *p = text; *p; p++)
        if (((unsigned char)*p & 0xc0) != 0x80) { /* start of a character */
            if (++columns == most)
                before_last = (int)(p - text);
        }
    if (columns <= most)
        fputs(text, stdout);
    else
        printf("%.*s\u2026", before_last, text);
    return columns < most ? columns : most;
}

static void widen(int *width, size_t n, int most)
{
    if ((int)n > *width)
        *width = n > (size_t)most ? most : (int)n;
}

void explained_print(const explained *x)
{
    bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    int op_width = 2, spec_width = 7, count_width = 8;
    char count[32], memory[64];
    for (size_t i = 0; i < x->n; i++) {
        const line *l = &x->v[i];
        widen(&op_width, strlen(l->op) + 2 * (size_t)l->depth, WIDEST_OP);
        widen(&spec_width, l->spec ? strlen(l->spec) : 0, WIDEST_SPEC);
        format_count(l->count, count, sizeof count);
        widen(&count_width, strlen(count), (int)sizeof count);
    }
    printf("    %-*s  %*s  %-*s  memory\n", op_width, "op", count_width, "elements", spec_width,
           "element");
    for (size_t i = 0; i < x->n; i++) {
        const line *l = &x->v[i];
        const char *paint = !colour || l->mark == ' ' ? ""
                            : l->mark == '+'          ? "\033[32m"
                                                      : "\033[31m";
        int indent = 2 * l->depth;
        printf("%s  %c %*s", paint, l->mark, indent, "");
        int width = indent + print_cut(l->op, WIDEST_OP);
        if (l->mark != '-') {
            format_count(l->count, count, sizeof count);
            format_memory(l, memory, sizeof memory);
            printf("%*s  %*s  ", width < op_width ? op_width - width : 0, "", count_width, count);
            width = print_cut(l->spec, WIDEST_SPEC);
            printf("%*s  %s%s%s", width < spec_width ? spec_width - width : 0, "", memory,
                   *l->note ? "; " : "", l->note);
        }
        puts(*paint ? "\033[0m" : "");
    }
}

static void print_number(const char *key, int64_t n)
{
    printf(", \"%s\": ", key);
    if (n == MR_INFINITE)
        fputs("\"infinite\"", stdout);
    else if (n < 0)
        fputs("null", stdout);
    else
        printf("%" PRId64, n);
}

void explained_print_json(const explained *x)
{
    putchar('[');
    for (size_t i = 0; i < x->n; i++) {
        const line *l = &x->v[i];
        fputs(i ? ", {\"op\": " : "{\"op\": ", stdout);
        cli_print_string(stdout, l->op, strlen(l->op));
        printf(", \"depth\": %d", l->depth);
        fputs(", \"element\": ", stdout);
        cli_print_string(stdout, l->spec, strlen(l->spec));
        print_number("elements", l->count);
        print_number("held_elements", l->held);
        print_number("held_bytes", l->bytes < 0 ? MR_UNKNOWN_COUNT : l->bytes);
        if (*l->note) {
            fputs(", \"note\": ", stdout);
            cli_print_string(stdout, l->note, strlen(l->note));
        }
        putchar('}');
    }
    putchar(']');
}
