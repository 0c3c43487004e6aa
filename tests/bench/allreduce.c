/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce of float32 between two processes of this host, over TCP and through shared memory,
 * against a loop that only sends and receives the same number of bytes, in both directions at once,
 * on a TCP connection between the same two processes; and against a memcpy of that number of bytes
 * in each of them.
 *
 *     allreduce [MIB]     of values, default 64
 *
 * With MILLRACE_TLS_CERT, _KEY and _CA the first is by TLS. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ceiling.h"
#include "trainer/collective/ring/ring.h"
#include "transport/wire/token_file.h"

typedef struct job {
    mr__ring *ring;
    int tcp; /* the connection of the ceiling */
    size_t bytes;
    char *data, *other;
} job;

static void together(job *j)
{
    mr_status st;
    bench_must(mr__ring_barrier(j->ring, &st), &st);
}

static double all_reduce(void *ctx)
{
    job *j = ctx;
    mr_status st;
    bench_must(mr__ring_all_reduce(j->ring, MR__RING_SUM, MR_FLOAT32, j->data, j->bytes / 4, &st),
               &st);
    return (double)j->bytes;
}

/* Both processes send and receive all bytes and ignore the values. */
static double two_ways(void *ctx)
{
    job *j = ctx;
    size_t sent = 0, got = 0;
    together(j);
    while (sent < j->bytes || got < j->bytes) {
        size_t piece = 256 << 10, left = j->bytes - sent, want = j->bytes - got;
        ssize_t s =
            left ? send(j->tcp, j->data + sent, left < piece ? left : piece, MSG_DONTWAIT) : -1;
        ssize_t r =
            want ? recv(j->tcp, j->other + got, want < piece ? want : piece, MSG_DONTWAIT) : -1;
        sent += s > 0 ? (size_t)s : 0;
        got += r > 0 ? (size_t)r : 0;
        if (s <= 0 && r <= 0) {
            struct pollfd p = {.fd = j->tcp,
                               .events = (short)((left ? POLLOUT : 0) | (want ? POLLIN : 0))};
            poll(&p, 1, -1);
        }
    }
    return (double)j->bytes;
}

static double copy(void *ctx)
{
    job *j = ctx;
    together(j);
    memcpy(j->other, j->data, j->bytes);
    return (double)j->bytes;
}

static void run(uint32_t rank, int tcp, size_t bytes, bool sockets_only)
{
    mr_status st;
    mr_cluster c = {0};
    mr__world *w = NULL;
    char text[2] = {(char)('0' + rank), 0};
    job j = {.tcp = tcp, .bytes = bytes, .data = calloc(bytes, 1), .other = calloc(bytes, 1)};
    mr__token token;
    setenv("RANK", text, 1);
    bench_must(mr__cluster_token_open(NULL, NULL, &token, &st), &st);
    mr__world_opts opts = {.rendezvous = {.cluster = &c,
                                          .connect_timeout_s = 30,
                                          .token = &token,
                                          .sockets_only = sockets_only},
                           .peer_timeout_s = 30};
    if (!j.data || !j.other)
        bench_die("no memory");
    bench_must(mr_cluster_from_launcher(&c, &st), &st);
    bench_must(mr__world_open(&w, &opts, &st), &st);
    bench_must(mr__ring_open(&j.ring, w, &st), &st);
    if (rank)
        fclose(stdout); /* both measure, one prints */
    char name[64];
    snprintf(name, sizeof name, "%s, TCP loop", mr__ring_transport(j.ring));
    bench_in_turns(name, "GB/s", 1e-9, 15, all_reduce, two_ways, &j);
    snprintf(name, sizeof name, "%s, copy", mr__ring_transport(j.ring));
    bench_in_turns(name, "GB/s", 1e-9, 15, all_reduce, copy, &j);
    j.bytes = 4;
    snprintf(name, sizeof name, "%s, 4 bytes", mr__ring_transport(j.ring));
    bench_in_turns(name, "1/us", 0.25e-6, 31, all_reduce, two_ways, &j);
    mr__ring_close(j.ring);
    mr__world_close(w);
    mr__token_free(&token);
    mr_cluster_reset(&c);
    free(j.data);
    free(j.other);
}

/* Two ends of a TCP connection over loopback. */
static void connect_pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &size) ||
        connect(ends[0], (struct sockaddr *)&at, size))
        bench_die(strerror(errno));
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

/* The address where the two processes meet: a free port. */
static void choose_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char port[8];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, size) || getsockname(fd, (struct sockaddr *)&at, &size))
        bench_die(strerror(errno));
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    close(fd);
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    unsetenv("TF_CONFIG");
    unsetenv("SLURM_PROCID");
    setenv("WORLD_SIZE", "2", 1);
    for (int sockets_only = 1; sockets_only >= 0; sockets_only--) {
        int ends[2], failed = 0;
        connect_pair(ends);
        choose_port();
        fflush(stdout);
        for (uint32_t rank = 0; rank < 2; rank++)
            if (fork() == 0) {
                run(rank, ends[rank], bytes, sockets_only);
                exit(0);
            }
        for (int i = 0, status; i < 2 && wait(&status) > 0; i++)
            failed |= status;
        if (failed)
            return 1;
        close(ends[0]);
        close(ends[1]);
    }
    return 0;
}
