/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_UTF8_H
#define MR_PIPELINE_UTF8_H
/* Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the character at s, which ends at or before `end`, and sets its code point.
 * Returns 0 if the bytes at s do not encode a character. */
static inline size_t mr__utf8_at(const char *s, const char *end, int32_t *point)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)*s;
    size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (n == 0 || (size_t)(end - s) < n)
        return 0;
    int32_t v = n == 1 ? c : c & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (s[i] & 0x3f);
    }
    *point = v;
    return v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : n;
}

/* True if all n bytes are valid UTF-8. */
static inline bool mr__is_utf8(const char *s, size_t n)
{
    size_t size;
    int32_t point;
    for (size_t i = 0; i < n; i += size)
        if (!(size = mr__utf8_at(s + i, s + n, &point)))
            return false;
    return true;
}
#endif
