/* SPDX-License-Identifier: Apache-2.0 */
/* Parses flags by tables. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/params/guess.h>
#include "cli.h"

const char **cli_words(int argc)
{
    const char **words = mr_calloc((size_t)argc + 1, sizeof *words);
    if (!words) {
        fputs("millrace: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    return words;
}

static const cli_flag *find_flag(const cli_flag *const *tables, const char *word, size_t n)
{
    for (; *tables; tables++)
        for (const cli_flag *f = *tables; f->name; f++)
            if (f->kind != CLI_COMMAND && strlen(f->name) == n && memcmp(f->name, word, n) == 0)
                return f;
    return NULL;
}

/* word: an unknown flag, --name or --name=value. */
static int unknown_flag(const cli_command *cmd, const cli_flag *const *tables, const char *word)
{
    char name[64];
    size_t n = strcspn(word, "=");
    snprintf(name, sizeof name, "%.*s", (int)(n > 2 && n < sizeof name ? n - 2 : 0), word + 2);
    mr_guess g = {.word = name};
    for (; *tables && *name; tables++)
        for (const cli_flag *f = *tables; f->name; f++)
            if (f->kind != CLI_COMMAND && f->name[1])
                mr_guess_try(&g, f->name);
    if (g.best)
        return cli_usage(cmd, "unknown option '%.*s'; did you mean '--%s'?", (int)n, word, g.best);
    return cli_usage(cmd, "unknown option '%s'", word);
}

static int set_int(const cli_command *cmd, const cli_flag *f, const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return cli_usage(cmd, "--%s needs a whole number, not '%s'", f->name, text);
    if ((f->min || f->max) && (v < f->min || v > f->max)) {
        if (f->max == INT64_MAX)
            return cli_usage(cmd, "--%s must be at least %" PRId64 ", not %lld", f->name, f->min,
                             v);
        return cli_usage(cmd, "--%s must be %" PRId64 " to %" PRId64 ", not %lld", f->name, f->min,
                         f->max, v);
    }
    *(int64_t *)f->value = v;
    return -1;
}

int64_t cli_size(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || n < 1)
        return 0;
    const char *unit = *end & ~0x20 ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (*end && (!unit || end[1]))
        return 0;
    return n > (INT64_MAX >> shift) ? 0 : n << shift;
}

static int set_word(const cli_command *cmd, const cli_flag *f, const char *text)
{
    if (f->words) {
        const char *const *w = f->words;
        while (*w && strcasecmp(*w, text) != 0)
            w++;
        if (!*w) {
            char all[256] = "";
            for (w = f->words; *w; w++)
                snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", all[0] ? ", " : "",
                         *w);
            return cli_usage(cmd, "--%s must be one of %s, not '%s'", f->name, all, text);
        }
        text = *w;
    }
    *(const char **)f->value = text;
    return -1;
}

static int set_flag(const cli_command *cmd, const cli_flag *f, const char *text)
{
    char *end;
    switch (f->kind) {
    case CLI_INT:
        return set_int(cmd, f, text);
    case CLI_SIZE:
        *(int64_t *)f->value = cli_size(text);
        if (!*(int64_t *)f->value)
            return cli_usage(cmd, "--%s needs a size in bytes, such as 512M or 2G, not '%s'",
                             f->name, text);
        return -1;
    case CLI_FLOAT:
        errno = 0;
        *(double *)f->value = strtod(text, &end);
        if (errno || end == text || *end || !isfinite(*(double *)f->value) ||
            *(double *)f->value < 0)
            return cli_usage(cmd, "--%s needs a number of at least 0, not '%s'", f->name, text);
        return -1;
    case CLI_TEXT:
        return set_word(cmd, f, text);
    case CLI_SWITCH:
    case CLI_TEXTS:
    case CLI_COMMAND:
        break;
    }
    return -1;
}

/* Whether a word is a flag: -5 is a number and - is standard input. */
static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] && !(word[1] >= '0' && word[1] <= '9');
}

int cli_parse(const cli_command *cmd, const cli_flag *const *tables, int argc, char **argv,
              const char **rest, size_t *n_rest)
{
    *n_rest = 0;
    bool flags_end = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (flags_end || !is_flag(word)) {
            rest[(*n_rest)++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            flags_end = true;
            continue;
        }
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0 ||
            strncmp(word, "--help=", 7) == 0)
            return cli_help(stdout, cmd, tables, word);
        const char *name = word + (word[1] == '-' ? 2 : 1);
        size_t n = strcspn(name, "=");
        const cli_flag *f = find_flag(tables, name, n);
        if (!f || (word[1] == '-') != (n > 1))
            return unknown_flag(cmd, tables, word);
        if (f->given)
            *f->given = true;
        if (f->kind == CLI_SWITCH) {
            if (name[n])
                return cli_usage(cmd, "--%s takes no value", f->name);
            *(bool *)f->value = true;
            continue;
        }
        if (f->kind == CLI_TEXTS) {
            cli_texts *t = f->value;
            if (name[n])
                t->v[t->n++] = name + n + 1;
            while (i + 1 < argc && !is_flag(argv[i + 1]))
                t->v[t->n++] = argv[++i];
            if (!t->n)
                return cli_usage(cmd, "--%s needs %s", f->name, f->what);
            continue;
        }
        if (!name[n] && i + 1 == argc)
            return cli_usage(cmd, "--%s needs %s", f->name, f->what);
        int rc = set_flag(cmd, f, name[n] ? name + n + 1 : argv[++i]);
        if (rc >= 0)
            return rc;
    }
    return -1;
}
