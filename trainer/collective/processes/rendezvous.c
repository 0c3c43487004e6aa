/* SPDX-License-Identifier: Apache-2.0 */
/* A meeting runs in the calling thread, by poll, until all is connected or something is wrong. */
#include "trainer/collective/processes/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/collective/processes/rendezvous_state.h"

#define SECOND INT64_C(1000000000)

enum { FIRST_DELAY_MS = 50, LONGEST_DELAY_MS = 1000, SILENT_S = 10 };

/* "rank 1 (b:5000)" */
typedef struct label {
    char text[256];
} label;

static label name_of(const mr__meeting *m, uint32_t rank)
{
    label l;
    const char *address = m->known[rank].address;
    if (*address)
        snprintf(l.text, sizeof l.text, "rank %u (%s)", rank, address);
    else
        snprintf(l.text, sizeof l.text, "rank %u", rank);
    return l;
}

/* "process 712 on node7 (10.0.0.7:4711)" */
static label process_of(const mr__talk *t, const mr__hello *h)
{
    label l;
    mr__address a;
    mr__talk_address(t, 0, &a);
    snprintf(l.text, sizeof l.text, "process %u on %.64s (%s)", h->process, h->node, a.text);
    return l;
}

static uint32_t next_rank(const mr__meeting *m)
{
    return (m->rank + 1) % m->world;
}

static uint32_t previous_rank(const mr__meeting *m)
{
    return (m->rank + m->world - 1) % m->world;
}

/* ---- beginning ---- */

static const char *address_of(const mr_cluster *c, uint32_t rank)
{
    const mr_tasks *chief = &c->tasks[MR_TASK_CHIEF];
    return rank < chief->n ? chief->addresses[rank]
                           : c->tasks[MR_TASK_WORKER].addresses[rank - chief->n];
}

static mr_code begin(mr__meeting *m, mr_status *st)
{
    int64_t rank = 0;
    MR_TRY(mr_cluster_worker(m->o->cluster, &rank, st));
    m->world = (uint32_t)mr_cluster_num_workers(m->o->cluster);
    if (m->world < 2) /* its address may not be known either */
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a job of one process has nobody to meet; start at least two, or train "
                       "without a cluster");
    m->rank = (uint32_t)rank;
    m->all_addresses = m->o->cluster->source == MR_CLUSTER_TF_CONFIG;
    m->known = mr_calloc(m->world, sizeof *m->known);
    if (!m->known)
        return mr_fail_memory(st, m->world * sizeof *m->known, "the ranks of a job");
    for (uint32_t i = 0; i < m->world; i++) {
        const char *address = address_of(m->o->cluster, i);
        if (strlen(address) >= sizeof m->known[i].address)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the address of rank %u is too long", i);
        snprintf(m->known[i].address, sizeof m->known[i].address, "%s", address);
        m->known[i].delay_ns = FIRST_DELAY_MS * (SECOND / 1000);
    }
    if (mr__sys->getrandom(m->hello.nonce, MR__NONCE, 0) != MR__NONCE)
        return mr_fail_errno(st, errno, "no random bytes");
    gethostname(m->node, sizeof m->node - 1);
    m->hello.rank = m->rank;
    m->hello.world = m->world;
    m->hello.process = (uint32_t)getpid();
    m->hello.node = m->node;
    m->hello.host_id = m->host_id;
    m->hello.local = m->local_name;
    m->hello.n_facts = m->o->n_facts;
    for (uint32_t i = 0; i < m->o->n_facts; i++)
        m->hello.facts[i] = m->o->facts[i];
    return mr__meeting_listen(m, st);
}

/* ---- dialing ---- */

static void try_later(mr__meeting *m, mr__known *k)
{
    k->dialing = false;
    k->dial_at_ns = m->now_ns + k->delay_ns;
    k->delay_ns *= 2;
    if (k->delay_ns > LONGEST_DELAY_MS * (SECOND / 1000))
        k->delay_ns = LONGEST_DELAY_MS * (SECOND / 1000);
}

static bool is_mine_to_dial(const mr__meeting *m, uint32_t rank)
{
    return rank < m->rank && (m->all_addresses || rank == 0 || m->table_came);
}

static mr_code dial_control(mr__meeting *m, mr_status *st)
{
    for (uint32_t i = 0; i < m->rank; i++) {
        mr__known *k = &m->known[i];
        mr__talk *t;
        if (k->met || k->dialing || !is_mine_to_dial(m, i) || k->dial_at_ns > m->now_ns)
            continue;
        MR_TRY(mr__meeting_dial(m, i, MR__CONTROL, NULL, &t, st));
        k->dialing = t != NULL;
        if (!t)
            try_later(m, k);
        else
            MR_TRY(mr__say_hello(&t->out, &m->hello, st));
    }
    return MR_OK;
}

