/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/url.h"

#include <ctype.h>
#include <string.h>

#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/write_roots.h"

MR_API mr__url_kind mr__url_kind_of(const char *name)
{
    if (*name == 'h' && (strncmp(name, "https://", 8) == 0 || strncmp(name, "http://", 7) == 0))
        return MR__URL_HTTP;
    if (*name == 'g' && strncmp(name, "gs://", 5) == 0)
        return MR__URL_GS;
    if (*name == 'h' && strncmp(name, "hf://", 5) == 0)
        return MR__URL_HF;
    return *name == 's' && strncmp(name, "s3://", 5) == 0 ? MR__URL_S3 : MR__URL_NONE;
}

static mr_code refuse(const char *name, mr_code rc, const char *why, mr_status *st)
{
    mr_fail(st, rc, "%s", why);
    mr_status_at(st, name, -1, -1);
    mr_status_of_no_element(st);
    return rc;
}

mr_code mr__url_check_writing(const char *name, mr_status *st)
{
    if (!mr__is_url(name))
        return mr__write_roots_check(name, st);
    if (!mr__url_roots_are_open())
        return refuse(name, MR_PERMISSION_DENIED, "a worker of a service writes to no URL", st);
    if (mr__url_kind_of(name) == MR__URL_S3)
        return MR_OK;
    return refuse(name, MR_UNIMPLEMENTED,
                  "a URL of this scheme can be read but not written; write to s3://, or write a "
                  "local file and copy it to the store",
                  st);
}

mr_code mr__url_refuse_writing(const char *name, mr_status *st)
{
    if (!mr__is_url(name))
        return mr__write_roots_check(name, st);
    return refuse(name, MR_UNIMPLEMENTED,
                  "a URL can be read but not written here; write a local file, and copy it to the "
                  "store",
                  st);
}

static bool is_plain(unsigned char c, const char *keep)
{
    return (c < 0x80 && isalnum(c)) || (c && strchr("-._~", c)) || (c && strchr(keep, c));
}

char *mr__url_encode(const char *text, const char *keep)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = mr_malloc(3 * strlen(text) + 1), *to = out;
    if (!out)
        return NULL;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (is_plain(c, keep)) {
            *to++ = *text;
        } else {
            *to++ = '%';
            *to++ = digits[c >> 4];
            *to++ = digits[c & 15];
        }
    }
    *to = '\0';
    return out;
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void mr__url_decode(char *text)
{
    char *to = text;
    for (; *text; text++) {
        int high = *text == '%' ? digit(text[1]) : -1, low = high >= 0 ? digit(text[2]) : -1;
        if (low >= 0) {
            *to++ = (char)(high << 4 | low);
            text += 2;
        } else
            *to++ = *text == '+' ? ' ' : *text;
    }
    *to = '\0';
}
