/* SPDX-License-Identifier: Apache-2.0 */
/* A call's rows are delivered from its own block, not through mr_iter_emit: a position then says
 * how many were delivered and does not carry the rest.
 *
 * How many rows a call takes is tuned by time: one at first, so that a few slow elements are spread
 * over the threads, then twice as many as long as a call ends soon. */
#include "pipeline/ops/parallel_calls.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_CALLS = 1024 };
#define SHORT_CALL 0.0005 /* seconds: below, the next call gets more rows */
#define LONG_CALL  0.004  /* above, fewer */

struct mr__call {
    mr_task task;
    mr__call *next;
    mr__calls *owner;
    mr_block in, out;
    mr_row_errors errors;
    size_t at, error_at; /* delivered */
    mr_code rc;          /* not MR_OK: the answer of the input, or the failure of the whole call */
    mr_status status;
    mr_buffer *tag; /* the input's state before; NULL: no positions */
    size_t asked;   /* rows */
    double seconds;
};

static void run_call(mr_task *task)
{
    mr__call *call = (mr__call *)((char *)task - offsetof(mr__call, task));
    mr__calls *c = call->owner;
    double began = mr_iter_now();
    call->rc = c->fn(c->program, &call->in, &call->out, &call->errors, &call->status);
    mr_block_clear(&call->in);
    call->seconds = mr_iter_now() - began;
}

static mr_code take_spare(mr__calls *c, mr__call **out, mr_status *st)
{
    mr__call *call = c->spare;
    if (call) {
        c->spare = call->next;
    } else {
        call = mr_calloc(1, sizeof *call);
        if (!call)
            return mr_fail_memory(st, sizeof *call, "a parallel call");
        call->owner = c;
        call->task.run = run_call;
    }
    call->next = NULL;
    call->at = call->error_at = 0;
    call->rc = MR_OK;
    *out = call;
    return MR_OK;
}

static void put_spare(mr__calls *c, mr__call *call)
{
    mr_block_clear(&call->in);
    mr_block_clear(&call->out);
    mr_row_errors_reset(&call->errors);
    mr_buffer_unref(call->tag);
    call->tag = NULL;
    call->next = c->spare;
    c->spare = call;
}

static void push(mr__calls *c, mr__call *call)
{
    if (c->tail)
        c->tail->next = call;
    else
        c->head = call;
    c->tail = call;
    c->n++;
}

static void pop(mr__calls *c)
{
    mr__call *call = c->head;
    c->head = call->next;
    if (!c->head)
        c->tail = NULL;
    c->n--;
    put_spare(c, call);
}

static void wait_for(mr__calls *c, mr__call *call)
{
    if (mr_task_done(&call->task))
        return;
    double began = mr_iter_now();
    mr_task_wait(c->executor, &call->task);
    mr_iter_add_wait(c->it, mr_iter_now() - began);
}

/* Forgets all calls; those under way end first. */
static void drop_calls(mr__calls *c)
{
    for (mr__call *call = c->head; call && c->executor; call = call->next) {
        mr_task_withdraw(c->executor, &call->task);
        mr_task_wait(c->executor, &call->task);
    }
    while (c->head)
        pop(c);
}

mr_code mr__calls_check(int64_t n, mr_status *st)
{
    if (n == MR_AUTO || n >= 0)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "num_parallel_calls must be at least 1 or auto, not %" PRId64, n);
}

mr_code mr__calls_open(mr__calls *c, mr_iter *it, const mr_program *program, mr__call_fn fn,
                       int64_t num_parallel_calls, mr_tri deterministic, mr_status *st)
{
    (void)st;
    c->it = it;
    c->fn = fn;
    c->program = program;
    c->rows = 1;
    c->ordered = true;
    if (num_parallel_calls == 0)
        return MR_OK;
    c->ordered = deterministic == MR_DEFAULT ? mr_iter_deterministic(it) : deterministic == MR_YES;
    if (!c->ordered)
        mr_iter_set_no_replay(it);
    mr_executor *executor = mr_iter_executor(it);
    int threads = mr_executor_threads(executor);
    if (threads == 0)
        return MR_OK;
    c->executor = executor;
    c->blocking = mr_program_may_block(program);
    c->most = (size_t)threads + 1;
    if (num_parallel_calls != MR_AUTO)
        c->most = num_parallel_calls < MOST_CALLS ? (size_t)num_parallel_calls : MOST_CALLS;
    return MR_OK;
}

void mr__calls_close(mr__calls *c)
{
    drop_calls(c);
    while (c->spare) {
        mr__call *call = c->spare;
        c->spare = call->next;
        mr_block_reset(&call->in);
        mr_block_reset(&call->out);
        mr_free(call);
    }
    mr_program_unref(c->program);
    c->program = NULL;
}

