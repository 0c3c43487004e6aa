/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_ASYNC_H
#define MR_PIPELINE_FILES_READ_ASYNC_H
/* Reads in flight: what io_uring and the pread pool have in common, for read_ahead.c and
 * read_scattered.c alone. Every request that was started is waited for before its memory goes.
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
    /* the pool's */
    atomic_uint state; /* bit 0: done */
    struct mr__read_request *next;
} mr__read_request;

typedef struct mr__read_async mr__read_async;
typedef struct mr__read_async_class {
    /* Starts request; 0 or -errno (then it is not in flight). */
    int (*start)(mr__read_async *a, mr__read_request *request);
    /* Returns when request is done: 0. -ECANCELED: `cancel` (may be NULL) was triggered first, and
     * it is still in flight. Another -errno: nothing in flight can be trusted to end. */
    int (*wait)(mr__read_async *a, mr__read_request *request, mr_cancel *cancel);
    /* Nothing is in flight any more. */
    void (*close)(mr__read_async *a);
} mr__read_async_class;
struct mr__read_async {
    const mr__read_async_class *class_;
};

/* NULL and *err = errno where the kernel refuses. */
mr__read_async *mr__read_uring_open(unsigned depth, int *err);
/* NULL where no thread can be had. */
mr__read_async *mr__read_pool_open(void);
#endif
