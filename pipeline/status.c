/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/hide_secrets.h"
#include "pipeline/memory_bound.h"
#include "pipeline/utf8.h"

void mr_status_init(mr_status *st)
{
    if (!st)
        return;
    st->code = MR_OK;
    st->sys_errno = 0;
    st->message[0] = st->op[0] = st->file[0] = '\0';
    st->offset = st->record = st->element = -1;
}

mr_code mr_failv(mr_status *st, mr_code code, const char *fmt, va_list ap)
{
    if (st) {
        /* The arguments may point into *st: format before clearing it. */
        char text[sizeof st->message];
        vsnprintf(text, sizeof text, fmt, ap);
        mr__hide_secrets(text, sizeof text);
        mr_status_init(st);
        st->code = code;
        memcpy(st->message, text, sizeof text);
    }
    return code;
}

mr_code mr_fail(mr_status *st, mr_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mr_failv(st, code, fmt, ap);
    va_end(ap);
    return code;
}

static mr_code code_of_errno(int err)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
        return MR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return MR_PERMISSION_DENIED;
    case EEXIST:
        return MR_ALREADY_EXISTS;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return MR_RESOURCE_EXHAUSTED;
    case EINVAL:
    case ENAMETOOLONG:
    case EADDRNOTAVAIL:
        return MR_INVALID_ARGUMENT;
    case EISDIR:
    case ENOTEMPTY:
    case ELOOP:
        return MR_FAILED_PRECONDITION;
    case ECANCELED:
        return MR_CANCELLED;
    case ENOSYS:
    case EOPNOTSUPP:
        return MR_UNIMPLEMENTED;
    case EIO:
        return MR_DATA_LOSS;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
    case EPIPE:
        return MR_UNAVAILABLE;
    default:
        return MR_UNKNOWN;
    }
}

/* No element is at fault: the process or the machine lacks something. */
static bool system_lacks(int err)
{
    switch (err) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
        return true;
    default:
        return false;
    }
}

void mr_status_prefix(mr_status *st, const char *fmt, ...)
{
    if (!st)
        return;
    char text[sizeof st->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr__hide_secrets(text, sizeof text);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, ": %.*s", (int)(sizeof text - n), st->message);
    memcpy(st->message, text, sizeof text);
}

mr_code mr_fail_errno(mr_status *st, int err, const char *fmt, ...)
{
    mr_code code = code_of_errno(err);
    va_list ap;
    va_start(ap, fmt);
    mr_failv(st, code, fmt, ap);
    va_end(ap);
    if (st) {
        st->element = system_lacks(err) ? MR_OF_NO_ELEMENT : -1;
        size_t used = strlen(st->message);
        /* _GNU_SOURCE: the strerror_r that returns the text. */
        char room[128];
        const char *why = strerror_r(err, room, sizeof room);
        snprintf(st->message + used, sizeof st->message - used, ": %s", why);
        st->sys_errno = err;
    }
    return code;
}

mr_code mr_fail_memory(mr_status *st, size_t bytes, const char *what)
{
    size_t bound = mr__memory_bound();
    if (bytes > bound)
        mr_fail(st, MR_RESOURCE_EXHAUSTED,
                "out of memory: cannot allocate %zu bytes for %s: this memory limit allows at most "
                "%zu per allocation; raise it, or use smaller elements, buffers or batches",
                bytes, what, bound);
    else
        mr_fail(st, MR_RESOURCE_EXHAUSTED,
                "out of memory: cannot allocate %zu bytes for %s; use smaller buffers or batches",
                bytes, what);
    if (st) {
        st->sys_errno = ENOMEM;
        st->element = MR_OF_NO_ELEMENT;
    }
    return MR_RESOURCE_EXHAUSTED;
}

/* Copies text into a field. Text that is too long keeps its tail, where file names differ. */
static void keep_tail(char *field, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n < size)
        memcpy(field, text, n + 1);
    else {
        memcpy(field, "...", 3);
        memcpy(field + 3, text + n - (size - 4), size - 3);
    }
}

static void set_file(mr_status *st, const char *file)
{
    char url[4096];
    if (strstr(file, "://")) {
        snprintf(url, sizeof url, "%s", file);
        mr__hide_secrets(url, sizeof url);
        file = url;
    }
    keep_tail(st->file, sizeof st->file, file);
}

void mr_status_at(mr_status *st, const char *file, int64_t offset, int64_t record)
{
    if (!st || st->code >= 0)
        return;
    if (file && !st->file[0])
        set_file(st, file);
    if (offset >= 0 && st->offset < 0)
        st->offset = offset;
    if (record >= 0 && st->record < 0)
        st->record = record;
}

void mr_status_set_element(mr_status *st, int64_t element)
{
    if (st && st->code < 0 && st->element == -1)
        st->element = element;
}

void mr_status_of_no_element(mr_status *st)
{
    if (st && st->code < 0)
        st->element = MR_OF_NO_ELEMENT;
}

