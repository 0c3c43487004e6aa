/* SPDX-License-Identifier: Apache-2.0 */
/* One process of a job, for tests with several: the cluster comes from the environment.
 *
 *     rank [OPTION]... check          every operation on many sizes, against the same done here;
 *                                     prints a hash of all bits, which must be equal on all ranks
 *     rank [OPTION]... steps N        N steps, each a sum of --count values; prints "step K" first
 *     --rank R --at K --do ACTION     at step K rank R alone does this: "abort", "cut" (its
 *                                     sockets), "leave", "shorter" (sums a value less), "other"
 *                                     (takes the maximum), "stray" (sends an invalid message)
 *     --exchange                      steps exchange a few numbers instead
 *     --again                         all start again, in the same processes, after an error
 *     --fact NAME=VALUE  --connect-timeout S  --peer-timeout S  --count N  --pause MS  --tcp  --mpi
 * Ends with 1 and the error on standard error where something failed. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/collective/ring/ring.h"
#include "transport/wire/token_file.h"

typedef struct options {
    mr__fact facts[8];
    uint32_t n_facts;
    double connect_timeout, peer_timeout;
    int64_t count, pause_ms, rank, at;
    const char *action;
    bool tcp, exchange, mpi, again;
} options;

static uint64_t hash = 0xcbf29ce484222325u;

static void add_hash(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
}

static mr_code wrong(mr_status *st, const char *what, size_t count, size_t i)
{
    return mr_fail(st, MR_INTERNAL, "%s of %zu values is wrong at %zu", what, count, i);
}

/* ---- values: small, of both signs, with rounding in most sums ---- */

static bool by_mpi;
enum { SHORT = 7904 /* bytes of a sum that MPI's module makes in pairs of ranks */ };

static double value(uint32_t rank, size_t i)
{
    return (double)((i * 7919 + rank * 104729u) % 2003) / 13.0 - 77.0;
}

static void set(mr_dtype t, void *p, size_t i, double v)
{
    switch (t) {
    case MR_FLOAT16:
        ((uint16_t *)p)[i] = mr_float_to_half((float)v);
        break;
    case MR_BFLOAT16:
        ((uint16_t *)p)[i] = mr_float_to_bfloat((float)v);
        break;
    case MR_FLOAT32:
        ((float *)p)[i] = (float)v;
        break;
    case MR_FLOAT64:
        ((double *)p)[i] = v;
        break;
    case MR_INT32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    default:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    }
}

static double get(mr_dtype t, const void *p, size_t i)
{
    switch (t) {
    case MR_FLOAT16:
        return mr_half_to_float(((const uint16_t *)p)[i]);
    case MR_BFLOAT16:
        return mr_bfloat_to_float(((const uint16_t *)p)[i]);
    case MR_FLOAT32:
        return ((const float *)p)[i];
    case MR_FLOAT64:
        return ((const double *)p)[i];
    case MR_INT32:
        return ((const int32_t *)p)[i];
    default:
        return (double)((const int64_t *)p)[i];
    }
}

static double fold(mr__ring_op op, mr_dtype t, double a, double b)
{
    if (op == MR__RING_MAX)
        return a > b ? a : b;
    if (op == MR__RING_MIN)
        return a < b ? a : b;
    return t == MR_FLOAT32 ? (double)((float)a + (float)b) : a + b;
}

/* Some neighbours first, until there are 2^k sums, then neighbouring sums. */
static void fold_in_pairs(mr__ring_op op, mr_dtype t, uint32_t world, size_t i, void *out)
{
    double v[64];
    uint32_t n = 1, pairs, k = 0;
    while (n * 2 <= world)
        n *= 2;
    pairs = world - n;
    for (uint32_t rank = 0; rank < world; rank++) {
        set(t, out, 0, value(rank, i));
        double own = get(t, out, 0);
        if (rank >= 2 * pairs || rank % 2 == 0)
            v[k++] = own;
        else {
            set(t, out, 0, fold(op, t, v[k - 1], own));
            v[k - 1] = get(t, out, 0);
        }
    }
    for (; n > 1; n /= 2)
        for (k = 0; k < n / 2; k++) {
            set(t, out, 0, fold(op, t, v[2 * k], v[2 * k + 1]));
            v[k] = get(t, out, 0);
        }
    set(t, out, 0, v[0]);
}

