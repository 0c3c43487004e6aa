/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation is a flow: a head, segments, and padding to whole cache lines. The rank sends the
 * first segment, if it is its own, and then what it received, in order. */
#include "trainer/collective/ring/ring.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/collective/ring/ring_mpi.h"
#include "trainer/collective/ring/ring_sums.h"
#include "trainer/collective/ring/ring_link.h"

enum {
    MAGIC = 0x474e5249, /* "IRNG" in the machine's byte order, which values are sent in too */
    LINE = 64,
    LARGE = 4 << 20, /* segment size in bytes above which it does not stay in the caches */
    /* Bytes per call, so that sending and receiving alternate. A copy to shared memory is visible
     * only when it is complete, so pieces are small. A socket forwards data while it accepts more,
     * and larger calls wake the peer less often: with 64 KiB bench/allreduce takes 1.15 times as
     * long. */
    SHARED_PIECE = 64 << 10,
    SOCKET_PIECE = MR__SCRATCH
};

typedef enum kind { ALL_REDUCE = 1, BROADCAST, ALL_GATHER } kind;

/* Precedes the values of an operation, and must be equal on both sides. */
typedef struct op_head {
    uint32_t magic, kind, reduction, dtype;
    uint64_t count, number; /* number of values; operations before this one */
    uint32_t root, rank;
    int64_t step;
    char unused[LINE - 48];
} op_head;
_Static_assert(sizeof(op_head) == LINE, "a head fills a line");

/* The same for MPI, which identifies the sender. */
typedef struct mpi_head {
    uint8_t kind, reduction, dtype, unused;
    uint32_t root;
    uint64_t count, number;
    int64_t step;
} mpi_head;
_Static_assert(sizeof(mpi_head) == MR__MPI_HEAD, "a head of MPI's is as large as its module says");

struct mr__ring {
    mr__world *w;
    uint32_t rank, world;
    mr__link_writer next;
    mr__link_reader prev;
    pthread_mutex_t lock; /* serialises operations on the ring */
    uint64_t number;
    size_t *bounds;     /* world + 1: offsets of the segments in bytes */
    const mr__mpi *mpi; /* NULL: values travel around the ring */
    int *room;          /* for MPI */
    void *parts;        /* likewise */
    size_t *sizes;      /* of an all-gather by MPI */
};

typedef struct flow {
    mr__ring *r;
    op_head head, theirs;
    unsigned char *data;
    const size_t *bounds;
    size_t n_segments, first; /* the segment that is sent first */
    size_t n_send, n_receive, n_fold;
    size_t lead; /* bytes that can be sent before anything is received */
    mr__fold_fn fold;
    mr_dtype dtype;
    size_t value_size;
    uint32_t divide_by; /* 0: no mean */
    /* progress: head and padding bytes, segment, bytes in it, bytes of all segments */
    size_t sent_head, sent_fill, send_at, send_offset, sent;
    size_t got_head, got_fill, receive_at, receive_offset, received;
    size_t send_total, receive_total;
} flow;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The k-th segment that is sent; the k-th that is received is the (k + 1)-th sent. */
static size_t segment(const flow *f, size_t k)
{
    return (f->first + f->n_segments * 4 - k) % f->n_segments;
}

static size_t segment_size(const flow *f, size_t s)
{
    return f->bounds[s + 1] - f->bounds[s];
}

static size_t fill_of(size_t bytes)
{
    return (LINE - bytes % LINE) % LINE;
}

static size_t piece_of(const mr__ring_link *link)
{
    return link->shm ? SHARED_PIECE : SOCKET_PIECE;
}

/* ---- sending ---- */

static bool send_some(flow *f)
{
    static const unsigned char zeros[LINE];
    mr__link_writer *w = &f->r->next;
    size_t n, before = f->sent_head + f->sent + f->sent_fill;
    if (mr__link_owes(w))
        return mr__link_flush(w);
    if (f->n_send == 0)
        return false;
    if (f->sent_head < LINE) {
        f->sent_head += mr__link_put(w, (char *)&f->head + f->sent_head, LINE - f->sent_head);
        if (f->sent_head < LINE)
            return f->sent_head > before;
    }
    for (size_t left = piece_of(&w->link); left && f->send_at < f->n_send; left -= n) {
        size_t s = segment(f, f->send_at), room = segment_size(f, s) - f->send_offset;
        if (room == 0) {
            f->send_at++;
            f->send_offset = n = 0;
            continue;
        }
        size_t may = f->lead + f->received - f->sent;
        n = mr__link_put(w, f->data + f->bounds[s] + f->send_offset,
                         smaller(smaller(room, may), left));
        if (n == 0)
            break;
        f->send_offset += n;
        f->sent += n;
    }
    if (f->sent == f->send_total) {
        f->send_at = f->n_send;
        f->sent_fill += mr__link_put(w, zeros, fill_of(f->send_total) - f->sent_fill);
    }
    return f->sent_head + f->sent + f->sent_fill > before;
}

