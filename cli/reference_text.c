/* SPDX-License-Identifier: Apache-2.0 */
#include "reference_text.h"

#include <inttypes.h>
#include <stdlib.h>
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

static bool has_default(const mr_param *p)
{
    return !(p->flags & (MR_P_POSITIONAL | MR_P_VARIADIC));
}

/* The default as the text form writes it. */
static void print_default(FILE *f, const mr_param *p)
{
    bool none = p->has_at || (p->flags & MR_P_NONE);
    switch (p->type) {
    case MR_PT_I64:
        if (p->def.i == MR_AUTO)
            fputs("auto", f);
        else if (none)
            fputs("none", f);
        else
            fprintf(f, "%" PRId64, p->def.i);
        break;
    case MR_PT_F64:
        if (none)
            fputs("none", f);
        else
            cli_print_double(f, p->def.f);
        break;
    case MR_PT_BOOL:
    case MR_PT_TRI:
        fputs(p->has_at ? "none" : p->def.b ? "true" : "false", f);
        break;
    case MR_PT_STR:
        cli_print_string(f, p->def.s ? p->def.s : "", p->def.s ? strlen(p->def.s) : 0);
        break;
    case MR_PT_FN:
    case MR_PT_VALUE:
    case MR_PT_INTS:
    case MR_PT_FLOATS:
    case MR_PT_STRS:
        fputs("none", f);
        break;
    case MR_PT_OWN:
        fputs(p->def.s ? p->def.s : "none", f);
        break;
    }
}

void cli_print_parameters(const mr_param *params, bool first)
{
    for (const mr_param *p = params; p && p->name; p++) {
        printf("%s%s%s", first ? "" : ", ", p->name, p->flags & MR_P_VARIADIC ? "..." : "");
        if (has_default(p)) {
            putchar('=');
            print_default(stdout, p);
        }
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

/* The parameter's type, for programs that make calls from the table. */
static const char *kind_name(const mr_param *p)
{
    switch (p->type) {
    case MR_PT_I64:
        return "integer";
    case MR_PT_F64:
        return "number";
    case MR_PT_BOOL:
        return "bool";
    case MR_PT_TRI:
        return "bool or unset";
    case MR_PT_STR:
        return p->flags & MR_P_EXPRESSION ? "expression" : "string";
    case MR_PT_FN:
        return "function";
    case MR_PT_VALUE:
        return "value";
    case MR_PT_INTS:
        return "integers";
    case MR_PT_FLOATS:
        return "numbers";
    case MR_PT_STRS:
        return "strings";
    case MR_PT_OWN:
        break;
    }
    return mr_param_input(p) ? "tensor" : p->kind == &mr_option_dtype ? "dtype" : "other";
}

static void print_flag(const char *key, bool yes)
{
    printf(", \"%s\": %s", key, yes ? "true" : "false");
}

static void print_default_json(const mr_param *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = has_default(p) ? open_memstream(&text, &n) : NULL;
    fputs(", \"default\": ", stdout);
    if (f) {
        print_default(f, p);
        fclose(f);
        cli_print_string(stdout, text, n);
    } else
        fputs("null", stdout);
    free(text);
}

/* The limits that are checked; without them, none. */
static void print_limits_json(const mr_param *p)
{
    if ((p->type == MR_PT_I64 || p->type == MR_PT_INTS) && p->min.i != p->max.i)
        printf(", \"min\": %" PRId64 ", \"max\": %" PRId64, p->min.i, p->max.i);
    if ((p->type == MR_PT_F64 || p->type == MR_PT_FLOATS) && p->min.f < p->max.f) {
        fputs(", \"min\": ", stdout);
        cli_print_double(stdout, p->min.f);
        fputs(", \"max\": ", stdout);
        cli_print_double(stdout, p->max.f);
    }
}

static void print_words_json(const char *const *words)
{
    fputs(", \"words\": [", stdout);
    for (const char *const *w = words; w && *w; w++) {
        fputs(w == words ? "" : ", ", stdout);
        cli_print_string(stdout, *w, strlen(*w));
    }
    fputs("]", stdout);
}

void cli_print_parameters_json(const mr_param *params)
{
    fputs(", \"params\": [", stdout);
    for (const mr_param *p = params; p && p->name; p++) {
        cli_print_field(p == params ? "{\"name\"" : ", {\"name\"", p->name);
        cli_print_field(", \"type\"", type_name(p));
        cli_print_field(", \"kind\"", kind_name(p));
        print_flag("required", p->flags & MR_P_POSITIONAL);
        print_flag("positional", p->flags & (MR_P_POSITIONAL | MR_P_OPTIONAL | MR_P_VARIADIC));
        print_flag("variadic", p->flags & MR_P_VARIADIC);
        print_flag("auto", p->flags & MR_P_AUTO);
        print_flag("none", p->has_at || (p->flags & MR_P_NONE));
        print_flag("pattern", p->flags & MR_P_PATTERN);
        print_default_json(p);
        print_limits_json(p);
        print_words_json(p->names);
        cli_print_field(", \"doc\"", p->doc);
        putchar('}');
    }
    fputs("]", stdout);
}
