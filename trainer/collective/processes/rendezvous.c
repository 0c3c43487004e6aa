/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in the calling thread, with poll, until all connections are established or an error
 * occurs. */
#include "trainer/collective/processes/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "trainer/collective/processes/rank_connection.h"
#include "trainer/collective/processes/tcp_user.h"
#include "transport/net/address.h"
#include "transport/net/shared_memory.h"
#include "transport/net/stranger_log.h"

#define SECOND  INT64_C(1000000000)
#define NO_WORD "it accepts connections, but does not answer"

enum { FIRST_DELAY_MS = 50, LONGEST_DELAY_MS = 1000, SILENT_S = 10 };
enum { BACKLOG = 1024, ACCEPTS_A_TURN = 16, LAST_WORDS_MS = 500 };

typedef mr__rank_connection connection;

typedef struct peer {
    char address[200]; /* "": unknown */
    bool met, dialing;
    mr__address to;
    int64_t dial_at_ns, delay_ns;
    char error[400]; /* reason of the last failed attempt */
    bool answered;   /* that attempt, by something else than a peer */
    mr__hello hello;
    unsigned char *hello_bytes; /* owned */
    connection *control;
} peer;

typedef struct rendezvous {
    const mr__rendezvous_opts *o;
    uint32_t rank, world, n_met;
    bool all_addresses; /* every peer's is known, from TF_CONFIG */
    mr__hello hello;    /* of this process */
    char node[128], machine_id[128], local_name[64];
    peer *peers;
    connection *connections;
    size_t n_connections;
    mr__stranger_log strangers;
    int listener, local_listener;
    int64_t now_ns, deadline_ns;
    bool self_dialed, table_came, compared, dialing_next, next_ready;
    mr__ring_link next, prev; /* fd -1: not yet */
} rendezvous;

/* ---- listening ---- */

static int bind_at(const struct sockaddr *at, socklen_t size, int *err)
{
    int one = 1, fd = mr__sys->socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *err = errno;
        return -1;
    }
    if (at->sa_family != AF_UNIX)
        mr__sys->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (mr__sys->bind(fd, at, size) == 0 && mr__sys->listen(fd, BACKLOG) == 0)
        return fd;
    *err = errno;
    mr__sys->close(fd);
    return -1;
}

/* The wildcard address with this port. */
static mr__address any_address(const mr__address *like, uint16_t port)
{
    mr__address a = {0};
    if (like->to.ss_family == AF_INET6) {
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
        mr__address_of((struct sockaddr *)&v6, sizeof v6, &a);
    } else {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
        mr__address_of((struct sockaddr *)&v4, sizeof v4, &a);
    }
    return a;
}

static uint16_t net_port(const mr__address *a)
{
    return a->to.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a->to)->sin6_port
                                       : ((const struct sockaddr_in *)&a->to)->sin_port;
}

/* Processes with the same machine_id can share memory: one boot of one kernel, one namespace of
 * abstract sockets, one user. */
static void find_machine_id(rendezvous *m)
{
    struct stat net;
    char boot[64] = "";
    int fd = mr__sys->open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1 : mr__sys->read(fd, boot, sizeof boot - 1);
    if (fd >= 0)
        mr__sys->close(fd);
    if (n < 36 || mr__sys->stat("/proc/self/ns/net", &net) != 0)
        return;
    boot[36] = '\0';
    snprintf(m->machine_id, sizeof m->machine_id, "%s/%llu/%lu", boot,
             (unsigned long long)net.st_ino, (unsigned long)geteuid());
}

