/* SPDX-License-Identifier: Apache-2.0 */
/* Output is assembled in runs, (stream, rows), that are copied column by column when a stream's
 * block is to be replaced, when there are many, or at the end. A run that fills a block by itself
 * is passed on without a copy. */
#include "pipeline/ops/cycle.h"

#include <string.h>

enum {
    MOST_RUNS = 256,
    PASS_BYTES = 16 << 10, /* a run of as many bytes is passed on as it is */
    MOST_ASK = 1 << 20,
    MOST_CALLS = 1024
};
#define SHORT_FETCH 0.0005 /* seconds: below, the next fetch asks for more rows */
#define LONG_FETCH  0.004  /* above, for fewer */

/* ---- streams ---- */

static void fetch(mr__stream *s)
{
    mr__cycle *c = s->owner;
    s->ahead_rc = MR_OK;
    if (c->tags && mr_iter_replays(s->inner))
        s->ahead_rc = mr_iter_tag(s->inner, &s->ahead_tag, &s->ahead_status);
    if (s->ahead_rc == MR_OK)
        s->ahead_rc = mr_iter_next(s->inner, s->ask, &s->ahead, &s->ahead_status);
    if (s->ahead_rc == MR_OK)
        s->row_bytes = mr_block_payload_bytes(&s->ahead) / s->ahead.rows;
}

/* A fetch beyond what is asked for: its size is tuned by time and bounded by bytes. */
static void fetch_ahead(mr__stream *s)
{
    s->ask = mr_iter_block_rows(s->owner->it, s->ask, s->row_bytes);
    double began = mr_iter_now();
    fetch(s);
    double seconds = mr_iter_now() - began;
    if (seconds < SHORT_FETCH && s->ask < MOST_ASK)
        s->ask *= 2;
    else if (seconds > LONG_FETCH && s->ask > 1)
        s->ask /= 2;
}

static void run_fetch(mr_task *task)
{
    mr__stream *s = (mr__stream *)((char *)task - offsetof(mr__stream, task));
    double began = mr_iter_now();
    fetch_ahead(s);
    mr_iter_add_busy(s->owner->it, mr_iter_now() - began);
}

mr_code mr__cycle_stream(mr__cycle *c, mr__stream **out, mr_status *st)
{
    mr__stream *s = c->spare;
    if (s) {
        c->spare = s->next;
    } else {
        s = mr_calloc(1, sizeof *s);
        if (!s)
            return mr_fail_memory(st, sizeof *s, "an inner dataset");
        s->owner = c;
        s->task.run = run_fetch;
    }
    s->next = NULL;
    s->rc = MR_OK;
    s->at = s->base = s->skip = 0;
    s->rows = 0;
    s->ask = 1;
    s->bytes = s->row_bytes = 0;
    s->fetched = s->submitted = false;
    *out = s;
    return MR_OK;
}

void mr__cycle_wait(mr__cycle *c, mr__stream *s)
{
    if (!s->submitted)
        return;
    if (!mr_task_done(&s->task)) {
        double began = mr_iter_now();
        mr_task_wait(c->executor, &s->task);
        mr_iter_add_wait(c->it, mr_iter_now() - began);
    }
    s->submitted = false;
}

void mr__cycle_drop_stream(mr__cycle *c, mr__stream *s)
{
    if (s->submitted) {
        mr_task_withdraw(c->executor, &s->task);
        mr_task_wait(c->executor, &s->task);
        s->submitted = false;
    }
    mr_iter_close(s->inner);
    s->inner = NULL;
    mr_block_clear(&s->element);
    mr_block_clear(&s->block);
    mr_block_clear(&s->ahead);
    mr_buffer_unref(s->tag);
    mr_buffer_unref(s->ahead_tag);
    s->tag = s->ahead_tag = NULL;
    s->next = c->spare;
    c->spare = s;
}

static size_t fetches_under_way(const mr__cycle *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_slots; i++)
        n += c->slots[i] && c->slots[i]->submitted && !mr_task_done(&c->slots[i]->task);
    for (mr__stream *s = c->futures; s; s = s->next)
        n += s->submitted && !mr_task_done(&s->task);
    return n;
}

/* Starts the fetch of the next block of s, if as many calls are allowed. */
static void submit(mr__cycle *c, mr__stream *s)
{
    if (!c->executor || s->fetched || fetches_under_way(c) >= c->most)
        return;
    s->fetched = s->submitted = true;
    mr_task_submit(c->executor, &s->task);
}

