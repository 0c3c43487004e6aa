/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/parallel_calls.h"

#include <inttypes.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/params/infer.h"

enum { MOST_CALLS = 1024, MOST_MORE = 63 };

static void do_call(const mr__parallel_calls *c, mr__entry *call)
{
    double began = c->tuner.by_clock ? mr_iter_now() : 0;
    size_t rows = call->in.rows, bytes = mr_block_payload_bytes(&call->in), on_the_way = 0;
    mr_status error;
    mr_code rc = c->fn(c->program, &call->in, &call->rows, &call->errors, &on_the_way, &error);
    if (rc == MR_OK) {
        size_t made = mr_block_payload_bytes(&call->rows);
        bytes = made > bytes ? made : bytes;
        call->row_bytes = (on_the_way > bytes ? on_the_way : bytes) / rows;
        if (rows == 1)
            mr__memory_made(c->it, call->row_bytes, call->row_bytes - bytes);
        mr_block_clear(&call->in);
    } else {
        mr_block_clear(&call->rows);
        mr_row_errors_reset(&call->errors);
        mr__entry_fail(call, rc, &error);
    }
    call->seconds = c->tuner.by_clock ? mr_iter_now() - began : 0;
}

static void run_call(mr__task *task)
{
    mr__entry *call = (mr__entry *)((char *)task - offsetof(mr__entry, task));
    const mr__parallel_calls *c = (const mr__parallel_calls *)call->queue;
    mr_iter_work work;
    mr_iter_work_begin(c->it, &work);
    do_call(c, call);
    mr_iter_work_end(c->it, &work);
}

mr_code mr__parallel_calls_check(int64_t n, mr_status *st)
{
    if (n == MR_AUTO || n >= 0)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "num_parallel_calls must be at least 1 or auto, not %" PRId64, n);
}

/* Bytes of a row while the function runs, if input and output sizes are known; else 0. */
static size_t known_bytes(const mr_iter *it, const mr_program *program)
{
    size_t in = mr__row_bytes(mr_iter_input_spec(it, 0));
    size_t out = mr__program_row_bytes(program);
    return in == 0 || out == 0 ? 0 : in > out ? in : out;
}

mr_code mr__parallel_calls_open(mr__parallel_calls *c, mr_iter *it, const mr_program *program,
                                mr__call_fn fn, int64_t num_parallel_calls, mr_tri deterministic,
                                mr_status *st)
{
    (void)st;
    mr__queue_open(&c->queue, it, it->inputs[0]);
    c->it = it;
    c->fn = fn;
    c->program = program;
    c->ordered = true;
    mr__block_size_tuner_start(&c->tuner, it, known_bytes(it, program));
    /* In the calling thread few rows of a call are ever left: save the rows. */
    c->queue.positions = false;
    c->tuner.by_clock = false; /* calls do not run concurrently: bytes alone decide */
    if (num_parallel_calls == 0)
        return MR_OK;
    c->ordered = deterministic == MR_DEFAULT ? mr_iter_deterministic(it) : deterministic == MR_YES;
    if (!c->ordered)
        mr_iter_set_no_replay(it);
    mr_executor *executor = mr_iter_executor(it);
    int threads = mr__executor_threads(executor);
    if (threads == 0)
        return MR_OK;
    c->executor = executor;
    c->queue.positions = c->ordered && mr_iter_keeps_positions(it);
    c->queue.gives_way = true;
    c->blocking = mr_program_may_block(program);
    mr__block_size_tuner_start(&c->tuner, it, 0);
    c->tuner.widest = known_bytes(it, program);
    const mr_rows_fn *f = mr__program_rows(program);
    c->tuner.seconds = f ? f->seconds : 0;
    if (num_parallel_calls == MR_AUTO) {
        c->most = (size_t)threads + 1;
        mr__auto_parallelism_start(&c->depth, it, "num_parallel_calls", 1, c->most, c->most);
    } else {
        c->most = num_parallel_calls < MOST_CALLS ? (size_t)num_parallel_calls : MOST_CALLS;
    }
    mr__queue_resize(&c->queue, c->most);
    return MR_OK;
}