static void listen_locally(rendezvous *m)
{
    mr__address a;
    char name[64] = "@millrace-";
    uint8_t drawn[MR__RANK_NONCE]; /* the nonce is for peers alone; everybody can list names */
    int err;
    find_machine_id(m);
    if (m->o->sockets_only || !m->machine_id[0] ||
        mr__sys->getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return;
    for (size_t i = 0; i < MR__RANK_NONCE; i++)
        snprintf(name + 10 + 2 * i, 3, "%02x", drawn[i]);
    if (mr__address_resolve(name, &a, NULL) != MR_OK)
        return;
    m->local_listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    if (m->local_listener >= 0) /* otherwise sockets are used */
        memcpy(m->local_name, name, sizeof m->local_name);
}

/* Listens, and sets the port and the local name of the hello. */
static mr_code listen_everywhere(rendezvous *m, mr_status *st)
{
    bool given = m->all_addresses || m->rank == 0;
    peer *at = &m->peers[m->all_addresses ? m->rank : 0];
    MR_TRY(mr__address_resolve(at->address, &at->to, st));
    mr__address a = given ? at->to : any_address(&at->to, 0);
    int err;
    m->listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    if (m->listener < 0 && err == EADDRNOTAVAIL && given) {
        /* The address may be a gateway that leads here: containers, services. */
        a = any_address(&at->to, net_port(&at->to));
        m->listener = bind_at((struct sockaddr *)&a.to, a.size, &err);
    }
    if (m->listener < 0) {
        mr_code rc = mr_fail_errno(st, err, "rank %u cannot listen on %s", m->rank,
                                   given ? at->address : a.text);
        if (err != EADDRINUSE)
            return rc;
        return mr_fail(st, MR_ALREADY_EXISTS,
                       "rank %u cannot listen on %s: the address is in use; is a second process "
                       "started as rank %u?",
                       m->rank, at->address, m->rank);
    }
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (mr__sys->getsockname(m->listener, (struct sockaddr *)&bound, &size) != 0)
        return mr_fail_errno(st, errno, "cannot read the listener's address");
    mr__address_of((struct sockaddr *)&bound, size, &a);
    m->hello.port = ntohs(net_port(&a));
    listen_locally(m);
    return MR_OK;
}

/* ---- connections ---- */

static connection *add_connection(rendezvous *m, int fd, mr_status *st)
{
    connection *t = mr_calloc(1, sizeof *t);
    if (!t) {
        mr__sys->close(fd);
        mr_fail_memory(st, sizeof *t, "a connection");
        return NULL;
    }
    int one = 1;
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    t->fd = fd;
    t->passed = -1;
    t->since_ns = m->now_ns;
    t->next = m->connections;
    m->connections = t;
    m->n_connections++;
    return t;
}

/* Connects; if that fails at once, *out is NULL and peers->error has the reason. local: the unix
 * socket to connect to instead of its address. */
static mr_code dial(rendezvous *m, uint32_t rank, mr__rank_role what, const char *local,
                    connection **out, mr_status *st)
{
    peer *k = &m->peers[rank];
    mr_status why;
    mr__address a;
    *out = NULL;
    /* Resolved each time: a name may be registered after this process starts. */
    mr_code rc = mr__address_resolve(local ? local : k->address, local ? &a : &k->to, &why);
    if (rc == MR_INVALID_ARGUMENT || rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    if (rc != MR_OK) {
        snprintf(k->error, sizeof k->error, "%.150s", why.message);
        return MR_OK;
    }
    if (!local)
        a = k->to;
    int fd = mr__sys->socket(a.to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return mr_fail_errno(st, errno, "cannot create a socket for %s", a.text);
    bool now = mr__sys->connect(fd, (struct sockaddr *)&a.to, a.size) == 0;
    if (!now && errno != EINPROGRESS && errno != EINTR) {
        snprintf(k->error, sizeof k->error, "%.150s", strerror(errno));
        mr__sys->close(fd);
        return MR_OK;
    }
    connection *t = add_connection(m, fd, st);
    if (!t)
        return MR_RESOURCE_EXHAUSTED;
    t->connecting = !now;
    t->rank = rank;
    t->role = what;
    t->local = local != NULL;
    *out = t;
    return mr__rank_connection_begin(t, m->o->token, a.host, st);
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return mr__sys->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           who.uid == geteuid();
}

/* Frees closed connections. */
static void sweep(rendezvous *m)
{
    for (connection **at = &m->connections; *at;) {
        connection *t = *at;
        if (t->fd >= 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        m->n_connections--;
        mr__rank_connection_free(t);
    }
}

/* Strangers may connect, but must not exhaust resources, nor keep a peer out: the one that has been
 * silent for the longest time makes room.
 * returns  whether there is room for one more */
static bool make_room(rendezvous *m)
{
    if (m->n_connections <= (size_t)m->world * 3 + 64)
        return true;
    connection *oldest = NULL; /* the last in the list */
    for (connection *t = m->connections; t; t = t->next)
        if (t->role == MR__ROLE_INCOMING)
            oldest = t;
    if (!oldest)
        return false;
    mr__rank_connection_end(oldest);
    sweep(m);
    return true;
}

/* Accepts one pending connection; *out NULL: none. */
static mr_code accept_one(rendezvous *m, int listener, bool local, connection **out, mr_status *st)
{
    *out = NULL;
    int fd = mr__sys->accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return mr_fail_errno(st, errno, "cannot accept a connection");
        return MR_OK;
    }
    int64_t user;
    if (!local && !m->o->any_user && !mr__tcp_peer_is_admitted(fd, &user)) {
        mr__sys->close(fd);
        mr__stranger_log_add(&m->strangers, m->now_ns, MR_LOG_WARNING,
                             "refused a connection of user %" PRId64
                             " on this host (-1: unknown): the ranks on a host belong to one user, "
                             "unless --any-user",
                             user);
        return MR_OK;
    }
    if ((local && !same_user(fd)) || !make_room(m)) {
        mr__sys->close(fd);
        return MR_OK;
    }
    connection *t = add_connection(m, fd, st);
    if (!t)
        return MR_RESOURCE_EXHAUSTED;
    t->incoming = true;
    t->local = local;
    *out = t;
    return mr__rank_connection_begin(t, m->o->token, "", st);
}

/* The peer's address as known to the kernel, with its port replaced if port is not 0. */
static void address_of_peer(const connection *t, uint32_t port, mr__address *out)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    if (mr__sys->getpeername(t->fd, (struct sockaddr *)&from, &size) != 0)
        from.ss_family = AF_UNIX;
    if (port && from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = htons((uint16_t)port);
    if (port && from.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&from)->sin6_port = htons((uint16_t)port);
    mr__address_of((struct sockaddr *)&from, size, out);
}

/* In a job in the clear: the process at the other end has closed it, perhaps to try again. */
static bool has_ended(const connection *t)
{
    char next;
    return t->incoming && !t->token && mr__sys->recv(t->fd, &next, 1, MSG_PEEK) == 0;
}

/* Sends bytes and a descriptor. */
static mr_code send_descriptor(int fd, const mr__outbox *o, int descriptor, mr_status *st)
{
    mr__passing room;
    struct iovec v = {o->data, o->size};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    mr__pass_descriptor(&h, &room, descriptor);
    ssize_t n;
    MR__RETRY(n, mr__sys->sendmsg(fd, &h, MSG_NOSIGNAL));
    if (n != (ssize_t)o->size)
        return mr_fail_errno(st, n < 0 ? errno : EIO, "cannot share memory with a peer");
    return MR_OK;
}

/* ---- names ---- */

/* "rank 1 (b:5000)" */
typedef struct label {
    char text[256];
} label;

static label name_of(const rendezvous *m, uint32_t rank)
{
    label l;
    const char *address = m->peers[rank].address;
    if (*address)
        snprintf(l.text, sizeof l.text, "rank %u (%s)", rank, address);
    else
        snprintf(l.text, sizeof l.text, "rank %u", rank);
    return l;
}

/* "process 712 on node7 (10.0.0.7:4711)" */
static label process_of(const connection *t, const mr__hello *h)
{
    label l;
    mr__address a;
    address_of_peer(t, 0, &a);
    snprintf(l.text, sizeof l.text, "process %u on %.64s (%s)", h->process, h->node, a.text);
    return l;
}

static uint32_t next_rank(const rendezvous *m)
{
    return (m->rank + 1) % m->world;
}

static uint32_t previous_rank(const rendezvous *m)
{
    return (m->rank + m->world - 1) % m->world;
}

/* ---- start ---- */

static const char *address_of(const mr_cluster *c, uint32_t rank)
{
    const mr_tasks *chief = &c->tasks[MR_TASK_CHIEF];
    return rank < chief->n ? chief->addresses[rank]
                           : c->tasks[MR_TASK_WORKER].addresses[rank - chief->n];
}

/* Only rank 0 warns. */
static void warn_of_open(const rendezvous *m)
{
    const mr__token *token = m->o->token;
    if (m->rank || mr__address_is_loopback(&m->peers[0].to) || (token && token->tls))
        return;
    if (token && token->data)
        mr_log(MR_LOG_WARNING,
               "the processes meet at %s with a token, but without TLS: anyone who controls the "
               "network can read and alter what they send; give --tls-cert, --tls-key and --tls-ca",
               m->peers[0].address);
    else
        mr_log(MR_LOG_WARNING,
               "the processes meet at %s without TLS and without a token: anyone who reaches that "
               "port can join the job, and anyone who controls the network can read and alter what "
               "they send; give --tls-cert, --tls-key and --tls-ca, or at least "
               "--cluster-token-file",
               m->peers[0].address);
}

static mr_code begin(rendezvous *m, mr_status *st)
{
    int64_t rank = 0;
    MR_TRY(mr_cluster_worker(m->o->cluster, &rank, st));
    m->world = (uint32_t)mr_cluster_num_workers(m->o->cluster);
    if (m->world < 2) /* its address may be unknown too */
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a job of one process has no peers; start at least two processes, or train "
                       "without a cluster");
    m->rank = (uint32_t)rank;
    m->all_addresses = m->o->cluster->source == MR_CLUSTER_TF_CONFIG;
    m->peers = mr_calloc(m->world, sizeof *m->peers);
    if (!m->peers)
        return mr_fail_memory(st, m->world * sizeof *m->peers, "the ranks of a job");
    for (uint32_t i = 0; i < m->world; i++) {
        const char *address = address_of(m->o->cluster, i);
        if (strlen(address) >= sizeof m->peers[i].address)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the address of rank %u is too long", i);
        snprintf(m->peers[i].address, sizeof m->peers[i].address, "%s", address);
        m->peers[i].delay_ns = FIRST_DELAY_MS * (SECOND / 1000);
    }
    if (mr__sys->getrandom(m->hello.nonce, MR__RANK_NONCE, 0) != MR__RANK_NONCE)
        return mr_fail_errno(st, errno, "cannot read random bytes");
    gethostname(m->node, sizeof m->node - 1);
    m->hello.rank = m->rank;
    m->hello.world = m->world;
    m->hello.process = (uint32_t)getpid();
    m->hello.node = m->node;
    m->hello.machine_id = m->machine_id;
    m->hello.local = m->local_name;
    m->hello.n_facts = m->o->n_facts;
    for (uint32_t i = 0; i < m->o->n_facts; i++)
        m->hello.facts[i] = m->o->facts[i];
    MR_TRY(listen_everywhere(m, st));
    warn_of_open(m);
    return MR_OK;
}

/* ---- dialing ---- */

static void try_later(rendezvous *m, peer *k)
{
    k->dialing = false;
    k->dial_at_ns = m->now_ns + k->delay_ns;
    k->delay_ns *= 2;
    if (k->delay_ns > LONGEST_DELAY_MS * (SECOND / 1000))
        k->delay_ns = LONGEST_DELAY_MS * (SECOND / 1000);
}

static bool is_mine_to_dial(const rendezvous *m, uint32_t rank)
{
    return rank < m->rank && (m->all_addresses || rank == 0 || m->table_came);
}

/* The first message to a peer that this process connected to, once it is known. */
static mr_code greet(rendezvous *m, connection *t, mr_status *st)
{
    if (t->greeted || !t->known)
        return MR_OK;
    t->greeted = true;
    if (t->role == MR__ROLE_VALUES)
        return mr__write_data(&t->out, m->rank, m->peers[t->rank].hello.nonce, st);
    return mr__write_hello(&t->out, &m->hello, st);
}

static mr_code dial_control(rendezvous *m, mr_status *st)
{
    for (uint32_t i = 0; i < m->rank; i++) {
        peer *k = &m->peers[i];
        connection *t;
        if (k->met || k->dialing || !is_mine_to_dial(m, i) || k->dial_at_ns > m->now_ns)
            continue;
        MR_TRY(dial(m, i, MR__ROLE_CONTROL, NULL, &t, st));
        k->dialing = t != NULL;
        if (!t)
            try_later(m, k);
        else
            MR_TRY(greet(m, t, st));
    }
    return MR_OK;
}

/* Another process with this rank, on another machine, would answer at our address. */
static mr_code dial_self(rendezvous *m, mr_status *st)
{
    connection *t;
    if (m->self_dialed || (!m->all_addresses && m->rank))
        return MR_OK;
    m->self_dialed = true;
    MR_TRY(dial(m, m->rank, MR__ROLE_SELF, NULL, &t, st));
    return t ? greet(m, t, st) : MR_OK;
}

/* Uses shared memory if both sides can; the descriptor is sent with the first bytes. */
static mr_code dial_next_locally(rendezvous *m, connection **out, mr_status *st)
{
    const mr__hello *theirs = &m->peers[next_rank(m)].hello;
    mr__outbox first = {0};
    int fd = -1;
    mr_status why;
    *out = NULL;
    if (!m->local_name[0] || !theirs->local[0] || theirs->local[0] != '@' ||
        strcmp(theirs->machine_id, m->machine_id) != 0)
        return MR_OK;
    if (mr__shm_ring_new(&m->next.shm, &fd, &why) != MR_OK) {
        mr_log(MR_LOG_INFO, "values go to rank %u through a socket: %s", next_rank(m), why.message);
        return MR_OK;
    }
    mr_code rc = dial(m, next_rank(m), MR__ROLE_VALUES, theirs->local, out, st);
    if (rc == MR_OK && *out)
        rc = mr__write_data(&first, m->rank, theirs->nonce, st);
    if (rc == MR_OK && *out)
        rc = send_descriptor((*out)->fd, &first, fd, st);
    if (*out)
        (*out)->greeted = true;
    mr__outbox_reset(&first);
    mr__sys->close(fd);
    if (rc != MR_OK || !*out) {
        mr__shm_ring_free(m->next.shm);
        m->next.shm = NULL;
    }
    return rc;
}

static mr_code dial_next(rendezvous *m, mr_status *st)
{
    peer *k = &m->peers[next_rank(m)];
    connection *t;
    if (m->dialing_next || !m->compared || !*k->address || k->dial_at_ns > m->now_ns)
        return MR_OK;
    MR_TRY(dial_next_locally(m, &t, st));
    if (!t) {
        MR_TRY(dial(m, next_rank(m), MR__ROLE_VALUES, NULL, &t, st));
        if (t)
            MR_TRY(greet(m, t, st));
    }
    m->dialing_next = t != NULL;
    if (!t)
        try_later(m, k);
    return MR_OK;
}

/* ---- messages of peers ---- */

static mr_code compare_all(rendezvous *m, mr_status *st)
{
    for (uint32_t i = 0; i < m->world; i++)
        if (m->peers[i].met)
            MR_TRY(mr__compare_facts(&m->hello, &m->peers[i].hello, name_of(m, i).text, st));
    return MR_OK;
}

static mr_code send_table(rendezvous *m, mr_status *st)
{
    const char **addresses = mr_calloc(m->world, sizeof *addresses);
    if (!addresses)
        return mr_fail_memory(st, m->world * sizeof *addresses, "addresses");
    mr_code rc = MR_OK;
    for (uint32_t i = 0; i < m->world; i++)
        addresses[i] = m->peers[i].address;
    for (uint32_t i = 1; i < m->world && rc == MR_OK; i++)
        rc = mr__write_table(&m->peers[i].control->out, addresses, m->world, st);
    mr_free(addresses);
    return rc;
}

static mr_code everybody_is_there(rendezvous *m, mr_status *st)
{
    if (m->rank == 0 && !m->all_addresses)
        MR_TRY(send_table(m, st));
    MR_TRY(compare_all(m, st));
    m->compared = true;
    return MR_OK;
}

static mr_code two_of_a_rank(rendezvous *m, const connection *t, const mr__hello *h, mr_status *st)
{
    label other = process_of(t, h);
    if (h->rank == m->rank)
        return mr_fail(st, MR_ALREADY_EXISTS,
                       "two processes are rank %u of the job: process %u on %.64s (%s) and %s; "
                       "each task needs its own index",
                       h->rank, m->hello.process, m->node, m->peers[m->rank].address, other.text);
    const peer *k = &m->peers[h->rank];
    return mr_fail(st, MR_ALREADY_EXISTS,
                   "two processes are rank %u of the job: %s and %s; each task needs its own index",
                   h->rank, process_of(k->control, &k->hello).text, other.text);
}

static mr_code check_hello(rendezvous *m, const connection *t, const mr__hello *h, mr_status *st)
{
    if (h->world != m->world)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the job has %u processes here and %u on rank %u, %s; all need the same "
                       "description of the cluster",
                       m->world, h->world, h->rank, process_of(t, h).text);
    if (h->rank >= m->world)
        return mr_fail(st, MR_DATA_LOSS, "%s claims to be rank %u of %u", process_of(t, h).text,
                       h->rank, m->world);
    if (h->rank == m->rank || m->peers[h->rank].met)
        return two_of_a_rank(m, t, h, st);
    if (!t->incoming && h->rank != t->rank)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is rank %u, where rank %u was expected; the tasks have different "
                       "descriptions of the cluster",
                       process_of(t, h).text, h->rank, t->rank);
    return MR_OK;
}

