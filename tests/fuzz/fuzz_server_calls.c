/* SPDX-License-Identifier: Apache-2.0 */
/* Calls by a peer that knows a server's token, to a parameter server or a worker: after a refused
 * call it still serves the calls that follow.
 *
 *     worker?  then calls: kind  job  n_text n_text  n_values  text...  values...
 *
 * A worker is cancelled from the start: it waits for no server that a job names. */
#include <string.h>
#include <sys/socket.h>
#include "pipeline/system/system.h"
#include "tests/fuzz/small_memory.h"
#include "trainer/servers/parameters.h"
#include "trainer/servers/steps.h"

enum { CALL_BYTES = 5, MOST_CALLS = 32 };

static bool is_closed;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ready(mr__connection *c)
{
    (void)c;
}

static void message(mr__connection *c, const mr__message *m)
{
    (void)c;
    (void)m;
}

static void closed(mr__connection *c, const mr_status *why)
{
    (void)c;
    (void)why;
    is_closed = true;
}

static const mr__connection_class nobody = {.ready = ready, .message = message, .closed = closed};

/* Reads a call off the input; its values are in memory of just their size. */
static bool next(const uint8_t **at, const uint8_t *end, mr__call *call)
{
    const uint8_t *p = *at;
    if (end - p < CALL_BYTES)
        return false;
    size_t text = (size_t)(p[2] << 8 | p[3]), n = p[4], left = (size_t)(end - p) - CALL_BYTES;
    text = text < left ? text : left;
    n = n < (left - text) / sizeof(float) ? n : (left - text) / sizeof(float);
    *call = (mr__call){.kind = (mr__call_kind)p[0], .job = p[1] + 1u, .number = 1, .n = n};
    call->text = json_loadb((const char *)p + CALL_BYTES, text, 0, NULL);
    if (!json_is_object(call->text)) { /* which mr__call_read refuses */
        json_decref(call->text);
        call->text = json_object();
    }
    float *values = malloc(n * sizeof *values + 1);
    if (n)
        memcpy(values, p + CALL_BYTES + text, n * sizeof *values);
    call->values = values;
    *at = p + CALL_BYTES + text + n * sizeof *values;
    return true;
}

static void make_calls(mr__connection *c, bool is_worker, const uint8_t *at, const uint8_t *end)
{
    mr__parameters p = {0};
    mr__steps x = {0};
    mr__call call;
    if (mr_cancel_new(NULL, &x.cancel, NULL) != MR_OK || mr__parameters_open(&p, NULL) != MR_OK)
        abort();
    mr_cancel_trigger(x.cancel);
    for (int i = 0; i < MOST_CALLS && next(&at, end, &call); i++) {
        mr_status st;
        mr_code rc =
            is_worker ? mr__steps_take(&x, c, &call, &st) : mr__parameters_take(&p, c, &call, &st);
        if (rc != MR_OK && !*st.message)
            abort();
        if (rc == MR_OK && is_worker) /* it found no servers */
            abort();
        if (rc == MR_OK && (p.job == 0 || p.job != call.job))
            abort();
        if (rc != MR_OK && call.kind == MR__CALL_PREPARE && p.job != 0)
            abort(); /* half of a job */
        if (rc != MR_OK)
            (void)!mr__call_refuse(c, &call, &st, mr__steps_is_cut_off(&x, rc), NULL);
        free((void *)(uintptr_t)call.values);
        json_decref(call.text);
    }
    mr_cancel *cancel = x.cancel;
    mr__steps_close(&x);
    mr__parameters_close(&p);
    mr_cancel_unref(cancel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr__connection c = {.class_ = &nobody};
    mr__loop *l;
    int pair[2];
    small_memory();
    if (size < 1 || mr__loop_open(MR__LOOP_EPOLL, &l, NULL) != MR_OK)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0 ||
        mr__connection_accept(&c, l, pair[0], MR__WIRE__ROLE__SERVER, (mr__token){0}, "", NULL) !=
            MR_OK)
        abort();
    make_calls(&c, data[0] & 1, data + 1, data + size);
    is_closed = false;
    mr__connection_close(&c, NULL);
    while (!is_closed)
        if (mr__loop_turn(l, INT64_MAX, NULL) != MR_OK)
            abort();
    mr__sys->close(pair[1]);
    mr__loop_close(l);
    return 0;
}
