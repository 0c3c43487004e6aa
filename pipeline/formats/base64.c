/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t mr_base64_encode(const void *bytes, size_t n, char *text)
{
    const unsigned char *s = bytes;
    char *to = text;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v = (unsigned)s[i] << 16 | (left > 1 ? (unsigned)s[i + 1] << 8 : 0) |
                     (left > 2 ? s[i + 2] : 0);
        *to++ = digits[v >> 18];
        *to++ = digits[v >> 12 & 63];
        *to++ = left > 1 ? digits[v >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[v & 63] : '=';
    }
    return (size_t)(to - text);
}

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

size_t mr_base64_room(size_t n)
{
    return n / 4 * 3;
}

bool mr_base64_decode(const char *text, size_t n, void *to, size_t *size)
{
    size_t padding = n > 1 ? (size_t)(text[n - 1] == '=') + (text[n - 2] == '=') : 0;
    char *bytes = to;
    bool good = n % 4 == 0;
    uint32_t v = 0;
    for (size_t i = 0; i < n && good; i++) {
        int digit = i < n - padding ? digit_of(text[i]) : 0;
        good = digit >= 0;
        v = v << 6 | (uint32_t)digit;
        for (int shift = 16; i % 4 == 3 && shift >= 0; shift -= 8)
            *bytes++ = (char)(v >> shift);
    }
    *size = good ? mr_base64_room(n) - padding : 0;
    return good;
}