static mr_code take_hello(rendezvous *m, connection *t, mr_status *st)
{
    mr__hello h;
    if (mr__read_hello(t->payload, t->bytes, &h, NULL) != MR_OK || (t->incoming && t->local) ||
        has_ended(t)) {
        mr__rank_connection_end(t);
        return MR_OK;
    }
    if (memcmp(h.nonce, m->hello.nonce, MR__RANK_NONCE) == 0) { /* this process */
        mr__rank_connection_end(t);
        return MR_OK;
    }
    /* Sent even to a peer that is rejected: it compares too, and reports the difference. */
    if (t->incoming)
        MR_TRY(mr__write_hello(&t->out, &m->hello, st));
    MR_TRY(check_hello(m, t, &h, st));
    peer *k = &m->peers[h.rank];
    k->hello = h;
    k->hello_bytes = t->payload; /* the texts of the hello point into it */
    t->payload = NULL;
    k->met = true;
    k->error[0] = '\0';
    k->dialing = false;
    k->dial_at_ns = 0;
    k->delay_ns = FIRST_DELAY_MS * (SECOND / 1000);
    k->control = t;
    t->role = MR__ROLE_CONTROL;
    t->rank = h.rank;
    if (!m->all_addresses && h.rank) {
        mr__address a;
        address_of_peer(t, h.port, &a);
        if (t->incoming && m->rank == 0)
            snprintf(k->address, sizeof k->address, "%s", a.text);
    }
    return ++m->n_met == m->world - 1 ? everybody_is_there(m, st) : MR_OK;
}

