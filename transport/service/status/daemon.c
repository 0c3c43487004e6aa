/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

#define SECOND    ((int64_t)1000000000)
#define FINISH_NS (2 * SECOND) /* time to send what is queued, at the end */
enum {
    MOST_CONNECTIONS = 1024,
    SILENT_S = 10,
    SLEPT_S = 3 /* a longer gap between looks means that the process was suspended */
};

#define OF(member, p) ((mr__daemon *)((char *)(p)-offsetof(mr__daemon, member)))

void mr__daemon_fail(mr__daemon *d, const mr_status *why)
{
    if (d->failed.code == MR_OK)
        d->failed = *why;
    d->is_draining = true;
}

/* ---- connections ---- */

mr__guest *mr__daemon_guest(const mr__daemon *d, uint64_t id)
{
    return mr__id_map_get(&d->by_id, id);
}

static void guest_ready(mr__connection *c)
{
    mr__guest *g = (mr__guest *)c;
    g->is_ready = true;
    g->heard = mr__loop_now(g->daemon->loop);
    if (c->socket.is_local)
        snprintf(g->from, sizeof g->from, "process %u on this host", c->handshake.process);
    if (c->handshake.name[0]) {
        size_t n = strlen(g->from);
        snprintf(g->from + n, sizeof g->from - n, " (%s)", c->handshake.name);
    }
    if (g->daemon->is_draining)
        return;
    g->is_known = true;
    if (g->daemon->ready)
        g->daemon->ready(g);
}

static void guest_message(mr__connection *c, const mr__message *m)
{
    mr__guest *g = (mr__guest *)c;
    g->heard = mr__loop_now(g->daemon->loop);
    if (!g->daemon->is_draining && g->is_known)
        g->daemon->message(g, m);
}

static void guest_sent(mr__connection *c)
{
    mr__guest *g = (mr__guest *)c;
    if (g->daemon->sent)
        g->daemon->sent(g);
}

/* A guest that has left, also while an answer was under way. */
static bool has_left(const mr__guest *g, const mr_status *why)
{
    return g->is_ready && why->code == MR_UNAVAILABLE &&
           (g->daemon->may_leave || why->sys_errno == EPIPE || why->sys_errno == ECONNRESET);
}

static void guest_closed(mr__connection *c, const mr_status *why)
{
    mr__guest *g = (mr__guest *)c;
    mr__daemon *d = g->daemon;
    char text[2048];
    if (why->code != MR_OK && why->code != MR_END) {
        bool usual = has_left(g, why);
        mr_status_format(why, text, sizeof text);
        if (usual || (g->is_ready && mr__token_tells_peers(d->token)))
            mr_log(usual ? MR_LOG_DEBUG : MR_LOG_WARNING, "the connection from %s was closed: %s",
                   g->from, text);
        else
            mr__stranger_log_add(&d->strangers, mr__loop_now(d->loop), MR_LOG_WARNING,
                                 "the connection from %s was closed: %s", g->from, text);
    }
    if (g->prev)
        g->prev->next = g->next;
    else
        d->newest = g->next;
    if (g->next)
        g->next->prev = g->prev;
    else
        d->oldest = g->prev;
    d->n_guests--;
    d->said_full = false;
    mr__id_map_remove(&d->by_id, g->id);
    d->closed(g, g->is_known && !d->is_draining);
    mr_free(g);
}

/* A client's local connection is that of its TLS connection. */
static bool session_key(mr__connection *c, const uint8_t *id, uint8_t key[MR__TLS_KEY_BYTES])
{
    const mr__daemon *d = ((mr__guest *)c)->daemon;
    for (const mr__guest *g = d->newest; g; g = g->next)
        if (g->is_ready && g->c.is_secure && g->c.tls.session.is_open && !g->c.closing &&
            memcmp(g->c.tls.session.secret.id, id, MR__TLS_ID_BYTES) == 0) {
            memcpy(key, g->c.tls.session.secret.key, MR__TLS_KEY_BYTES);
            memcpy(c->handshake.name, g->c.handshake.name, sizeof c->handshake.name);
            return true;
        }
    return false;
}