static bool can_send(const flow *f)
{
    if (mr__link_owes(&f->r->next))
        return true;
    if (f->n_send == 0 || f->sent_head < LINE)
        return f->n_send > 0;
    return f->sent < f->send_total ? f->sent < f->lead + f->received
                                   : f->sent_fill < fill_of(f->send_total);
}

static bool has_sent(const flow *f)
{
    if (mr__link_owes(&f->r->next))
        return false;
    return f->n_send == 0 || (f->sent_head == LINE && f->sent == f->send_total &&
                              f->sent_fill == fill_of(f->send_total));
}

/* ---- receiving ---- */

/* Adds this rank's values to the received ones. Returns bytes. */
static size_t fold_some(flow *f, unsigned char *to, size_t room, size_t left)
{
    const void *p;
    size_t n = mr__link_peek(&f->r->prev, f->value_size, smaller(room, left), &p);
    n -= n % f->value_size;
    if (n == 0)
        return 0;
    f->fold(to, p, n / f->value_size);
    if (f->divide_by && f->receive_at == f->n_fold - 1)
        mr__ring_divide(f->dtype, to, n / f->value_size, f->divide_by);
    mr__link_consume(&f->r->prev, n);
    return n;
}

/* Forwarded data are read again at once, and small results when the operation has ended. */
static bool is_read_soon(const flow *f, size_t s)
{
    return f->receive_at + 1 < f->n_send || segment_size(f, s) < LARGE;
}

/* *head_came: this call completed the head. */
static bool receive_some(flow *f, bool *head_came)
{
    unsigned char fill[LINE];
    mr__link_reader *r = &f->r->prev;
    size_t n, before = f->got_head + f->received + f->got_fill;
    *head_came = false;
    if (f->n_receive == 0)
        return false;
    if (f->got_head < LINE) {
        f->got_head += mr__link_get(r, (char *)&f->theirs + f->got_head, LINE - f->got_head, true);
        *head_came = f->got_head == LINE;
        return f->got_head > before;
    }
    for (size_t left = piece_of(&r->link); left >= LINE && f->receive_at < f->n_receive;
         left -= n) {
        size_t s = segment(f, f->receive_at + 1), room = segment_size(f, s) - f->receive_offset;
        if (room == 0) {
            f->receive_at++;
            f->receive_offset = n = 0;
            continue;
        }
        unsigned char *to = f->data + f->bounds[s] + f->receive_offset;
        n = f->receive_at < f->n_fold
                ? fold_some(f, to, room, left)
                : mr__link_get(r, to, smaller(room, left), is_read_soon(f, s));
        if (n == 0)
            break;
        f->receive_offset += n;
        f->received += n;
    }
    if (f->received == f->receive_total) {
        f->receive_at = f->n_receive;
        f->got_fill += mr__link_get(r, fill, fill_of(f->receive_total) - f->got_fill, true);
    }
    return f->got_head + f->received + f->got_fill > before;
}

static bool has_received(const flow *f)
{
    return f->n_receive == 0 || (f->got_head == LINE && f->received == f->receive_total &&
                                 f->got_fill == fill_of(f->receive_total));
}

/* ---- an operation ---- */

static void describe(const op_head *h, char *out, size_t size)
{
    static const char *const reductions[] = {"sums", "averages", "takes the maximum of",
                                             "takes the minimum of"};
    const char *type = mr_dtype_name((mr_dtype)h->dtype);
    if (h->kind == ALL_REDUCE)
        snprintf(out, size, "%s %" PRIu64 " values of %s", reductions[h->reduction & 3], h->count,
                 type ? type : "?");
    else if (h->kind == BROADCAST)
        snprintf(out, size, "takes %" PRIu64 " bytes from rank %u", h->count, h->root);
    else
        snprintf(out, size, "gathers %" PRIu64 " bytes", h->count);
}