static mr_code take_table(rendezvous *m, const connection *t, mr_status *st)
{
    const char **addresses = mr_calloc(m->world, sizeof *addresses);
    if (!addresses)
        return mr_fail_memory(st, m->world * sizeof *addresses, "addresses");
    mr_code rc = mr__read_table(t->payload, t->bytes, addresses, m->world, st);
    for (uint32_t i = 1; i < m->world && rc == MR_OK; i++)
        snprintf(m->peers[i].address, sizeof m->peers[i].address, "%s", addresses[i]);
    mr_free(addresses);
    m->table_came = true;
    return rc;
}

static mr_code take_data(rendezvous *m, connection *t, mr_status *st)
{
    uint32_t rank = 0;
    uint8_t nonce[MR__RANK_NONCE] = {0};
    bool good = t->incoming && m->prev.fd < 0 &&
                mr__read_data(t->payload, t->bytes, &rank, nonce, NULL) == MR_OK &&
                rank == previous_rank(m) && memcmp(nonce, m->hello.nonce, MR__RANK_NONCE) == 0 &&
                t->local == (t->passed >= 0) && !has_ended(t);
    if (!good) {
        mr__rank_connection_end(t);
        return MR_OK;
    }
    if (t->local)
        MR_TRY(mr__shm_ring_map(&m->prev.shm, t->passed, st));
    t->role = MR__ROLE_VALUES;
    t->rank = rank;
    m->prev.fd = t->fd;
    m->prev.tls = t->tls;
    return mr__write_empty(&t->out, MR__RANK_READY, st);
}

