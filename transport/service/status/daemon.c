/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/daemon.h"

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
#define FINISH_NS (2 * SECOND) /* for what is queued, when it ends */
enum { MOST_CONNECTIONS = 1024 };

#define OF(member, p) ((mr__server *)((char *)(p)-offsetof(mr__server, member)))

void mr__server_fail(mr__server *s, const mr_status *why)
{
    if (s->failed.code == MR_OK)
        s->failed = *why;
    s->is_draining = true;
}

/* ---- connections ---- */

mr__guest *mr__server_guest(const mr__server *s, uint64_t id)
{
    return mr__id_map_get(&s->by_id, id);
}

static void guest_ready(mr__connection *c)
{
    mr__guest *g = (mr__guest *)c;
    g->is_ready = true;
    if (g->server->is_draining)
        return;
    g->is_known = true;
    if (g->server->ready)
        g->server->ready(g);
}

static void guest_message(mr__connection *c, const mr__message *m)
{
    mr__guest *g = (mr__guest *)c;
    if (!g->server->is_draining && g->is_known)
        g->server->message(g, m);
}

static void guest_sent(mr__connection *c)
{
    mr__guest *g = (mr__guest *)c;
    if (g->server->sent)
        g->server->sent(g);
}

static void guest_closed(mr__connection *c, const mr_status *why)
{
    mr__guest *g = (mr__guest *)c;
    mr__server *s = g->server;
    char text[2048];
    if (why->code != MR_OK && why->code != MR_END) {
        bool usual = s->may_leave && g->is_ready && why->code == MR_UNAVAILABLE;
        mr_status_format(why, text, sizeof text);
        mr_log(usual ? MR_LOG_DEBUG : MR_LOG_WARNING, "the connection from %s was closed: %s",
               g->from, text);
    }
    if (g->prev)
        g->prev->next = g->next;
    else
        s->newest = g->next;
    if (g->next)
        g->next->prev = g->prev;
    else
        s->oldest = g->prev;
    s->n_guests--;
    s->said_full = false;
    mr__id_map_remove(&s->by_id, g->id);
    s->closed(g, g->is_known && !s->is_draining);
    mr_free(g);
}

static const mr__connection_class guests = {.ready = guest_ready,
                                            .message = guest_message,
                                            .closed = guest_closed,
                                            .sent = guest_sent,
                                            .lends = true};

/* Room for one more: the oldest that has not shaken hands makes way. */
static bool make_room(mr__server *s)
{
    mr_status why;
    if (s->n_guests < MOST_CONNECTIONS)
        return true;
    mr__guest *g = s->oldest;
    while (g && (g->is_ready || g->c.closing))
        g = g->prev;
    /* Twice as many only while those that were closed are not yet gone. */
    if (g && s->n_guests < 2 * MOST_CONNECTIONS) {
        mr_fail(&why, MR_RESOURCE_EXHAUSTED,
                "it made way for another one: there are %d, and it has not said who it is",
                MOST_CONNECTIONS);
        mr__connection_close(&g->c, &why);
        return true;
    }
    if (!s->said_full)
        mr_log(MR_LOG_WARNING, "connections are refused: there are %d", MOST_CONNECTIONS);
    s->said_full = true;
    return false;
}

static void take_in(mr__server *s, int fd)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    mr__address address;
    mr_status st;
    if (s->is_draining || !make_room(s)) {
        mr__sys->close(fd);
        return;
    }
    mr__guest *g = mr_calloc(1, s->guest_bytes);
    if (!g) {
        mr__sys->close(fd);
        mr_log(MR_LOG_WARNING, "a connection was refused: out of memory");
        return;
    }
    strcpy(g->from, "an unknown peer");
    if (mr__sys->getpeername(fd, (struct sockaddr *)&from, &size) == 0) {
        mr__address_of((struct sockaddr *)&from, size, &address);
        memcpy(g->from, address.text, sizeof g->from);
    }
    g->server = s;
    g->id = ++s->last_id;
    g->c.class_ = &guests;
    mr_code rc = mr__id_map_set(&s->by_id, g->id, g, &st);
    if (rc != MR_OK)
        mr__sys->close(fd);
    else
        rc = mr__connection_accept(&g->c, s->loop, fd, s->role, s->token, s->local_name, &st);
    if (rc != MR_OK) {
        mr_log(MR_LOG_WARNING, "the connection from %s was refused: %s", g->from, st.message);
        mr__id_map_remove(&s->by_id, g->id);
        mr_free(g);
        return;
    }
    g->next = s->newest;
    if (s->newest)
        s->newest->prev = g;
    else
        s->oldest = g;
    s->newest = g;
    s->n_guests++;
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

mr_code mr__server_open(mr__server *s, mr__loop_kind kind, mr_status *st)
{
    s->alarm.fd = -1;
    mr_status_init(&s->failed);
    return mr__loop_open(kind, &s->loop, st);
}

