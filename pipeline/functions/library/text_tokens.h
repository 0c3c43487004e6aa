/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_TEXT_TOKENS_H
#define MR_PIPELINE_FUNCTIONS_TEXT_TOKENS_H
/* Tokens of texts, as Keras's TextVectorization makes them: letters A to Z in lower case, ASCII
 * punctuation left out, parted at ASCII white space.
 *
 * thread   any */
#include <stdbool.h>
#include "pipeline/memory/array.h"

/* The next token of *rest, which then begins after it; scratch, where it lies, has room for all
 * bytes of the text. false: there is none. */
bool mr__next_token(mr_bytes *rest, char *scratch, mr_bytes *token);
#endif