static mr_code lost(rendezvous *m, connection *t, const mr_status *why, mr_status *st);

static mr_code take_abort(rendezvous *m, connection *t, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    mr_code rc = mr__read_abort(t->payload, t->bytes, &why, st);
    /* What has not proven to be a peer cannot end the job, but may refuse this process. */
    if (!t->known && t->role != MR__ROLE_SELF && (rc != MR_OK || why.code != MR_PERMISSION_DENIED))
        return lost(m, t, rc == MR_OK ? &why : st, st);
    MR_TRY(rc);
    if (t->role == MR__ROLE_SELF) { /* it is another process there, of another job */
        mr__rank_connection_end(t);
        return MR_OK;
    }
    if (why.code == MR_PERMISSION_DENIED && !m->peers[t->rank].met)
        return mr_fail(st, why.code, "%s refuses this process: %s", name_of(m, t->rank).text,
                       why.message);
    MR_TRY(compare_all(m, st)); /* reports a difference to this process from its own view */
    return mr_fail(st, why.code, "%s ended: %s", name_of(m, t->rank).text, why.message);
}

static mr_code take(rendezvous *m, connection *t, mr_status *st)
{
    if (t->kind == MR__RANK_HELLO && (t->role != MR__ROLE_CONTROL || !m->peers[t->rank].met))
        return take_hello(m, t, st);
    if (t->kind == MR__RANK_ABORT && t->role != MR__ROLE_INCOMING)
        return take_abort(m, t, st);
    if (t->kind == MR__RANK_TABLE && t->role == MR__ROLE_CONTROL && t->rank == 0 &&
        !m->table_came && !m->all_addresses)
        return take_table(m, t, st);
    if (t->kind == MR__RANK_DATA && t->role == MR__ROLE_INCOMING)
        return take_data(m, t, st);
    if (t->kind == MR__RANK_READY && t->role == MR__ROLE_VALUES && !t->incoming) {
        m->next_ready = true;
        m->next.fd = t->fd;
        m->next.tls = t->tls;
        return MR_OK;
    }
    if (t->kind == MR__RANK_ALIVE && t->role == MR__ROLE_CONTROL)
        return MR_OK;
    if (t->role == MR__ROLE_INCOMING) {
        mr__rank_connection_end(t);
        return MR_OK;
    }
    return mr_fail(st, MR_DATA_LOSS, "%s sent message %d while the processes were meeting",
                   name_of(m, t->rank).text, (int)t->kind);
}

/* ---- ends of connections ---- */