/* All ranks must run the same operation: a rank with another size would wait forever. */
static mr_code check_head(const flow *f, uint32_t from, const op_head *b, mr_status *st)
{
    const op_head *a = &f->head;
    const mr__ring *r = f->r;
    char mine[96], other[96];
    mr_status why;
    if (b->magic != MAGIC || b->rank != from || b->kind < ALL_REDUCE || b->kind > ALL_GATHER)
        mr_fail(&why, MR_DATA_LOSS,
                "rank %u (%s) sends data that rank %u (%s) cannot read, at step %" PRId64, from,
                mr__world_address(r->w, from), r->rank, mr__world_address(r->w, r->rank),
                mr__world_step(r->w));
    else if (a->kind == b->kind && a->reduction == b->reduction && a->dtype == b->dtype &&
             a->count == b->count && a->root == b->root && a->number == b->number &&
             a->step == b->step)
        return MR_OK;
    else if (a->step != b->step)
        mr_fail(&why, MR_FAILED_PRECONDITION,
                "rank %u (%s) is at step %" PRId64 " where rank %u (%s) is at step %" PRId64
                "; all processes must take part in the same sums in every step",
                from, mr__world_address(r->w, from), b->step, r->rank,
                mr__world_address(r->w, r->rank), a->step);
    else {
        describe(a, mine, sizeof mine);
        describe(b, other, sizeof other);
        mr_fail(&why, MR_INVALID_ARGUMENT,
                "rank %u (%s) %s where rank %u (%s) %s, in operation %" PRIu64 " at step %" PRId64
                "; all processes must run the same steps",
                from, mr__world_address(r->w, from), other, r->rank,
                mr__world_address(r->w, r->rank), mine, a->number, mr__world_step(r->w));
    }
    mr__world_abort(r->w, &why, true);
    return mr__world_status(r->w, st);
}

static mr_code lost(mr__ring *r, mr_status *st)
{
    mr__world *w = r->w;
    if (r->prev.broken)
        return mr__world_lost(w, (r->rank + r->world - 1) % r->world, r->prev.broken, st);
    return mr__world_lost(w, (r->rank + 1) % r->world, r->next.broken, st);
}

static void begin(flow *f)
{
    f->head.magic = MAGIC;
    f->head.number = f->r->number++;
    f->head.rank = f->r->rank;
}

static mr_code flow_all(flow *f, mr_status *st)
{
    mr__ring *r = f->r;
    begin(f);
    for (size_t k = 0; k < f->n_send; k++)
        f->send_total += segment_size(f, segment(f, k));
    for (size_t k = 0; k < f->n_receive; k++)
        f->receive_total += segment_size(f, segment(f, k + 1));
    MR_TRY(mr__world_status(r->w, st));
    while (!has_sent(f) || !has_received(f)) {
        bool head_came, moved = receive_some(f, &head_came);
        if (head_came)
            MR_TRY(check_head(f, (r->rank + r->world - 1) % r->world, &f->theirs, st));
        moved = send_some(f) || moved;
        if (moved)
            continue;
        /* A broken connection only matters once there is nothing left to read. */
        if (r->prev.broken || r->next.broken)
            return lost(r, st);
        bool body = f->got_head == LINE && f->receive_at < f->n_fold;
        mr__links_wait(&r->next, can_send(f), &r->prev, !has_received(f), body ? f->value_size : 1);
    }
    return MR_OK;
}

static mr__mpi_type mpi_type(mr_dtype t)
{
    switch (t) {
    case MR_FLOAT16:
        return MR__MPI_FLOAT16;
    case MR_BFLOAT16:
        return MR__MPI_BFLOAT16;
    case MR_FLOAT64:
        return MR__MPI_FLOAT64;
    case MR_INT32:
        return MR__MPI_INT32;
    case MR_INT64:
        return MR__MPI_INT64;
    default:
        return MR__MPI_FLOAT32;
    }
}

static bool is_same(void *f, int from, const void *head)
{
    mpi_head h;
    memcpy(&h, head, sizeof h);
    const op_head theirs = {.magic = MAGIC,
                            .kind = h.kind,
                            .reduction = h.reduction,
                            .dtype = h.dtype,
                            .count = h.count,
                            .number = h.number,
                            .root = h.root,
                            .rank = (uint32_t)from,
                            .step = h.step};
    return check_head(f, (uint32_t)from, &theirs, NULL) == MR_OK;
}

/* The first failure counts, which may be one that is_same found. */
static mr_code mpi_failed(const flow *f, const mr_status *how, mr_status *st)
{
    mr__world *w = f->r->w;
    char what[96];
    mr_status why;
    describe(&f->head, what, sizeof what);
    mr_fail(&why, how->code, "rank %" PRIu32 " (%s) %s, at step %" PRId64 ": %s", f->r->rank,
            mr__world_address(w, f->r->rank), what, mr__world_step(w), how->message);
    mr__world_abort(w, &why, true);
    return mr__world_status(w, st);
}