/* Another process that has this rank, on another machine, would answer at our address. */
static mr_code dial_self(mr__meeting *m, mr_status *st)
{
    mr__talk *t;
    if (m->self_dialed || (!m->all_addresses && m->rank))
        return MR_OK;
    m->self_dialed = true;
    MR_TRY(mr__meeting_dial(m, m->rank, MR__SELF, NULL, &t, st));
    return t ? mr__say_hello(&t->out, &m->hello, st) : MR_OK;
}

/* Memory is shared where both can; the descriptor goes with the first bytes. */
static mr_code dial_next_locally(mr__meeting *m, mr__talk **out, mr_status *st)
{
    const mr__hello *peer = &m->known[next_rank(m)].hello;
    mr__saying first = {0};
    int fd = -1;
    mr_status why;
    *out = NULL;
    if (!m->local_name[0] || !peer->local[0] || peer->local[0] != '@' ||
        strcmp(peer->host_id, m->host_id) != 0)
        return MR_OK;
    if (mr__region_new(&m->next.region, &fd, &why) != MR_OK) {
        mr_log(MR_LOG_INFO, "values go to rank %u through a socket: %s", next_rank(m), why.message);
        return MR_OK;
    }
    mr_code rc = mr__meeting_dial(m, next_rank(m), MR__DATA, peer->local, out, st);
    if (rc == MR_OK && *out)
        rc = mr__say_data(&first, m->rank, peer->nonce, st);
    if (rc == MR_OK && *out)
        rc = mr__send_descriptor((*out)->fd, &first, fd, st);
    mr__saying_reset(&first);
    mr__sys->close(fd);
    if (rc != MR_OK || !*out) {
        mr__region_free(m->next.region);
        m->next.region = NULL;
    }
    return rc;
}

static mr_code dial_next(mr__meeting *m, mr_status *st)
{
    mr__known *k = &m->known[next_rank(m)];
    mr__talk *t;
    if (m->dialing_next || !m->compared || !*k->address || k->dial_at_ns > m->now_ns)
        return MR_OK;
    MR_TRY(dial_next_locally(m, &t, st));
    if (!t) {
        MR_TRY(mr__meeting_dial(m, next_rank(m), MR__DATA, NULL, &t, st));
        if (t)
            MR_TRY(mr__say_data(&t->out, m->rank, k->hello.nonce, st));
    }
    m->dialing_next = t != NULL;
    if (!t)
        try_later(m, k);
    return MR_OK;
}

/* ---- what peers say ---- */

static mr_code compare_all(mr__meeting *m, mr_status *st)
{
    for (uint32_t i = 0; i < m->world; i++)
        if (m->known[i].met)
            MR_TRY(mr__compare_facts(&m->hello, &m->known[i].hello, name_of(m, i).text, st));
    return MR_OK;
}

static mr_code send_table(mr__meeting *m, mr_status *st)
{
    const char **addresses = mr_calloc(m->world, sizeof *addresses);
    if (!addresses)
        return mr_fail_memory(st, m->world * sizeof *addresses, "addresses");
    mr_code rc = MR_OK;
    for (uint32_t i = 0; i < m->world; i++)
        addresses[i] = m->known[i].address;
    for (uint32_t i = 1; i < m->world && rc == MR_OK; i++)
        rc = mr__say_table(&m->known[i].control->out, addresses, m->world, st);
    mr_free(addresses);
    return rc;
}

static mr_code everybody_is_there(mr__meeting *m, mr_status *st)
{
    if (m->rank == 0 && !m->all_addresses)
        MR_TRY(send_table(m, st));
    MR_TRY(compare_all(m, st));
    m->compared = true;
    return MR_OK;
}

static mr_code two_of_a_rank(mr__meeting *m, const mr__talk *t, const mr__hello *h, mr_status *st)
{
    label other = process_of(t, h);
    if (h->rank == m->rank)
        return mr_fail(st, MR_ALREADY_EXISTS,
                       "two processes are rank %u of the job: process %u on %.64s (%s) and %s; "
                       "each task needs an index of its own",
                       h->rank, m->hello.process, m->node, m->known[m->rank].address, other.text);
    const mr__known *k = &m->known[h->rank];
    return mr_fail(st, MR_ALREADY_EXISTS,
                   "two processes are rank %u of the job: %s and %s; each task needs an index of "
                   "its own",
                   h->rank, process_of(k->control, &k->hello).text, other.text);
}

