/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/token.h"

#include <string.h>

static const char *const keywords[] = {"true", "false", "none", "auto", "and",
                                       "or",   "not",   "if",   "else"};

/* <ctype.h> depends on the locale; the grammar does not. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool starts_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool in_name(char c)
{
    return starts_name(c) || is_digit(c);
}

static bool is_keyword(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strlen(keywords[i]) == n && memcmp(keywords[i], s, n) == 0)
            return true;
    return false;
}

bool mr__is_name(const char *s, size_t n)
{
    if (n == 0 || !starts_name(s[0]) || is_keyword(s, n))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!in_name(s[i]))
            return false;
    return true;
}

bool mr__token_is(const mr__token *t, const char *text, const char *w)
{
    size_t n = strlen(w);
    return (t->kind == TOK_WORD || t->kind == TOK_NAME) && t->end - t->begin == n &&
           memcmp(text + t->begin, w, n) == 0;
}

static size_t skip_space(const char *s, size_t size, size_t at)
{
    while (at < size) {
        if (s[at] == '#')
            while (at < size && s[at] != '\n')
                at++;
        else if (s[at] == ' ' || (s[at] >= '\t' && s[at] <= '\r'))
            at++;
        else
            break;
    }
    return at;
}

static char peek(const char *s, size_t size, size_t at)
{
    return at < size ? s[at] : '\0';
}

static size_t skip_digits(const char *s, size_t size, size_t at)
{
    while (at < size && is_digit(s[at]))
        at++;
    return at;
}

static mr__token number(const char *s, size_t size, size_t at)
{
    mr__token t = {.kind = TOK_INT, .begin = at};
    at = skip_digits(s, size, at);
    /* "1.x" is the method x of 1; "1." and "1.5" are floats. */
    if (peek(s, size, at) == '.' && !starts_name(peek(s, size, at + 1))) {
        t.kind = TOK_FLOAT;
        at = skip_digits(s, size, at + 1);
    }
    if (peek(s, size, at) == 'e' || peek(s, size, at) == 'E') {
        char sign = peek(s, size, at + 1);
        size_t digits = at + (sign == '+' || sign == '-' ? 2 : 1);
        if (is_digit(peek(s, size, digits))) {
            t.kind = TOK_FLOAT;
            at = skip_digits(s, size, digits);
        }
    }
    t.end = at;
    if (in_name(peek(s, size, at))) {
        t.kind = TOK_BAD;
        t.why = "expected a number, but letters follow its digits";
    }
    return t;
}

static mr__token string(const char *s, size_t size, size_t at)
{
    mr__token t = {.kind = TOK_STRING, .begin = at};
    char quote = s[at++];
    while (at < size && s[at] != quote)
        at += s[at] == '\\' ? 2 : 1;
    if (at >= size) {
        t.kind = TOK_BAD;
        t.why = quote == '"' ? "expected a closing \" for the string that begins here"
                             : "expected a closing ' for the string that begins here";
        at = size - 1;
    }
    t.end = at + 1;
    return t;
}

/* Operators of two characters, and their `op`. */
static const struct {
    char text[3], op;
} pairs[] = {{"==", '='}, {"!=", '!'}, {"<=", 'l'}, {">=", 'g'}, {"//", 'f'}, {"**", 'p'}};

static mr__token punctuation(const char *s, size_t size, size_t at)
{
    mr__token t = {.kind = TOK_OP, .begin = at, .end = at + 2};
    if (s[at] == '=' && peek(s, size, at + 1) == '>') {
        t.kind = TOK_ARROW;
        return t;
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (s[at] == pairs[i].text[0] && peek(s, size, at + 1) == pairs[i].text[1]) {
            t.op = pairs[i].op;
            return t;
        }
    t.end = at + 1;
    t.op = s[at] == '=' ? TOK_ASSIGN : s[at];
    if (s[at] == '\0' || !strchr("()[]{},.:=+-*/%<>", s[at])) {
        t.kind = TOK_BAD;
        t.why = s[at] == '!' ? "expected !=; write 'not x' to negate"
                             : "no such character in an expression";
    }
    return t;
}

mr__token mr__token_at(const char *text, size_t size, size_t at)
{
    at = skip_space(text, size, at);
    if (at >= size)
        return (mr__token){.kind = TOK_END, .begin = size, .end = size};
    char c = text[at];
    if (is_digit(c) || (c == '.' && is_digit(peek(text, size, at + 1))))
        return number(text, size, at);
    if (c == '"' || c == '\'')
        return string(text, size, at);
    if (!starts_name(c))
        return punctuation(text, size, at);
    mr__token t = {.kind = TOK_NAME, .begin = at, .end = at};
    while (t.end < size && in_name(text[t.end]))
        t.end++;
    if (is_keyword(text + at, t.end - at))
        t.kind = TOK_WORD;
    return t;
}

/* ---- strings ---- */

/* The value of n hexadecimal digits at s, or -1. */
static int32_t hex(const char *s, const char *end, int n)
{
    int32_t v = 0;
    if (end - s < n)
        return -1;
    for (int i = 0; i < n; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *d = s[i] ? strchr(digits, s[i]) : NULL;
        if (!d)
            return -1;
        v = v << 4 | (int32_t)((d - digits) & 15);
    }
    return v;
}

static size_t put_utf8(int32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[more] | c);
    return more + 1;
}

/* The character of the \u escape whose digits start at s, or -1. *used is the length of the digits,
 * including a second escape if two surrogates form one character. */
static int32_t unicode_escape(const char *s, const char *end, size_t *used)
{
    int32_t c = hex(s, end, 4);
    *used = 4;
    if (c < 0xd800 || c > 0xdfff)
        return c;
    if (c > 0xdbff || end - s < 10 || s[4] != '\\' || s[5] != 'u')
        return -1;
    int32_t low = hex(s + 6, end, 4);
    *used = 10;
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

size_t mr__token_string(const char *text, size_t begin, size_t end, char *out, size_t *bad_at,
                        const char **why)
{
    static const char plain[] = "\\\"'nt", meant[] = "\\\"'\n\t";
    const char *s = text + begin + 1, *last = text + end - 1;
    size_t n = 0;
    *why = NULL;
    while (s < last) {
        if (*s != '\\') {
            out[n++] = *s++;
            continue;
        }
        const char *escape = s++;
        const char *simple = *s ? strchr(plain, *s) : NULL;
        int32_t c = -1;
        size_t used = 0;
        if (simple) {
            out[n++] = meant[simple - plain];
            s++;
            continue;
        }
        if (*s == 'x') {
            c = hex(s + 1, last, 2);
            used = 2;
        } else if (*s == 'u')
            c = unicode_escape(s + 1, last, &used);
        if (c < 0) {
            *bad_at = (size_t)(escape - text);
            *why = "expected one of the escapes \\n \\t \\\\ \\\" \\' \\xHH \\uHHHH";
            return 0;
        }
        if (*s == 'x')
            out[n++] = (char)c;
        else
            n += put_utf8(c, out + n);
        s += 1 + used;
    }
    return n;
}