static mr_code mpi_all(flow *f, mr_status *st)
{
    mr__ring *r = f->r;
    mr_status how;
    begin(f);
    const mpi_head head = {.kind = (uint8_t)f->head.kind,
                           .reduction = (uint8_t)f->head.reduction,
                           .dtype = (uint8_t)f->head.dtype,
                           .root = f->head.root,
                           .count = f->head.count,
                           .number = f->head.number,
                           .step = f->head.step};
    mr__mpi_call c = {.data = f->data,
                      .count = f->head.count,
                      .root = (int)f->head.root,
                      .head = &head,
                      .same = is_same,
                      .ctx = f};
    if (f->head.kind == ALL_REDUCE) {
        c.kind = MR__MPI_ALL_REDUCE;
        c.type = mpi_type(f->dtype);
        c.op = f->head.reduction == MR__RING_MAX   ? MR__MPI_MAX
               : f->head.reduction == MR__RING_MIN ? MR__MPI_MIN
                                                   : MR__MPI_SUM;
    } else if (f->head.kind == BROADCAST)
        c.kind = MR__MPI_BROADCAST;
    else {
        c.kind = MR__MPI_ALL_GATHER;
        c.sizes = r->sizes;
        for (uint32_t i = 0; i < r->world; i++)
            r->sizes[i] = f->bounds[i + 1] - f->bounds[i];
    }
    if (mr__mpi_run(r->mpi, r->w, &c, &how) != MR_OK)
        return mpi_failed(f, &how, st);
    if (f->divide_by)
        mr__ring_divide(f->dtype, f->data, f->head.count, f->divide_by);
    return MR_OK;
}

static mr_code run(flow *f, mr_status *st)
{
    pthread_mutex_lock(&f->r->lock);
    mr_code rc = f->r->mpi ? mpi_all(f, st) : flow_all(f, st);
    pthread_mutex_unlock(&f->r->lock);
    return rc;
}

mr_code mr__ring_all_reduce(mr__ring *r, mr__ring_op op, mr_dtype dtype, void *data, size_t count,
                            mr_status *st)
{
    return mr__ring_all_reduce_at(r, 0, op, dtype, data, count, st);
}

mr_code mr__ring_all_reduce_at(mr__ring *r, int64_t step, mr__ring_op op, mr_dtype dtype,
                               void *data, size_t count, mr_status *st)
{
    mr__fold_fn fold = mr__ring_fold(op, dtype);
    if (!fold || (op == MR__RING_MEAN && mr_dtype_is_integer(dtype)))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s of %s cannot be %s over processes",
                       fold ? "values" : "tensors", mr_dtype_name(dtype),
                       fold ? "averaged" : "reduced");
    size_t size = mr_dtype_size(dtype);
    for (uint32_t i = 0; !r->mpi && i <= r->world; i++) /* the MPI module divides the values
                                                           itself */
        r->bounds[i] = (count / r->world * i + count % r->world * i / r->world) * size;
    flow f = {.r = r,
              .head = {.kind = ALL_REDUCE,
                       .reduction = (uint32_t)op,
                       .dtype = (uint32_t)dtype,
                       .count = count,
                       .step = step},
              .data = data,
              .bounds = r->bounds,
              .n_segments = r->world,
              .first = r->rank,
              .n_send = 2 * ((size_t)r->world - 1),
              .n_receive = 2 * ((size_t)r->world - 1),
              .n_fold = r->world - 1,
              .fold = fold,
              .dtype = dtype,
              .value_size = size,
              .divide_by = op == MR__RING_MEAN ? r->world : 0};
    f.lead = segment_size(&f, f.first);
    return run(&f, st);
}

mr_code mr__ring_broadcast(mr__ring *r, uint32_t root, void *data, size_t bytes, mr_status *st)
{
    if (root >= r->world)
        return mr_fail(st, MR_INVALID_ARGUMENT, "cannot broadcast from rank %u of %u", root,
                       r->world);
    size_t bounds[2] = {0, bytes};
    flow f = {.r = r,
              .head = {.kind = BROADCAST, .count = bytes, .root = root},
              .data = data,
              .bounds = bounds,
              .n_segments = 1,
              .n_send = (r->rank + 1) % r->world != root,
              .n_receive = r->rank != root,
              .lead = r->rank == root ? bytes : 0};
    return run(&f, st);
}

