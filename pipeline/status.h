/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STATUS_H
#define MR_PIPELINE_STATUS_H
/* The one result type of Millrace.
 *
 * A function that can fail returns an mr_code and takes an `mr_status *` last (NULL is allowed).
 * The status is a fixed-size struct in the caller's memory: reporting an error never allocates, so
 * running out of memory can be reported too. It is written once, at the place that knows what went
 * wrong; callers on the way up add where (op path, file) and never overwrite.
 *
 * thread   any (each status belongs to its caller)
 * since    0.1 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MR_BUILDING)
#define MR_API __attribute__((visibility("default")))
#else
#define MR_API
#endif
#define MR_NODISCARD         __attribute__((warn_unused_result))
#define MR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* MR_OK and MR_END are not errors; errors are negative: the canonical set, minus their gRPC
 * number. */
typedef enum mr_code {
    MR_OK = 0,
    MR_END = 1, /* no more elements; sticky */
    MR_CANCELLED = -1,
    MR_UNKNOWN = -2,
    MR_INVALID_ARGUMENT = -3,
    MR_DEADLINE_EXCEEDED = -4,
    MR_NOT_FOUND = -5,
    MR_ALREADY_EXISTS = -6,
    MR_PERMISSION_DENIED = -7,
    MR_RESOURCE_EXHAUSTED = -8, /* also: out of memory, disk full */
    MR_FAILED_PRECONDITION = -9,
    MR_ABORTED = -10,
    MR_OUT_OF_RANGE = -11,
    MR_UNIMPLEMENTED = -12,
    MR_INTERNAL = -13,
    MR_UNAVAILABLE = -14,
    MR_DATA_LOSS = -15
} mr_code;

typedef struct mr_status {
    mr_code code;
    int sys_errno;     /* the errno it comes from, 0: none */
    char message[768]; /* what was expected, what was found, what to do; lower case, no full stop */
    char op[128];      /* path of the op, sink first: "batch/map/tfrecord"; "" unknown */
    char file[512];    /* file it happened in; a long path keeps its tail; "" none */
    int64_t offset;    /* byte offset in the (uncompressed) file, -1 unknown */
    int64_t record;    /* record number in the file from 0, -1 unknown */
    int64_t element;   /* number of the element, from 0, among those that the op emits, failed ones
                          counted too; -1 unknown, MR_OF_NO_ELEMENT */
} mr_status;

/* As element: the error is not of what an element holds, as that a service cannot be read.
 * ignore_errors lets it through. */
#define MR_OF_NO_ELEMENT INT64_C(-2)

/* Returns on any code but MR_OK (also on MR_END). Only where nothing is owned. */
#define MR_TRY(call)                                                                               \
    do {                                                                                           \
        mr_code mr_try_rc_ = (call);                                                               \
        if (mr_try_rc_ != MR_OK)                                                                   \
            return mr_try_rc_;                                                                     \
    } while (0)

/* Makes st an empty MR_OK status. NULL: nothing. */
MR_API void mr_status_init(mr_status *st);

/* Fills st (NULL: nothing) with code and a formatted message, clears its place, and returns
 * code. */
MR_API mr_code mr_fail(mr_status *st, mr_code code, const char *fmt, ...) MR_PRINTF(3, 4);
MR_API mr_code mr_failv(mr_status *st, mr_code code, const char *fmt, va_list ap);

/* As mr_fail, for a failed system call: the code follows from err (ENOENT: NOT_FOUND, EACCES:
 * PERMISSION_DENIED, ENOSPC: RESOURCE_EXHAUSTED, ...), the message ends in ": <strerror(err)>". */
MR_API mr_code mr_fail_errno(mr_status *st, int err, const char *fmt, ...) MR_PRINTF(3, 4);

/* MR_RESOURCE_EXHAUSTED: `bytes` of memory for `what` could not be had. */
MR_API mr_code mr_fail_memory(mr_status *st, size_t bytes, const char *what);

/* Puts formatted words and ": " before the message of st (NULL: nothing); a message that becomes
 * too long loses its end. The arguments may point into *st. */
MR_API void mr_status_prefix(mr_status *st, const char *fmt, ...) MR_PRINTF(2, 3);

/* Adds the place to an error; what is already known stays. file NULL and offset, record < 0:
 * unknown. */
MR_API void mr_status_at(mr_status *st, const char *file, int64_t offset, int64_t record);

/* Adds the number of the element if none is set, nor that it is of none. */
MR_API void mr_status_set_element(mr_status *st, int64_t element);

/* Says that the error is of no element. */
MR_API void mr_status_of_no_element(mr_status *st);

/* Adds the op's path if none is set. */
MR_API void mr_status_set_op(mr_status *st, const char *op_path);

/* Writes what a person reads, for example
 *   batch/map/tfrecord: a-3.tfrecord: record 1041 at byte 8812231: data loss: <message>
 * into buf (always NUL-ended, cut if needed) and returns the length it needed. It is one line; an
 * error of the text form has its line and column instead of the byte, and two lines follow: the
 * text and a caret under the place. All of it is printable (mr_text_visible). */
MR_API size_t mr_status_format(const mr_status *st, char *buf, size_t size);

/* Writes text with its control bytes as \xHH (a line's end too, unless `lines`), so that a file's
 * name cannot steer the terminal it is printed on. mr_status_format and the log do so. buf and the
 * result as there; 4 bytes for each of text are enough. */
MR_API size_t mr_text_visible(const char *text, bool lines, char *buf, size_t size);
/* All n bytes are characters of UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
MR_API bool mr_text_is_utf8(const char *text, size_t n);

/* "data loss" for MR_DATA_LOSS, and so on; static text. */
MR_API const char *mr_code_text(mr_code code);

#ifdef __cplusplus
}
#endif
#endif