static const mr__connection_class guests = {.ready = guest_ready,
                                            .message = guest_message,
                                            .closed = guest_closed,
                                            .sent = guest_sent,
                                            .session_key = session_key,
                                            .lends = true};

/* The connection that makes way for another: the oldest that has not completed its handshake, else
 * the one that has been silent longest, if that is too long. NULL: none. */
static mr__guest *most_idle(const mr__daemon *d)
{
    mr__guest *silent = NULL;
    int64_t since = mr__loop_now(d->loop) - SILENT_S * SECOND;
    for (mr__guest *g = d->oldest; g; g = g->prev) {
        if (g->c.closing)
            continue;
        if (!g->is_ready)
            return g;
        if (g->heard <= since) {
            since = g->heard - 1;
            silent = g;
        }
    }
    return silent;
}

/* Guests that seem silent while this process was suspended may have sent messages: all of them get
 * the full time again. */
static void heed_sleep(mr__daemon *d)
{
    int64_t now = mr__loop_now(d->loop), slept = now - d->looked;
    d->looked = now;
    if (slept < SLEPT_S * SECOND)
        return;
    for (mr__guest *g = d->newest; g; g = g->next)
        g->heard = g->heard + slept < now ? g->heard + slept : now;
}

static bool make_room(mr__daemon *d)
{
    mr_status why;
    if (d->n_guests < MOST_CONNECTIONS)
        return true;
    heed_sleep(d);
    mr__guest *g = most_idle(d);
    /* Twice as many only while those that were closed are not yet gone. */
    if (g && d->n_guests < 2 * MOST_CONNECTIONS) {
        if (g->is_ready)
            mr_fail(&why, MR_RESOURCE_EXHAUSTED,
                    "closed to make room for another connection: there are %d, and it has said "
                    "nothing for %d s",
                    MOST_CONNECTIONS, SILENT_S);
        else
            mr_fail(&why, MR_RESOURCE_EXHAUSTED,
                    "closed to make room for another connection: there are %d, and it has not "
                    "identified itself",
                    MOST_CONNECTIONS);
        mr__connection_close(&g->c, &why);
        return true;
    }
    if (!d->said_full)
        mr__stranger_log_add(&d->strangers, mr__loop_now(d->loop), MR_LOG_WARNING,
                             "connections are refused: there are %d", MOST_CONNECTIONS);
    d->said_full = true;
    return false;
}

static void take_in(mr__daemon *d, int fd)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    mr__address address;
    int64_t user;
    mr_status st;
    if (d->is_draining || !make_room(d)) {
        mr__sys->close(fd);
        return;
    }
    mr__guest *g = mr_calloc(1, d->guest_bytes);
    if (!g) {
        mr__sys->close(fd);
        mr__stranger_log_add(&d->strangers, mr__loop_now(d->loop), MR_LOG_WARNING,
                             "a connection was refused: out of memory");
        return;
    }
    strcpy(g->from, "an unknown peer");
    if (mr__sys->getpeername(fd, (struct sockaddr *)&from, &size) == 0) {
        mr__address_of((struct sockaddr *)&from, size, &address);
        snprintf(g->from, sizeof g->from, "%s", address.text);
        if (from.ss_family == AF_UNIX && (mr__address_is_own_user(fd, &user) || user >= 0))
            snprintf(g->from, sizeof g->from, "user %" PRId64 " on this host", user);
    }
    g->daemon = d;
    g->id = ++d->last_id;
    g->c.class_ = &guests;
    mr_code rc = mr__id_map_set(&d->by_id, g->id, g, &st);
    if (rc != MR_OK)
        mr__sys->close(fd);
    else
        rc = mr__connection_accept(&g->c, d->loop, fd, d->role, d->token, d->local_name, &st);
    if (rc != MR_OK) {
        mr__stranger_log_add(&d->strangers, mr__loop_now(d->loop), MR_LOG_WARNING,
                             "the connection from %s was refused: %s", g->from, st.message);
        mr__id_map_remove(&d->by_id, g->id);
        mr_free(g);
        return;
    }
    g->next = d->newest;
    if (d->newest)
        d->newest->prev = g;
    else
        d->oldest = g;
    d->newest = g;
    d->n_guests++;
}

