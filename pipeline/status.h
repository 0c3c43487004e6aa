/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STATUS_H
#define MR_PIPELINE_STATUS_H
/* Result codes and error details.
 *
 * A function that can fail returns an mr_code and takes an `mr_status *` last (NULL is allowed).
 * The status is a fixed-size struct in the caller's memory: reporting an error never allocates, so
 * out of memory can be reported too. The place that detects the error sets the status; callers up
 * the stack add the location (op path, file) and never overwrite it.
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

/* MR_OK and MR_END are not errors. Errors are negative: the canonical gRPC codes, negated. */
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
    MR_RESOURCE_EXHAUSTED = -8, /* includes out of memory and disk full */
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
    int sys_errno;     /* the errno that caused it, 0 if none */
    char message[768]; /* what was expected, what was found, what to do; lower case, no full stop */
    char op[128];      /* path of the op, sink first: "batch/map/tfrecord"; "" if unknown */
    char file[512];    /* file that was read or written; a long path keeps its tail; "" if none */
    int64_t offset;    /* byte offset in the (uncompressed) file, -1 if unknown */
    int64_t record;    /* record number in the file, from 0; -1 if unknown */
    int64_t element;   /* number of the element among those the op emits, from 0, including failed
                          ones; -1 if unknown, or MR_OF_NO_ELEMENT */
} mr_status;

/* A value of `element`: the error belongs to no element, but to the environment: no file matches, a
 * disk is full, the service is unreachable. Such an error ends the pipeline, whatever ops follow.
 * ignore_errors does not suppress it. */
#define MR_OF_NO_ELEMENT INT64_C(-2)

/* Returns from the calling function on any code but MR_OK (also on MR_END). Use it only where the
 * function owns nothing that needs freeing. */
#define MR_TRY(call)                                                                               \
    do {                                                                                           \
        mr_code mr_try_rc_ = (call);                                                               \
        if (mr_try_rc_ != MR_OK)                                                                   \
            return mr_try_rc_;                                                                     \
    } while (0)

/* Resets st to an empty MR_OK status. NULL: no-op. */
MR_API void mr_status_init(mr_status *st);

/* Sets st (NULL allowed) to code and a formatted message, clears its location, and returns code. */
MR_API mr_code mr_fail(mr_status *st, mr_code code, const char *fmt, ...) MR_PRINTF(3, 4);
MR_API mr_code mr_failv(mr_status *st, mr_code code, const char *fmt, va_list ap);

/* Like mr_fail, for a failed system call: err determines the code (ENOENT: NOT_FOUND, EACCES:
 * PERMISSION_DENIED, ENOSPC: RESOURCE_EXHAUSTED, ...), and ": <strerror(err)>" is appended to the
 * message. If err says that the system lacks something (memory, room on a disk, entries in a table
 * of open files), the error belongs to no element. */
MR_API mr_code mr_fail_errno(mr_status *st, int err, const char *fmt, ...) MR_PRINTF(3, 4);

/* Fails with MR_RESOURCE_EXHAUSTED, of no element: could not allocate `bytes` bytes for `what`. */
MR_API mr_code mr_fail_memory(mr_status *st, size_t bytes, const char *what);

/* Prepends formatted text and ": " to the message of st (NULL: no-op). A message that becomes too
 * long is truncated. The arguments may point into *st. */
MR_API void mr_status_prefix(mr_status *st, const char *fmt, ...) MR_PRINTF(2, 3);

/* Adds the location to an error; fields already set are kept. Pass NULL or -1 for what is
 * unknown. */
MR_API void mr_status_at(mr_status *st, const char *file, int64_t offset, int64_t record);

/* Sets the element number unless it, or MR_OF_NO_ELEMENT, is already set. */
MR_API void mr_status_set_element(mr_status *st, int64_t element);

/* Marks the error as belonging to no element. */
MR_API void mr_status_of_no_element(mr_status *st);

/* true: st is an error that belongs to no element. */
MR_API bool mr_status_is_of_no_element(const mr_status *st);

/* Sets the op path unless it is already set. */
MR_API void mr_status_set_op(mr_status *st, const char *op_path);

/* Writes the error as text, for example
 *   batch/map/tfrecord: a-3.tfrecord: record 1041 at byte 8812231: data loss: <message>
 * into buf (always NUL-terminated, truncated if needed) and returns the length of the whole text.
 * It is one line. A syntax error in the text form has line and column instead of the byte, and two
 * more lines: the source line and a caret. All of it is printable (see mr_text_visible). */
MR_API size_t mr_status_format(const mr_status *st, char *buf, size_t size);

/* The two lines at the end of the message that show a line of the graph's text and a caret below
 * the place of the error; NULL if it has none. With them, `offset` is that of a byte in the text,
 * not in a file, and the message begins with "line L, column C: ". Borrowed from st. since 0.2 */
MR_API const char *mr_status_place(const mr_status *st);

/* Copies text with its control bytes written as \xHH (newlines too, unless `lines`), so that a file
 * name cannot control the terminal it is printed on. mr_status_format and mr_log use it. buf and
 * the result are as in mr_status_format; a buffer of 4 * strlen(text) + 1 bytes suffices. */
MR_API size_t mr_text_visible(const char *text, bool lines, char *buf, size_t size);
/* Removes what is secret from all URLs in text, such as that of a graph (mr_dataset_to_text), in
 * place: users and passwords before hosts, the queries of presigned http and https URLs, and the
 * values of tokens in other queries. A hash takes the place of what else may tell objects apart:
 * of other parameters of a presigned URL, and of the value of `key`. since 0.2 */
MR_API void mr_text_drop_secrets(char *text);
/* All n bytes are characters of UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
MR_API bool mr_text_is_utf8(const char *text, size_t n);

/* The name of a code, e.g. "data loss" for MR_DATA_LOSS; static text. */
MR_API const char *mr_code_text(mr_code code);

#ifdef __cplusplus
}
#endif
#endif
