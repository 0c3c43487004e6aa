/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/text/json_scan.h"

#include <string.h>

#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/utf8.h"

static bool fail(mr__json *j, const char *wrong)
{
    if (!j->wrong)
        j->wrong = wrong;
    return false;
}

static void skip_space(mr__json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

void mr__json_start(mr__json *j, const char *text, size_t n)
{
    const char *begin = n ? text : "";
    *j = (mr__json){.begin = begin, .at = begin, .end = begin + n};
    j->at += mr__byte_order_mark(begin, n);
}

static bool is_digit(const mr__json *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

static bool begins(const mr__json *j, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(j->end - j->at) >= n && memcmp(j->at, word, n) == 0;
}

mr__json_kind mr__json_peek(mr__json *j)
{
    skip_space(j);
    if (j->wrong)
        return MR__JSON_BAD;
    if (j->at == j->end) {
        fail(j, "a value expected, but the text ends");
        return MR__JSON_BAD;
    }
    switch (*j->at) {
    case '{':
        return MR__JSON_OBJECT;
    case '[':
        return MR__JSON_LIST;
    case '"':
        return MR__JSON_STRING;
    case '-':
        return MR__JSON_NUMBER;
    default:
        if (is_digit(j) || begins(j, "NaN") || begins(j, "Infinity"))
            return MR__JSON_NUMBER;
        if (begins(j, "null"))
            return MR__JSON_NULL;
        if (begins(j, "true"))
            return MR__JSON_TRUE;
        if (begins(j, "false"))
            return MR__JSON_FALSE;
        fail(j, "a value expected");
        return MR__JSON_BAD;
    }
}

static bool skip_digits(mr__json *j)
{
    if (!is_digit(j))
        return fail(j, "a digit expected");
    while (is_digit(j))
        j->at++;
    return true;
}

static bool skip_number(mr__json *j)
{
    bool minus = *j->at == '-';
    j->at += minus;
    const char *word = begins(j, "Infinity") ? "Infinity" : !minus && begins(j, "NaN") ? "NaN" : "";
    j->at += strlen(word);
    if (*word)
        return true;
    const char *first = j->at;
    if (!skip_digits(j))
        return false;
    if (*first == '0' && j->at - first > 1)
        return fail(j, "a number with a leading zero");
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        if (!skip_digits(j))
            return false;
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
        j->at++;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-'))
            j->at++;
        return skip_digits(j);
    }
    return true;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The number of the escape \uXXXX at p; -1: not an escape. */
static int32_t unit_at(const char *p, const char *end)
{
    int32_t v = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        if (hex(p[i]) < 0)
            return -1;
        v = v << 4 | hex(p[i]);
    }
    return v;
}

static bool skip_escape(mr__json *j)
{
    if (j->end - j->at < 2)
        return fail(j, "a string does not end");
    if (j->at[1] == 'u' && unit_at(j->at, j->end) < 0)
        return fail(j, "an escape is not \\uXXXX");
    if (j->at[1] == '\0' || !strchr("\"\\/bfnrtu", j->at[1]))
        return fail(j, "an escape that does not exist");
    j->at += j->at[1] == 'u' ? 6 : 2;
    return true;
}

/* Bytes of a string that need no look. */
static bool is_plain(char c)
{
    return (unsigned char)c >= ' ' && c != '"' && c != '\\';
}

bool mr__json_string(mr__json *j, mr__json_text *out)
{
    if (j->wrong)
        return false;
    const char *first = ++j->at;
    out->escaped = false;
    for (;;) {
        while (j->at < j->end && is_plain(*j->at))
            j->at++;
        if (j->at == j->end)
            return fail(j, "a string does not end");
        if (*j->at == '"')
            break;
        if (*j->at != '\\')
            return fail(j, "a control character in a string");
        out->escaped = true;
        if (!skip_escape(j))
            return false;
    }
    out->raw = (mr_bytes){first, (size_t)(j->at - first)};
    j->at++;
    return true;
}

/* Skips a value other than a list or an object. */
static bool skip_scalar(mr__json *j, mr__json_kind kind)
{
    mr__json_text text;
    switch (kind) {
    case MR__JSON_STRING:
        return mr__json_string(j, &text);
    case MR__JSON_NUMBER:
        return skip_number(j);
    default:
        j->at += kind == MR__JSON_FALSE ? 5 : 4;
        return true;
    }
}

void mr__json_enter(mr__json *j)
{
    j->at++;
}

/* The same for both brackets: true if an entry follows. */
static bool entry(mr__json *j, bool first, char close)
{
    skip_space(j);
    if (j->wrong)
        return false;
    if (j->at == j->end)
        return fail(j, close == ']' ? "a list does not end" : "an object does not end");
    if (*j->at == close) {
        j->at++;
        return false;
    }
    if (first)
        return true;
    if (*j->at != ',')
        return fail(j, close == ']' ? "',' or ']' expected" : "',' or '}' expected");
    j->at++;
    return true;
}

bool mr__json_item(mr__json *j, bool first)
{
    return entry(j, first, ']');
}

bool mr__json_key(mr__json *j, bool first, mr__json_text *key)
{
    if (!entry(j, first, '}'))
        return false;
    skip_space(j);
    if (j->at == j->end || *j->at != '"')
        return fail(j, first ? "string or '}' expected" : "string expected");
    if (!mr__json_string(j, key))
        return false;
    skip_space(j);
    if (j->at == j->end || *j->at != ':')
        return fail(j, "':' expected");
    j->at++;
    return true;
}

/* Iterative, so that the text does not decide the depth of the stack: one bit for each open
 * bracket, 1 for an object. */
bool mr__json_value(mr__json *j, mr_bytes *raw)
{
    uint64_t objects[MR__JSON_MOST_DEPTH / 64];
    size_t depth = 0;
    mr__json_kind kind = mr__json_peek(j);
    const char *first = j->at;
    bool begun = false; /* a bracket was just opened */
    for (;;) {
        if (kind == MR__JSON_BAD)
            return false;
        begun = kind == MR__JSON_LIST || kind == MR__JSON_OBJECT;
        if (begun) {
            if (depth == MR__JSON_MOST_DEPTH)
                return fail(j, "lists and objects more than 2048 deep");
            uint64_t bit = UINT64_C(1) << depth % 64;
            objects[depth / 64] =
                (depth % 64 ? objects[depth / 64] & ~bit : 0) | (kind == MR__JSON_OBJECT ? bit : 0);
            depth++;
            mr__json_enter(j);
        } else if (!skip_scalar(j, kind))
            return false;
        bool more = false;
        while (depth && !more) { /* until one of the open brackets has another entry */
            mr__json_text key;
            bool object = objects[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
            more = object ? mr__json_key(j, begun, &key) : mr__json_item(j, begun);
            if (j->wrong)
                return false;
            begun = false;
            depth -= !more;
        }
        if (!more)
            break;
        kind = mr__json_peek(j);
    }
    *raw = (mr_bytes){first, (size_t)(j->at - first)};
    return true;
}

bool mr__json_end(mr__json *j)
{
    skip_space(j);
    if (j->wrong)
        return false;
    return j->at == j->end || fail(j, "end of file expected");
}

static size_t put_point(char *to, int32_t v)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = v < 0x80 ? 1 : v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; v >>= 6)
        to[i] = (char)(0x80 | (v & 0x3f));
    to[0] = (char)(lead[n] | v);
    return n;
}

