/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client_connections.h"

#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

/* Maximum number of locations per message, and the bytes that justify a message: the sooner a
 * location is written again, the more of it is still cached. */
enum { GIVE_BACK = 256, GIVE_BACK_BYTES = 512 << 10 };

struct mr__client_connection {
    mr__connection c; /* first */
    mr__client_connection *next;
    mr__client_connections *set;
    char *address;      /* NULL: the dispatcher */
    mr__lookup *lookup; /* in progress; NULL: none */
    bool connects;      /* c is in use */
    bool is_ready, is_forgotten;
    mr__client_connection *local; /* being tried: the local socket of the same worker */
    mr__client_connection *of;    /* the TCP connection that this one is tried for */
    mr__borrower *memory;         /* shared by the worker; NULL: none (yet) */
    mr__posted fails;             /* posted if the lookup could not be started */
    mr__tls_secret secret;        /* of `of`, if that is encrypted: it is this one's token */
    mr_status why;
};

static bool is_to(const mr__client_connection *x, const char *address)
{
    return address && x->address ? strcmp(address, x->address) == 0 : address == x->address;
}

static mr__client_connection *find(const mr__client_connections *set, const char *address)
{
    for (mr__client_connection *x = set->first; x; x = x->next)
        if (!x->is_forgotten && !x->of && is_to(x, address))
            return x;
    return NULL;
}

static void unlist(mr__client_connection *x)
{
    mr__client_connection **at = &x->set->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    if (x->of)
        x->of->local = NULL;
    if (x->local)
        x->local->of = NULL;
}

static void free_connection(mr__client_connection *x)
{
    mr__borrower_unref(x->memory);
    mr_free(x->address);
    mr_free(x);
}

static mr__client_connection *add(mr__client_connections *set, const char *address)
{
    mr__client_connection *x = mr_calloc(1, sizeof *x);
    if (!x || (address && !(x->address = mr_strdup(address)))) {
        mr_free(x);
        return NULL;
    }
    x->set = set;
    x->next = set->first;
    set->first = x;
    return x;
}

/* x becomes the connection to its worker or the dispatcher. */
static void serve(mr__client_connection *x)
{
    x->is_ready = true;
    x->set->out->opened(x->set->ctx, x->address);
}

/* Keeps the TCP connection x, because the worker's local socket cannot be reached. */
static void stay(mr__client_connection *x)
{
    mr_status why;
    if (x->set->transfer != MR__TRANSFER_SHARED_MEMORY) {
        serve(x);
        return;
    }
    mr_fail(&why, MR_INVALID_ARGUMENT,
            "transfer=\"shared_memory\" needs workers on this host, but worker %s is on another; "
            "leave it out, or add target_workers=\"local\"",
            x->address);
    mr__connection_close(&x->c, &why);
}

/* x is closed: informs the owner, unless the owner closed it. why may be a part of x. */
static void over(mr__client_connection *x, const mr_status *why)
{
    mr__client_connection *of = x->of, *local = x->local;
    unlist(x);
    if (local) {
        local->is_forgotten = true;
        mr__connection_close(&local->c, NULL);
    }
    if (of && !of->is_forgotten)
        stay(of);
    else if (!of && !x->is_forgotten)
        x->set->out->closed(x->set->ctx, x->address, why);
    free_connection(x);
}

static bool
try_locally(mr__client_connection *x); /* defined below, after the callbacks that it needs */

static void forget(mr__client_connection *x, bool finish)
{
    x->is_forgotten = true;
    if (x->local)
        forget(x->local, false);
    if (x->lookup) {
        mr__lookup_abandon(x->lookup);
        unlist(x);
        free_connection(x);
    } else if (x->connects && finish && x->is_ready) {
        mr__connection_finish(&x->c);
    } else if (x->connects) {
        mr__connection_close(&x->c, NULL);
    } /* else `fails` is posted and frees it */
}