mr_code mr__ring_all_gather(mr__ring *r, void *data, const size_t *sizes, mr_status *st)
{
    r->bounds[0] = 0;
    for (uint32_t i = 0; i < r->world; i++)
        r->bounds[i + 1] = r->bounds[i] + sizes[i];
    flow f = {.r = r,
              .head = {.kind = ALL_GATHER, .count = r->bounds[r->world]},
              .data = data,
              .bounds = r->bounds,
              .n_segments = r->world,
              .first = r->rank,
              .n_send = r->world - 1,
              .n_receive = r->world - 1,
              .lead = sizes[r->rank]};
    return run(&f, st);
}

mr_code mr__ring_barrier(mr__ring *r, mr_status *st)
{
    /* One value per rank: the last of them has seen all ranks. */
    int32_t *values = mr_calloc(r->world, sizeof *values);
    if (!values)
        return mr_fail_memory(st, r->world * sizeof *values, "a barrier");
    mr_code rc = mr__ring_all_reduce(r, MR__RING_SUM, MR_INT32, values, r->world, st);
    mr_free(values);
    return rc;
}

/* ---- opening and closing ---- */

static void on_end(void *ring)
{
    const mr__ring *r = ring;
    mr__link_cut(&r->next.link);
    mr__link_cut(&r->prev.link);
}

static mr_code open_ring(mr__ring **out, mr__world *w, bool by_mpi, mr_status *st)
{
    mr__ring *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a ring");
    r->w = w;
    pthread_mutex_init(&r->lock, NULL);
    r->rank = mr__world_rank(w);
    r->world = mr__world_size(w);
    mr__world_take_links(w, &r->next.link, &r->prev.link);
    r->bounds = mr_calloc(r->world + 1, sizeof *r->bounds);
    if (!r->prev.link.shm)
        r->prev.scratch = mr_malloc(MR__SCRATCH);
    mr_code rc = MR_OK;
    if (!r->bounds || (!r->prev.link.shm && !r->prev.scratch))
        rc = mr_fail_memory(st, MR__SCRATCH, "a ring");
    if (rc == MR_OK && by_mpi) {
        r->sizes = mr_calloc(r->world, sizeof *r->sizes);
        r->room = mr_calloc(r->world, 2 * sizeof *r->room);
        r->parts = mr_malloc(MR__MPI_ROOM);
        rc = r->sizes && r->room && r->parts ? mr__mpi_open(&r->mpi, w, r->room, r->parts, st)
                                             : mr_fail_memory(st, MR__MPI_ROOM, "a ring");
    }
    mr__world_on_end(w, MR__PART_RING, on_end, r);
    if (rc == MR_OK)
        rc = mr__ring_barrier(r, st);
    if (rc != MR_OK) {
        mr__ring_close(r);
        return rc;
    }
    *out = r;
    return MR_OK;
}

mr_code mr__ring_open(mr__ring **out, mr__world *w, mr_status *st)
{
    return open_ring(out, w, false, st);
}

mr_code mr__ring_open_mpi(mr__ring **out, mr__world *w, mr_status *st)
{
    return open_ring(out, w, true, st);
}

void mr__ring_close(mr__ring *r)
{
    if (!r)
        return;
    bool is_free = !r->mpi || r->mpi->close(mr__world_status(r->w, NULL) == MR_OK);
    mr__world_on_end(r->w, MR__PART_RING, NULL, NULL);
    mr__ring_link_close(&r->next.link);
    mr__ring_link_close(&r->prev.link);
    mr_free(r->prev.scratch);
    mr_free(r->bounds);
    if (is_free) {
        mr_free(r->room);
        mr_free(r->parts);
    }
    mr_free(r->sizes);
    pthread_mutex_destroy(&r->lock);
    mr_free(r);
}

mr__world *mr__ring_world(const mr__ring *r)
{
    return r->w;
}

const char *mr__ring_transport(const mr__ring *r)
{
    bool a = r->next.link.shm, b = r->prev.link.shm, tls = r->next.link.tls || r->prev.link.tls;
    if (r->mpi)
        return "MPI";
    if (a && b)
        return "shared memory";
    return a || b ? (tls ? "TLS and shared memory" : "TCP and shared memory") : tls ? "TLS" : "TCP";
}

const char *mr__ring_description(const mr__ring *r)
{
    bool a = r->next.link.shm, b = r->prev.link.shm, tls = r->next.link.tls || r->prev.link.tls;
    if (r->mpi)
        return "mpi";
    if (a != b)
        return tls ? "ring (TLS and shared memory)" : "ring (TCP and shared memory)";
    return a ? "ring (shared memory)" : tls ? "ring (TLS)" : "ring (TCP)";
}
