/* SPDX-License-Identifier: Apache-2.0 */
#include "reference_text.h"

#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/functions/descriptor.h>
#include "cli.h"

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
    case MR_PT_OWN:
        if (mr_param_input(p))
            return mr_param_input(p)->name;
        return p->kind == &mr_option_dtype ? "dtype" : "as described";
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
        if (p->has_at || (p->flags & MR_P_NONE))
            fputs("=none", stdout);
        else {
            putchar('=');
            cli_print_double(stdout, p->def.f);
        }
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
    case MR_PT_OWN:
        printf("=%s", p->def.s ? p->def.s : "none");
        break;
    }
}

void cli_print_parameters(const mr_param *params, bool first)
{
    for (const mr_param *p = params; p && p->name; p++) {
        printf("%s%s%s", first ? "" : ", ", p->name, p->flags & MR_P_VARIADIC ? "..." : "");
        print_default(p);
        first = false;
    }
}

void cli_describe_parameters(const mr_param *params, bool markdown)
{
    if (markdown && params && params->name)
        putchar('\n');
    for (const mr_param *p = params; p && p->name; p++) {
        printf(markdown ? "* `%s`, %s: %s" : "    %-22s %s: %s", p->name, type_name(p), p->doc);
        if (p->names) {
            fputs(" One of", stdout);
            for (const char *const *w = p->names; *w; w++)
                printf("%s \"%s\"", w == p->names ? "" : ",", *w);
            putchar('.');
        }
        putchar('\n');
    }
}

void cli_print_field(const char *key, const char *text)
{
    printf("%s: ", key);
    if (text)
        cli_print_string(stdout, text, strlen(text));
    else
        fputs("null", stdout);
}

void cli_print_parameters_json(const mr_param *params)
{
    fputs(", \"params\": [", stdout);
    for (const mr_param *p = params; p && p->name; p++) {
        cli_print_field(p == params ? "{\"name\"" : ", {\"name\"", p->name);
        cli_print_field(", \"type\"", type_name(p));
        printf(", \"required\": %s", p->flags & MR_P_POSITIONAL ? "true" : "false");
        cli_print_field(", \"doc\"", p->doc);
        putchar('}');
    }
    fputs("]", stdout);
}
