/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a process of a job that has shown that it belongs to it: the job ends, with an error,
 * or takes them.
 *
 *     met?  then messages: kind  n  payload of n bytes...     kind 255: the n bytes alone
 *
 * A thread is rank 0, whose rendezvous, world, announcements and exchanges are the real ones. The
 * input is what rank 1 says on the connection for short messages: after its hello, or (met) when
 * both have met. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/small_memory.h"
#include "trainer/collective/processes/world.h"

enum { PORT = 20000, MOST_MESSAGES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- rank 0 ---- */

/* A loopback address of this process alone, so that no other program has the port. */
static struct sockaddr_in own_address(uint16_t port)
{
    uint32_t p = (uint32_t)getpid();
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr =
        htonl(127u << 24 | (p >> 16 & 127) << 16 | (p >> 8 & 255) << 8 | ((p & 127) + 2));
    return a;
}

static void check(mr_code rc, const mr_status *st)
{
    if (rc != MR_OK && (st->code != rc || !*st->message))
        abort();
}

static void *run_rank_0(void *nothing)
{
    char address[40], ip[INET_ADDRSTRLEN];
    struct sockaddr_in a = own_address(PORT);
    mr_cluster c = {0};
    mr__world *w = NULL;
    mr_status st;
    double mine = 1, all[2];
    inet_ntop(AF_INET, &a.sin_addr, ip, sizeof ip);
    snprintf(address, sizeof address, "%s:%d", ip, PORT);
    if (mr_cluster_add(&c, MR_TASK_WORKER, address, &st) != MR_OK ||
        mr_cluster_add(&c, MR_TASK_WORKER, "127.0.0.1:1", &st) != MR_OK ||
        mr_cluster_set_task(&c, MR_TASK_WORKER, 0, &st) != MR_OK)
        abort();
    c.source = MR_CLUSTER_TORCHRUN; /* others are found through the first */
    const mr__world_opts o = {
        .rendezvous = {.cluster = &c, .connect_timeout_s = 600, .sockets_only = true},
        .peer_timeout_s = 600};
    mr_code rc = mr__world_open(&w, &o, &st);
    if (rc == MR_OK)
        rc = mr__world_announce(w, "sums 1 value of float32", false, &st);
    for (int i = 0; i < 3 && rc == MR_OK; i++)
        rc = mr__world_exchange(w, MR__CHANNEL_DATA, &mine, 1, all, &st);
    check(rc, &st);
    mr__world_close(w);
    mr_cluster_reset(&c);
    return nothing;
}

/* ---- rank 1 ---- */

static int dial(void)
{
    /* rank 0 connects to where rank 1 comes from */
    struct sockaddr_in a = own_address(PORT), from = own_address(0);
    for (;; usleep(200)) { /* until it listens */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof from) != 0)
            abort();
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            return fd;
        }
        close(fd);
    }
}

static void say(int fd, mr__outbox *o, mr_code rc)
{
    if (rc != MR_OK || send(fd, o->data, o->size, MSG_NOSIGNAL) != (ssize_t)o->size)
        abort();
    o->size = 0;
}

/* The payload of the next message. */
static size_t hear(int fd, mr__rank_message want, unsigned char *payload, size_t room)
{
    unsigned char head[MR__RANK_HEAD_BYTES];
    uint32_t version;
    mr__rank_message kind;
    size_t bytes = 0;
    if (recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head ||
        mr__read_head(head, &version, &kind, &bytes, NULL) != MR_OK || kind != want ||
        bytes > room || (bytes && recv(fd, payload, bytes, MSG_WAITALL) != (ssize_t)bytes))
        abort();
    return bytes;
}

static int listen_at_any_port(uint32_t *port)
{
    struct sockaddr_in a = own_address(0);
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &size) != 0)
        abort();
    *port = ntohs(a.sin_port);
    return fd;
}

/* What follows the hellos; of the two connections for values nothing comes. */
static void meet(int control, int door, const uint8_t *nonce, int values[2])
{
    unsigned char payload[4096];
    mr__outbox o = {0};
    hear(control, MR__RANK_TABLE, payload, sizeof payload);
    values[0] = accept(door, NULL, NULL);
    hear(values[0], MR__RANK_DATA, payload, sizeof payload);
    say(values[0], &o, mr__write_empty(&o, MR__RANK_READY, NULL));
    values[1] = dial();
    say(values[1], &o, mr__write_data(&o, 1, nonce, NULL));
    hear(values[1], MR__RANK_READY, payload, sizeof payload);
    mr__outbox_reset(&o);
}

/* It may have ended the connection already. */
static void say_all(int fd, const uint8_t *at, const uint8_t *end)
{
    mr__outbox o = {0};
    for (int i = 0; i < MOST_MESSAGES && end - at >= 2; i++) {
        size_t n = at[1], left = (size_t)(end - at) - 2;
        n = n < left ? n : left;
        if (mr__write_empty(&o, (mr__rank_message)at[0], NULL) != MR_OK)
            abort();
        o.data[12] = (uint8_t)n;
        if (at[0] != 255)
            (void)!send(fd, o.data, o.size, MSG_NOSIGNAL);
        (void)!send(fd, at + 2, n, MSG_NOSIGNAL);
        o.size = 0;
        at += 2 + n;
    }
    mr__outbox_reset(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pthread_t rank_0;
    unsigned char payload[4096];
    mr__outbox o = {0};
    mr__hello theirs, mine = {.rank = 1,
                              .world = 2,
                              .process = 1,
                              .nonce = {1},
                              .node = "node",
                              .machine_id = "",
                              .local = ""};
    int values[2] = {-1, -1};
    small_memory();
    if (size < 1)
        return 0;
    if (pthread_create(&rank_0, NULL, run_rank_0, NULL) != 0)
        abort();
    int door = listen_at_any_port(&mine.port), control = dial();
    say(control, &o, mr__write_hello(&o, &mine, NULL));
    size_t bytes = hear(control, MR__RANK_HELLO, payload, sizeof payload);
    if (mr__read_hello(payload, bytes, &theirs, NULL) != MR_OK)
        abort();
    if (data[0] & 1)
        meet(control, door, theirs.nonce, values);
    say_all(control, data + 1, data + size);
    shutdown(control, SHUT_WR);
    pthread_join(rank_0, NULL);
    close(control);
    close(door);
    for (int i = 0; i < 2; i++)
        if (values[i] >= 0)
            close(values[i]);
    mr__outbox_reset(&o);
    return 0;
}