/* What a row of the present block takes, in the output and where its views point. */
static size_t bytes_of_row(const mr__stream *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->block.n_columns; i++) {
        const mr_array *a = &s->block.columns[i];
        bytes += a->storage == MR_RAGGED ? sizeof(mr_row) : mr_array_row_bytes(a);
    }
    return bytes > s->row_bytes ? bytes : s->row_bytes;
}

/* The next block of s, of up to `want` rows where nothing is read ahead.
 * returns  MR_OK with rows to come, MR_END, or an error of that position */
static mr_code advance(mr__cycle *c, mr__stream *s, size_t want, mr_status *st)
{
    do {
        if (s->fetched) {
            mr__cycle_wait(c, s);
        } else if (c->length == 1) {
            s->ask = want > s->skip ? want : s->skip;
            fetch(s);
        } else {
            fetch_ahead(s);
        }
        s->fetched = false;
        if (s->base && s->skip) { /* whole blocks were passed over: count from the older tag */
            mr_buffer_unref(s->ahead_tag);
        } else {
            mr_buffer_unref(s->tag);
            s->tag = s->ahead_tag;
            s->base = 0;
        }
        s->ahead_tag = NULL;
        mr_block_clear(&s->block);
        s->at = 0;
        if (s->ahead_rc != MR_OK) {
            if (st && s->ahead_rc != MR_END)
                *st = s->ahead_status;
            return s->ahead_rc;
        }
        mr_block_move(&s->block, &s->ahead);
        s->rows += (int64_t)s->block.rows;
        s->bytes = bytes_of_row(s);
        s->fits = s->held = 0;
        s->at = s->skip < s->block.rows ? s->skip : s->block.rows;
        if (s->at == s->block.rows)
            s->base += s->block.rows;
        s->skip -= s->at;
    } while (s->at == s->block.rows);
    submit(c, s);
    return MR_OK;
}

/* ---- the input ---- */

static void clear_outer(mr__outer *o)
{
    mr_block_clear(&o->in);
    mr_block_clear(&o->made);
    mr_row_errors_reset(&o->errors);
    mr_buffer_unref(o->tag);
    o->tag = NULL;
    o->at = o->opened = o->made_at = o->error_at = 0;
    o->base = 0;
}

/* How many elements are likely to be needed for `rows` rows: as many as if all datasets were as
 * large as the largest so far. */
static size_t elements_for(const mr__cycle *c, size_t rows)
{
    size_t n = 1;
    if (c->most_rows >= 0)
        n = rows / (c->most_rows ? (size_t)c->most_rows : 1);
    if (c->executor && n < c->most)
        n = c->most;
    return mr_iter_block_rows(c->it, n ? n : 1, 64);
}

static mr_code run_program(mr__cycle *c, mr_status *st)
{
    mr__outer *o = &c->outer;
    return mr_program_run(c->program, &o->in, &o->made, &o->errors, st);
}

/* The next elements of the input, made into datasets. */
static mr_code refill(mr__cycle *c, size_t rows, mr_status *st)
{
    mr__outer *o = &c->outer;
    size_t ask = elements_for(c, rows);
    if (ask < o->skip)
        ask = o->skip;
    clear_outer(o);
    /* One element is handed out at once: the input's own state is its position. */
    if (ask > 1 && mr_iter_replays(c->it->inputs[0]))
        MR_TRY(mr_iter_tag(c->it->inputs[0], &o->tag, st));
    for (;;) {
        mr_code rc = mr_iter_pull(c->it, 0, ask, &o->in, st);
        if (rc != MR_OK)
            return rc;
        if (o->skip < o->in.rows)
            break;
        o->skip -= o->in.rows;
        o->base += o->in.rows;
    }
    mr_code rc = run_program(c, st);
    if (rc != MR_OK) {
        clear_outer(o);
        return rc;
    }
    for (; o->skip; o->skip--) {
        bool error = o->error_at < o->errors.n && o->errors.v[o->error_at].row == o->opened;
        error ? o->error_at++ : o->made_at++;
        o->at = ++o->opened;
    }
    return MR_OK;
}

