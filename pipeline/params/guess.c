/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/guess.h"

#include <string.h>

enum { MOST = 63 };

/* Levenshtein's: how many letters must change to make one of the other. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[MOST + 1];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t before = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t cost = before + (*a != b[j - 1]);
            before = row[j];
            if (row[j] + 1 < cost)
                cost = row[j] + 1;
            if (row[j - 1] + 1 < cost)
                cost = row[j - 1] + 1;
            row[j] = cost;
        }
    }
    return row[n];
}

void mr_guess_try(mr_guess *g, const char *name)
{
    if (strlen(name) > MOST || strlen(g->word) > MOST)
        return;
    size_t d = distance(g->word, name);
    if (d >= g->below)
        return;
    g->below = d;
    g->best = name;
}