static mr_code check_hello(mr__meeting *m, const mr__talk *t, const mr__hello *h, mr_status *st)
{
    if (h->world != m->world)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the job has %u processes here and %u on rank %u, %s; all need the same "
                       "description of the cluster",
                       m->world, h->world, h->rank, process_of(t, h).text);
    if (h->rank >= m->world)
        return mr_fail(st, MR_DATA_LOSS, "%s says that it is rank %u of %u", process_of(t, h).text,
                       h->rank, m->world);
    if (h->rank == m->rank || m->known[h->rank].met)
        return two_of_a_rank(m, t, h, st);
    if (!t->incoming && h->rank != t->rank)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is rank %u, where rank %u was expected; the tasks have different "
                       "descriptions of the cluster",
                       process_of(t, h).text, h->rank, t->rank);
    return MR_OK;
}

static mr_code take_hello(mr__meeting *m, mr__talk *t, mr_status *st)
{
    mr__hello h;
    if (mr__read_hello(t->payload, t->bytes, &h, NULL) != MR_OK || (t->incoming && t->local)) {
        mr__talk_end(t);
        return MR_OK;
    }
    if (memcmp(h.nonce, m->hello.nonce, MR__NONCE) == 0) { /* this process */
        mr__talk_end(t);
        return MR_OK;
    }
    /* Also to one that is refused: it compares too, and says what it finds. */
    if (t->incoming)
        MR_TRY(mr__say_hello(&t->out, &m->hello, st));
    MR_TRY(check_hello(m, t, &h, st));
    mr__known *k = &m->known[h.rank];
    k->hello = h;
    k->hello_bytes = t->payload; /* the texts of the hello point into it */
    t->payload = NULL;
    k->met = true;
    k->dialing = false;
    k->dial_at_ns = 0;
    k->delay_ns = FIRST_DELAY_MS * (SECOND / 1000);
    k->control = t;
    t->role = MR__CONTROL;
    t->rank = h.rank;
    if (!m->all_addresses && h.rank) {
        mr__address a;
        mr__talk_address(t, h.port, &a);
        if (t->incoming && m->rank == 0)
            snprintf(k->address, sizeof k->address, "%s", a.text);
    }
    return ++m->n_met == m->world - 1 ? everybody_is_there(m, st) : MR_OK;
}

static mr_code take_table(mr__meeting *m, const mr__talk *t, mr_status *st)
{
    const char **addresses = mr_calloc(m->world, sizeof *addresses);
    if (!addresses)
        return mr_fail_memory(st, m->world * sizeof *addresses, "addresses");
    mr_code rc = mr__read_table(t->payload, t->bytes, addresses, m->world, st);
    for (uint32_t i = 1; i < m->world && rc == MR_OK; i++)
        snprintf(m->known[i].address, sizeof m->known[i].address, "%s", addresses[i]);
    mr_free(addresses);
    m->table_came = true;
    return rc;
}

static mr_code take_data(mr__meeting *m, mr__talk *t, mr_status *st)
{
    uint32_t rank = 0;
    uint8_t nonce[MR__NONCE] = {0};
    bool good = t->incoming && m->prev.fd < 0 &&
                mr__read_data(t->payload, t->bytes, &rank, nonce, NULL) == MR_OK &&
                rank == previous_rank(m) && memcmp(nonce, m->hello.nonce, MR__NONCE) == 0 &&
                t->local == (t->passed >= 0);
    if (!good) {
        mr__talk_end(t);
        return MR_OK;
    }
    if (t->local)
        MR_TRY(mr__region_map(&m->prev.region, t->passed, st));
    t->role = MR__DATA;
    t->rank = rank;
    m->prev.fd = t->fd;
    return mr__say(&t->out, MR__SAY_READY, st);
}

static mr_code take_abort(mr__meeting *m, const mr__talk *t, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    MR_TRY(mr__read_abort(t->payload, t->bytes, &why, st));
    MR_TRY(compare_all(m, st)); /* what differs from this process is said from its own side */
    return mr_fail(st, why.code, "%s ended: %s", name_of(m, t->rank).text, why.message);
}

