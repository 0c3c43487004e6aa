/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void mr_status_init(mr_status *st)
{
    if (!st)
        return;
    st->code = MR_OK;
    st->sys_errno = 0;
    st->message[0] = st->op[0] = st->file[0] = '\0';
    st->offset = st->record = -1;
}

mr_code mr_failv(mr_status *st, mr_code code, const char *fmt, va_list ap)
{
    if (st) {
        /* The arguments may point into *st itself: format first, clear the place after. */
        char text[sizeof st->message];
        vsnprintf(text, sizeof text, fmt, ap);
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
        return MR_INVALID_ARGUMENT;
    case EISDIR:
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
    case EPIPE:
        return MR_UNAVAILABLE;
    default:
        return MR_UNKNOWN;
    }
}

mr_code mr_fail_errno(mr_status *st, int err, const char *fmt, ...)
{
    mr_code code = code_of_errno(err);
    va_list ap;
    va_start(ap, fmt);
    mr_failv(st, code, fmt, ap);
    va_end(ap);
    if (st) {
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
    mr_fail(st, MR_RESOURCE_EXHAUSTED,
            "out of memory: %zu bytes for %s could not be had; use smaller buffers or batches",
            bytes, what);
    if (st)
        st->sys_errno = ENOMEM;
    return MR_RESOURCE_EXHAUSTED;
}

/* Copies text into a field; too long a text keeps its tail, where file names differ. */
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

void mr_status_at(mr_status *st, const char *file, int64_t offset, int64_t record)
{
    if (!st || st->code >= 0)
        return;
    if (file && !st->file[0])
        keep_tail(st->file, sizeof st->file, file);
    if (offset >= 0 && st->offset < 0)
        st->offset = offset;
    if (record >= 0 && st->record < 0)
        st->record = record;
}

void mr_status_set_op(mr_status *st, const char *op_path)
{
    if (st && st->code < 0 && !st->op[0])
        keep_tail(st->op, sizeof st->op, op_path);
}

size_t mr_status_format(const mr_status *st, char *buf, size_t size)
{
    char where[64] = "";
    if (st->record >= 0 && st->offset >= 0)
        snprintf(where, sizeof where, "record %" PRId64 " at byte %" PRId64 ": ", st->record,
                 st->offset);
    else if (st->record >= 0)
        snprintf(where, sizeof where, "record %" PRId64 ": ", st->record);
    else if (st->offset >= 0)
        snprintf(where, sizeof where, "byte %" PRId64 ": ", st->offset);
    int n = snprintf(buf, size, "%s%s%s%s%s%s: %s", st->op, st->op[0] ? ": " : "", st->file,
                     st->file[0] ? ": " : "", where, mr_code_text(st->code), st->message);
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
