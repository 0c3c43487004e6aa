/* SPDX-License-Identifier: Apache-2.0 */
/* The three forms of --help, generated from the tables of flags. */
#include <string.h>

#include "cli.h"

/* Every command takes it (plugins.c). */
static const char load_help[] = "load operations and functions from the shared object FILE";

/* ---- for people ---- */

/* "--limit N", "-v", "show" */
static void flag_words(const cli_flag *f, char *out, size_t room)
{
    const char *dashes = f->kind == CLI_COMMAND ? "" : f->name[1] ? "--" : "-";
    snprintf(out, room, "%s%s%s%s", dashes, f->name, f->what ? " " : "", f->what ? f->what : "");
}

/* "millrace show" */
static void print_name(FILE *f, const cli_command *cmd)
{
    fprintf(f, "millrace%s%s", *cmd->name ? " " : "", cmd->name);
}

/* A flag, and its help in lines of at most 100 columns. */
static void print_flag(FILE *f, const char *left, const char *help)
{
    enum { INDENT = 29, WIDTH = 100 - INDENT };
    fprintf(f, "  %-*s", INDENT - 3, left);
    for (int space = 1; *help; space = INDENT) {
        size_t all = strlen(help), n = all > WIDTH ? WIDTH : all;
        while (n < all && n && help[n] != ' ')
            n--;
        n = n ? n : all;
        fprintf(f, "%*s%.*s\n", space, "", (int)n, help);
        help += n + (help[n] == ' ');
    }
}

static void print_text(FILE *f, const cli_command *cmd, const cli_flag *const *tables)
{
    print_name(f, cmd);
    fprintf(f, ": %s\n\n", cmd->summary);
    const char *lead = "usage: ";
    for (const char *line = cmd->usage; *line;) {
        size_t n = strcspn(line, "\n");
        fputs(lead, f);
        if (*line != ' ')
            print_name(f, cmd);
        fprintf(f, " %.*s\n", (int)n, line);
        lead = "       ";
        line += n + (line[n] == '\n');
    }
    const char *title = NULL;
    for (; *tables; tables++)
        for (const cli_flag *flag = *tables; flag->name; flag++) {
            char left[64];
            const char *kind = flag->kind == CLI_COMMAND ? "commands" : "options";
            if (!title || strcmp(title, kind) != 0)
                fprintf(f, "\n%s:\n", kind);
            title = kind;
            flag_words(flag, left, sizeof left);
            print_flag(f, left, flag->help);
        }
    fputs(title ? "" : "\noptions:\n", f);
    print_flag(f, "--load FILE", load_help);
    print_flag(f, "--help", "print this help and exit");
    if (cmd->details)
        fprintf(f, "\n%s\n", cmd->details);
}

/* ---- a manual page ---- */

/* n bytes, as a separate line or (inside) within one. */
static void print_roff(FILE *f, const char *s, size_t n, bool inside)
{
    if (n && !inside && (*s == '.' || *s == '\''))
        fputs("\\&", f);
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\\')
            fputs("\\e", f);
        else if (s[i] == '-')
            fputs("\\-", f);
        else
            putc(s[i], f);
}

/* Paragraphs; indented lines are kept verbatim. */
static void print_paragraphs(FILE *f, const char *text)
{
    bool verbatim = false;
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (verbatim != (*text == ' ')) {
            verbatim = !verbatim;
            fputs(verbatim ? ".PP\n.nf\n" : ".fi\n", f);
        }
        if (n)
            print_roff(f, text, n, false);
        else
            fputs(".PP", f);
        putc('\n', f);
        text += n + (text[n] == '\n');
    }
    if (verbatim)
        fputs(".fi\n", f);
}

static void print_man(FILE *f, const cli_command *cmd, const cli_flag *const *tables)
{
    fprintf(f, ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH MILLRACE");
    for (const char *s = cmd->name; *s; s++)
        fprintf(f, "%s%c", s == cmd->name ? "\\-" : "", *s - 'a' + 'A');
    fprintf(f, " 1 \"\" \"millrace " MR_VERSION "\" \"User Commands\"\n.SH NAME\nmillrace%s%s \\- ",
            *cmd->name ? "\\-" : "", cmd->name);
    print_roff(f, cmd->summary, strlen(cmd->summary), true);
    fputs("\n.SH SYNOPSIS\n.nf\n", f);
    for (const char *line = cmd->usage; *line;) {
        size_t n = strcspn(line, "\n");
        if (*line != ' ')
            fprintf(f, "\\fBmillrace%s%s\\fR ", *cmd->name ? " " : "", cmd->name);
        print_roff(f, line, n, true);
        putc('\n', f);
        line += n + (line[n] == '\n');
    }
    fputs(".fi\n", f);
    if (cmd->details) {
        fputs(".SH DESCRIPTION\n", f);
        print_paragraphs(f, cmd->details);
    }
    const char *title = NULL;
    for (; *tables; tables++)
        for (const cli_flag *flag = *tables; flag->name; flag++) {
            char left[64];
            const char *kind = flag->kind == CLI_COMMAND ? "COMMANDS" : "OPTIONS";
            if (!title || strcmp(title, kind) != 0)
                fprintf(f, ".SH %s\n", kind);
            title = kind;
            flag_words(flag, left, sizeof left);
            fputs(".TP\n.B ", f);
            print_roff(f, left, strlen(left), true);
            putc('\n', f);
            print_roff(f, flag->help, strlen(flag->help), false);
            putc('\n', f);
        }
    fprintf(f,
            "%s.TP\n.B \\-\\-load FILE\n%s\n.TP\n.B \\-\\-help\nprint the usage and exit\n"
            ".SH SEE ALSO\n",
            title ? "" : ".SH OPTIONS\n", load_help);
    fputs(*cmd->name ? ".BR millrace (1)\n"
                     : "Each command has a page: \\fBmillrace\\-show\\fR(1) and so on.\n",
          f);
}

/* ---- for shells ---- */

static void print_options(FILE *f, const cli_flag *const *tables)
{
    for (; *tables; tables++)
        for (const cli_flag *flag = *tables; flag->name; flag++) {
            fprintf(f, "%s%s\t%s\t%s\t",
                    flag->kind == CLI_COMMAND ? ""
                    : flag->name[1]           ? "--"
                                              : "-",
                    flag->name, flag->what ? flag->what : "", flag->help);
            for (const char *const *w = flag->words; w && *w; w++)
                fprintf(f, "%s%s", w == flag->words ? "" : " ", *w);
            putc('\n', f);
        }
    fprintf(f, "--load\tFILE\t%s\t\n", load_help);
    fputs("--help\t\tprint the usage and exit\t\n", f);
}

int cli_help(FILE *f, const cli_command *cmd, const cli_flag *const *tables, const char *word)
{
    const char *form = strchr(word, '=');
    if (!form)
        print_text(f, cmd, tables);
    else if (strcmp(form, "=man") == 0)
        print_man(f, cmd, tables);
    else if (strcmp(form, "=options") == 0)
        print_options(f, tables);
    else
        return cli_usage(cmd, "--help takes no value but man and options, not '%s'", form + 1);
    return cli_flush(CLI_OK);
}