/* For the address of one that was just killed, which the kernel may hold for a moment more. */
enum { LISTEN_TRIES = 20, LISTEN_PAUSE_NS = 50000000 };

mr_code mr__server_listen(mr__server *s, const char *listen, mr_status *st)
{
    mr__address at;
    MR_TRY(mr__address_resolve(listen, &at, st));
    s->listener.accepted = accepted;
    s->listener.closed = listener_closed;
    mr_code rc = mr__listen(s->loop, &s->listener, &at, st);
    for (int tries = 0; rc == MR_ALREADY_EXISTS && tries < LISTEN_TRIES; tries++) {
        struct timespec pause = {.tv_nsec = LISTEN_PAUSE_NS};
        nanosleep(&pause, NULL);
        rc = mr__listen(s->loop, &s->listener, &at, st);
    }
    s->is_listening = rc == MR_OK;
    return rc;
}

void mr__server_listen_locally(mr__server *s)
{
    uint64_t name[2];
    mr__address at;
    mr_status st;
    if (mr__sys->getrandom(name, sizeof name, 0) != (ssize_t)sizeof name)
        return;
    snprintf(s->local_name, sizeof s->local_name, "@millrace-%016" PRIx64 "%016" PRIx64, name[0],
             name[1]);
    s->local.accepted = accepted_locally;
    s->local.closed = local_closed;
    if (mr__address_resolve(s->local_name, &at, &st) == MR_OK &&
        mr__listen(s->loop, &s->local, &at, &st) == MR_OK) {
        s->is_listening_locally = true;
        return;
    }
    s->local_name[0] = '\0';
    mr_log(MR_LOG_INFO, "peers of this host come by TCP: %s", st.message);
}

/* Cancelled, from another thread or a signal handler. */
static void rings(mr__alarm *a)
{
    OF(alarm, a)->is_draining = true;
}

mr_code mr__server_heed(mr__server *s, mr_cancel *cancel, mr_status *st)
{
    s->alarm.rings = rings;
    return mr__alarm_set(&s->alarm, s->loop, cancel, st);
}

mr_code mr__server_show(mr__server *s, const char *listen, const char *kind, const char *address,
                        const mr__status_table *tables, char *(*report)(void *ctx), void *ctx,
                        mr_status *st)
{
    char title[160];
    const mr__status_page_opts opts = {.listen = listen,
                                       .is_public = !mr__address_is_loopback(&s->listener.address),
                                       .title = title,
                                       .tables = tables,
                                       .loop = s->loop,
                                       .report = report,
                                       .ctx = ctx};
    snprintf(title, sizeof title, "Millrace %s %s", kind, address);
    return listen ? mr__status_page_open(&s->page, &opts, st) : MR_OK;
}

/* ---- serving, and the end ---- */

static void close_doors(mr__server *s)
{
    s->is_draining = true;
    mr__status_page_close(s->page);
    s->page = NULL;
    if (s->is_listening)
        mr__listener_close(&s->listener);
    if (s->is_listening_locally)
        mr__listener_close(&s->local);
    mr__alarm_clear(&s->alarm);
}

static mr_code close_all(mr__server *s, mr_status *st)
{
    while (s->newest || s->is_listening || s->is_listening_locally || s->alarm.is_set ||
           (s->is_busy && s->is_busy(s))) {
        for (mr__guest *g = s->is_over ? s->newest : NULL; g; g = g->next)
            mr__socket_close(&g->c.socket);
        MR_TRY(mr__loop_turn(s->loop, s->is_over ? mr__loop_now(s->loop) + SECOND : INT64_MAX, st));
    }
    return MR_OK;
}

static void finish_late(mr__timer *t)
{
    OF(finish, t)->is_over = true;
}

mr_code mr__server_serve(mr__server *s, mr_status *st)
{
    mr_status late;
    while (!s->is_draining)
        MR_TRY(mr__loop_turn(s->loop, INT64_MAX, st));
    close_doors(s);
    s->drain(s);
    for (mr__guest *g = s->newest; g; g = g->next)
        if (g->is_ready)
            mr__connection_finish(&g->c);
        else
            mr__connection_close(&g->c, NULL);
    s->finish.fire = finish_late;
    if (mr__timer_set(s->loop, &s->finish, mr__loop_now(s->loop) + FINISH_NS, &late) != MR_OK)
        s->is_over = true;
    MR_TRY(close_all(s, st));
    if (s->failed.code != MR_OK && st)
        *st = s->failed;
    return s->failed.code;
}

bool mr__server_stop(mr__server *s)
{
    mr_status st;
    s->is_over = true;
    close_doors(s);
    for (mr__guest *g = s->newest; g; g = g->next)
        mr__connection_close(&g->c, NULL);
    return !s->loop || close_all(s, &st) == MR_OK;
}

void mr__server_end(mr__server *s, bool closed)
{
    mr__id_map_reset(&s->by_id);
    if (s->loop)
        mr__timer_clear(s->loop, &s->finish);
    if (closed)
        mr__loop_close(s->loop);
}
