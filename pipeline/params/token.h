/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_TOKEN_H
#define MR_PIPELINE_PARAMS_TOKEN_H
/* Words of the text form. Reading one never fails: what is no token is a TOK_BAD that says why, so
 * that the parser may look ahead freely. */
#include "expr.h"

typedef enum tok_kind {
    TOK_END,
    TOK_BAD,
    TOK_INT,
    TOK_FLOAT,
    TOK_STRING,
    TOK_NAME,
    TOK_WORD,  /* true, and, if, ...: no name */
    TOK_ARROW, /* => */
    TOK_OP     /* everything else: `op` as in mr_expr.op, or the character itself; '=' is '==' */
} tok_kind;

#define TOK_ASSIGN '~' /* op of a single = */

typedef struct mr__token {
    tok_kind kind;
    char op;
    size_t begin, end; /* bytes in the text */
    const char *why;   /* TOK_BAD: what is wrong at begin */
} mr__token;

/* The first token at or after byte `at`. */
mr__token mr__token_at(const char *text, size_t size, size_t at);
/* true if the token is the word or name w. */
bool mr__token_is(const mr__token *t, const char *text, const char *w);
/* true if s (n bytes) can stand as a name: no keyword, of letters, digits and _. */
bool mr__is_name(const char *s, size_t n);
/* Decodes the string literal text[begin..end), quotes included, into out (at most end - begin
 * bytes) and returns its length. On a bad escape *bad_at is its place and *why the reason, else
 * NULL. */
size_t mr__token_string(const char *text, size_t begin, size_t end, char *out, size_t *bad_at,
                        const char **why);
#endif