/* Pulls rows for a call; what the input answers besides rows becomes a finished call of its own. */
static mr_code pull(mr__calls *c, size_t want, mr__call **out, mr_status *st)
{
    mr__call *call;
    MR_TRY(take_spare(c, &call, st));
    if (c->executor && mr_iter_replays(c->it->inputs[0])) {
        mr_code rc = mr_iter_tag(c->it->inputs[0], &call->tag, st);
        if (rc != MR_OK) {
            put_spare(c, call);
            return rc;
        }
    }
    call->asked = want;
    call->rc = mr_iter_pull(c->it, 0, want, &call->in, &call->status);
    if (call->rc == MR_END) {
        c->ended = true;
        put_spare(c, call);
        return MR_END;
    }
    *out = call;
    return MR_OK;
}

/* Drops what was delivered before the restored position. */
static void skip_delivered(mr__calls *c, mr__call *call)
{
    while (c->skip && call->rc == MR_OK) {
        bool at_error = call->error_at < call->errors.n &&
                        call->errors.v[call->error_at].row == call->at + call->error_at;
        if (at_error)
            call->error_at++;
        else if (call->at < call->out.rows)
            call->at++;
        else
            return;
        c->skip--;
    }
}

static bool call_spent(const mr__call *call)
{
    return call->rc == MR_OK && call->at == call->out.rows && call->error_at == call->errors.n;
}

/* Delivers from the head, which is done and not spent. */
static mr_code deliver(mr__calls *c, size_t want, mr_block *out, mr_status *st)
{
    mr__call *call = c->head;
    mr_code rc = call->rc;
    if (rc != MR_OK) {
        if (st)
            *st = call->status;
        pop(c);
        return rc;
    }
    size_t limit = call->error_at < call->errors.n
                       ? call->errors.v[call->error_at].row - call->error_at
                       : call->out.rows;
    size_t n = limit - call->at;
    if (n == 0) {
        const mr_status *e = &call->errors.v[call->error_at++].status;
        rc = e->code;
        if (st)
            *st = *e;
    } else if (n == call->out.rows && n <= want && call->errors.n == 0) {
        mr_block_move(out, &call->out);
        call->at = 0;
    } else {
        n = n < want ? n : want;
        rc = mr_block_slice(out, &call->out, call->at, n, st);
        if (rc != MR_OK)
            return rc;
        call->at += n;
    }
    if (call_spent(call))
        pop(c);
    return rc;
}

/* Everything in the calling thread: as much as is wanted, at once. */
static mr_code next_here(mr__calls *c, size_t want, mr_block *out, mr_status *st)
{
    for (;;) {
        mr__call *call;
        MR_TRY(pull(c, want, &call, st));
        if (call->rc == MR_OK)
            run_call(&call->task);
        if (c->skip && call->rc == MR_OK)
            skip_delivered(c, call);
        if (call_spent(call)) {
            put_spare(c, call);
            continue;
        }
        push(c, call);
        return deliver(c, want, out, st);
    }
}

/* Rows for the next call: the function's time decides, the payload bounds. */
static size_t rows_to_ask(const mr__calls *c)
{
    return mr_iter_block_rows(c->it, c->rows, c->row_bytes);
}

static void tune(mr__calls *c, mr__call *call)
{
    if (call->seconds > LONG_CALL && c->rows > 1)
        c->rows = call->asked > 1 ? call->asked / 2 : 1;
    else if (call->seconds < SHORT_CALL && call->asked >= c->rows / 2 && c->rows < (1u << 20))
        c->rows = call->asked * 2 > c->rows ? call->asked * 2 : c->rows;
    mr_iter_add_busy(c->it, call->seconds);
    call->seconds = 0;
}

/* Keeps `most` calls under way. */
static mr_code top_up(mr__calls *c, mr_status *st)
{
    while (c->n < c->most && !c->ended) {
        mr__call *call;
        mr_code rc = pull(c, rows_to_ask(c), &call, st);
        if (rc == MR_END)
            return MR_OK;
        /* What is under way is delivered first; the want of memory shows again. */
        if (rc != MR_OK)
            return c->head ? MR_OK : rc;
        push(c, call);
        if (call->rc != MR_OK)
            continue;
        c->row_bytes = mr_block_payload_bytes(&call->in) / call->in.rows;
        if (c->blocking)
            mr_task_submit_blocking(c->executor, &call->task);
        else
            mr_task_submit(c->executor, &call->task);
    }
    return MR_OK;
}

/* Where order does not matter, puts the first finished call in front. One that is partly delivered
 * is in front already. */
static void choose(mr__calls *c)
{
    if (c->ordered || mr_task_done(&c->head->task))
        return;
    for (mr__call *before = c->head; before->next; before = before->next) {
        mr__call *call = before->next;
        if (!mr_task_done(&call->task))
            continue;
        before->next = call->next;
        if (c->tail == call)
            c->tail = before;
        call->next = c->head;
        c->head = call;
        return;
    }
}