/* The value at i lies in segment s, which begins with rank s: that is the order of the sum. */
static void fold_around(mr__ring_op op, mr_dtype t, uint32_t world, size_t count, size_t i,
                        void *out)
{
    uint32_t s = 0;
    while (count / world * (s + 1) + count % world * (s + 1) / world <= i)
        s++;
    set(t, out, 0, value(s, i));
    for (uint32_t k = 1; k < world; k++) {
        char own[8];
        set(t, own, 0, value((s + k) % world, i));
        set(t, out, 0, fold(op, t, get(t, out, 0), get(t, own, 0)));
    }
}

static void expected(mr__ring_op op, mr_dtype t, uint32_t world, size_t count, size_t i, void *out)
{
    if (by_mpi && count * mr_dtype_size(t) <= SHORT)
        fold_in_pairs(op, t, world, i, out);
    else
        fold_around(op, t, world, count, i, out);
    if (op == MR__RING_MEAN && t == MR_FLOAT32)
        ((float *)out)[0] /= (float)world;
    else if (op == MR__RING_MEAN)
        set(t, out, 0, get(t, out, 0) / world);
}

static mr_code check_all_reduce(mr__ring *r, mr__ring_op op, mr_dtype t, size_t count,
                                mr_status *st)
{
    mr__world *w = mr__ring_world(r);
    uint32_t rank = mr__world_rank(w), world = mr__world_size(w);
    size_t size = mr_dtype_size(t);
    char *p = mr_malloc(count * size + 8);
    for (size_t i = 0; i < count; i++)
        set(t, p, i, value(rank, i));
    memset(p + count * size, 0x5a, 8);
    mr_code rc = mr__ring_all_reduce(r, op, t, p, count, st);
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        char want[8];
        expected(op, t, world, count, i, want);
        if (memcmp(want, p + i * size, size) != 0)
            rc = wrong(st, "an all-reduce", count, i);
    }
    for (size_t i = 0; i < 8 && rc == MR_OK; i++)
        if (p[count * size + i] != 0x5a)
            rc = wrong(st, "the end of an all-reduce", count, i);
    add_hash(p, count * size);
    mr_free(p);
    return rc;
}

static mr_code check_broadcast(mr__ring *r, uint32_t root, size_t bytes, mr_status *st)
{
    uint32_t rank = mr__world_rank(mr__ring_world(r));
    unsigned char *p = mr_malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        p[i] = rank == root ? (unsigned char)(i * 31 + root) : 0xee;
    mr_code rc = mr__ring_broadcast(r, root, p, bytes, st);
    for (size_t i = 0; i < bytes && rc == MR_OK; i++)
        if (p[i] != (unsigned char)(i * 31 + root))
            rc = wrong(st, "a broadcast", bytes, i);
    mr_free(p);
    return rc;
}

static mr_code check_all_gather(mr__ring *r, size_t step, mr_status *st)
{
    mr__world *w = mr__ring_world(r);
    uint32_t rank = mr__world_rank(w), world = mr__world_size(w);
    size_t sizes[64], at = 0, all = 0;
    for (uint32_t i = 0; i < world; i++) {
        sizes[i] = i * step + (i % 2 ? 0 : step / 2); /* some empty, odd sizes */
        at += i < rank ? sizes[i] : 0;
        all += sizes[i];
    }
    unsigned char *p = mr_calloc(all + 1, 1);
    for (size_t i = 0; i < sizes[rank]; i++)
        p[at + i] = (unsigned char)(rank * 7 + i);
    mr_code rc = mr__ring_all_gather(r, p, sizes, st);
    size_t k = 0;
    for (uint32_t i = 0; i < world; i++)
        for (size_t j = 0; j < sizes[i] && rc == MR_OK; j++, k++)
            if (p[k] != (unsigned char)(i * 7 + j))
                rc = wrong(st, "a gather", all, k);
    mr_free(p);
    return rc;
}

static mr_code check_refusals(mr__ring *r, mr_status *st)
{
    int32_t v[4] = {0};
    mr_status why;
    if (mr__ring_all_reduce(r, MR__RING_MEAN, MR_INT32, v, 4, &why) != MR_INVALID_ARGUMENT ||
        mr__ring_all_reduce(r, MR__RING_SUM, MR_BOOL, v, 4, &why) != MR_INVALID_ARGUMENT ||
        mr__ring_broadcast(r, 1000, v, 4, &why) != MR_INVALID_ARGUMENT)
        return mr_fail(st, MR_INTERNAL, "what cannot be reduced was not refused");
    float nan[3] = {1, mr__world_rank(mr__ring_world(r)) == 1 ? NAN : 2, 3};
    MR_TRY(mr__ring_all_reduce(r, MR__RING_MAX, MR_FLOAT32, nan, 3, st));
    if (!isnan(nan[1]) || nan[2] != 3)
        return wrong(st, "a maximum with NaN", 3, 1);
    /* The larger of 0 and -0 is either, but all have the same. */
    float zero = mr__world_rank(mr__ring_world(r)) % 2 ? -0.0f : 0.0f;
    MR_TRY(mr__ring_all_reduce(r, MR__RING_MAX, MR_FLOAT32, &zero, 1, st));
    add_hash(&zero, sizeof zero);
    return MR_OK;
}

