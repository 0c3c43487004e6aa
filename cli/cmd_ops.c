/* SPDX-License-Identifier: Apache-2.0 */
/* millrace ops: the reference of ops, from their descriptors. */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "pipeline/graph/op.h"
#include "pipeline/memory/alloc.h"

static const char *type_name(const mr_param *p)
{
    switch (p->type) {
    case MR_PT_I64:
        return p->flags & MR_P_AUTO ? "integer or auto" : "integer";
    case MR_PT_F64:
        return "number";
    case MR_PT_BOOL:
    case MR_PT_TRI:
        return "bool";
    case MR_PT_STR:
        return "string";
    case MR_PT_FN:
        return "function";
    case MR_PT_VALUE:
        return "value";
    case MR_PT_INTS:
        return "integer or list of integers";
    case MR_PT_FLOATS:
        return "list of numbers";
    case MR_PT_STRS:
        return "string or list of strings";
    }
    return "value";
}

static void print_default(const mr_param *p)
{
    if (p->flags & (MR_P_POSITIONAL | MR_P_VARIADIC))
        return;
    switch (p->type) {
    case MR_PT_I64:
        if (p->def.i == MR_AUTO)
            fputs("=auto", stdout);
        else if (p->has_at || (p->flags & MR_P_NONE))
            fputs("=none", stdout);
        else
            printf("=%" PRId64, p->def.i);
        break;
    case MR_PT_F64:
        putchar('=');
        cli_print_double(stdout, p->def.f);
        break;
    case MR_PT_BOOL:
    case MR_PT_TRI:
        fputs(p->has_at ? "=none" : p->def.b ? "=true" : "=false", stdout);
        break;
    case MR_PT_STR:
        putchar('=');
        cli_print_string(stdout, p->def.s ? p->def.s : "", p->def.s ? strlen(p->def.s) : 0);
        break;
    case MR_PT_FN:
    case MR_PT_VALUE:
    case MR_PT_INTS:
    case MR_PT_FLOATS:
    case MR_PT_STRS:
        fputs("=none", stdout);
        break;
    }
}

static bool is_source(const mr_op *op)
{
    return op->max_inputs == 0 || (op->props & MR_OP_SOURCE_CALL);
}

static void print_signature(const mr_op *op)
{
    printf("%s%s(", is_source(op) ? "" : ".", op->name);
    bool first = true;
    if (op->props & MR_OP_SOURCE_CALL) {
        fputs("EXPR, ...", stdout);
        first = false;
    } else if (op->max_inputs > 1 || op->max_inputs < 0) {
        fputs("EXPR", stdout);
        first = false;
    }
    for (const mr_param *p = op->params; p && p->name; p++) {
        printf("%s%s%s", first ? "" : ", ", p->name, p->flags & MR_P_VARIADIC ? "..." : "");
        print_default(p);
        first = false;
    }
    putchar(')');
}

static void print_op(const mr_op *op, bool markdown)
{
    fputs(markdown ? "### " : "", stdout);
    fputs(markdown ? "`" : "", stdout);
    print_signature(op);
    puts(markdown ? "`" : "");
    printf("%s%s\n", markdown ? "\n" : "  ", op->doc);
    if (markdown && op->params && op->params->name)
        putchar('\n');
    for (const mr_param *p = op->params; p && p->name; p++) {
        printf(markdown ? "* `%s`, %s: %s" : "    %-22s %s: %s", p->name, type_name(p), p->doc);
        if (p->names) {
            fputs(" One of", stdout);
            for (const char *const *w = p->names; *w; w++)
                printf("%s \"%s\"", w == p->names ? "" : ",", *w);
            putchar('.');
        }
        putchar('\n');
    }
    if (op->example)
        printf(markdown ? "\n    %s\n" : "    example: %s\n", op->example);
    putchar('\n');
}

static void print_json(const mr_op *op)
{
    fputs("{\"op\": ", stdout);
    cli_print_string(stdout, op->name, strlen(op->name));
    fputs(", \"doc\": ", stdout);
    cli_print_string(stdout, op->doc, strlen(op->doc));
    fputs(", \"params\": [", stdout);
    for (const mr_param *p = op->params; p && p->name; p++) {
        fputs(p == op->params ? "{\"name\": " : ", {\"name\": ", stdout);
        cli_print_string(stdout, p->name, strlen(p->name));
        fputs(", \"type\": ", stdout);
        cli_print_string(stdout, type_name(p), strlen(type_name(p)));
        printf(", \"required\": %s, \"doc\": ", p->flags & MR_P_POSITIONAL ? "true" : "false");
        cli_print_string(stdout, p->doc, strlen(p->doc));
        putchar('}');
    }
    fputs("], \"example\": ", stdout);
    if (op->example)
        cli_print_string(stdout, op->example, strlen(op->example));
    else
        fputs("null", stdout);
    puts("}");
}

static void list(const char *const *names, size_t n, void (*print)(const mr_op *op))
{
    const mr_op *op;
    for (size_t k = 0;
         (op = n ? (k < n ? mr_op_find(names[k], strlen(names[k])) : NULL) : mr_op_at(k)); k++)
        if (n || !(op->props & MR_OP_INTERNAL))
            print(op);
}

static void print_name(const mr_op *op)
{
    puts(op->name);
}
static void print_page(const mr_op *op)
{
    print_op(op, true);
}
static void print_text(const mr_op *op)
{
    print_op(op, false);
}

static int run(int argc, char **argv)
{
    bool json = false, markdown = false, names = false;
    const cli_flag flags[] = {
        {.name = "names", .kind = CLI_SWITCH, .value = &names, .help = "the names alone"},
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "one JSON object an op"},
        {.name = "markdown",
         .kind = CLI_SWITCH,
         .value = &markdown,
         .help = "the reference page in Markdown"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_ops, tables, argc, argv, rest, &n);
    for (size_t i = 0; status < 0 && i < n; i++)
        if (!mr_op_find(rest[i], strlen(rest[i])))
            status = cli_usage(&cli_ops, "there is no op '%s'; 'millrace ops --names' lists them",
                               rest[i]);
    if (status < 0) {
        list(rest, n, names ? print_name : json ? print_json : markdown ? print_page : print_text);
        status = cli_flush(CLI_OK);
    }
    mr_free(rest);
    return status;
}

const cli_command cli_ops = {
    .name = "ops",
    .summary = "lists the ops that pipelines are made of",
    .usage = "[NAME...] [--names | --json | --markdown]",
    .run = run,
};
