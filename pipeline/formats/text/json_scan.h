/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_JSON_SCAN_H
#define MR_PIPELINE_FORMATS_TEXT_JSON_SCAN_H
/* Reads JSON texts (RFC 8259) from front to back, value by value, without building a tree: values
 * that are not requested are only checked. NaN, Infinity and -Infinity are numbers, as Python
 * writes them. Objects may have a key twice. Strings that are skipped may contain any bytes but
 * control characters, and any escapes.
 *
 *     mr__json j;
 *     mr__json_start(&j, text, n);
 *     if (mr__json_peek(&j) == MR__JSON_OBJECT) {
 *         mr__json_enter(&j);
 *         for (bool first = true; mr__json_key(&j, first, &key); first = false)
 *             mr__json_value(&j, &raw);
 *     }
 *     if (!mr__json_end(&j)) ... j.wrong says what, at j.at
 *
 * After an error `wrong` is set; then every call returns false, and the kind is BAD.
 *
 * thread   one at a time per object */
#include "pipeline/memory/array.h"

enum { MR__JSON_MOST_DEPTH = 2048 };

typedef struct mr__json {
    const char *begin, *at, *end;
    const char *wrong; /* NULL, or what is wrong at `at` */
} mr__json;

typedef enum mr__json_kind {
    MR__JSON_BAD,
    MR__JSON_NULL,
    MR__JSON_TRUE,
    MR__JSON_FALSE,
    MR__JSON_NUMBER,
    MR__JSON_STRING,
    MR__JSON_LIST,
    MR__JSON_OBJECT
} mr__json_kind;

/* A string as written: the bytes between its quotes. */
typedef struct mr__json_text {
    mr_bytes raw;
    bool escaped; /* it contains backslashes */
} mr__json_text;

/* Starts at the beginning of the text; a byte order mark there is skipped. */
void mr__json_start(mr__json *j, const char *text, size_t n);
/* The kind of the next value, before which white space is skipped. */
mr__json_kind mr__json_peek(mr__json *j);
/* Skips the next value, of any kind. *raw: its text. */
bool mr__json_value(mr__json *j, mr_bytes *raw);
/* Reads the next value, a string. */
bool mr__json_string(mr__json *j, mr__json_text *out);
/* Enters the next value, a list or an object. */
void mr__json_enter(mr__json *j);
/* true: an item of the list follows. false: the list has ended, or an error. first: no item of it
 * was read before. */
bool mr__json_item(mr__json *j, bool first);
/* The same for an object: reads the key, and the value follows. */
bool mr__json_key(mr__json *j, bool first, mr__json_text *key);
/* true: only white space follows. */
bool mr__json_end(mr__json *j);

/* Writes the string without its escapes to `to`, which has room for t->raw.size bytes. false: it
 * is not UTF-8, or an escape is half of a surrogate pair. */
bool mr__json_plain(const mr__json_text *t, char *to, size_t *n);
/* true: the number is written as an integer. */
bool mr__json_is_integer(const mr_bytes *number);
/* The line and column of `at`, from 1; a column is a character. */
void mr__json_place(const mr__json *j, size_t *line, size_t *column);
#endif