static mr_code check_exchanges(mr__world *w, mr_status *st)
{
    double mine[MR__MAX_VALUES], *all = mr_calloc(mr__world_size(w), sizeof mine);
    mr_code rc = MR_OK;
    for (uint32_t k = 0; k < 300 && rc == MR_OK; k++) {
        uint32_t n = k % 7 ? k % 5 : MR__MAX_VALUES, channel = k % 3 > 0;
        for (uint32_t i = 0; i < n; i++)
            mine[i] = k + i / 256.0 + 1000.0 * mr__world_rank(w);
        rc = mr__world_exchange(w, channel, mine, n, all, st);
        for (uint32_t i = 0; i < n * mr__world_size(w) && rc == MR_OK; i++)
            if (all[i] != k + i % n / 256.0 + 1000.0 * (i / n))
                rc = wrong(st, "an exchange", n, i);
    }
    mr_free(all);
    return rc;
}

static mr_code check(mr__ring *r, mr_status *st)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 64, 1000, 1976, 1977, 16384, 65537, 3300001};
    enum { N_COUNTS = sizeof counts / sizeof *counts };
    static const mr_dtype types[] = {MR_FLOAT32, MR_FLOAT16, MR_BFLOAT16,
                                     MR_FLOAT64, MR_INT32,   MR_INT64};
    for (size_t t = 0; t < 6; t++)
        for (size_t c = 0; c < N_COUNTS; c++)
            for (int op = 0; op < 4; op++) {
                if (counts[c] > 100000 && (t || op)) /* the reference is slow */
                    continue;
                if (op != MR__RING_MEAN || t < 4)
                    MR_TRY(check_all_reduce(r, (mr__ring_op)op, types[t], counts[c], st));
            }
    if (by_mpi) /* where messages have 8 MiB at most: three for a segment, or two */
        MR_TRY(check_all_reduce(r, MR__RING_SUM, MR_FLOAT32, 9000001, st));
    for (uint32_t root = 0; root < mr__world_size(mr__ring_world(r)); root++)
        for (size_t c = 0; c < N_COUNTS; c++)
            MR_TRY(check_broadcast(r, root, counts[c], st));
    for (size_t c = 0; c + 1 < N_COUNTS; c++)
        MR_TRY(check_all_gather(r, counts[c], st));
    MR_TRY(check_refusals(r, st));
    MR_TRY(check_exchanges(mr__ring_world(r), st));
    return mr__ring_barrier(r, st);
}

/* ---- steps ---- */

/* By plain system calls: the sanitizers know which thread a descriptor belongs to. */
static void cut_sockets(void)
{
    for (int fd = 3; fd < 256; fd++)
        syscall(SYS_shutdown, fd, SHUT_RDWR);
}

