/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_GUESS_H
#define MR_PIPELINE_PARAMS_GUESS_H
/* Which of the names that there are was meant by one that is none of them.
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
    const char *best; /* the first of those nearest; NULL: none is near. Borrowed */
} mr_guess;

/* A name is near of which two letters must change at most, one where word has less than four. Case,
 * '_' and '-' do not count. Where nothing is as near, a name of 6 letters or more with which word
 * begins or ends is best. Names and words of more than 63 bytes are near nothing. */
MR_API void mr_guess_try(mr_guess *g, const char *name);

#ifdef __cplusplus
}
#endif
#endif
