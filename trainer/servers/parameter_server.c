/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a worker or a parameter server. The loop's thread does everything, one call after
 * the other: no other caller needs a worker during its step, and updates are serialised. */
#include "trainer/servers/parameter_server.h"
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/servers/parameters.h"
#include "trainer/servers/steps.h"
#include "transport/wire/token_file.h"

#define SECOND ((int64_t)1000000000)
enum { GONE_SECONDS = 60, MOST_CALLERS = 4096 };

typedef struct process process;

typedef struct caller {
    mr__connection c; /* first */
    process *of;
    struct caller *next, *prev;
    bool coordinates;
} caller;

struct process {
    const mr_server_opts *o;
    bool is_ps, ends, is_listening, is_listening_locally;
    mr__token token;
    mr__loop *loop;
    mr__listener listener, local; /* local: a local socket, whose peers show their user */
    mr__stranger_log strangers;
    caller *callers;
    size_t n_callers;
    int64_t left_ns; /* when the last coordinator left; 0: one is connected, or none was yet */
    mr__parameters parameters;
    mr__steps steps;
};

#define PROCESS_OF(member, p) ((process *)((char *)(p)-offsetof(process, member)))

static bool is_cancelled(const process *x)
{
    return x->o->cancel && mr_cancel_is_cancelled(x->o->cancel);
}

/* From here on a coordinator counts as connected: it may wait for long before it calls. */
static void ready(mr__connection *c)
{
    caller *from = (caller *)c;
    mr__call_watch(c);
    if (c->handshake.peer_role != MR__WIRE__ROLE__COORDINATOR)
        return;
    from->coordinates = true;
    from->of->left_ns = 0;
}

static void message(mr__connection *c, const mr__message *m)
{
    mr_status why;
    (void)m;
    mr_fail(&why, MR_DATA_LOSS, "received another message instead of a call");
    mr__connection_close(c, &why);
}

static mr_code take(process *x, mr__connection *c, const mr__call *call, mr_status *st)
{
    if (call->kind == MR__CALL_END) {
        x->ends = true;
        return mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, NULL, NULL, 0, st);
    }
    return x->is_ps ? mr__parameters_take(&x->parameters, c, call, st)
                    : mr__steps_take(&x->steps, c, call, st);
}

static void block(mr__connection *c, const mr__incoming *head, mr_buffer *payload)
{
    caller *from = (caller *)c;
    process *x = from->of;
    mr__call call;
    mr_status why;
    mr_code rc = mr__call_read(head, payload, &call, &why);
    if (rc != MR_OK) {
        mr__connection_close(c, &why);
        return;
    }
    rc = take(x, c, &call, &why);
    /* Sends no answer if cancelled: the step moves to another worker when the connection closes. */
    if (rc != MR_OK && !is_cancelled(x)) {
        bool cut_off = mr__steps_is_cut_off(&x->steps, rc);
        rc = mr__call_refuse(c, &call, &why, cut_off, &why);
    }
    mr__call_reset(&call);
    if (rc != MR_OK)
        mr__connection_close(c, &why);
}

static void closed(mr__connection *c, const mr_status *why)
{
    caller *from = (caller *)c;
    process *x = from->of;
    bool other = false;
    bool logs = why->code != MR_OK && why->code != MR_END;
    if (logs && c->handshake.done && mr__token_tells_peers(x->token))
        mr_log(MR_LOG_INFO, "a caller's connection was closed: %.700s", why->message);
    else if (logs)
        mr__stranger_log_add(&x->strangers, mr__loop_now(x->loop), MR_LOG_INFO,
                             "a caller's connection was closed: %.700s", why->message);
    if (from->prev)
        from->prev->next = from->next;
    else
        x->callers = from->next;
    if (from->next)
        from->next->prev = from->prev;
    x->n_callers--;
    for (const caller *k = x->callers; k; k = k->next)
        other = other || k->coordinates;
    if (from->coordinates && !other)
        x->left_ns = mr__loop_now(x->loop);
    mr_free(from);
}

static const mr__connection_class calls = {
    .ready = ready, .message = message, .block = block, .closed = closed};

static void take_in(process *x, int fd)
{
    mr_status why;
    caller *k = x->n_callers < MOST_CALLERS ? mr_calloc(1, sizeof *k) : NULL;
    if (!k) {
        mr__sys->close(fd);
        mr__stranger_log_add(&x->strangers, mr__loop_now(x->loop), MR_LOG_WARNING,
                             "a connection was refused: %zu are open", x->n_callers);
        return;
    }
    k->of = x;
    k->c.class_ = &calls;
    if (mr__connection_accept(&k->c, x->loop, fd, MR__WIRE__ROLE__SERVER, x->token,
                              x->is_listening_locally ? x->local.address.text : "",
                              &why) != MR_OK) {
        mr__stranger_log_add(&x->strangers, mr__loop_now(x->loop), MR_LOG_WARNING,
                             "a connection was refused: %.700s", why.message);
        mr_free(k);
        return;
    }
    k->next = x->callers;
    if (k->next)
        k->next->prev = k;
    x->callers = k;
    x->n_callers++;
}

static void accepted(mr__listener *l, int fd)
{
    take_in(PROCESS_OF(listener, l), fd);
}