/* Opens position o->opened; its error, if it is one, goes into the stream. */
static mr_code open_position(mr__cycle *c, mr__stream **out, mr_status *st)
{
    mr__outer *o = &c->outer;
    mr__stream *s;
    MR_TRY(mr__cycle_stream(c, &s, st));
    if (o->error_at < o->errors.n && o->errors.v[o->error_at].row == o->opened) {
        s->status = o->errors.v[o->error_at++].status;
        s->rc = s->status.code;
    } else {
        mr_dataset *ds = ((mr_dataset **)o->made.columns[0].data)[o->made_at++];
        mr_identities ids = o->in.ids;
        if (ids.offsets)
            ids.offsets += o->opened;
        else if (ids.ids)
            ids.ids += o->opened;
        if (mr_iter_positions(c->it))
            s->rc = mr_block_slice(&s->element, &o->in, o->opened, 1, &s->status);
        if (s->rc == MR_OK)
            s->rc = mr_iter_open_dataset(c->it, ds, &ids, &s->inner, &s->status);
    }
    o->opened++;
    *out = s;
    return MR_OK;
}

static void open_ahead(mr__cycle *c)
{
    mr__outer *o = &c->outer;
    while (c->executor && c->n_futures < c->most && o->opened < o->in.rows) {
        mr__stream *s;
        if (open_position(c, &s, NULL) != MR_OK)
            return; /* no memory: met again when its turn comes */
        if (c->futures_tail)
            c->futures_tail->next = s;
        else
            c->futures = s;
        c->futures_tail = s;
        c->n_futures++;
        if (s->rc == MR_OK)
            submit(c, s);
    }
}

