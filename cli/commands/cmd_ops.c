/* SPDX-License-Identifier: Apache-2.0 */
/* millrace ops: the reference of ops and of functions of expressions, generated from their
 * descriptors. */
#include <string.h>

#include <millrace/pipeline/functions/descriptor.h>
#include <millrace/pipeline/graph/op.h>
#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/params/guess.h>
#include "../cli.h"
#include "../reference_text.h"

/* An op or a function, as the reference shows it. */
typedef struct entry {
    const mr_op *op; /* NULL: a function */
    const mr_function *function;
    const char *name, *doc, *example;
    const mr_param *params;
} entry;

static entry of_op(const mr_op *op)
{
    return (entry){op, NULL, op->name, op->doc, op->example, op->params};
}

static entry of_function(const mr_function *f)
{
    return (entry){NULL, f, f->form ? f->form : f->name, f->doc, f->example, f->params};
}

static void print_signature(const entry *e)
{
    bool first = true;
    if (e->function && e->function->form) {
        fputs(e->function->form, stdout);
        return;
    }
    const mr_op *op = e->op;
    bool source = !op || op->max_inputs == 0 || (op->props & MR_OP_SOURCE_CALL);
    printf("%s%s(", source ? "" : ".", e->name);
    if (op && (op->props & MR_OP_NAMES_INPUTS)) {
        fputs("{\"NAME\": EXPR, ...}", stdout);
        first = false;
    } else if (op && (op->props & MR_OP_LISTS_INPUTS)) {
        fputs("[EXPR, ...]", stdout);
        for (int i = 1; i < op->min_inputs; i++)
            fputs(", EXPR", stdout);
        first = false;
    } else if (op && (op->props & MR_OP_SOURCE_CALL)) {
        fputs("EXPR, ...", stdout);
        first = false;
    } else if (op && (op->max_inputs > 1 || op->max_inputs < 0)) {
        fputs("EXPR", stdout);
        first = false;
    }
    cli_print_parameters(e->params, first);
    putchar(')');
}

/* What the reference says of every op, besides its parameters. */
typedef struct trait {
    const char *name, *text;
} trait;
enum { TRAITS = 4 };

static void traits_of(const mr_op *op, trait out[TRAITS])
{
    const char *count = op->props & MR_OP_KEEPS_COUNT ? "n" : "unknown";
    const trait all[TRAITS] = {{"order", op->order_doc ? op->order_doc : "kept"},
                               {"memory", op->memory_doc ? op->memory_doc : "a block"},
                               {"state", op->state_doc    ? op->state_doc
                                         : op->max_inputs ? "that of its inputs"
                                                          : "none"},
                               {"elements", op->count_doc ? op->count_doc : count}};
    memcpy(out, all, sizeof all);
}

static void print_traits(const mr_op *op, bool markdown)
{
    trait all[TRAITS];
    traits_of(op, all);
    if (markdown)
        puts("\n| order | memory | state | elements |\n| --- | --- | --- | --- |");
    for (int i = 0; i < TRAITS; i++)
        if (markdown)
            printf("| %s %s", all[i].text, i + 1 < TRAITS ? "" : "|\n");
        else
            printf("    %-22s %s\n", all[i].name, all[i].text);
}

static void print_entry(const entry *e, bool markdown)
{
    fputs(markdown ? "## `" : "", stdout);
    print_signature(e);
    puts(markdown ? "`" : "");
    printf("%s%s\n", markdown ? "\n" : "  ", e->doc);
    cli_describe_parameters(e->params, markdown);
    if (e->op)
        print_traits(e->op, markdown);
    if (e->example && markdown) /* after a list, an indented line would belong to its last item */
        printf(e->op ? "\n    %s\n" : "\n```\n%s\n```\n", e->example);
    else if (e->example)
        printf("    example: %s\n", e->example);
    putchar('\n');
}

/* How an op is called: on a dataset, or by name with datasets as its first arguments, which are
 * `datasets` many at least (and at most); `list`: as a list, except for the last least - 1;
 * `names`: as a record. */
static void print_inputs_json(const mr_op *op)
{
    bool called = op->max_inputs == 0 || (op->props & MR_OP_SOURCE_CALL);
    printf(", \"call\": \"%s\", \"least inputs\": %d, \"most inputs\": ",
           called ? "source" : "method", op->min_inputs);
    printf(op->max_inputs < 0 ? "null" : "%d", op->max_inputs);
    printf(", \"lists inputs\": %s, \"names inputs\": %s",
           op->props & MR_OP_LISTS_INPUTS ? "true" : "false",
           op->props & MR_OP_NAMES_INPUTS ? "true" : "false");
}

static void print_json(const entry *e)
{
    cli_print_field(e->op ? "{\"op\"" : "{\"function\"", e->name);
    cli_print_field(", \"doc\"", e->doc);
    if (e->op)
        print_inputs_json(e->op);
    else
        cli_print_field(", \"form\"", e->function->form);
    cli_print_parameters_json(e->params);
    trait all[TRAITS];
    if (e->op)
        traits_of(e->op, all);
    for (int i = 0; e->op && i < TRAITS; i++) {
        fputs(", ", stdout);
        cli_print_string(stdout, all[i].name, strlen(all[i].name));
        fputs(": ", stdout);
        cli_print_string(stdout, all[i].text, strlen(all[i].text));
    }
    cli_print_field(", \"example\"", e->example);
    puts("}");
}