static void accepted_locally(mr__listener *l, int fd)
{
    take_in(PROCESS_OF(local, l), fd);
}

static void local_closed(mr__listener *l)
{
    PROCESS_OF(local, l)->is_listening_locally = false;
}

static void listener_closed(mr__listener *l)
{
    PROCESS_OF(listener, l)->is_listening = false;
}

/* ---- start and end ---- */

static mr_code check_task(process *x, mr_status *st)
{
    const mr_cluster *c = x->o->cluster;
    if (!c || !c->has_task || (c->type != MR_TASK_WORKER && c->type != MR_TASK_PS))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "a server is a task of type worker or ps: TF_CONFIG must say which, found %s",
            c && c->has_task ? mr_task_type_name(c->type) : "none");
    x->is_ps = c->type == MR_TASK_PS;
    return MR_OK;
}

/* Whether callers are known on any host. */
static bool shows_peers(const process *x)
{
    return x->token.data || mr__tls_is_mutual(x->token.tls);
}

static mr_code listen_there(process *x, mr_status *st)
{
    const mr_cluster *c = x->o->cluster;
    const char *where = x->o->listen ? x->o->listen : c->tasks[c->type].addresses[c->index];
    mr__address at;
    MR_TRY(mr__address_resolve(where, &at, st));
    bool is_public = !mr__address_is_loopback(&at);
    if (is_public && !shows_peers(x) && !x->token.any_user)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is open to other hosts, and any caller can make a server read any file: "
                       "set a token (--token-file, MILLRACE_TOKEN_FILE)",
                       where);
    if (is_public)
        MR_TRY(mr__check_secure(where, &x->token, x->o->insecure, st));
    if (!shows_peers(x) && !x->token.any_user) {
        mr__address local;
        MR_TRY(mr__address_new_local(&local, st));
        x->local.accepted = accepted_locally;
        x->local.closed = local_closed;
        MR_TRY(mr__listen(x->loop, &x->local, &local, st));
        x->is_listening_locally = true;
    }
    x->listener.accepted = accepted;
    x->listener.closed = listener_closed;
    MR_TRY(mr__listen(x->loop, &x->listener, &at, st));
    x->is_listening = true;
    if (x->o->ready)
        x->o->ready(x->o->ctx, x->listener.address.text);
    return MR_OK;
}

static mr_code serve(process *x, mr_status *st)
{
    double gone = x->o->gone_s > 0 ? x->o->gone_s : GONE_SECONDS;
    while (!x->ends) {
        int64_t now = mr__loop_now(x->loop);
        mr__tls_look(x->token.tls, now);
        if (is_cancelled(x))
            return mr_fail(st, MR_CANCELLED, "interrupted");
        if (x->left_ns && (double)(now - x->left_ns) > gone * (double)SECOND)
            return mr_fail(st, MR_UNAVAILABLE, "no coordinator has been connected for %g s", gone);
        MR_TRY(mr__loop_turn(x->loop, now + SECOND / 4, st));
    }
    return MR_OK;
}

/* Sends queued answers if the server ended normally. */
static void close_all(process *x)
{
    bool can_turn = true;
    if (x->is_listening)
        mr__listener_close(&x->listener);
    if (x->is_listening_locally)
        mr__listener_close(&x->local);
    for (caller *k = x->callers; k; k = k->next)
        if (x->ends)
            mr__connection_finish(&k->c);
        else
            mr__connection_close(&k->c, NULL);
    while (x->loop && can_turn && (x->callers || x->is_listening || x->is_listening_locally))
        can_turn = mr__loop_turn(x->loop, INT64_MAX, NULL) == MR_OK;
    mr__stranger_log_end(&x->strangers);
    if (can_turn)
        mr__loop_close(x->loop);
}

void mr_server_reload_certificates(void)
{
    mr__tls_hang_up();
}

mr_code mr_server_run(const mr_server_opts *opts, mr_status *st)
{
    process *x = mr_calloc(1, sizeof *x);
    if (!x)
        return mr_fail_memory(st, sizeof *x, "a server");
    x->o = opts;
    mr_code rc = check_task(x, st);
    const char *cluster = opts->cluster_token_file || !opts->token_file
                              ? mr__cluster_token_file(opts->cluster_token_file)
                              : NULL;
    if (rc == MR_OK)
        rc = mr__token_open(cluster ? cluster : opts->token_file, opts->tls,
                            MR__TLS_ACCEPTS | (x->is_ps ? 0 : MR__TLS_CONNECTS), &x->token, st);
    x->token.any_user = opts->any_user;
    if (rc == MR_OK && x->is_ps)
        rc = mr__parameters_open(&x->parameters, st);
    x->steps.cancel = opts->cancel;
    x->steps.token = x->token;
    if (rc == MR_OK)
        rc = mr__loop_open(MR__LOOP_EPOLL, &x->loop, st);
    if (rc == MR_OK)
        rc = listen_there(x, st);
    if (rc == MR_OK)
        rc = serve(x, st);
    close_all(x);
    mr__steps_close(&x->steps);
    mr__parameters_close(&x->parameters);
    mr__token_free(&x->token);
    mr_free(x);
    return rc;
}
