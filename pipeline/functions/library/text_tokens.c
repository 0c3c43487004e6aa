/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/text_tokens.h"
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_punctuation(char c)
{
    return c && strchr("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'", c);
}

bool mr__next_token(mr_bytes *rest, char *scratch, mr_bytes *token)
{
    size_t n = 0;
    while (rest->size > 0) {
        char c = *rest->data++;
        rest->size--;
        if (is_space(c) && n > 0)
            break;
        if (!is_space(c) && !is_punctuation(c))
            scratch[n++] = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    *token = (mr_bytes){scratch, n};
    return n > 0;
}