/* The next dataset, for the current slot. */
static mr_code take_stream(mr__cycle *c, size_t rows, mr__stream **out, mr_status *st)
{
    mr__outer *o = &c->outer;
    if (!c->futures && o->at == o->in.rows)
        MR_TRY(refill(c, rows, st));
    mr__stream *s = c->futures;
    if (s) {
        c->futures = s->next;
        c->n_futures--;
        if (!c->futures)
            c->futures_tail = NULL;
        s->next = NULL;
    } else {
        MR_TRY(open_position(c, &s, st));
    }
    o->at++;
    if (o->at == o->in.rows)
        clear_outer(o);
    open_ahead(c);
    if (s->rc != MR_OK) {
        mr_code rc = s->rc;
        if (st)
            *st = s->status;
        mr__cycle_drop_stream(c, s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

/* ---- output ---- */

typedef struct run {
    mr__stream *stream;
    size_t from, n;
} run;

typedef struct assembly {
    mr_block *out;
    uint64_t call;
    size_t have, limit; /* rows, those of the runs included */
    size_t n_runs;
    run runs[MOST_RUNS];
} assembly;

/* Copies dense values or views of all runs to the end of a column. */
static void copy_column(const assembly *a, size_t column)
{
    mr_array *to = &a->out->columns[column];
    size_t bytes = mr_array_row_bytes(to);
    char *at = (char *)to->data + to->rows * bytes;
    for (size_t i = 0; i < a->n_runs; i++) {
        const run *r = &a->runs[i];
        const mr_array *from = &r->stream->block.columns[column];
        const char *rows = (const char *)from->data + r->from * bytes;
        if (bytes == 8 && r->n == 1)
            memcpy(at, rows, 8);
        else if (bytes == 16 && r->n == 1)
            memcpy(at, rows, 16);
        else if (bytes)
            memcpy(at, rows, r->n * bytes);
        at += r->n * bytes;
    }
}

/* Makes the output hold what the runs' views point into: once for a block of a stream. */
static mr_code hold_runs(const assembly *a, mr_status *st)
{
    for (size_t i = 0; i < a->n_runs; i++) {
        mr__stream *s = a->runs[i].stream;
        if (s->held == a->call)
            continue;
        for (size_t k = 0; k < a->out->n_columns; k++)
            if (a->out->columns[k].storage == MR_BYTES && s->block.columns[k].owner)
                MR_TRY(mr_buffer_hold_all(a->out->columns[k].owner, s->block.columns[k].owner, st));
        s->held = a->call;
    }
    return MR_OK;
}

static bool plain(const assembly *a)
{
    if (a->out->ids.ids)
        return false;
    for (size_t i = 0; i < a->out->n_columns; i++) {
        mr_storage s = a->out->columns[i].storage;
        if (s != MR_DENSE && s != MR_BYTES)
            return false;
        for (size_t k = 0; k < a->n_runs; k++)
            if (a->runs[k].stream->block.columns[i].storage != s)
                return false;
    }
    return true;
}

/* Appends the runs to the output and forgets them. */
static mr_code flush(assembly *a, mr_status *st)
{
    if (a->n_runs == 0)
        return MR_OK;
    if (a->out->n_columns == 0)
        MR_TRY(mr_block_start(a->out, &a->runs[0].stream->block, a->limit, st));
    size_t rows = 0;
    if (plain(a)) {
        MR_TRY(hold_runs(a, st));
        for (size_t i = 0; i < a->out->n_columns; i++)
            copy_column(a, i);
        for (size_t i = 0; i < a->n_runs; i++)
            rows += a->runs[i].n;
        for (size_t i = 0; i < a->out->n_columns; i++)
            a->out->columns[i].rows += rows;
        a->out->rows += rows;
    } else {
        for (size_t i = 0; i < a->n_runs; i++) {
            const run *r = &a->runs[i];
            MR_TRY(mr_block_append(a->out, &r->stream->block, r->from, r->n, st));
        }
    }
    a->n_runs = 0;
    return MR_OK;
}

static bool has_run_of(const assembly *a, const mr__stream *s)
{
    for (size_t i = a->n_runs; i-- > 0;)
        if (a->runs[i].stream == s)
            return true;
    return false;
}

/* The block that rows of s must fit beside. */
static bool fits(const assembly *a, const mr__stream *s)
{
    if (a->have == 0)
        return true;
    const mr_block *first = a->out->n_columns ? a->out : &a->runs[0].stream->block;
    return mr_block_fits(first, &s->block);
}

/* ---- the cycle ---- */

mr_code mr__cycle_slot(mr__cycle *c, size_t i, mr_status *st)
{
    if (i < c->n_slots)
        return MR_OK;
    MR_TRY(mr_grow((void **)&c->slots, &c->slots_capacity, i + 1, sizeof *c->slots, (size_t)1 << 32,
                   "the datasets of a cycle", st));
    while (c->n_slots <= i)
        c->slots[c->n_slots++] = NULL;
    return MR_OK;
}

static void go_on(mr__cycle *c)
{
    c->b = 0;
    c->c++;
    /* Slots that were never used are all free: nothing opens there once the input has ended. */
    if ((int64_t)c->c == c->length || (c->input_ended && c->c >= c->n_slots))
        c->c = 0;
}

static bool ready(const mr__stream *s)
{
    return s->at < s->block.rows || !s->submitted || mr_task_done((mr_task *)&s->task);
}

/* Where order does not matter: the next slot with something ready, if the current one has not. */
static void choose(mr__cycle *c)
{
    if (c->ordered || ready(c->slots[c->c]))
        return;
    for (size_t k = 1; k < c->n_slots; k++) {
        size_t i = (c->c + k) % c->n_slots;
        if (c->slots[i] && ready(c->slots[i])) {
            c->c = i;
            c->b = 0;
            return;
        }
    }
}

static void free_slot(mr__cycle *c)
{
    mr__stream *s = c->slots[c->c];
    if (s->rows > c->most_rows)
        c->most_rows = s->rows;
    mr__cycle_drop_stream(c, s);
    c->slots[c->c] = NULL;
    c->n_open--;
}

/* The slot's turn: adds a run of it. *full: the output is to be delivered first. */
static mr_code take_turn(mr__cycle *c, assembly *a, bool *full, mr_status *st)
{
    mr__stream *s = c->slots[c->c];
    if (s->at == s->block.rows) {
        if (has_run_of(a, s))
            MR_TRY(flush(a, st));
        mr_code rc = advance(c, s, a->limit - a->have, st);
        if (rc == MR_END) {
            free_slot(c);
            go_on(c);
            return MR_OK;
        }
        if (rc != MR_OK)
            return rc;
    }
    if (s->fits != c->calls) { /* asked once for a block and an output */
        if (!fits(a, s)) {
            *full = true;
            return MR_OK;
        }
        s->fits = c->calls;
    }
    size_t bytes = s->bytes;
    if (a->have == 0)
        a->limit = mr_iter_block_rows(c->it, a->limit, bytes);
    size_t n = s->block.rows - s->at, turn = (size_t)(c->block_length - c->b);
    if (n > turn)
        n = turn;
    bool pass = n * bytes >= PASS_BYTES || (a->have == 0 && n >= a->limit);
    if (pass && a->have) {
        *full = true;
        return MR_OK;
    }
    if (n > a->limit - a->have)
        n = a->limit - a->have;
    if (pass) {
        MR_TRY(mr_block_slice(a->out, &s->block, s->at, n, st));
        *full = true;
    } else {
        if (a->n_runs == MOST_RUNS)
            MR_TRY(flush(a, st));
        a->runs[a->n_runs++] = (run){s, s->at, n};
    }
    a->have += n;
    s->at += n;
    c->b += (int64_t)n;
    if (c->b == c->block_length)
        go_on(c);
    return MR_OK;
}

/* The slot is free: opens the next dataset in it. */
static mr_code fill_slot(mr__cycle *c, size_t rows, mr_status *st)
{
    MR_TRY(mr__cycle_slot(c, c->c, st));
    mr__stream *s = NULL;
    mr_code rc = take_stream(c, rows, &s, st);
    if (rc == MR_END) {
        c->input_ended = true;
        return MR_OK;
    }
    if (rc != MR_OK)
        return rc;
    c->slots[c->c] = s;
    c->n_open++;
    return MR_OK;
}

static mr_code step(mr__cycle *c, assembly *a, bool *full, mr_status *st)
{
    if (c->c < c->n_slots && c->slots[c->c]) {
        choose(c);
        return take_turn(c, a, full, st);
    }
    if (!c->input_ended)
        return fill_slot(c, a->limit - a->have, st);
    if (c->n_open == 0)
        return MR_END;
    go_on(c);
    return MR_OK;
}

mr_code mr__cycle_next(mr__cycle *c, size_t want, mr_block *out, mr_status *st)
{
    assembly a;
    a.out = out;
    a.have = a.n_runs = 0;
    a.limit = want;
    a.call = ++c->calls;
    mr_status error;
    mr_code rc = MR_OK;
    bool full = false;
    while (rc == MR_OK && !full && a.have < a.limit)
        rc = step(c, &a, &full, &error);
    mr_status failed;
    mr_code flushed = flush(&a, &failed);
    if (flushed != MR_OK) {
        if (st)
            *st = failed;
        return flushed;
    }
    if (a.have && rc < 0)
        mr_iter_defer(c->it, &error);
    else if (rc < 0 && st)
        *st = error;
    return a.have ? MR_OK : rc;
}

/* ---- opening and closing ---- */

mr_code mr__cycle_open(mr__cycle *c, mr_iter *it, const mr_program *program, int64_t length,
                       int64_t block_length, int64_t num_parallel_calls, mr_tri deterministic,
                       mr_status *st)
{
    (void)st;
    c->it = it;
    c->program = program;
    c->length = length;
    c->block_length = length > 1 ? block_length : INT64_MAX; /* one slot: always its turn */
    c->most_rows = -1;
    c->tags = length > 1 && mr_iter_positions(it);
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
    c->tags = mr_iter_positions(it);
    int64_t most = num_parallel_calls == MR_AUTO ? length : num_parallel_calls;
    if (num_parallel_calls == MR_AUTO && most > 2 * (threads + 1))
        most = 2 * (threads + 1); /* more would only wait in the queue */
    c->most = most < MOST_CALLS ? (size_t)most : MOST_CALLS;
    return MR_OK;
}

void mr__cycle_drop_all(mr__cycle *c)
{
    for (size_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i])
            mr__cycle_drop_stream(c, c->slots[i]);
        c->slots[i] = NULL;
    }
    while (c->futures) {
        mr__stream *s = c->futures;
        c->futures = s->next;
        mr__cycle_drop_stream(c, s);
    }
    c->futures_tail = NULL;
    c->n_futures = c->n_open = c->n_slots = c->c = 0;
    c->b = 0;
    c->input_ended = false;
    clear_outer(&c->outer);
    c->outer.skip = 0;
}

void mr__cycle_close(mr__cycle *c)
{
    mr__cycle_drop_all(c);
    while (c->spare) {
        mr__stream *s = c->spare;
        c->spare = s->next;
        mr_block_reset(&s->element);
        mr_block_reset(&s->block);
        mr_block_reset(&s->ahead);
        mr_free(s);
    }
    mr_block_reset(&c->outer.in);
    mr_block_reset(&c->outer.made);
    mr_free(c->slots);
    c->slots = NULL;
    c->slots_capacity = 0;
    mr_program_unref(c->program);
    c->program = NULL;
}

mr_code mr__cycle_infer(mr_fn *fn, const mr_spec *in, const char *op, mr_spec **out, mr_status *st)
{
    const mr_program *program;
    MR_TRY(mr_program_get(fn, in, &program, st));
    const mr_spec *made = mr_program_output(program);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) == MR_SPEC_LEAF && mr_spec_leaf(made, 0)->dtype == MR_DATASET) {
        *out = mr_spec_ref(mr_spec_leaf(made, 0)->element);
    } else {
        char text[256];
        mr_spec_format(made, text, sizeof text);
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "%s expects a function that returns a dataset, not %s; use map for that", op,
                     text);
    }
    mr_program_unref(program);
    return rc;
}
