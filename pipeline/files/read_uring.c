/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_async.h"

#include <errno.h>
#include <liburing.h>

#include "pipeline/system/system.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/wait/wait.h"

typedef struct uring {
    mr__read_async base;
    struct io_uring ring;
} uring;

static int start(mr__read_async *a, mr__read_request *request)
{
    uring *u = (uring *)a;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe)
        return -EAGAIN;
    io_uring_prep_read(sqe, request->fd, request->data, (unsigned)request->n,
                       (__u64)request->offset);
    io_uring_sqe_set_data(sqe, request);
    request->done = false;
    int rc;
    do
        rc = mr__sys->uring_submit(&u->ring);
    while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    if (rc >= 0)
        return 0;
    /* The kernel did not take the entry, but a later submit would: turn it into a no-op. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    return rc;
}

static int wait_for(mr__read_async *a, mr__read_request *request, mr_cancel *cancel)
{
    uring *u = (uring *)a;
    while (!request->done) {
        struct io_uring_cqe *cqe = NULL;
        int rc = 0;
        if (cancel && !io_uring_cq_ready(&u->ring))
            rc = mr__wait_readable(u->ring.ring_fd, cancel);
        if (rc == -ECANCELED)
            return rc;
        int64_t began = mr__sleep_begins();
        rc = mr__sys->uring_wait(&u->ring, &cqe);
        mr__sleep_ends(began);
        if (rc == -EINTR || rc == -EAGAIN)
            continue;
        if (rc < 0)
            return rc;
        mr__read_request *finished = io_uring_cqe_get_data(cqe);
        if (finished) {
            finished->result = cqe->res;
            finished->done = true;
        }
        io_uring_cqe_seen(&u->ring, cqe);
    }
    return 0;
}

static void close_ring(mr__read_async *a)
{
    uring *u = (uring *)a;
    mr__sys->uring_exit(&u->ring);
    mr_free(u);
}

static const mr__read_async_class uring_class = {start, wait_for, close_ring};

mr__read_async *mr__read_uring_open(unsigned depth, int *err)
{
    uring *u = mr_calloc(1, sizeof *u);
    if (!u) {
        *err = ENOMEM;
        return NULL;
    }
    u->base.class_ = &uring_class;
    int rc = mr__sys->uring_init(depth, &u->ring, 0);
    if (rc < 0) {
        mr_free(u);
        *err = -rc;
        return NULL;
    }
    return &u->base;
}