static void print_name(const entry *e)
{
    if (!e->function || !e->function->form) /* operators cannot be called by name */
        puts(e->name);
}
static void print_page(const entry *e)
{
    print_entry(e, true);
}
static void print_text(const entry *e)
{
    print_entry(e, false);
}

/* The op, function or operator called name. */
static bool find_entry(const char *name, entry *e)
{
    const mr_op *op = mr_op_find(name, strlen(name));
    const mr_function *f;
    if (op) {
        *e = of_op(op);
        return true;
    }
    for (size_t i = 0; (f = mr_function_at(i)); i++)
        if (strcmp(f->name, name) == 0) {
            *e = of_function(f);
            return true;
        }
    return false;
}

static int no_entry(const char *name)
{
    const mr_op *op;
    const mr_function *f;
    mr_guess g = {.word = name};
    for (size_t i = 0; (op = mr_op_at(i)); i++)
        if (!(op->props & MR_OP_INTERNAL))
            mr_guess_try(&g, op->name);
    for (size_t i = 0; (f = mr_function_at(i)); i++)
        if (!f->form)
            mr_guess_try(&g, f->name);
    if (g.best)
        return cli_usage(&cli_ops, "there is no op or function '%s'; did you mean '%s'?", name,
                         g.best);
    return cli_usage(&cli_ops, "there is no op or function '%s'; 'millrace ops --names' lists them",
                     name);
}

static void list_ops(void (*print)(const entry *e))
{
    const mr_op *op;
    entry e;
    for (size_t i = 0; (op = mr_op_at(i)); i++)
        if (!(op->props & MR_OP_INTERNAL)) {
            e = of_op(op);
            print(&e);
        }
}

static void list_functions(void (*print)(const entry *e))
{
    const mr_function *f;
    entry e;
    for (size_t i = 0; (f = mr_function_at(i)); i++) {
        e = of_function(f);
        print(&e);
    }
}

/* The whole of docs/ops.md and docs/expressions.md. */
static void print_ops_page(void)
{
    puts(
        "# Ops\n\n"
        "The operations that pipelines are made of, printed from the table of ops by `millrace ops "
        "--page ops`. Their syntax is on [grammar.md](grammar.md), functions of elements are on "
        "[expressions.md](expressions.md).\n\n"
        "Besides its parameters each op has four properties. **Order**: the order of its elements; "
        "`kept` means the order of its input. It depends on the number of threads only with "
        "`deterministic=false`. **Memory**: the most that it holds; a block is about 256 KiB of "
        "elements, or one element if that is larger. **State**: what a saved position stores for "
        "it, in addition to the state of its inputs. **Elements**: how many it emits for n input "
        "elements, if that is known without running; `millrace explain` prints the numbers.\n");
    list_ops(print_page);
}
static void print_expressions_page(void)
{
    puts("# Operators and functions of expressions\n\n"
         "The operators and functions that functions of elements such as `x => x * 2` are made of, "
         "printed from the table of functions by `millrace ops --page expressions`. The rules "
         "common to all of them, on types, shapes and errors, are on "
         "[functions.md](functions.md).\n");
    list_functions(print_page);
}

static int run(int argc, char **argv)
{
    static const char *const pages[] = {"ops", "expressions", NULL};
    const char *page = NULL;
    bool json = false, markdown = false, names = false;
    const cli_flag flags[] = {
        {.name = "names", .kind = CLI_SWITCH, .value = &names, .help = "print the names only"},
        {.name = "json",
         .kind = CLI_SWITCH,
         .value = &json,
         .help = "print one JSON object per op or function"},
        {.name = "markdown", .kind = CLI_SWITCH, .value = &markdown, .help = "print Markdown"},
        {.name = "page",
         .kind = CLI_TEXT,
         .value = &page,
         .what = "PAGE",
         .words = pages,
         .help = "print a whole page of the reference in Markdown: ops or expressions"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    cli_try_service(NULL, NULL, 0); /* it has more ops */
    int status = cli_parse(&cli_ops, tables, argc, argv, rest, &n);
    void (*print)(const entry *) = names      ? print_name
                                   : json     ? print_json
                                   : markdown ? print_page
                                              : print_text;
    entry e;
    if (status < 0 && page && (n || json || markdown || names))
        status = cli_usage(&cli_ops, "--page excludes names and other options");
    for (size_t i = 0; status < 0 && i < n; i++)
        if (!find_entry(rest[i], &e))
            status = no_entry(rest[i]);
    if (status < 0) {
        for (size_t i = 0; i < n; i++)
            if (find_entry(rest[i], &e))
                print(&e);
        if (page && strcmp(page, pages[0]) == 0)
            print_ops_page();
        else if (page)
            print_expressions_page();
        else if (n == 0) {
            list_ops(print);
            list_functions(print);
        }
        status = cli_flush(CLI_OK);
    }
    mr_free(rest);
    return status;
}

const cli_command cli_ops = {
    .name = "ops",
    .summary = "lists the ops and functions that pipelines are made of",
    .usage = "[NAME...] [--names | --json | --markdown]\n--page ops|expressions",
    .run = run,
};