void mr__parallel_calls_close(mr_iter *it)
{
    mr__parallel_calls *c = it->state;
    mr__queue_reset(&c->queue);
    mr_program_unref(c->program);
    c->program = NULL;
}

/* Starts the call for the rows that were pulled. */
static void begin(const mr__parallel_calls *c, mr__entry *call, bool light)
{
    call->task.run = run_call;
    call->task.light = light;
    mr_block_move(&call->in, &call->rows);
    if (!c->executor)
        do_call(c, call); /* within the op's own work */
    else if (c->blocking)
        mr__task_submit_blocking(c->executor, &call->task);
    else
        mr__task_submit(c->executor, &call->task);
}

/* Pulls rows for a call and starts it; an error of the input becomes a separate, finished call. */
static mr_code start_call(mr__parallel_calls *c, size_t want, mr_status *st)
{
    mr__entry *call;
    size_t ask = mr__block_size_tuner_ask(&c->tuner, c->it, want);
    MR_TRY(mr__queue_pull(&c->queue, ask, NULL, &call, st));
    c->pulled = call->rows.rows;
    if (call->rc != MR_OK)
        return MR_OK;
    call->asked = ask;
    mr__queue_expect(&c->queue, call, mr__block_size_tuner_expect(&c->tuner, call->rows.rows));
    begin(c, call, c->light);
    return MR_OK;
}

/* Learns from a finished call, once. */
static void tune(mr__parallel_calls *c, mr__entry *call)
{
    if (call->asked == 0)
        return;
    c->light = call->seconds > 0 && call->seconds < MR__LIGHT_TASK;
    mr__block_size_tuner_note(&c->tuner, call->asked, call->seconds, 1, call->row_bytes);
    call->asked = 0;
}

/* The oldest call, finished. */
static mr__entry *wait_for_call(mr__parallel_calls *c)
{
    mr__entry *call = c->queue.head;
    bool counts = c->depth.it && call->asked; /* not checked before */
    double asked = counts ? mr_iter_now() : 0;
    bool late = counts && !mr__task_done(&call->task);
    mr__queue_wait(&c->queue);
    if (counts) {
        mr__auto_parallelism_took(&c->depth, asked, call->seconds,
                                  late ? MR_SUPPLY_LATE : MR_SUPPLY_READY);
        c->most = c->depth.now;
        mr__queue_resize(&c->queue, c->most);
    }
    tune(c, call);
    return call;
}

/* Waits for the oldest call that has rows left if it may block. false: the wait was cancelled. */
static bool wait_or_cancel(mr__parallel_calls *c)
{
    mr__entry *call = c->queue.head;
    if (!c->executor || !c->blocking)
        return true;
    if (mr__task_done(&call->task) && mr__entry_left(call) == 0) {
        mr__entry *next = mr__queue_after(&c->queue, call);
        call = next ? next : call;
    }
    return mr__task_wait_or_cancel(c->executor, &call->task, mr_iter_cancel(c->it));
}

/* The first call is always made; further ones need memory for their input and output. If the
 * types do not determine these sizes, those of the first call are used. */
static bool may_start(const mr__parallel_calls *c)
{
    if (!c->queue.n || !mr__memory_limited(c->it))
        return true;
    size_t bytes = mr__block_size_tuner_expect(
        &c->tuner, mr__block_size_tuner_ask(&c->tuner, c->it, SIZE_MAX));
    return bytes && mr__memory_room(c->it, 2 * bytes);
}

/* ---- calls that the queue's fill starts ---- */

static void begin_filled(mr__queue *q, mr__entry *call)
{
    mr__parallel_calls *c = (mr__parallel_calls *)q;
    call->asked = atomic_load(&c->asks);
    begin(c, call, atomic_load(&c->fills_light));
}

static size_t rows_of_fill(const mr__queue *q)
{
    return atomic_load(&((const mr__parallel_calls *)q)->asks);
}

/* The input waits for an outside producer, which may take any time to produce the rows of the next
 * call. Some inputs know it from their first pull on. If a position is taken after each block and
 * the input cannot repeat its rows, the position would wait for the fill, unless saving fails. */
static bool may_fill(const mr__parallel_calls *c)
{
    const mr_iter *input = c->queue.input;
    return mr__iter_may_block(input) && !mr__memory_limited(c->it) &&
           (!mr_iter_opts(c->it)->positions || mr_iter_replays(input) ||
            mr__iter_no_position(input));
}