static void accepted(mr__listener *l, int fd)
{
    take_in(OF(listener, l), fd);
}

static void accepted_locally(mr__listener *l, int fd)
{
    take_in(OF(local, l), fd);
}

static void local_closed(mr__listener *l)
{
    OF(local, l)->is_listening_locally = false;
}

static void listener_closed(mr__listener *l)
{
    OF(listener, l)->is_listening = false;
}

/* ---- beginning ---- */

mr_code mr__daemon_open(mr__daemon *d, mr__loop_kind kind, mr_status *st)
{
    d->alarm.fd = -1;
    mr_status_init(&d->failed);
    return mr__loop_open(kind, &d->loop, st);
}

/* Retries, because the kernel may hold the address of a process just killed for a moment. */
enum { LISTEN_TRIES = 20, LISTEN_PAUSE_NS = 50000000 };

mr_code mr__daemon_listen(mr__daemon *d, const char *listen, mr_status *st)
{
    mr__address at;
    MR_TRY(mr__address_resolve(listen, &at, st));
    d->listener.accepted = accepted;
    d->listener.closed = listener_closed;
    mr_code rc = mr__listen(d->loop, &d->listener, &at, st);
    for (int tries = 0; rc == MR_ALREADY_EXISTS && tries < LISTEN_TRIES; tries++) {
        struct timespec pause = {.tv_nsec = LISTEN_PAUSE_NS};
        nanosleep(&pause, NULL);
        rc = mr__listen(d->loop, &d->listener, &at, st);
    }
    d->is_listening = rc == MR_OK;
    return rc;
}

static void say_whom_it_admits(const mr__daemon *d)
{
    const char *at = d->listener.address.text;
    if (mr__address_is_loopback(&d->listener.address) || d->token.data ||
        mr__tls_is_mutual(d->token.tls))
        return;
    if (d->token.any_user)
        mr_log(MR_LOG_WARNING,
               "%s is open to other hosts and requires no token (--any-user): every process "
               "that can connect acts with this process's rights; set a token file (--token-file)",
               at);
    else
        mr_log(MR_LOG_WARNING,
               "%s is open to other hosts, but without a token they are refused; set a token file "
               "(--token-file)",
               at);
}

mr_code mr__daemon_listen_locally(mr__daemon *d, mr_status *st)
{
    mr__address at;
    mr_status why;
    d->local.accepted = accepted_locally;
    d->local.closed = local_closed;
    mr_code rc = mr__address_new_local(&at, &why);
    if (rc == MR_OK)
        rc = mr__listen(d->loop, &d->local, &at, &why);
    if (rc == MR_OK) {
        d->is_listening_locally = true;
        memcpy(d->local_name, at.text, sizeof d->local_name);
    } else if (d->token.data || d->token.any_user || mr__tls_is_mutual(d->token.tls)) {
        mr_log(MR_LOG_INFO, "peers on this host connect by TCP: %s", why.message);
    } else {
        if (st)
            *st = why;
        return rc;
    }
    say_whom_it_admits(d);
    return MR_OK;
}

/* A file that changes is read within a second, also while no peer connects. */
static void look(mr__timer *t)
{
    mr__daemon *d = OF(look, t);
    int64_t now = mr__loop_now(d->loop);
    heed_sleep(d);
    mr__tls_look(d->token.tls, now);
    mr__status_page_look(d->page);
    if (!d->is_draining && mr__timer_set(d->loop, t, now + SECOND, NULL) != MR_OK)
        mr_log(MR_LOG_WARNING, "out of memory: certificates are read again only when a peer "
                               "connects");
}