/* An incoming peer is refused, or has left. */
static mr_code lost_stranger(rendezvous *m, connection *t, const mr_status *why, mr_status *st)
{
    mr__address a;
    address_of_peer(t, 0, &a);
    if (t->known && t->version && t->version != MR__RANK_PROTOCOL) {
        MR_TRY(mr__write_hello(&t->out, &m->hello, st)); /* shows the peer our version */
        return mr_fail(st, why->code, "%s: %s", a.text, why->message);
    }
    if (why->code == MR_UNAVAILABLE || why->sys_errno) {
        mr_log(MR_LOG_DEBUG, "a connection from %s has ended: %s", a.text, why->message);
        mr__rank_connection_end(t);
        return MR_OK;
    }
    mr__stranger_log_add(&m->strangers, m->now_ns, MR_LOG_WARNING,
                         "refused a connection from %s, which is not from a peer: %s", a.text,
                         why->message);
    mr__rank_connection_refuse(t, t->tls && !t->tls->is_open
                                      ? "this job requires TLS; give all processes --tls-cert, "
                                        "--tls-key and --tls-ca, or their MILLRACE_TLS_ "
                                        "variables"
                                      : why->message);
    mr__rank_connection_linger(t);
    return MR_OK;
}

/* A connection that this process opened has ended before the other side is known to be a peer. */
static mr_code lost_dialed(rendezvous *m, connection *t, const mr_status *why, mr_status *st)
{
    peer *k = &m->peers[t->rank];
    bool is_protected = t->token != NULL;
    bool ours = t->doubted || !t->tls || t->tls->refused[0];
    if (is_protected ? why->code == MR_PERMISSION_DENIED && !ours
                     : why->code == MR_DATA_LOSS || why->code == MR_FAILED_PRECONDITION)
        return mr_fail(st, why->code, "%s: %s", name_of(m, t->rank).text, why->message);
    char error[sizeof k->error];
    snprintf(error, sizeof error, "%.390s", why->message);
    if (is_protected && why->code != MR_UNAVAILABLE && strcmp(k->error, error) != 0)
        mr_log(MR_LOG_WARNING, "%s is not a peer; still waiting for the peer: %s",
               name_of(m, t->rank).text, why->message);
    memcpy(k->error, error, sizeof error);
    k->answered = why->code != MR_UNAVAILABLE;
    try_later(m, k);
    return MR_OK;
}

static mr_code lost(rendezvous *m, connection *t, const mr_status *why, mr_status *st)
{
    if (t->role == MR__ROLE_INCOMING)
        return lost_stranger(m, t, why, st);
    if (t->tls)
        (void)!mr__rank_connection_send(t, NULL); /* the alert that tells it */
    mr__rank_connection_end(t);
    switch (t->role) {
    case MR__ROLE_SELF:
        return MR_OK;
    case MR__ROLE_CONTROL:
        if (m->peers[t->rank].met)
            return mr_fail(st, MR_UNAVAILABLE, "%s ended while the processes were meeting: %s",
                           name_of(m, t->rank).text, why->message);
        return lost_dialed(m, t, why, st);
    default:
        if (!t->connecting && t->known)
            return mr_fail(st, MR_UNAVAILABLE, "the connection for values with %s broke: %s",
                           name_of(m, t->rank).text, why->message);
        m->dialing_next = false;
        return lost_dialed(m, t, why, st);
    }
}

static mr_code serve(rendezvous *m, connection *t, short events, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    if (t->refused) {
        mr__rank_connection_linger(t);
        return MR_OK;
    }
    if (t->connecting) {
        int err = 0;
        socklen_t size = sizeof err;
        if (!(events & (POLLOUT | POLLERR | POLLHUP)))
            return MR_OK;
        if (mr__sys->getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0)
            err = errno;
        if (err) {
            mr_fail(&why, MR_UNAVAILABLE, "%s", strerror(err));
            return lost(m, t, &why, st);
        }
        t->connecting = false;
        if (t->role != MR__ROLE_SELF && !m->peers[t->rank].answered)
            snprintf(m->peers[t->rank].error, sizeof m->peers[t->rank].error, NO_WORD);
    }
    if (mr__rank_connection_wants(t) && !mr__rank_connection_send(t, &why))
        return lost(m, t, &why, st);
    while (t->fd >= 0 && !t->refused && t->fd != m->next.fd && t->fd != m->prev.fd) {
        bool whole, good = mr__rank_connection_receive(t, &whole, &why);
        if (!t->incoming)
            MR_TRY(greet(m, t, st));
        if (!good)
            return lost(m, t, &why, st);
        if (!whole)
            break;
        MR_TRY(take(m, t, st));
        mr__rank_connection_next(t);
    }
    if (t->fd >= 0 && mr__rank_connection_wants(t) && !mr__rank_connection_send(t, &why))
        return lost(m, t, &why, st);
    return MR_OK;
}

/* ---- the loop ---- */

/* All connections are established, and no data in transit would be lost. */
static bool is_done(const rendezvous *m)
{
    if (!m->compared || !m->next_ready || m->prev.fd < 0)
        return false;
    for (const connection *t = m->connections; t; t = t->next)
        if ((t->role == MR__ROLE_CONTROL || t->role == MR__ROLE_VALUES) && t->fd >= 0 &&
            (mr__rank_connection_owes(t) || t->got || t->has_head))
            return false;
    return true;
}

