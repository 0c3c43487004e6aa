/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_GUESS_H
#define MR_PIPELINE_PARAMS_GUESS_H
/* Suggests the known name closest to a misspelled one.
 *
 *     mr_guess g = {.word = "shufle"};
 *     for (...) mr_guess_try(&g, name);
 *     if (g.best) ... "; did you mean 'shuffle'?"
 *
 * thread   any
 * since    0.1 */
#include <stddef.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_guess {
    const char *word;
    const char *best; /* closest name so far, the first among equals; NULL: no match. Borrowed */
} mr_guess;

/* Sets g->best to name if it matches better. A name matches if its edit distance to g->word is at
 * most 2, or at most 1 if the word has fewer than 4 letters; case, '_' and '-' are ignored. If no
 * name matches, the first of at least 6 letters with which the word begins or ends is taken. Names
 * and words longer than 63 bytes never match. */
MR_API void mr_guess_try(mr_guess *g, const char *name);

#ifdef __cplusplus
}
#endif
#endif
