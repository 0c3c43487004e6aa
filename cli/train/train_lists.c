/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of components in one argument of the command line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"
#include <millrace/pipeline/memory/alloc.h>

/* The first comma outside brackets and quotes, or NULL. */
static char *find_comma(char *word)
{
    int depth = 0;
    char quote = 0;
    for (char *c = word; *c; c++) {
        if (quote)
            quote = *c == quote ? 0 : quote;
        else if (*c == '"' || *c == '\'')
            quote = *c;
        else if (strchr("([{", *c))
            depth++;
        else if (strchr(")]}", *c))
            depth--;
        else if (*c == ',' && depth == 0)
            return c;
    }
    return NULL;
}

void train_split_at_commas(cli_texts *t)
{
    size_t most = 0, n = 0;
    if (t->n == 0)
        return;
    for (size_t i = 0; i < t->n; i++)
        most += strlen(t->v[i]) + 1;
    const char **all = cli_words((int)most);
    for (size_t i = 0; i < t->n; i++) {
        char *word = (char *)(uintptr_t)t->v[i], *comma;
        while ((comma = find_comma(word))) {
            *comma = '\0';
            all[n++] = word;
            word = comma + 1;
        }
        all[n++] = word;
    }
    mr_free(t->v);
    *t = (cli_texts){all, n};
}

void train_add_weighted(cli_texts *t, const cli_texts *more)
{
    if (more->n == 0)
        return;
    const char **all = cli_words((int)(t->n + more->n));
    for (size_t i = 0; i < t->n; i++)
        all[i] = t->v[i];
    for (size_t i = 0; i < more->n; i++)
        if (!(all[t->n + i] = mr_strf("weighted(%s)", more->v[i]))) {
            fputs("millrace: out of memory\n", stderr);
            exit(CLI_FAILED);
        }
    mr_free(t->v);
    *t = (cli_texts){all, t->n + more->n};
}

static mr_code bad_weights(const char *text, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "'%.100s' are not weights of classes: 1.0,5.0 are those of the classes 0 and 1, "
                   "1:5.0,3:2.0 those of the classes 1 and 3; a weight is a number from 0, and a "
                   "class below %d",
                   text, MR_MAX_CLASS_WEIGHTS);
}

mr_code train_read_class_weights(const char *text, double **weights, size_t *n, mr_status *st)
{
    const char *at = text + strspn(text, " [{");
    bool named = strchr(at, ':') != NULL;
    double *all = mr_calloc(MR_MAX_CLASS_WEIGHTS, sizeof *all);
    bool *given = mr_calloc(MR_MAX_CLASS_WEIGHTS, sizeof *given), well = true;
    size_t most = 0;
    for (size_t next = 0; all && given && well; next++) {
        char *end;
        long long k = named ? strtoll(at, &end, 10) : (long long)next;
        if (named) {
            end += strspn(end, " ");
            well = end != at && *end == ':';
            at = well ? end + 1 : at;
        }
        double v = strtod(at, &end);
        well =
            well && end != at && k >= 0 && k < MR_MAX_CLASS_WEIGHTS && isfinite((float)v) && v >= 0;
        well = well && !given[k];
        if (!well)
            break;
        all[k] = v;
        given[k] = true;
        most = (size_t)k + 1 > most ? (size_t)k + 1 : most;
        at = end + strspn(end, " ");
        if (*at != ',')
            break;
        at++;
    }
    if (!all || !given) {
        mr_free(all);
        mr_free(given);
        return mr_fail_memory(st, MR_MAX_CLASS_WEIGHTS * sizeof *all, "class weights");
    }
    for (size_t k = 0; k < most; k++)
        all[k] = given[k] ? all[k] : 1;
    mr_free(given);
    if (!well || at[strspn(at, " ]}")] != '\0') {
        mr_free(all);
        return bad_weights(text, st);
    }
    *weights = all;
    *n = most;
    return MR_OK;
}