static void ready(mr__connection *c)
{
    mr__client_connection *x = (mr__client_connection *)c;
    Mr__Wire__Role want = x->address ? MR__WIRE__ROLE__WORKER : MR__WIRE__ROLE__DISPATCHER;
    mr_status why;
    if (x->is_forgotten)
        return;
    if (c->handshake.peer_role != want) {
        mr_fail(&why, x->address ? MR_UNAVAILABLE : MR_FAILED_PRECONDITION,
                "expected a %s at %s, found another part of a service",
                x->address ? "worker" : "dispatcher", x->address ? x->address : x->set->service);
        mr__connection_close(c, &why);
        return;
    }
    if (x->of) { /* it replaces the TCP connection */
        mr__client_connection *of = x->of;
        x->of = of->local = NULL;
        forget(of, false);
        serve(x);
    } else if (!x->address || x->set->transfer == MR__TRANSFER_TCP || c->socket.is_local) {
        serve(x);
    } else if (!try_locally(x)) {
        stay(x);
    }
}

/* The worker's memory, which is sent before its first block. */
static mr_code take_memory(mr__client_connection *x, const Mr__Wire__Memory *m, mr_status *st)
{
    int fd = mr__socket_take_passed(&x->c.socket);
    if (fd < 0 || x->memory) {
        if (fd >= 0)
            mr__sys->close(fd);
        return mr_fail(st, MR_DATA_LOSS, "worker %s shared no memory, or shared it more than once",
                       x->address);
    }
    mr_code rc = mr__borrower_new(&x->memory, fd, (size_t)m->bytes, st);
    mr__sys->close(fd);
    return rc;
}

/* transfer="shared_memory": final, since another try would fail too. */
static void say_unmapped(const mr__client_connection *x, mr_status *st)
{
    mr_fail(st, MR_FAILED_PRECONDITION,
            "transfer=\"shared_memory\": cannot map the shared memory of worker %s: %.300s; omit "
            "transfer to use TCP",
            x->address, st->message);
}

static void message(mr__connection *c, const mr__message *m)
{
    mr__client_connection *x = (mr__client_connection *)c;
    mr_status st;
    if (x->is_forgotten || !x->is_ready)
        return;
    if (x->address && m->body_case == MR__WIRE__MESSAGE__BODY_MEMORY) {
        if (take_memory(x, m->memory, &st) != MR_OK) {
            if (x->set->transfer == MR__TRANSFER_AUTO) { /* the next connection uses TCP */
                x->set->transfer = MR__TRANSFER_TCP;
                st.code = MR_UNAVAILABLE;
            } else {
                say_unmapped(x, &st);
            }
            mr__connection_close(c, &st);
        }
    } else
        x->set->out->message(x->set->ctx, x->address, m);
}

/* *payload = the part of the shared memory that the head refers to. */
static mr_code borrow(mr__client_connection *x, mr__incoming *head, mr_buffer **payload,
                      mr_status *st)
{
    mr_buffer *there;
    if (!x->memory)
        return mr_fail(st, MR_DATA_LOSS, "a block in shared memory, but no memory is shared");
    MR_TRY(mr__borrower_wrap(x->memory, head->memory_at, head->memory, head->raw, &there, st));
    head->shared = mr__borrower_memory(x->memory, &head->shared_bytes);
    mr_buffer_unref(*payload);
    *payload = there;
    return MR_OK;
}

static void block(mr__connection *c, const mr__incoming *head, mr_buffer *payload)
{
    mr__client_connection *x = (mr__client_connection *)c;
    mr__incoming in = *head;
    mr_status st;
    if (x->is_forgotten || (in.memory && borrow(x, &in, &payload, &st) != MR_OK)) {
        mr_buffer_unref(payload);
        if (!x->is_forgotten)
            mr__connection_close(c, &st);
    } else if (x->set->out->block(x->set->ctx, x->address, &in, payload, &st) != MR_OK)
        mr__connection_close(c, &st);
}

static void closed(mr__connection *c, const mr_status *why)
{
    over((mr__client_connection *)c, why);
}

static const mr__connection_class
    connections = {.ready = ready, .message = message, .block = block, .closed = closed},
    tcp_connections = {
        .ready = ready, .message = message, .block = block, .closed = closed, .no_memory = true};