static mr_code take(mr__meeting *m, mr__talk *t, mr_status *st)
{
    if (t->word == MR__SAY_HELLO && (t->role != MR__CONTROL || !m->known[t->rank].met))
        return take_hello(m, t, st);
    if (t->word == MR__SAY_ABORT && t->role != MR__INCOMING)
        return take_abort(m, t, st);
    if (t->word == MR__SAY_TABLE && t->role == MR__CONTROL && t->rank == 0 && !m->table_came &&
        !m->all_addresses)
        return take_table(m, t, st);
    if (t->word == MR__SAY_DATA && t->role == MR__INCOMING)
        return take_data(m, t, st);
    if (t->word == MR__SAY_READY && t->role == MR__DATA && !t->incoming) {
        m->next_ready = true;
        m->next.fd = t->fd;
        return MR_OK;
    }
    if (t->word == MR__SAY_ALIVE && t->role == MR__CONTROL)
        return MR_OK;
    if (t->role == MR__INCOMING) {
        mr__talk_end(t);
        return MR_OK;
    }
    return mr_fail(st, MR_DATA_LOSS, "%s sent message %d while the processes were meeting",
                   name_of(m, t->rank).text, (int)t->word);
}

/* ---- ends of connections ---- */

static mr_code lost(mr__meeting *m, mr__talk *t, const mr_status *why, mr_status *st)
{
    mr__known *k = &m->known[t->rank];
    bool other_version = why->code == MR_FAILED_PRECONDITION;
    if (t->role == MR__INCOMING && other_version) {
        mr__address a;
        mr__talk_address(t, 0, &a);
        MR_TRY(mr__say_hello(&t->out, &m->hello, st)); /* so that it sees our version */
        return mr_fail(st, why->code, "%s: %s", a.text, why->message);
    }
    mr__talk_end(t);
    switch (t->role) {
    case MR__INCOMING:
        mr_log(MR_LOG_INFO, "a connection that is no peer's was closed: %s", why->message);
        return MR_OK;
    case MR__SELF:
        return MR_OK;
    case MR__CONTROL:
        if (k->met)
            return mr_fail(st, MR_UNAVAILABLE, "%s ended while the processes were meeting: %s",
                           name_of(m, t->rank).text, why->message);
        if (other_version || why->code == MR_DATA_LOSS)
            return mr_fail(st, why->code, "%s: %s", name_of(m, t->rank).text, why->message);
        snprintf(k->error, sizeof k->error, "%.150s", why->message);
        try_later(m, k);
        return MR_OK;
    default:
        if (!t->connecting)
            return mr_fail(st, MR_UNAVAILABLE, "the connection for values with %s broke: %s",
                           name_of(m, t->rank).text, why->message);
        m->dialing_next = false;
        try_later(m, k);
        return MR_OK;
    }
}

static mr_code serve(mr__meeting *m, mr__talk *t, short events, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
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
    }
    if (t->out.size && !mr__talk_send(t, &why))
        return lost(m, t, &why, st);
    while (t->fd >= 0 && t->fd != m->next.fd && t->fd != m->prev.fd) {
        bool whole;
        if (!mr__talk_receive(t, &whole, &why))
            return lost(m, t, &why, st);
        if (!whole)
            break;
        MR_TRY(take(m, t, st));
        mr__talk_next(t);
    }
    return MR_OK;
}

/* ---- the loop ---- */

/* Everything is connected, and nothing is under way that would be lost. */
static bool is_done(const mr__meeting *m)
{
    if (!m->compared || !m->next_ready || m->prev.fd < 0)
        return false;
    for (const mr__talk *t = m->talks; t; t = t->next)
        if ((t->role == MR__CONTROL || t->role == MR__DATA) && t->fd >= 0 &&
            (t->out.size || t->got || t->has_head))
            return false;
    return true;
}

static mr_code fail_missing(const mr__meeting *m, mr_status *st)
{
    char text[560] = "";
    size_t at = 0, n = 0;
    const mr__known *first = &m->known[0];
    if (!m->all_addresses && m->rank && first->met && !m->table_came)
        return mr_fail(st, MR_DEADLINE_EXCEEDED,
                       "after %g s, %s is there but still waits for others; start all %u tasks, or "
                       "give more time with --connect-timeout",
                       m->o->connect_timeout_s, name_of(m, 0).text, m->world);
    for (uint32_t i = 0; i < m->world; i++) {
        const mr__known *k = &m->known[i];
        /* Where rank 0 is not there, nobody knows of the others. */
        if (k->met || i == m->rank || (!k->address[0] && m->rank))
            continue;
        if (at > sizeof text - 100) {
            n++;
            continue;
        }
        const char *error = i < m->rank ? k->error : "";
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.120s%s%.60s", at ? ", " : "",
                               name_of(m, i).text, *error ? ": " : "", error);
    }
    if (!*text)
        snprintf(text, sizeof text, "%s to open the connection for values",
                 name_of(m, m->next_ready ? previous_rank(m) : next_rank(m)).text);
    char more[40] = "";
    if (n)
        snprintf(more, sizeof more, " and %zu more", n);
    return mr_fail(st, MR_DEADLINE_EXCEEDED, "after %g s, still waiting for %s%s (of %u tasks)",
                   m->o->connect_timeout_s, text, more, m->world);
}