/* From now on the fill pulls the input. */
static mr_code let_fill(mr__parallel_calls *c, mr_status *st)
{
    const mr__ahead ahead = {.entries = c->most, .rows = SIZE_MAX, .bytes = SIZE_MAX};
    mr_iter *it = c->it;
    bool positions = c->queue.positions;
    MR_TRY(mr__queue_open_ahead(&c->queue, it, it->inputs[0], c->executor, &ahead, st));
    c->queue.positions = positions;
    c->queue.begin = begin_filled;
    c->queue.ask = rows_of_fill;
    c->filled = true;
    return MR_OK;
}

/* As top_up: waits for rows only if no call has results to deliver. */
static mr_code top_up_filled(mr__parallel_calls *c, mr_status *st)
{
    size_t ask = mr__block_size_tuner_ask(&c->tuner, c->it, SIZE_MAX);
    atomic_store(&c->asks, ask);
    atomic_store(&c->fills_light, c->light);
    mr__queue_start(&c->queue);
    mr_code rc = mr__queue_need(&c->queue, ask, st);
    return rc == MR_END ? MR_OK : rc;
}

/* Keeps `most` calls in progress. */
static mr_code top_up(mr__parallel_calls *c, mr_status *st)
{
    if (c->filled)
        return top_up_filled(c, st);
    if (may_fill(c)) {
        MR_TRY(let_fill(c, st));
        return top_up_filled(c, st);
    }
    while (c->queue.n < c->most && !c->queue.ended && may_start(c)) {
        if (c->queue.n && may_fill(c))
            return MR_OK; /* from the next call on */
        mr_code rc = start_call(c, SIZE_MAX, st);
        if (rc == MR_END)
            return MR_OK;
        /* Calls in progress are delivered first; the lack of memory will be detected again. */
        if (rc != MR_OK)
            return c->queue.head ? MR_OK : rc;
    }
    return MR_OK;
}

/* Reports a call that failed as a whole, for lack of memory, and makes it run again, so that
 * nothing is lost. */
static mr_code run_again(mr__parallel_calls *c, mr__entry *call, mr_status *st)
{
    mr_code rc = mr__entry_retry(call, st);
    mr__task_submit(mr_iter_executor(c->it), &call->task);
    return rc;
}

/* How many rows to pull after a filter has dropped that many: as many more, so that a consumer of
 * single rows does not pay for a pull of each row that it never gets. Those that are kept too early
 * are part of a saved position, so their number is bounded. Only where it is not noticed. */
static size_t beyond(const mr__parallel_calls *c, size_t want, size_t dropped)
{
    const mr_iter *input = c->queue.input;
    size_t more = dropped < MOST_MORE ? dropped : MOST_MORE;
    if (more == 0 || !mr_iter_replays(input) || mr_iter_pulls_count(input))
        return want;
    return want < SIZE_MAX - more ? want + more : want;
}

mr_code mr__parallel_calls_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__parallel_calls *c = it->state;
    mr__queue *q = &c->queue;
    size_t dropped = 0;
    for (;;) {
        if (c->executor)
            MR_TRY(top_up(c, st));
        else if (!mr__queue_has_entry(q))
            MR_TRY(start_call(c, q->skip ? q->skip : beyond(c, want, dropped), st));
        if (!mr__queue_has_entry(q))
            return MR_END;
        if (!c->ordered)
            mr__queue_choose(q);
        if (!wait_or_cancel(c))
            return mr_iter_fail_cancelled(st);
        mr__entry *call = wait_for_call(c);
        if (q->skip || mr__entry_left(call) == 0) {
            call = mr__queue_head(q);
            if (!call) {
                dropped += c->pulled;
                continue;
            }
            tune(c, call);
        }
        return call->in.rows ? run_again(c, call, st) : mr__queue_deliver(q, want, out, st);
    }
}

mr_code mr__parallel_calls_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__queue_save(&((mr__parallel_calls *)it->state)->queue, 0, w, st);
}

mr_code mr__parallel_calls_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__parallel_calls *c = it->state;
    return mr__queue_restore(&c->queue, it->spec, r, st);
}