static mr_code fail_missing(const rendezvous *m, mr_status *st)
{
    char text[900] = "";
    size_t at = 0, n = 0;
    const peer *first = &m->peers[0];
    if (!m->all_addresses && m->rank && first->met && !m->table_came)
        return mr_fail(st, MR_DEADLINE_EXCEEDED,
                       "after %g s, %s is connected but still waits for others; start all %u "
                       "tasks, or raise --connect-timeout",
                       m->o->connect_timeout_s, name_of(m, 0).text, m->world);
    for (uint32_t i = 0; i < m->world; i++) {
        const peer *k = &m->peers[i];
        /* If rank 0 is missing, the others are unknown. */
        if (k->met || i == m->rank || (!k->address[0] && m->rank))
            continue;
        if (at > sizeof text - 100) {
            n++;
            continue;
        }
        const char *error = i < m->rank ? k->error : "";
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.120s%s%.350s", at ? ", " : "",
                               name_of(m, i).text, *error ? ": " : "", error);
    }
    if (!*text) {
        uint32_t rank = m->next_ready ? previous_rank(m) : next_rank(m);
        const char *error = m->next_ready ? "" : m->peers[rank].error;
        snprintf(text, sizeof text, "%s to open the connection for values%s%.350s",
                 name_of(m, rank).text, *error ? ": " : "", error);
    }
    char more[40] = "";
    if (n)
        snprintf(more, sizeof more, " and %zu more", n);
    return mr_fail(st, MR_DEADLINE_EXCEEDED, "after %g s, still waiting for %s%s (of %u tasks)",
                   m->o->connect_timeout_s, text, more, m->world);
}

/* Whether the other side of t has still to show who it is. A certificate or a token is not enough:
 * only a hello shows that the program at the address of a peer is that peer. */
static bool must_answer(const rendezvous *m, const connection *t)
{
    if (t->fd < 0 || (!t->incoming && t->local))
        return false;
    return t->role == MR__ROLE_INCOMING ||
           (t->role == MR__ROLE_CONTROL && !m->peers[t->rank].met) ||
           (t->role == MR__ROLE_VALUES && !t->incoming && !m->next_ready);
}

/* The time of the next timed event: a dial, the end of a silence, or the deadline. */
static int64_t next_time(const rendezvous *m)
{
    int64_t at = m->deadline_ns;
    for (const connection *t = m->connections; t; t = t->next)
        if (must_answer(m, t) && t->since_ns + SILENT_S * SECOND < at)
            at = t->since_ns + SILENT_S * SECOND;
    for (uint32_t i = 0; i < m->rank; i++) {
        const peer *k = &m->peers[i];
        if (!k->met && !k->dialing && is_mine_to_dial(m, i) && k->dial_at_ns < at)
            at = k->dial_at_ns;
    }
    if (m->compared && !m->dialing_next && *m->peers[next_rank(m)].address &&
        m->peers[next_rank(m)].dial_at_ns < at)
        at = m->peers[next_rank(m)].dial_at_ns;
    return at;
}

/* Each is served before the number of later ones is so large that it must make room. */
static mr_code accept_some(rendezvous *m, int listener, bool local, mr_status *st)
{
    connection *t = NULL;
    for (int i = 0; i < ACCEPTS_A_TURN && (i == 0 || t); i++)
        MR_TRY(accept_one(m, listener, local, &t, st));
    return MR_OK;
}

/* Ends connections whose other side has not shown in time who it is. */
static mr_code end_silent(rendezvous *m, mr_status *st)
{
    mr_status why;
    for (connection *t = m->connections; t; t = t->next) {
        if (!must_answer(m, t) || m->now_ns - t->since_ns < SILENT_S * SECOND)
            continue;
        if (t->role != MR__ROLE_INCOMING) {
            mr_log(MR_LOG_WARNING, "%s has not answered for %d s; trying again",
                   name_of(m, t->rank).text, (int)SILENT_S);
            mr_fail(&why, MR_UNAVAILABLE, "%s", t->connecting ? "no answer" : NO_WORD);
            m->dialing_next &= t->role != MR__ROLE_VALUES;
            MR_TRY(lost_dialed(m, t, &why, st));
        }
        mr__rank_connection_end(t);
    }
    return MR_OK;
}

static mr_code wait_and_serve(rendezvous *m, int cancel_fd, mr_status *st)
{
    size_t n = 0, room = m->n_connections + 3;
    struct pollfd *p = mr_calloc(room, sizeof *p);
    connection **of = mr_calloc(room, sizeof *of);
    mr_code rc = MR_OK;
    if (!p || !of)
        rc = mr_fail_memory(st, room * sizeof *p, "a list of connections");
    if (rc == MR_OK) {
        p[n++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = m->local_listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = cancel_fd, .events = POLLIN};
        for (connection *t = m->connections; t; t = t->next) {
            bool taken = t->fd == m->next.fd || t->fd == m->prev.fd;
            short events =
                (short)((taken ? 0 : POLLIN) | (mr__rank_connection_wants(t) ? POLLOUT : 0));
            of[n] = t;
            p[n++] = (struct pollfd){.fd = events ? t->fd : -1, .events = events};
        }
        int64_t left = next_time(m) - m->now_ns;
        int ms = left <= 0 ? 0 : left > 1000 * SECOND ? 1000000 : (int)(left / 1000000) + 1;
        int rc_poll = mr__sys->poll(p, n, ms);
        m->now_ns = mr__clock_ns(CLOCK_MONOTONIC);
        if (rc_poll < 0 && errno != EINTR)
            rc = mr_fail_errno(st, errno, "cannot wait for the other processes");
        else if (p[2].revents)
            rc = mr_fail(st, MR_CANCELLED, "interrupted while waiting for the other processes");
        for (size_t i = 3; i < n && rc_poll > 0 && rc == MR_OK; i++)
            if (p[i].revents && of[i]->fd >= 0)
                rc = serve(m, of[i], p[i].revents, st);
        if (rc == MR_OK && rc_poll > 0 && p[0].revents)
            rc = accept_some(m, m->listener, false, st);
        if (rc == MR_OK && rc_poll > 0 && p[1].revents)
            rc = accept_some(m, m->local_listener, true, st);
    }
    mr_free(p);
    mr_free(of);
    if (rc == MR_OK)
        rc = end_silent(m, st);
    sweep(m);
    return rc;
}