mr_code mr__calls_next(mr__calls *c, size_t want, mr_block *out, mr_status *st)
{
    for (;;) {
        if (c->executor)
            MR_TRY(top_up(c, st));
        else if (!c->head)
            return next_here(c, want, out, st);
        if (!c->head)
            return MR_END;
        choose(c);
        mr__call *call = c->head;
        if (c->executor)
            wait_for(c, call);
        if (call->seconds > 0)
            tune(c, call);
        if (c->skip)
            skip_delivered(c, call);
        if (!call_spent(call))
            return deliver(c, want, out, st);
        pop(c);
    }
}

/* ---- position ----
 *   kind   0: state of the input (bytes), rows and errors delivered behind it
 *          1: state of the input (bytes), rows and errors to pass over yet, number of calls, each
 *             [code; its status if not 0, else block, number of errors, (row, status)...] */

static mr_code put_tag(mr_state_w *w, const mr_buffer *tag, mr_status *st)
{
    return mr_state_put_bytes(w, mr_buffer_data(tag), mr_buffer_size(tag), st);
}

static mr_code save_call(mr_state_w *w, const mr__call *call, mr_status *st)
{
    MR_TRY(mr_state_put_i64(w, call->rc, st));
    if (call->rc != MR_OK)
        return mr_state_put_status(w, &call->status, st);
    mr_block left = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_slice(&left, &call->out, call->at, call->out.rows - call->at, st);
    if (rc == MR_OK)
        rc = mr_state_put_block(w, &left, st);
    mr_block_reset(&left);
    if (rc == MR_OK)
        rc = mr_state_put_u64(w, call->errors.n - call->error_at, st);
    for (size_t i = call->error_at; i < call->errors.n && rc == MR_OK; i++) {
        rc = mr_state_put_u64(w, call->errors.v[i].row - call->at - call->error_at, st);
        if (rc == MR_OK)
            rc = mr_state_put_status(w, &call->errors.v[i].status, st);
    }
    return rc;
}

/* Whether the calls' rows must be saved: what made them cannot be asked again. */
static bool must_save_rows(const mr__calls *c)
{
    if (!c->head)
        return false;
    return !c->head->tag || !c->ordered || !mr_iter_replays(c->it->inputs[0]);
}

mr_code mr__calls_save(mr__calls *c, mr_state_w *w, mr_status *st)
{
    bool rows = must_save_rows(c);
    MR_TRY(mr_state_put_u64(w, rows, st));
    if (!rows && c->head) {
        MR_TRY(put_tag(w, c->head->tag, st));
        return mr_state_put_u64(w, c->head->at + c->head->error_at + c->skip, st);
    }
    mr_buffer *tag = NULL;
    MR_TRY(mr_iter_tag(c->it->inputs[0], &tag, st));
    mr_code rc = put_tag(w, tag, st);
    mr_buffer_unref(tag);
    if (rc != MR_OK)
        return rc;
    MR_TRY(mr_state_put_u64(w, c->skip, st));
    if (!rows)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, c->n, st));
    for (mr__call *call = c->head; call; call = call->next) {
        if (c->executor)
            wait_for(c, call);
        MR_TRY(save_call(w, call, st));
    }
    return MR_OK;
}

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: calls under way that cannot be");
}

static mr_code restore_call(mr__calls *c, mr_state_r *r, mr__call *call, mr_status *st)
{
    int64_t code;
    uint64_t n, row, last = 0;
    MR_TRY(mr_state_get_i64(r, &code, st));
    if (code != MR_OK) {
        MR_TRY(mr_state_get_status(r, &call->status, st));
        call->rc = call->status.code;
        return call->rc < 0 ? MR_OK : damaged(st);
    }
    MR_TRY(mr_state_get_block(r, c->it->spec, &call->out, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    for (uint64_t i = 0; i < n; i++) {
        mr_status e;
        MR_TRY(mr_state_get_u64(r, &row, st));
        MR_TRY(mr_state_get_status(r, &e, st));
        if (row > call->out.rows + i || (i && row <= last) || e.code >= 0)
            return damaged(st);
        last = row;
        MR_TRY(mr_row_errors_add(&call->errors, (size_t)row, &e, st));
    }
    return MR_OK;
}

mr_code mr__calls_restore(mr__calls *c, mr_state_r *r, mr_status *st)
{
    const void *tag;
    size_t size;
    uint64_t kind, skip, n;
    drop_calls(c);
    c->ended = false;
    MR_TRY(mr_state_get_u64(r, &kind, st));
    MR_TRY(mr_state_get_bytes(r, &tag, &size, st));
    MR_TRY(mr_state_get_u64(r, &skip, st));
    if (kind > 1)
        return damaged(st);
    MR_TRY(mr_iter_restore_tag(c->it->inputs[0], tag, size, st));
    c->skip = (size_t)skip;
    if (kind == 0)
        return MR_OK;
    MR_TRY(mr_state_get_u64(r, &n, st));
    for (uint64_t i = 0; i < n; i++) {
        mr__call *call;
        MR_TRY(take_spare(c, &call, st));
        push(c, call);
        MR_TRY(restore_call(c, r, call, st));
    }
    return MR_OK;
}
