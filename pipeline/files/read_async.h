/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_ASYNC_H
#define MR_PIPELINE_FILES_READ_ASYNC_H
/* Asynchronous reads: the common interface of io_uring and the pool of threads. Used only by
 * read_ahead.c and read_scattered.c. Every started request must be waited for before its memory is
 * freed.
 *
 * thread   one at a time per object */
#include "pipeline/wait/cancel.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct mr__read_request {
    int fd;
    uint8_t *data;
    size_t n;
    off_t offset;
    ssize_t result; /* when done: bytes, or -errno */
    bool done;
    /* used by the pool */
    atomic_uint state; /* bit 0: done */
    struct mr__read_request *next;
} mr__read_request;

typedef struct mr__read_async mr__read_async;
typedef struct mr__read_async_class {
    /* Starts request. Returns 0, or -errno if it could not be started. */
    int (*start)(mr__read_async *a, mr__read_request *request);
    /* Waits for request and returns 0. -ECANCELED: `cancel` (may be NULL) was triggered, and the
     * request is still in flight. Another -errno: requests in flight may never end. */
    int (*wait)(mr__read_async *a, mr__read_request *request, mr_cancel *cancel);
    /* No request may be in flight. */
    void (*close)(mr__read_async *a);
} mr__read_async_class;
struct mr__read_async {
    const mr__read_async_class *class_;
};

/* Returns NULL, with the errno in *err, if io_uring is not available. */
mr__read_async *mr__read_uring_open(unsigned depth, int *err);
/* Returns NULL if no thread can be started. */
mr__read_async *mr__read_pool_open(void);
#endif