bool mr_status_is_of_no_element(const mr_status *st)
{
    return st->code < 0 && st->element == MR_OF_NO_ELEMENT;
}

void mr_status_set_op(mr_status *st, const char *op_path)
{
    if (st && st->code < 0 && !st->op[0])
        keep_tail(st->op, sizeof st->op, op_path);
}

/* Length of the control character at p: an ASCII control byte, or U+0080 to U+009F in UTF-8. 0 if
 * p starts a printable character. */
static size_t control_bytes(const unsigned char *p)
{
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
        return 2;
    return p[0] < 0x20 || p[0] == 0x7f;
}

bool mr_text_is_utf8(const char *text, size_t n)
{
    return mr__is_utf8(text, n);
}

size_t mr_text_visible(const char *text, bool lines, char *buf, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        char shown[4] = "\\x";
        size_t control = lines && *p == '\n' ? 0 : control_bytes(p), width = control ? 4 : 1;
        do {
            shown[2] = digits[*p >> 4];
            shown[3] = digits[*p & 15];
            for (size_t i = 0; i < width; i++, n++)
                if (n + 1 < size)
                    buf[n] = control ? shown[i] : (char)*p;
            p++;
        } while (control-- > 1);
    }
    if (size)
        buf[n < size ? n : size - 1] = '\0';
    return n;
}

/* Finds the two lines at the end of a syntax error's message that show the source line and a caret.
 * NULL if it has none. A flag may precede the message: "--data: line 1, column 3". */
static const char *place_shown(const char *message)
{
    const char *words = message;
    if (strncmp(words, "--", 2) == 0) {
        words += strspn(words, "-abcdefghijklmnopqrstuvwxyz");
        words += strncmp(words, ": ", 2) == 0 ? 2 : 0;
    }
    if (strncmp(words, "line ", 5) != 0)
        return NULL;
    const char *caret = strrchr(message, '\n'), *line = caret;
    while (line && line > message && *--line != '\n')
        ;
    return line && *line == '\n' ? line : NULL;
}

const char *mr_status_place(const mr_status *st)
{
    const char *place = st->code < 0 ? place_shown(st->message) : NULL;
    return place ? place + 1 : NULL;
}

size_t mr_status_format(const mr_status *st, char *buf, size_t size)
{
    char where[64] = "", element[40] = "", op[4 * sizeof st->op], file[4 * sizeof st->file];
    char message[4 * sizeof st->message];
    const char *place = place_shown(st->message);
    if (st->element >= 0)
        snprintf(element, sizeof element, "element %" PRId64 ": ", st->element);
    if (st->record >= 0 && st->offset >= 0)
        snprintf(where, sizeof where, "record %" PRId64 " at byte %" PRId64 ": ", st->record,
                 st->offset);
    else if (st->record >= 0)
        snprintf(where, sizeof where, "record %" PRId64 ": ", st->record);
    else if (st->offset >= 0 && !place) /* with a place, the message has line and column */
        snprintf(where, sizeof where, "byte %" PRId64 ": ", st->offset);
    mr_text_visible(st->op, false, op, sizeof op);
    mr_text_visible(st->file, false, file, sizeof file);
    /* Newlines are kept only in the two lines of the place: file names may contain some too. */
    char before[sizeof st->message];
    size_t n_before = place ? (size_t)(place - st->message) : strlen(st->message);
    memcpy(before, st->message, n_before);
    before[n_before] = '\0';
    size_t used = mr_text_visible(before, false, message, sizeof message);
    if (place)
        mr_text_visible(place, true, message + used, sizeof message - used);
    int n = snprintf(buf, size, "%s%s%s%s%s%s%s: %s", op, op[0] ? ": " : "", element, file,
                     file[0] ? ": " : "", where, mr_code_text(st->code), message);
    return n < 0 ? 0 : (size_t)n;
}

const char *mr_code_text(mr_code code)
{
    switch (code) {
    case MR_OK:
        return "ok";
    case MR_END:
        return "end";
    case MR_CANCELLED:
        return "cancelled";
    case MR_UNKNOWN:
        return "unknown";
    case MR_INVALID_ARGUMENT:
        return "invalid argument";
    case MR_DEADLINE_EXCEEDED:
        return "deadline exceeded";
    case MR_NOT_FOUND:
        return "not found";
    case MR_ALREADY_EXISTS:
        return "already exists";
    case MR_PERMISSION_DENIED:
        return "permission denied";
    case MR_RESOURCE_EXHAUSTED:
        return "resource exhausted";
    case MR_FAILED_PRECONDITION:
        return "failed precondition";
    case MR_ABORTED:
        return "aborted";
    case MR_OUT_OF_RANGE:
        return "out of range";
    case MR_UNIMPLEMENTED:
        return "unimplemented";
    case MR_INTERNAL:
        return "internal";
    case MR_UNAVAILABLE:
        return "unavailable";
    case MR_DATA_LOSS:
        return "data loss";
    }
    return "unknown code";
}
