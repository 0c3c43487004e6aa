/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_TOKEN_H
#define MR_PIPELINE_PARAMS_TOKEN_H
/* Tokens of the text form. Reading one never fails: invalid text yields a TOK_BAD with the reason,
 * so that the parser may look ahead freely. */
#include "expr.h"

typedef enum tok_kind {
    TOK_END,
    TOK_BAD,
    TOK_INT,
    TOK_FLOAT,
    TOK_STRING,
    TOK_NAME,
    TOK_WORD,  /* a keyword: true, and, if, ... */
    TOK_ARROW, /* => */
    TOK_OP     /* everything else: `op` as in mr_expr.op, or the character itself; '=' is '==' */
} tok_kind;

#define TOK_ASSIGN '~' /* op of a single = */

typedef struct mr__token {
    tok_kind kind;
    char op;
    size_t begin, end; /* byte range in the text */
    const char *why;   /* TOK_BAD: the error at begin */
} mr__token;

/* The first token at or after byte `at`. */
mr__token mr__token_at(const char *text, size_t size, size_t at);
/* True if the token is the keyword or name w. */
bool mr__token_is(const mr__token *t, const char *text, const char *w);
/* True if s (n bytes) is a name: letters, digits and _, the first not a digit, and no keyword. */
bool mr__is_name(const char *s, size_t n);
/* Decodes the string literal text[begin..end), which includes its quotes, into out (at most
 * end - begin bytes) and returns its length. Sets *why to NULL, or on a bad escape to the reason,
 * with its offset in *bad_at. */
size_t mr__token_string(const char *text, size_t begin, size_t end, char *out, size_t *bad_at,
                        const char **why);
#endif