static bool try_locally(mr__client_connection *x)
{
    mr__address to;
    mr_status st;
    const char *name = x->c.handshake.local;
    if (name[0] != '@' || mr__address_resolve(name, &to, &st) != MR_OK)
        return false;
    mr__client_connection *y = add(x->set, x->address);
    if (!y)
        return false;
    y->c.class_ = &connections;
    mr__token token = x->set->token;
    if (x->c.is_secure) {
        y->secret = x->c.tls.session.secret;
        token.data = y->secret.key;
        token.bytes = sizeof y->secret.key;
        token.session = y->secret.id;
    }
    if (mr__connection_open(&y->c, x->set->loop, &to, MR__WIRE__ROLE__CLIENT, token, &st) !=
        MR_OK) {
        unlist(y);
        free_connection(y);
        return false;
    }
    y->connects = true;
    y->of = x;
    x->local = y;
    return true;
}

static void fails(mr__posted *p)
{
    mr__client_connection *x =
        (mr__client_connection *)((char *)p - offsetof(mr__client_connection, fails));
    over(x, &x->why);
}

static void fail_later(mr__client_connection *x, const mr_status *why)
{
    x->why = *why;
    x->fails.run = fails;
    mr__loop_post(x->set->loop, &x->fails);
}

static void looked_up(void *ctx, const mr__address *to, const mr_status *why)
{
    mr__client_connection *x = ctx;
    mr_status st;
    x->lookup = NULL;
    if (!to) {
        over(x, why);
        return;
    }
    x->c.class_ =
        x->address && x->set->transfer == MR__TRANSFER_TCP ? &tcp_connections : &connections;
    if (mr__connection_open(&x->c, x->set->loop, to, MR__WIRE__ROLE__CLIENT, x->set->token, &st) ==
        MR_OK)
        x->connects = true;
    else
        over(x, &st);
}

void mr__client_connections_init(mr__client_connections *set, mr__loop *l, const char *service,
                                 mr__transfer transfer, mr__token token,
                                 const mr__client_connections_out *out, void *ctx)
{
    *set = (mr__client_connections){.loop = l,
                                    .service = service,
                                    .transfer = transfer,
                                    .token = token,
                                    .out = out,
                                    .ctx = ctx};
}

void mr__client_connections_open(mr__client_connections *set, const char *address)
{
    mr_status st;
    mr__client_connection *x = add(set, address);
    if (!x) { /* waits for it end by stall_timeout or a cancel */
        mr_log(MR_LOG_ERROR, "out of memory for a connection");
        return;
    }
    if (mr__lookup_start(&x->lookup, set->loop, address ? address : set->service, looked_up, x,
                         &st) != MR_OK) {
        x->lookup = NULL;
        fail_later(x, &st);
    }
}

void mr__client_connections_send(mr__client_connections *set, const char *address,
                                 const mr__message *m)
{
    mr__client_connection *x = find(set, address);
    mr_status st;
    if (x && x->is_ready && mr__connection_send(&x->c, m, &st) != MR_OK)
        mr__connection_close(&x->c, &st);
}

void mr__client_connections_close(mr__client_connections *set, const char *address)
{
    mr__client_connection *x = find(set, address);
    if (x)
        forget(x, false);
}

static void give_back(mr__client_connection *x, size_t least_bytes)
{
    uint64_t at[GIVE_BACK];
    mr_status st;
    size_t n;
    while ((n = mr__borrower_done(x->memory, least_bytes, at, GIVE_BACK))) {
        Mr__Wire__GiveBack back = MR__WIRE__GIVE_BACK__INIT;
        back.n_at = n;
        back.at = at;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        m.body_case = MR__WIRE__MESSAGE__BODY_GIVE_BACK;
        m.give_back = &back;
        if (mr__connection_send(&x->c, &m, &st) != MR_OK) {
            mr__connection_close(&x->c, &st);
            return;
        }
        least_bytes = 0;
    }
}

void mr__client_connections_give_back(mr__client_connections *set, bool all)
{
    for (mr__client_connection *x = set->first; x; x = x->next)
        if (x->memory && x->is_ready && !x->is_forgotten && !x->c.closing)
            give_back(x, all ? 0 : GIVE_BACK_BYTES);
}

void mr__client_connections_finish(mr__client_connections *set)
{
    for (mr__client_connection *x = set->first, *next; x; x = next) {
        next = x->next;
        forget(x, true);
    }
}

void mr__client_connections_close_all(mr__client_connections *set)
{
    for (mr__client_connection *x = set->first; x; x = x->next)
        if (x->connects)
            mr__socket_close(&x->c.socket);
}

bool mr__client_connections_are_closed(const mr__client_connections *set)
{
    return !set->first;
}
