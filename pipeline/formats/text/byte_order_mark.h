/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_BYTE_ORDER_MARK_H
#define MR_PIPELINE_FORMATS_TEXT_BYTE_ORDER_MARK_H
/* The mark U+FEFF that Excel, Notepad and PowerShell write at the beginning of a text. In UTF-8 it
 * has no meaning; in UTF-16 and UTF-32 it states the order of the bytes. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "pipeline/formats/format.h"

#define MR__UTF_REFUSAL(bits)                                                                      \
    "the text is UTF-" bits ", as its byte order mark says; convert it to UTF-8, as with "         \
    "'iconv -f UTF-" bits " -t UTF-8'"

/* Bytes of the mark at the beginning of a UTF-8 text; 0: none. */
static inline size_t mr__byte_order_mark(const void *text, size_t n)
{
    return n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* If the text begins with the mark of UTF-16 or UTF-32, little or big endian, why it is refused;
 * else NULL. */
static inline const char *mr__utf_refusal(const void *text, size_t n)
{
    if (n >= 4 && (memcmp(text, "\xFF\xFE\0\0", 4) == 0 || memcmp(text, "\0\0\xFE\xFF", 4) == 0))
        return MR__UTF_REFUSAL("32");
    if (n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        return MR__UTF_REFUSAL("16");
    return NULL;
}

/* At the beginning of a file: skips the mark.
 * errors   MR_UNIMPLEMENTED: the file is UTF-16 or UTF-32, which ends it; those of reading */
mr_code mr__skip_byte_order_mark(mr_reader *r, mr_status *st) MR_NODISCARD;
#endif