bool mr__json_plain(const mr__json_text *t, char *to, size_t *n)
{
    static const char from[] = "bfnrt", meant[] = "\b\f\n\r\t";
    const char *p = t->raw.data, *end = p + t->raw.size;
    char *at = to;
    *n = t->raw.size;
    if (!t->escaped) {
        if (*n)
            memcpy(to, p, *n);
        return mr__is_utf8(to, *n);
    }
    while (p < end) {
        if (*p != '\\') {
            *at++ = *p++;
            continue;
        }
        int32_t v = unit_at(p, end), low;
        if (v < 0) {
            const char *known = strchr(from, p[1]);
            *at++ = known ? meant[known - from] : p[1];
            p += 2;
            continue;
        }
        p += 6;
        if (v >= 0xd800 && v < 0xdc00) {
            low = unit_at(p, end);
            if (low < 0xdc00 || low > 0xdfff)
                return false;
            v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
            p += 6;
        } else if (v >= 0xdc00 && v < 0xe000)
            return false;
        at += put_point(at, v);
    }
    *n = (size_t)(at - to);
    return mr__is_utf8(to, *n);
}

bool mr__json_is_integer(const mr_bytes *number)
{
    for (size_t i = 0; i < number->size; i++)
        if (!(number->data[i] == '-' || (number->data[i] >= '0' && number->data[i] <= '9')))
            return false;
    return true;
}

void mr__json_place(const mr__json *j, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (const char *p = j->begin; p < j->at; p++) {
        if (*p == '\n')
            ++*line;
        if (((unsigned char)*p & 0xc0) != 0x80)
            ++*column;
        if (*p == '\n')
            *column = 1;
    }
}
