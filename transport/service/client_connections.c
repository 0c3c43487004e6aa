/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client_connections.h"

#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

/* Places in one message, and bytes that are worth one: the sooner a place is written again, the
 * more of it the caches still have. */
enum { GIVE_BACK = 256, GIVE_BACK_BYTES = 512 << 10 };

struct mr__dial {
    mr__connection c; /* first */
    mr__dial *next;
    mr__dials *dials;
    char *address;      /* NULL: the dispatcher */
    mr__lookup *lookup; /* under way */
    bool connects;      /* c is in use */
    bool is_ready, is_forgotten;
    mr__dial *local;      /* tried meanwhile: the same worker by its local socket */
    mr__dial *of;         /* that it is tried for */
    mr__borrower *memory; /* that the worker shares; NULL: none (yet) */
    mr__posted fails;     /* it could not be begun */
    mr_status why;
};

static bool is_to(const mr__dial *x, const char *address)
{
    return address && x->address ? strcmp(address, x->address) == 0 : address == x->address;
}

static mr__dial *find(const mr__dials *d, const char *address)
{
    for (mr__dial *x = d->first; x; x = x->next)
        if (!x->is_forgotten && !x->of && is_to(x, address))
            return x;
    return NULL;
}

static void unlist(mr__dial *x)
{
    mr__dial **at = &x->dials->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    if (x->of)
        x->of->local = NULL;
    if (x->local)
        x->local->of = NULL;
}

static void free_dial(mr__dial *x)
{
    mr__borrower_unref(x->memory);
    mr_free(x->address);
    mr_free(x);
}

static mr__dial *add(mr__dials *d, const char *address)
{
    mr__dial *x = mr_calloc(1, sizeof *x);
    if (!x || (address && !(x->address = mr_strdup(address)))) {
        mr_free(x);
        return NULL;
    }
    x->dials = d;
    x->next = d->first;
    d->first = x;
    return x;
}

/* The worker is talked to over x. */
static void serve(mr__dial *x)
{
    x->is_ready = true;
    x->dials->out->opened(x->dials->ctx, x->address);
}

/* x, which was reached, cannot be reached locally. */
static void stay(mr__dial *x)
{
    mr_status why;
    if (x->dials->transfer != MR__TRANSFER_SHARED_MEMORY) {
        serve(x);
        return;
    }
    mr_fail(&why, MR_INVALID_ARGUMENT,
            "transfer=\"shared_memory\" needs workers of this host, which worker %s is not; leave "
            "it out, or add target_workers=\"local\"",
            x->address);
    mr__connection_close(&x->c, &why);
}

/* It is over: its owner hears so, unless he wanted it. why may be a part of x. */
static void over(mr__dial *x, const mr_status *why)
{
    mr__dial *of = x->of, *local = x->local;
    unlist(x);
    if (local) {
        local->is_forgotten = true;
        mr__connection_close(&local->c, NULL);
    }
    if (of && !of->is_forgotten)
        stay(of);
    else if (!of && !x->is_forgotten)
        x->dials->out->closed(x->dials->ctx, x->address, why);
    free_dial(x);
}

static bool try_locally(mr__dial *x); /* its connection calls what follows */

static void forget(mr__dial *x, bool finish)
{
    x->is_forgotten = true;
    if (x->local)
        forget(x->local, false);
    if (x->lookup) {
        mr__lookup_abandon(x->lookup);
        unlist(x);
        free_dial(x);
    } else if (x->connects && finish && x->is_ready) {
        mr__connection_finish(&x->c);
    } else if (x->connects) {
        mr__connection_close(&x->c, NULL);
    } /* else it fails soon */
}

static void ready(mr__connection *c)
{
    mr__dial *x = (mr__dial *)c;
    Mr__Wire__Role want = x->address ? MR__WIRE__ROLE__WORKER : MR__WIRE__ROLE__DISPATCHER;
    mr_status why;
    if (x->is_forgotten)
        return;
    if (c->handshake.peer_role != want) {
        mr_fail(&why, x->address ? MR_UNAVAILABLE : MR_FAILED_PRECONDITION,
                "there is no %s at %s, but something else of a service",
                x->address ? "worker" : "dispatcher", x->address ? x->address : x->dials->service);
        mr__connection_close(c, &why);
        return;
    }
    if (x->of) { /* the other one has done its part */
        mr__dial *of = x->of;
        x->of = of->local = NULL;
        forget(of, false);
        serve(x);
    } else if (!x->address || x->dials->transfer == MR__TRANSFER_TCP) {
        serve(x);
    } else if (!try_locally(x)) {
        stay(x);
    }
}

/* The worker's memory, which comes before its first block. */
static mr_code take_memory(mr__dial *x, const Mr__Wire__Memory *m, mr_status *st)
{
    int fd = mr__socket_take_passed(&x->c.socket);
    if (fd < 0 || x->memory) {
        if (fd >= 0)
            mr__sys->close(fd);
        return mr_fail(st, MR_DATA_LOSS, "worker %s shares no memory, or more than once",
                       x->address);
    }
    mr_code rc = mr__borrower_new(&x->memory, fd, (size_t)m->bytes, st);
    mr__sys->close(fd);
    return rc;
}

/* Of transfer="shared_memory": it will not do any better the next time. */
static void say_unmapped(const mr__dial *x, mr_status *st)
{
    mr_fail(st, MR_FAILED_PRECONDITION,
            "transfer=\"shared_memory\": what worker %s shares cannot be had: %.300s; leave "
            "transfer out, and blocks come by TCP",
            x->address, st->message);
}

