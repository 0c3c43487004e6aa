/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_TRANSFER_H
#define MR_PIPELINE_REMOTE_TRANSFER_H
/* Transfers of bytes of remote objects, all by one thread of the process, through libcurl.
 *
 *     readers    start ......... take  take  take  (END)
 *     thread         connect, receive into slots, retry, continue after the last byte
 *
 * A transfer that fails for a reason that may pass (a connection refused or reset, a time-out, an
 * answer 408, 429 or 5xx, a body that ends early) is repeated with exponential back-off and full
 * jitter, from the byte after the last one received. After MILLRACE_REMOTE_RETRIES tries (8) or
 * five minutes without a new byte it fails. What has arrived before can still be taken.
 *
 * The thread starts with the first transfer and ends a few seconds after the last one, with all
 * connections.
 *
 * cancel NULL: mr__cancel_of_thread.
 *
 * thread   one at a time per transfer */
#include <stdlib.h>

#include "pipeline/memory/buffer.h"
#include "pipeline/memory_bound.h"
#include "pipeline/remote/remote_object.h"
#include "pipeline/wait/cancel.h"

typedef struct mr__transfer mr__transfer;

/* Space before the data of a slot, and the size of its data: as of local files (read_ahead.h). */
#define MR__REMOTE_HEADROOM ((size_t)64 << 10)
#define MR__REMOTE_SLOT     ((size_t)512 << 10)

/* This thread has a memory limit of less than 1 GiB, so that little is read ahead. */
static inline bool mr__remote_is_limited(void)
{
    return mr__memory_bound() / 64 < (size_t)64 << 20; /* a few times the limit */
}

/* Tries without a new byte, the first included. */
static inline int mr__remote_tries(void)
{
    const char *v = getenv("MILLRACE_REMOTE_RETRIES");
    long n = v && *v ? strtol(v, NULL, 10) : 8;
    return n < 1 ? 1 : n > 1000 ? 1000 : (int)n;
}

/* Starts to read bytes from..to-1 of the object, or to its end if that comes first or `to` is -1.
 * From a server that sends no ranges everything from `from` on is read. bare: slots have no
 * headroom. Keeps a reference to the object.
 * errors   MR_UNIMPLEMENTED: built without libcurl; MR_NOT_FOUND: it cannot be loaded;
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__transfer_start(mr__transfer **out, mr__object *o, int64_t from, int64_t to, bool bare,
                           mr_status *st) MR_NODISCARD;
/* Ends it, whatever it does; does not wait. NULL: no-op. */
void mr__transfer_drop(mr__transfer *t);

/* Waits until the object is known.
 * errors   those of the transfer; MR_CANCELLED */
mr_code mr__transfer_wait_known(mr__transfer *t, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* The next call of take does not wait. */
bool mr__transfer_has_next(mr__transfer *t);
/* Returns the next bytes, *got of them at *data, in a buffer (owned). MR_END: there are no more.
 * errors   MR_NOT_FOUND, MR_PERMISSION_DENIED, MR_UNAVAILABLE, ...: with the URL as file
 *          MR_FAILED_PRECONDITION: the object has changed; MR_DATA_LOSS: it ends early
 *          MR_CANCELLED: may be called again */
mr_code mr__transfer_take(mr__transfer *t, mr_cancel *cancel, mr_buffer **slot, uint8_t **data,
                          size_t *got, mr_status *st) MR_NODISCARD;

/* Nanoseconds that the thread has worked, not waited, since the process started. A thread that
 * works all the time receives no more through more connections. */
int64_t mr__transfer_worked(void);

/* The first bytes of the answer to a POST, for which there is memory before it is sent. */
enum { MR__REMOTE_ANSWER = 8 << 10 };

/* A request that changes something, or asks for a head. */
typedef struct mr__request {
    const char *method; /* "PUT", "POST", "DELETE" or "HEAD"; static */
    mr_buffer *body;    /* its first `size` bytes are sent; a reference is kept; NULL: none */
    size_t size;
    const char *mark; /* stored with the object, to find out who wrote it; NULL: none */
    bool creates;     /* refused by the store if there is an object */
    int tries;        /* at most; 0: as many as for reading */
} mr__request;

enum { MR__MARK_SIZE = 40 };
typedef struct mr__answer {
    int status; /* 0: none came */
    char etag[136], mark[MR__MARK_SIZE];
    int64_t length; /* Content-Length; -1: none */
} mr__answer;

/* Sends the request to the target of an object of mr__object_open_request. The body of the answer
 * is taken like any other. The request is repeated as if doing it twice were harmless, unless
 * `tries` is 1.
 * errors   those of mr__transfer_start */
mr_code mr__transfer_request(mr__transfer **out, mr__object *o, const mr__request *r,
                             mr_status *st) MR_NODISCARD;
/* The last answer, once take has returned MR_END or an error other than MR_CANCELLED. */
mr__answer mr__transfer_answer(const mr__transfer *t);
#endif
