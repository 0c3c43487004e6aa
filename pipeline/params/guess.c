/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/guess.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST = 63, WHOLE_WORD = 6, SHORT_WORD = 3 };

/* Removes case, '_' and '-': Conv2D is conv2d, earlyStopping is early_stopping. */
static void fold(const char *s, char *out)
{
    for (; *s; s++)
        if (*s != '_' && *s != '-')
            *out++ = (char)tolower((unsigned char)*s);
    *out = '\0';
}

/* The Levenshtein distance: the number of letters to insert, delete or replace. */
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

/* True if the word begins or ends with the name: ModelCheckpoint with checkpoint, validation-data
 * with validation. */
static bool holds(const char *word, const char *name)
{
    size_t n = strlen(name), all = strlen(word);
    return n >= WHOLE_WORD && n <= all &&
           (memcmp(word, name, n) == 0 || memcmp(word + all - n, name, n) == 0);
}

/* word and name are folded. */
static bool is_near(const char *word, const char *name)
{
    return distance(word, name) <= (strlen(word) > SHORT_WORD ? 2 : 1);
}

void mr_guess_try(mr_guess *g, const char *name)
{
    char word[MOST + 1], folded[MOST + 1], best[MOST + 1];
    if (strlen(name) > MOST || strlen(g->word) > MOST)
        return;
    fold(g->word, word);
    fold(name, folded);
    fold(g->best ? g->best : "", best);
    bool nearer = !g->best || !is_near(word, best) || distance(word, folded) < distance(word, best);
    if ((nearer && is_near(word, folded)) || (!g->best && holds(word, folded)))
        g->best = name;
}
