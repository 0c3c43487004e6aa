/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_LINE_ENDS_H
#define MR_PIPELINE_FORMATS_TEXT_LINE_ENDS_H
/* Ends of lines: \n, \r\n or \r, also mixed in one text.
 *
 *     const char *feed = NULL;
 *     for (const char *next; at < end; at = next) {
 *         const char *stop = mr__line_end(at, end, &feed);
 *         next = mr__line_next(stop, end);
 *         ... the line is [at, stop)
 *     }
 */
#include <stddef.h>
#include <string.h>

/* The end of the line that begins at `at`: its \r or \n, or `end`. *feed: the first \n that is not
 * before the line, or `end`, kept between calls so that each byte is searched once; first NULL. */
static inline const char *mr__line_end(const char *at, const char *end, const char **feed)
{
    if (!*feed || *feed < at) {
        *feed = at < end ? (const char *)memchr(at, '\n', (size_t)(end - at)) : NULL;
        *feed = *feed ? *feed : end;
    }
    const char *back = *feed > at ? (const char *)memchr(at, '\r', (size_t)(*feed - at)) : NULL;
    return back ? back : *feed;
}

/* The beginning of the line after the one that ends at `stop`. */
static inline const char *mr__line_next(const char *stop, const char *end)
{
    if (stop == end)
        return end;
    return stop + (*stop == '\r' && end - stop > 1 && stop[1] == '\n' ? 2 : 1);
}

/* The end of the line, if it is known: a \r before `end` may be the first half of \r\n. NULL: more
 * bytes are needed. */
static inline const char *mr__whole_line_end(const char *at, const char *end, const char **feed)
{
    const char *stop = mr__line_end(at, end, feed);
    return stop == end || (*stop == '\r' && stop + 1 == end) ? NULL : stop;
}
#endif