/* When something is to be done by itself: a dial, or the end. */
static int64_t next_time(const mr__meeting *m)
{
    int64_t at = m->deadline_ns;
    for (uint32_t i = 0; i < m->rank; i++) {
        const mr__known *k = &m->known[i];
        if (!k->met && !k->dialing && is_mine_to_dial(m, i) && k->dial_at_ns < at)
            at = k->dial_at_ns;
    }
    if (m->compared && !m->dialing_next && *m->known[next_rank(m)].address &&
        m->known[next_rank(m)].dial_at_ns < at)
        at = m->known[next_rank(m)].dial_at_ns;
    return at;
}

static mr_code accept_all(mr__meeting *m, int listener, bool local, mr_status *st)
{
    mr__talk *t;
    do
        MR_TRY(mr__meeting_accept(m, listener, local, &t, st));
    while (t);
    return MR_OK;
}

/* One that says nothing is no peer. */
static void end_silent(mr__meeting *m)
{
    for (mr__talk *t = m->talks; t; t = t->next)
        if (t->fd >= 0 && t->role == MR__INCOMING && m->now_ns - t->since_ns > SILENT_S * SECOND)
            mr__talk_end(t);
}

static mr_code wait_and_serve(mr__meeting *m, int cancel_fd, mr_status *st)
{
    size_t n = 0, room = m->n_talks + 3;
    struct pollfd *p = mr_calloc(room, sizeof *p);
    mr__talk **of = mr_calloc(room, sizeof *of);
    mr_code rc = MR_OK;
    if (!p || !of)
        rc = mr_fail_memory(st, room * sizeof *p, "a list of connections");
    if (rc == MR_OK) {
        p[n++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = m->local_listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = cancel_fd, .events = POLLIN};
        for (mr__talk *t = m->talks; t; t = t->next) {
            bool taken = t->fd == m->next.fd || t->fd == m->prev.fd;
            short events =
                (short)((taken ? 0 : POLLIN) | (t->connecting || t->out.size ? POLLOUT : 0));
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
            rc = accept_all(m, m->listener, false, st);
        if (rc == MR_OK && rc_poll > 0 && p[1].revents)
            rc = accept_all(m, m->local_listener, true, st);
    }
    mr_free(p);
    mr_free(of);
    end_silent(m);
    mr__meeting_sweep(m);
    return rc;
}

static mr_code run(mr__meeting *m, mr_status *st)
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

/* The connections outlive the meeting. */
static mr_code give(mr__meeting *m, mr__met *out, mr_status *st)
{
    mr__member *members = mr_calloc(m->world, sizeof *members);
    if (!members)
        return mr_fail_memory(st, m->world * sizeof *members, "the ranks of a job");
    for (uint32_t i = 0; i < m->world; i++) {
        snprintf(members[i].address, sizeof members[i].address, "%s", m->known[i].address);
        members[i].fd = i == m->rank ? -1 : m->known[i].control->fd;
        if (i != m->rank)
            m->known[i].control->fd = -1;
    }
    for (mr__talk *t = m->talks; t; t = t->next)
        if (t->fd >= 0 && (t->fd == m->next.fd || t->fd == m->prev.fd))
            t->fd = -1;
    *out = (mr__met){m->rank, m->world, members, m->next, m->prev};
    m->next = m->prev = (mr__way){.fd = -1};
    return MR_OK;
}

mr_code mr__meet(const mr__meeting_opts *o, mr__met *out, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    mr__meeting m = {.o = o, .listener = -1, .local_listener = -1};
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
        mr__region_free(m.next.region);
        mr__region_free(m.prev.region);
    }
    mr__meeting_close(&m, rc == MR_OK ? NULL : &why);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

void mr__met_reset(mr__met *m)
{
    mr__way *ways[] = {&m->next, &m->prev};
    for (uint32_t i = 0; m->members && i < m->world; i++)
        if (m->members[i].fd >= 0)
            mr__sys->close(m->members[i].fd);
    mr_free(m->members);
    m->members = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (ways[i]->fd >= 0)
            mr__sys->close(ways[i]->fd);
        mr__region_free(ways[i]->region);
        *ways[i] = (mr__way){.fd = -1};
    }
}