/* Cancelled, from another thread or a signal handler. */
static void rings(mr__alarm *a)
{
    OF(alarm, a)->is_draining = true;
}

mr_code mr__daemon_heed(mr__daemon *d, mr_cancel *cancel, mr_status *st)
{
    d->alarm.rings = rings;
    d->look.fire = look;
    d->looked = mr__loop_now(d->loop);
    MR_TRY(mr__timer_set(d->loop, &d->look, d->looked + SECOND, st));
    return mr__alarm_set(&d->alarm, d->loop, cancel, st);
}

mr_code mr__daemon_show(mr__daemon *d, const char *listen, const char *kind, const char *address,
                        const mr__status_table *tables, char *(*report)(void *ctx), void *ctx,
                        mr_status *st)
{
    char title[160];
    const mr__status_page_opts opts = {.listen = listen,
                                       .is_public = !mr__address_is_loopback(&d->listener.address),
                                       .title = title,
                                       .tables = tables,
                                       .tls = d->token.tls,
                                       .token = d->status_token.data ? &d->status_token : NULL,
                                       .loop = d->loop,
                                       .report = report,
                                       .ctx = ctx};
    snprintf(title, sizeof title, "Millrace %s %s", kind, address);
    return listen ? mr__status_page_open(&d->page, &opts, st) : MR_OK;
}

/* ---- serving, and the end ---- */

static void close_doors(mr__daemon *d)
{
    d->is_draining = true;
    mr__status_page_close(d->page);
    d->page = NULL;
    if (d->is_listening)
        mr__listener_close(&d->listener);
    if (d->is_listening_locally)
        mr__listener_close(&d->local);
    mr__alarm_clear(&d->alarm);
}

static mr_code close_all(mr__daemon *d, mr_status *st)
{
    while (d->newest || d->is_listening || d->is_listening_locally || d->alarm.is_set ||
           (d->is_busy && d->is_busy(d))) {
        for (mr__guest *g = d->is_over ? d->newest : NULL; g; g = g->next)
            mr__socket_close(&g->c.socket);
        MR_TRY(mr__loop_turn(d->loop, d->is_over ? mr__loop_now(d->loop) + SECOND : INT64_MAX, st));
    }
    return MR_OK;
}

static void finish_late(mr__timer *t)
{
    OF(finish, t)->is_over = true;
}

mr_code mr__daemon_serve(mr__daemon *d, mr_status *st)
{
    mr_status late;
    while (!d->is_draining)
        MR_TRY(mr__loop_turn(d->loop, INT64_MAX, st));
    close_doors(d);
    d->drain(d);
    for (mr__guest *g = d->newest; g; g = g->next)
        if (g->is_ready)
            mr__connection_finish(&g->c);
        else
            mr__connection_close(&g->c, NULL);
    d->finish.fire = finish_late;
    if (mr__timer_set(d->loop, &d->finish, mr__loop_now(d->loop) + FINISH_NS, &late) != MR_OK)
        d->is_over = true;
    MR_TRY(close_all(d, st));
    if (d->failed.code != MR_OK && st)
        *st = d->failed;
    return d->failed.code;
}

bool mr__daemon_stop(mr__daemon *d)
{
    mr_status st;
    d->is_over = true;
    close_doors(d);
    for (mr__guest *g = d->newest; g; g = g->next)
        mr__connection_close(&g->c, NULL);
    return !d->loop || close_all(d, &st) == MR_OK;
}

void mr__daemon_end(mr__daemon *d, bool closed)
{
    mr__id_map_reset(&d->by_id);
    mr__stranger_log_end(&d->strangers);
    if (d->loop) {
        mr__timer_clear(d->loop, &d->finish);
        mr__timer_clear(d->loop, &d->look);
    }
    if (closed)
        mr__loop_close(d->loop);
}