static void message(mr__connection *c, const mr__message *m)
{
    mr__dial *x = (mr__dial *)c;
    mr_status st;
    if (x->is_forgotten || !x->is_ready)
        return;
    if (x->address && m->body_case == MR__WIRE__MESSAGE__BODY_MEMORY) {
        if (take_memory(x, m->memory, &st) != MR_OK) {
            if (x->dials->transfer == MR__TRANSFER_AUTO) { /* the next connection does without */
                x->dials->transfer = MR__TRANSFER_TCP;
                st.code = MR_UNAVAILABLE;
            } else {
                say_unmapped(x, &st);
            }
            mr__connection_close(c, &st);
        }
    } else
        x->dials->out->message(x->dials->ctx, x->address, m);
}

/* *payload = the part of the memory that the head names. */
static mr_code borrow(mr__dial *x, mr__incoming *head, mr_buffer **payload, mr_status *st)
{
    mr_buffer *there;
    if (!x->memory)
        return mr_fail(st, MR_DATA_LOSS, "a block lies in shared memory, of which there is none");
    MR_TRY(mr__borrower_wrap(x->memory, head->memory_at, head->memory, head->raw, &there, st));
    head->shared = mr__borrower_memory(x->memory, &head->shared_bytes);
    mr_buffer_unref(*payload);
    *payload = there;
    return MR_OK;
}

static void block(mr__connection *c, const mr__incoming *head, mr_buffer *payload)
{
    mr__dial *x = (mr__dial *)c;
    mr__incoming in = *head;
    mr_status st;
    if (x->is_forgotten || (in.memory && borrow(x, &in, &payload, &st) != MR_OK)) {
        mr_buffer_unref(payload);
        if (!x->is_forgotten)
            mr__connection_close(c, &st);
    } else if (x->dials->out->block(x->dials->ctx, x->address, &in, payload, &st) != MR_OK)
        mr__connection_close(c, &st);
}

static void closed(mr__connection *c, const mr_status *why)
{
    over((mr__dial *)c, why);
}

static const mr__connection_class connections = {
    .ready = ready, .message = message, .block = block, .closed = closed};

static bool try_locally(mr__dial *x)
{
    mr__address to;
    mr_status st;
    const char *name = x->c.handshake.local;
    if (name[0] != '@' || mr__address_resolve(name, &to, &st) != MR_OK)
        return false;
    mr__dial *y = add(x->dials, x->address);
    if (!y)
        return false;
    y->c.class_ = &connections;
    if (mr__connection_open(&y->c, x->dials->loop, &to, MR__WIRE__ROLE__CLIENT, x->dials->token,
                            &st) != MR_OK) {
        unlist(y);
        free_dial(y);
        return false;
    }
    y->connects = true;
    y->of = x;
    x->local = y;
    return true;
}

static void fails(mr__posted *p)
{
    mr__dial *x = (mr__dial *)((char *)p - offsetof(mr__dial, fails));
    over(x, &x->why);
}

static void fail_later(mr__dial *x, const mr_status *why)
{
    x->why = *why;
    x->fails.run = fails;
    mr__loop_post(x->dials->loop, &x->fails);
}

static void looked_up(void *ctx, const mr__address *to, const mr_status *why)
{
    mr__dial *x = ctx;
    mr_status st;
    x->lookup = NULL;
    if (!to) {
        over(x, why);
        return;
    }
    x->c.class_ = &connections;
    if (mr__connection_open(&x->c, x->dials->loop, to, MR__WIRE__ROLE__CLIENT, x->dials->token,
                            &st) == MR_OK)
        x->connects = true;
    else
        over(x, &st);
}

void mr__dials_init(mr__dials *d, mr__loop *l, const char *service, mr__transfer transfer,
                    mr__token token, const mr__dial_out *out, void *ctx)
{
    *d = (mr__dials){.loop = l,
                     .service = service,
                     .transfer = transfer,
                     .token = token,
                     .out = out,
                     .ctx = ctx};
}

void mr__dial_open(mr__dials *d, const char *address)
{
    mr_status st;
    mr__dial *x = add(d, address);
    if (!x) { /* what waits for it ends by stall_timeout, or by its user */
        mr_log(MR_LOG_ERROR, "out of memory for a connection");
        return;
    }
    if (mr__lookup_start(&x->lookup, d->loop, address ? address : d->service, looked_up, x, &st) !=
        MR_OK) {
        x->lookup = NULL;
        fail_later(x, &st);
    }
}

void mr__dial_send(mr__dials *d, const char *address, const mr__message *m)
{
    mr__dial *x = find(d, address);
    mr_status st;
    if (x && x->is_ready && mr__connection_send(&x->c, m, &st) != MR_OK)
        mr__connection_close(&x->c, &st);
}

void mr__dial_close(mr__dials *d, const char *address)
{
    mr__dial *x = find(d, address);
    if (x)
        forget(x, false);
}

static void give_back(mr__dial *x, size_t least_bytes)
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

void mr__dials_give_back(mr__dials *d, bool all)
{
    for (mr__dial *x = d->first; x; x = x->next)
        if (x->memory && x->is_ready && !x->is_forgotten && !x->c.closing)
            give_back(x, all ? 0 : GIVE_BACK_BYTES);
}

void mr__dials_finish(mr__dials *d)
{
    for (mr__dial *x = d->first, *next; x; x = next) {
        next = x->next;
        forget(x, true);
    }
}

void mr__dials_close(mr__dials *d)
{
    for (mr__dial *x = d->first; x; x = x->next)
        if (x->connects)
            mr__socket_close(&x->c.socket);
}

bool mr__dials_are_closed(const mr__dials *d)
{
    return !d->first;
}
