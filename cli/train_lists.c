/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of components in one argument of the command line. */
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