static mr_code run(rendezvous *m, mr_status *st)
{
    int cancel_fd = -1;
    if (m->o->cancel)
        MR_TRY(mr_cancel_fd(m->o->cancel, &cancel_fd, st));
    while (!is_done(m)) {
        if (m->now_ns >= m->deadline_ns)
            return fail_missing(m, st);
        MR_TRY(dial_control(m, st));
        MR_TRY(dial_self(m, st));
        MR_TRY(dial_next(m, st));
        MR_TRY(wait_and_serve(m, cancel_fd, st));
    }
    return MR_OK;
}

/* Moves the connections, which outlive the rendezvous, to *out. */
static mr_code give(rendezvous *m, mr__rank_group *out, mr_status *st)
{
    mr__member *members = mr_calloc(m->world, sizeof *members);
    if (!members)
        return mr_fail_memory(st, m->world * sizeof *members, "the ranks of a job");
    for (uint32_t i = 0; i < m->world; i++) {
        snprintf(members[i].address, sizeof members[i].address, "%s", m->peers[i].address);
        members[i].fd = -1;
        if (i == m->rank)
            continue;
        connection *t = m->peers[i].control;
        members[i].fd = t->fd;
        members[i].tls = t->tls;
        t->fd = -1;
        t->tls = NULL;
    }
    for (connection *t = m->connections; t; t = t->next)
        if (t->fd >= 0 && (t->fd == m->next.fd || t->fd == m->prev.fd)) {
            t->fd = -1;
            t->tls = NULL;
        }
    *out = (mr__rank_group){m->rank, m->world, members, m->next, m->prev};
    m->next = m->prev = (mr__ring_link){.fd = -1};
    return MR_OK;
}

/* Waits briefly until queued messages are sent. */
static void flush_all(rendezvous *m)
{
    int64_t until = mr__clock_ns(CLOCK_MONOTONIC) + (int64_t)LAST_WORDS_MS * 1000000;
    for (;;) {
        connection *waits = NULL;
        for (connection *t = m->connections; t; t = t->next)
            if (t->fd >= 0 && !t->connecting && mr__rank_connection_wants(t)) {
                if (!mr__rank_connection_send(t, NULL))
                    mr__rank_connection_end(t);
                else if (mr__rank_connection_wants(t))
                    waits = t;
            }
        int64_t left = until - mr__clock_ns(CLOCK_MONOTONIC);
        if (!waits || left <= 0)
            return;
        struct pollfd p = {.fd = waits->fd, .events = POLLOUT};
        mr__sys->poll(&p, 1, (int)(left / 1000000) + 1);
    }
}

/* Sends the error that ended the rendezvous to the peers, and closes everything. */
static void close_all(rendezvous *m, const mr_status *why)
{
    if (why) {
        for (connection *t = m->connections; t; t = t->next)
            if (t->fd >= 0 && !t->connecting && t->known && !t->refused &&
                t->role != MR__ROLE_VALUES)
                (void)!mr__write_abort(&t->out, why, NULL);
        flush_all(m);
    }
    for (connection *t = m->connections; t; t = t->next)
        mr__rank_connection_end(t);
    sweep(m);
    for (uint32_t i = 0; m->peers && i < m->world; i++)
        mr_free(m->peers[i].hello_bytes);
    mr_free(m->peers);
    if (m->listener >= 0)
        mr__sys->close(m->listener);
    if (m->local_listener >= 0)
        mr__sys->close(m->local_listener);
}

mr_code mr__rendezvous(const mr__rendezvous_opts *o, mr__rank_group *out, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    rendezvous m = {.o = o, .listener = -1, .local_listener = -1};
    m.next.fd = m.prev.fd = -1;
    m.now_ns = mr__clock_ns(CLOCK_MONOTONIC);
    m.deadline_ns = m.now_ns + (int64_t)(o->connect_timeout_s * 1e9);
    if (o->n_facts > MR__MAX_FACTS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d facts to compare, found %u",
                       (int)MR__MAX_FACTS, o->n_facts);
    mr_code rc = begin(&m, &why);
    if (rc == MR_OK)
        rc = run(&m, &why);
    if (rc == MR_OK)
        rc = give(&m, out, &why);
    if (rc != MR_OK) {
        mr__shm_ring_free(m.next.shm);
        mr__shm_ring_free(m.prev.shm);
    }
    close_all(&m, rc == MR_OK ? NULL : &why);
    mr__stranger_log_end(&m.strangers);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

void mr__ring_link_close(mr__ring_link *link)
{
    if (link->fd >= 0)
        mr__sys->close(link->fd);
    mr__shm_ring_free(link->shm);
    if (link->tls)
        mr__tls_session_close(link->tls);
    mr_free(link->tls);
    *link = (mr__ring_link){.fd = -1};
}

void mr__rank_group_reset(mr__rank_group *g)
{
    for (uint32_t i = 0; g->members && i < g->world; i++) {
        if (g->members[i].fd >= 0)
            mr__sys->close(g->members[i].fd);
        if (g->members[i].tls)
            mr__tls_session_close(g->members[i].tls);
        mr_free(g->members[i].tls);
    }
    mr_free(g->members);
    g->members = NULL;
    mr__ring_link_close(&g->next);
    mr__ring_link_close(&g->prev);
}