static void write_stray(void)
{
    for (int fd = 3; fd < 256; fd++)
        syscall(SYS_sendto, fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 27,
                MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static mr_code steps(mr__ring *r, const options *o, int64_t n, mr_status *st)
{
    mr__world *w = mr__ring_world(r);
    size_t count = (size_t)o->count;
    float *p = mr_malloc((count + 1) * sizeof *p);
    mr__ring_op op = MR__RING_SUM;
    mr_code rc = MR_OK;
    for (int64_t k = 1; k <= n && rc == MR_OK; k++) {
        bool now = o->action && o->at == k && o->rank == mr__world_rank(w);
        mr__world_set_step(w, k);
        printf("step %" PRId64 "\n", k);
        fflush(stdout);
        usleep((useconds_t)o->pause_ms * 1000);
        if (now && strcmp(o->action, "leave") == 0)
            break;
        if (now && strcmp(o->action, "cut") == 0)
            cut_sockets();
        if (now && strcmp(o->action, "stray") == 0)
            write_stray();
        if (now && strcmp(o->action, "abort") == 0) {
            rc = mr_fail(st, MR_NOT_FOUND, "no such file");
            mr__world_abort(w, st, false);
            break;
        }
        count -= now && strcmp(o->action, "shorter") == 0;
        if (now && strcmp(o->action, "other") == 0)
            op = MR__RING_MAX;
        for (size_t i = 0; i < count; i++)
            p[i] = 1;
        if (o->exchange) {
            double mine[3] = {1, 2, 3}, all[3 * 64];
            rc = mr__world_exchange(w, 0, mine, now && strcmp(o->action, "shorter") == 0 ? 2 : 3,
                                    all, st);
            continue;
        }
        rc = mr__ring_all_reduce(r, op, MR_FLOAT32, p, count, st);
        for (size_t i = 0; i < count && rc == MR_OK; i++)
            if (p[i] != (float)mr__world_size(w))
                rc = wrong(st, "a sum", count, i);
    }
    mr_free(p);
    return rc;
}

static void log_line(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    fprintf(stderr, "%s: %s\n", level == MR_LOG_WARNING ? "warning" : "log", message);
}

static mr_code run(const options *o, char **command, mr_status *st)
{
    mr_cluster c = {0};
    mr__world *w = NULL;
    mr__ring *r = NULL;
    mr__token token = {0}; /* of the environment */
    mr_code rc = mr_cluster_from_launcher(&c, st);
    if (rc == MR_OK)
        rc = mr__cluster_token_open(NULL, NULL, &token, st);
    mr__world_opts opts = {.rendezvous = {.cluster = &c,
                                          .facts = o->facts,
                                          .n_facts = o->n_facts,
                                          .connect_timeout_s = o->connect_timeout,
                                          .token = &token,
                                          .sockets_only = o->tcp},
                           .peer_timeout_s = o->peer_timeout};
    if (rc == MR_OK)
        rc = mr__world_open(&w, &opts, st);
    if (rc == MR_OK)
        rc = o->mpi ? mr__ring_open_mpi(&r, w, st) : mr__ring_open(&r, w, st);
    if (rc == MR_OK)
        fprintf(stderr, "connected by %s\n", mr__ring_transport(r));
    if (rc == MR_OK && strcmp(command[0], "check") == 0)
        rc = check(r, st);
    else if (rc == MR_OK)
        rc = steps(r, o, command[1] ? atoll(command[1]) : 1, st);
    mr__ring_close(r);
    mr__world_close(w);
    mr__token_free(&token);
    mr_cluster_reset(&c);
    return rc;
}

int main(int argc, char **argv)
{
    options o = {.connect_timeout = 60, .peer_timeout = 20, .count = 1000};
    int i = 1;
    mr_log_set(log_line, NULL, MR_LOG_WARNING);
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *name = argv[i] + 2;
        if (strcmp(name, "mpi") == 0) {
            o.mpi = by_mpi = true;
            continue;
        }
        if (strcmp(name, "tcp") == 0) {
            o.tcp = true;
            continue;
        }
        if (strcmp(name, "again") == 0) {
            o.again = true;
            continue;
        }
        if (strcmp(name, "exchange") == 0) {
            o.exchange = true;
            continue;
        }
        char *v = argv[++i];
        if (!v)
            return 2;
        if (strcmp(name, "fact") == 0 && strchr(v, '=')) {
            char *is = strchr(v, '=');
            *is = '\0';
            o.facts[o.n_facts++ % 8] = (mr__fact){v, is + 1};
        } else if (strcmp(name, "connect-timeout") == 0)
            o.connect_timeout = atof(v);
        else if (strcmp(name, "peer-timeout") == 0)
            o.peer_timeout = atof(v);
        else if (strcmp(name, "count") == 0)
            o.count = atoll(v);
        else if (strcmp(name, "pause") == 0)
            o.pause_ms = atoll(v);
        else if (strcmp(name, "rank") == 0)
            o.rank = atoll(v);
        else if (strcmp(name, "at") == 0)
            o.at = atoll(v);
        else if (strcmp(name, "do") == 0)
            o.action = v;
        else
            return 2;
    }
    if (i == argc)
        return 2;
    mr_status st;
    mr_code rc = run(&o, argv + i, &st);
    if (rc != MR_OK && o.again) {
        fprintf(stderr, "first error: %s\n", st.message);
        sleep(1); /* what the others say of it has come */
        rc = run(&o, argv + i, &st);
    }
    if (rc != MR_OK) {
        fprintf(stderr, "error: %s\n", st.message);
        return 1;
    }
    printf("done %016" PRIx64 "\n", hash);
    return 0;
}
