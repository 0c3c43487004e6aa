/* SPDX-License-Identifier: Apache-2.0 */
/* Output is assembled from runs, (stream, rows), which are copied column by column before a
 * stream's block is replaced, when there are many runs, or at the end. A single run that fills a
 * block is passed on without a copy. */
#include "pipeline/streams/interleaver.h"

#include <errno.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/params/hints.h"

enum {
    MOST_RUNS = 256,
    PASS_BYTES = 16 << 10, /* a run of this many bytes is passed on without a copy */
    OPEN_BYTES = 4 << 20,  /* for a dataset opened ahead: the buffers of a file, mostly */
    MOST_CALLS = 1024,
    FETCH_BLOCKS = 4
};
#define FETCH_SECONDS 0.0005

struct mr__stream {
    mr__stream *next;
    mr_iter *inner;
    mr__queue queue;  /* of inner: the current block and the next ones */
    mr__entry *block; /* the current one; NULL: not available yet */
    mr_block element; /* the row it was made from, if positions are requested */
    mr_code rc;       /* not MR_OK: the error in its place */
    mr_status status;
    uint64_t held; /* the call of next whose output holds the memory of the block's views */
    uint64_t fits; /* the call of next whose output block fits; 0: not known */
    int64_t rows;  /* of the dataset, so far */
    size_t bytes;  /* of a row of block */
};

/* ---- streams ---- */

static mr_code new_stream(mr__interleaver *c, mr__stream **out, mr_status *st)
{
    mr__stream *s = c->spare ? c->spare : mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "an inner dataset");
    if (s == c->spare)
        c->spare = s->next;
    s->next = NULL;
    s->block = NULL;
    s->rc = MR_OK;
    s->rows = 0;
    *out = s;
    return MR_OK;
}

static void drop_stream(mr__interleaver *c, mr__stream *s)
{
    mr__queue_clear(&s->queue);
    mr_iter_close(s->inner);
    s->inner = NULL;
    s->block = NULL;
    mr_block_clear(&s->element);
    s->next = c->spare;
    c->spare = s;
}

/* Opens a dataset in the stream. */
static mr_code open_stream(mr__interleaver *c, mr__stream *s, mr_dataset *ds,
                           const mr_identities *ids, mr_status *st)
{
    MR_TRY(mr_iter_open_dataset(c->it, ds, ids, &s->inner, st));
    if (c->length == 1) {
        mr__queue_open(&s->queue, c->it, s->inner);
    } else {
        const mr__ahead ahead = {.entries = 1, .rows = SIZE_MAX, .bytes = SIZE_MAX};
        MR_TRY(mr__queue_open_ahead(&s->queue, c->it, s->inner, c->executor, &ahead, st));
    }
    s->queue.positions = c->positions;
    return MR_OK;
}

static size_t fetches_under_way(const mr__interleaver *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_slots; i++)
        n += c->slots[i] && mr__queue_filling(&c->slots[i]->queue);
    for (mr__stream *s = c->futures; s; s = s->next)
        n += mr__queue_filling(&s->queue);
    return n;
}

/* The number of blocks per fetch of s: those that take FETCH_SECONDS, because a shorter fetch is
 * not worth waking a thread. With a memory limit, one. */
static size_t blocks_of_fetch(const mr__interleaver *c, const mr__stream *s)
{
    if (!s->block || s->block->seconds <= 0 || mr__memory_limited(c->it))
        return 1;
    double n = FETCH_SECONDS / s->block->seconds;
    return n < 1 ? 1 : n > FETCH_BLOCKS ? FETCH_BLOCKS : (size_t)n;
}

/* Starts a fetch for s if another call is allowed and half of the rows of the last fetch are
 * used. */
static void submit(mr__interleaver *c, mr__stream *s)
{
    if (!c->executor || mr__queue_filling(&s->queue) || fetches_under_way(c) >= c->most)
        return;
    size_t present = s->block ? 1 : 0, blocks = blocks_of_fetch(c, s);
    if (s->queue.n > present + blocks / 2)
        return;
    s->queue.ahead.entries = present + blocks;
    mr__queue_start(&s->queue);
}

/* Bytes of a row of the current block, in the output and in the memory of its views. */
static size_t bytes_of_row(const mr__stream *s)
{
    const mr_block *b = &s->block->rows;
    size_t bytes = 0;
    size_t payload = (s->queue.tuned ? s->block->bytes : mr_block_payload_bytes(b)) / b->rows;
    for (size_t i = 0; i < b->n_columns; i++) {
        const mr_array *a = &b->columns[i];
        bytes += a->storage == MR_RAGGED ? sizeof(mr_row) : mr_array_row_bytes(a);
    }
    return bytes > payload ? bytes : payload;
}

static size_t rows_left(const mr__stream *s)
{
    return s->block ? s->block->rows.rows - s->block->at : 0;
}

/* The next block of s, of up to `want` rows if nothing is read ahead.
 * returns  MR_OK with rows left, MR_END, or an error at that position */
static mr_code advance(mr__interleaver *c, mr__stream *s, size_t want, mr_status *st)
{
    mr__entry *e;
    s->block = NULL;
    bool tuned = c->depth.it != NULL, there = tuned && mr__queue_head(&s->queue);
    double asked = tuned ? mr_iter_now() : 0;
    MR_TRY(mr__queue_front(&s->queue, c->length > 1 ? 0 : want, NULL, &e, st));
    if (tuned) {
        mr__auto_parallelism_took(&c->depth, asked, e->seconds,
                                  there ? MR_SUPPLY_READY : MR_SUPPLY_LATE);
        c->most = c->depth.now;
    }
    if (e->rc != MR_OK)
        return mr__queue_take_error(&s->queue, st);
    s->block = e;
    s->rows += (int64_t)(e->rows.rows - e->at);
    s->bytes = bytes_of_row(s);
    s->fits = s->held = 0;
    submit(c, s);
    return MR_OK;
}

/* ---- the input ---- */

static void forget_made(mr__outer *o)
{
    mr_block_clear(&o->made);
    mr_row_errors_reset(&o->errors);
    o->opened = o->made_at = o->error_at = 0;
    o->ready = false;
}

/* The number of elements probably needed for `rows` rows, assuming that all datasets are as
 * large as the largest so far. */
static size_t elements_for(const mr__interleaver *c, size_t rows)
{
    size_t n = 1;
    if (c->most_rows >= 0)
        n = rows / (c->most_rows ? (size_t)c->most_rows : 1);
    if (c->executor && n < c->most)
        n = c->most;
    return mr_iter_block_rows(c->it, n ? n : 1, 64);
}

static bool error_is_next(const mr__outer *o)
{
    return o->error_at < o->errors.n && o->errors.v[o->error_at].row == o->opened;
}

/* Makes datasets of the next elements of the input, unless some are left. */
static mr_code refill(mr__interleaver *c, size_t rows, mr_status *st)
{
    mr__outer *o = &c->outer;
    if (mr__cursor_left(&o->in) == 0)
        MR_TRY(mr__cursor_pull(c->it, 0, elements_for(c, rows), &o->in, NULL, st));
    if (o->ready)
        return MR_OK;
    mr_code rc = mr_program_run(c->program, mr__cursor_rows(&o->in), &o->made, &o->errors, st);
    if (rc != MR_OK) {
        forget_made(o);
        return rc;
    }
    for (o->ready = true; o->opened < mr__cursor_at(&o->in); o->opened++)
        error_is_next(o) ? o->error_at++ : o->made_at++;
    return MR_OK;
}

/* Opens the element o->opened; if it is an error, stores that in the stream. */
static mr_code open_next(mr__interleaver *c, mr__stream **out, mr_status *st)
{
    mr__outer *o = &c->outer;
    const mr_block *in = mr__cursor_rows(&o->in);
    mr__stream *s = NULL;
    MR_TRY(new_stream(c, &s, st));
    if (error_is_next(o)) {
        s->status = o->errors.v[o->error_at++].status;
        s->rc = s->status.code;
    } else {
        mr_dataset *ds = ((mr_dataset **)o->made.columns[0].data)[o->made_at++];
        mr_identities ids = in->ids;
        if (ids.offsets)
            ids.offsets += o->opened;
        else if (ids.ids)
            ids.ids += o->opened;
        if (mr_iter_keeps_positions(c->it))
            s->rc = mr_block_slice(&s->element, in, o->opened, 1, &s->status);
        if (s->rc == MR_OK)
            s->rc = open_stream(c, s, ds, &ids, &s->status);
    }
    o->opened++;
    *out = s;
    return MR_OK;
}

static void open_ahead(mr__interleaver *c)
{
    mr__outer *o = &c->outer;
    while (c->executor && c->n_futures < c->most && mr__cursor_left(&o->in) &&
           o->opened < mr__cursor_rows(&o->in)->rows && mr__memory_room(c->it, OPEN_BYTES)) {
        mr__stream *s = NULL;
        if (open_next(c, &s, NULL) != MR_OK)
            return; /* out of memory: retried when its turn comes */
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

static void drop_futures(mr__interleaver *c)
{
    while (c->futures) {
        mr__stream *s = c->futures;
        c->futures = s->next;
        drop_stream(c, s);
    }
    c->futures_tail = NULL;
    c->n_futures = 0;
}

/* The next dataset, for the current slot. */
static mr_code take_stream(mr__interleaver *c, size_t rows, mr__stream **out, mr_status *st)
{
    mr__outer *o = &c->outer;
    if (!c->futures)
        MR_TRY(refill(c, rows, st));
    mr__stream *s = c->futures;
    if (s) {
        c->futures = s->next;
        c->n_futures--;
        if (!c->futures)
            c->futures_tail = NULL;
        s->next = NULL;
    } else {
        MR_TRY(open_next(c, &s, st));
    }
    if (s->rc != MR_OK && mr_status_is_of_no_element(&s->status)) {
        mr_code rc = s->rc;
        if (st)
            *st = s->status;
        drop_stream(c, s);
        drop_futures(c); /* the element is not used: it is opened again */
        forget_made(o);
        return rc;
    }
    mr__cursor_use(&o->in, 1);
    if (mr__cursor_left(&o->in) == 0)
        forget_made(o);
    open_ahead(c);
    if (s->rc != MR_OK) {
        mr_code rc = s->rc;
        if (st)
            *st = s->status;
        drop_stream(c, s);
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
        const mr_array *from = &r->stream->block->rows.columns[column];
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

/* Makes the output hold the memory of views of the stream's rows; once per block. */
static mr_code hold(const assembly *a, mr__stream *s, mr_status *st)
{
    if (s->held == a->call)
        return MR_OK;
    for (size_t k = 0; k < a->out->n_columns; k++)
        if (a->out->columns[k].storage == MR_BYTES && s->block->rows.columns[k].owner)
            MR_TRY(
                mr_buffer_hold_all(a->out->columns[k].owner, s->block->rows.columns[k].owner, st));
    s->held = a->call;
    return MR_OK;
}

/* Rows of the stream's block are added to the output by copying values or views. */
static bool plain(const assembly *a, const mr__stream *s)
{
    if (a->out->ids.ids)
        return false;
    for (size_t i = 0; i < a->out->n_columns; i++) {
        mr_storage storage = a->out->columns[i].storage;
        if ((storage != MR_DENSE && storage != MR_BYTES) ||
            s->block->rows.columns[i].storage != storage)
            return false;
    }
    return true;
}

static bool all_plain(const assembly *a)
{
    for (size_t k = 0; k < a->n_runs; k++)
        if (!plain(a, a->runs[k].stream))
            return false;
    return true;
}

static void add_rows(const assembly *a, size_t rows)
{
    for (size_t i = 0; i < a->out->n_columns; i++)
        a->out->columns[i].rows += rows;
    a->out->rows += rows;
}

/* Appends the runs to the output and clears them. */
static mr_code flush(assembly *a, mr_status *st)
{
    if (a->n_runs == 0)
        return MR_OK;
    if (a->out->n_columns == 0)
        MR_TRY(mr_block_start(a->out, &a->runs[0].stream->block->rows, a->limit, st));
    size_t rows = 0;
    if (all_plain(a)) {
        for (size_t i = 0; i < a->n_runs; i++)
            MR_TRY(hold(a, a->runs[i].stream, st));
        for (size_t i = 0; i < a->out->n_columns; i++)
            copy_column(a, i);
        for (size_t i = 0; i < a->n_runs; i++)
            rows += a->runs[i].n;
        add_rows(a, rows);
    } else {
        for (size_t i = 0; i < a->n_runs; i++) {
            const run *r = &a->runs[i];
            MR_TRY(mr_block_append(a->out, &r->stream->block->rows, r->from, r->n, st));
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

/* true: rows of s fit into one block with the runs in a. */
static bool fits(const assembly *a, const mr__stream *s)
{
    if (a->have == 0)
        return true;
    const mr_block *first = a->out->n_columns ? a->out : &a->runs[0].stream->block->rows;
    return mr_block_fits(first, &s->block->rows);
}

/* ---- the cycle ---- */

/* Makes sure that slot i exists (free), for any i below length. */
static mr_code make_slot(mr__interleaver *c, size_t i, mr_status *st)
{
    if (i < c->n_slots)
        return MR_OK;
    MR_TRY(MR_GROW(c->slots, c->slots_capacity, i + 1, (size_t)1 << 32, "the datasets of a cycle",
                   st));
    while (c->n_slots <= i)
        c->slots[c->n_slots++] = NULL;
    return MR_OK;
}

static void go_on(mr__interleaver *c)
{
    c->b = 0;
    c->c++;
    /* Slots that were never used are all free: nothing opens there once the input has ended. */
    if ((int64_t)c->c == c->length || (c->input_ended && c->c >= c->n_slots))
        c->c = 0;
}

static bool ready(const mr__stream *s)
{
    return rows_left(s) || !mr__queue_filling(&s->queue);
}

/* If order does not matter: the next slot with rows ready, if the current one has none. */
static void choose(mr__interleaver *c)
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

static void free_slot(mr__interleaver *c)
{
    mr__stream *s = c->slots[c->c];
    if (s->rows > c->most_rows)
        c->most_rows = s->rows;
    drop_stream(c, s);
    c->slots[c->c] = NULL;
    c->n_open--;
}

/* Records read straight to their final place come in larger blocks (file_source.c), which are
 * passed on whole. */
static size_t block_parts(const mr__interleaver *c)
{
    return mr__iterator_internal_of(mr_iter_opts(c->it))->read_slots ? 4 : 1;
}

/* What has been collected is delivered before `input` is pulled: it waits for an outside producer,
 * such as a pipe. */
static bool delivers_before(const assembly *a, const mr_iter *input)
{
    return a->have > 0 && mr__iter_may_block(input);
}

/* The slot's turn: adds a run of it. *full: the output must be delivered first. */
static mr_code take_turn(mr__interleaver *c, assembly *a, bool *full, mr_status *st)
{
    mr__stream *s = c->slots[c->c];
    if (rows_left(s) == 0) {
        if (delivers_before(a, s->inner)) {
            *full = true;
            return MR_OK;
        }
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
    if (s->fits != c->calls) { /* checked once per block and output */
        if (!fits(a, s)) {
            *full = true;
            return MR_OK;
        }
        s->fits = c->calls;
    }
    size_t bytes = s->bytes;
    if (a->have == 0)
        a->limit = mr_iter_block_rows(c->it, a->limit, bytes / block_parts(c));
    size_t n = rows_left(s), turn = (size_t)(c->block_length - c->b);
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
        MR_TRY(mr_block_slice(a->out, &s->block->rows, s->block->at, n, st));
        *full = true;
    } else {
        if (a->n_runs == MOST_RUNS)
            MR_TRY(flush(a, st));
        a->runs[a->n_runs++] = (run){s, s->block->at, n};
    }
    a->have += n;
    s->block->at += n;
    c->b += (int64_t)n;
    if (c->b == c->block_length)
        go_on(c);
    return MR_OK;
}

/* The number of rounds for which all slots have rows, each a whole turn that is copied; limited
 * by the room in the output. */
static size_t rounds(const mr__interleaver *c, const assembly *a)
{
    bool all = c->n_open == c->n_slots && (c->input_ended || (int64_t)c->n_slots == c->length);
    if (!all || a->have == 0)
        return 0;
    size_t turn = (size_t)c->block_length, most = (a->limit - a->have) / turn / c->n_slots;
    for (size_t i = 0; i < c->n_slots && most; i++) {
        const mr__stream *s = c->slots[i];
        size_t n = rows_left(s) / turn;
        most = n < most ? n : most;
        if (most && (s->fits != c->calls || turn * s->bytes >= PASS_BYTES || !plain(a, s)))
            return 0;
    }
    return most;
}

/* Copies n pieces to places `step` bytes apart; if the size is a constant, each copy is one
 * instruction. */
static inline void spread(char *to, size_t step, const char *from, size_t bytes, size_t n)
{
    for (; bytes && n; n--, to += step, from += bytes)
        memcpy(to, from, bytes);
}

/* Copies the turns of slot i in n rounds to their places in a column. */
static void copy_turns(const mr__interleaver *c, const assembly *a, size_t i, size_t n,
                       size_t column)
{
    mr_array *to = &a->out->columns[column];
    const mr__stream *s = c->slots[i];
    size_t row = mr_array_row_bytes(to), bytes = row * (size_t)c->block_length;
    size_t step = bytes * c->n_slots;
    char *at = (char *)to->data + to->rows * row + i * bytes;
    const char *from = (const char *)s->block->rows.columns[column].data + s->block->at * row;
    bytes == 8    ? spread(at, step, from, 8, n)
    : bytes == 16 ? spread(at, step, from, 16, n)
                  : spread(at, step, from, bytes, n);
}

/* At the beginning of a round: takes several complete rounds at once, with the same result as turn
 * by turn. */
static mr_code take_rounds(mr__interleaver *c, assembly *a, mr_status *st)
{
    if (a->out->n_columns == 0)
        MR_TRY(flush(a, st)); /* starts the output if there are runs */
    size_t n = rounds(c, a), turn = (size_t)c->block_length;
    if (n == 0)
        return MR_OK;
    MR_TRY(flush(a, st));
    for (size_t i = 0; i < c->n_slots; i++)
        MR_TRY(hold(a, c->slots[i], st));
    for (size_t i = 0; i < c->n_slots; i++) {
        for (size_t k = 0; k < a->out->n_columns; k++)
            copy_turns(c, a, i, n, k);
        c->slots[i]->block->at += n * turn;
    }
    add_rows(a, n * turn * c->n_slots);
    a->have += n * turn * c->n_slots;
    return MR_OK;
}

/* The slot is free: opens the next dataset in it. */
static mr_code fill_slot(mr__interleaver *c, size_t rows, mr_status *st)
{
    MR_TRY(make_slot(c, c->c, st));
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

static mr_code step(mr__interleaver *c, assembly *a, bool *full, mr_status *st)
{
    if (c->c < c->n_slots && c->slots[c->c]) {
        choose(c);
        if (c->c == 0 && c->b == 0 && c->length > 1)
            MR_TRY(take_rounds(c, a, st));
        return a->have < a->limit ? take_turn(c, a, full, st) : MR_OK;
    }
    if (!c->input_ended) {
        *full = !c->futures && mr__cursor_left(&c->outer.in) == 0 &&
                delivers_before(a, c->it->inputs[0]);
        return *full ? MR_OK : fill_slot(c, a->limit - a->have, st);
    }
    if (c->n_open == 0)
        return MR_END;
    go_on(c);
    return MR_OK;
}

mr_code mr__interleaver_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__interleaver *c = it->state;
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
    /* An error of no element took nothing, and the next call meets it again, except perhaps for a
     * lack of memory. */
    if (a.have && rc < 0 && (!mr_status_is_of_no_element(&error) || error.sys_errno == ENOMEM))
        mr_iter_defer(c->it, &error);
    else if (rc < 0 && st)
        *st = error;
    return a.have ? MR_OK : rc;
}

/* ---- opening and closing ---- */

mr_code mr__interleaver_open(mr__interleaver *c, mr_iter *it, const mr_program *program,
                             int64_t length, int64_t block_length, int64_t num_parallel_calls,
                             mr_tri deterministic, mr_status *st)
{
    (void)st;
    c->it = it;
    c->program = program;
    c->length = length;
    c->block_length = length > 1 ? block_length : INT64_MAX; /* one slot: always its turn */
    c->most_rows = -1;
    c->positions = length > 1 && mr_iter_keeps_positions(it);
    mr_iter_set_takes(it, (size_t)length);
    c->ordered = true;
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
    c->positions = mr_iter_keeps_positions(it);
    int64_t most = num_parallel_calls == MR_AUTO ? length : num_parallel_calls;
    if (num_parallel_calls == MR_AUTO && most > 2 * (threads + 1))
        most = 2 * (threads + 1); /* more would only wait in the queue */
    c->most = most < MOST_CALLS ? (size_t)most : MOST_CALLS;
    if (num_parallel_calls == MR_AUTO)
        mr__auto_parallelism_start(&c->depth, it, "num_parallel_calls", 1, c->most, c->most);
    return MR_OK;
}

static void drop_all(mr__interleaver *c)
{
    for (size_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i])
            drop_stream(c, c->slots[i]);
        c->slots[i] = NULL;
    }
    drop_futures(c);
    c->n_open = c->n_slots = c->c = 0;
    c->b = 0;
    c->input_ended = false;
    forget_made(&c->outer);
    mr__queue_clear(&c->outer.in.queue);
}

void mr__interleaver_close(mr_iter *it)
{
    mr__interleaver *c = it->state;
    drop_all(c);
    while (c->spare) {
        mr__stream *s = c->spare;
        c->spare = s->next;
        mr__queue_reset(&s->queue);
        mr_block_reset(&s->element);
        mr_free(s);
    }
    mr__cursor_reset(&c->outer.in);
    mr_block_reset(&c->outer.made);
    mr_free(c->slots);
    c->slots = NULL;
    c->slots_capacity = 0;
    mr_program_unref(c->program);
    c->program = NULL;
}

/* ---- position ----
 *   current slot, elements of its turn, input ended
 *   the input (a queue), as of the first element that was not taken
 *   number of slots; each 0 (free), or 1 and
 *     the element it was made from (block of a row), rows of it seen, its queue
 *
 * Datasets that were only opened ahead are opened again: the input's position is before them. */

static mr_code save_slot(mr__stream *s, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, s != NULL, st));
    if (!s)
        return MR_OK;
    MR_TRY(mr_state_put_block(w, &s->element, st));
    MR_TRY(mr_state_put_i64(w, s->rows, st));
    if (rows_left(s) == 0) /* saving drops it */
        s->block = NULL;
    return mr__queue_save(&s->queue, 0, w, st);
}

mr_code mr__interleaver_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__interleaver *c = it->state;
    MR_TRY(mr_state_put_u64(w, c->c, st));
    MR_TRY(mr_state_put_i64(w, c->b, st));
    MR_TRY(mr_state_put_u64(w, c->input_ended, st));
    MR_TRY(mr__cursor_save(c->it, 0, &c->outer.in, 0, w, st));
    MR_TRY(mr_state_put_u64(w, c->n_slots, st));
    for (size_t i = 0; i < c->n_slots; i++)
        MR_TRY(save_slot(c->slots[i], w, st));
    return MR_OK;
}

static mr_code damaged(mr_status *st)
{
    return mr_state_damaged(st, "an invalid cycle");
}

/* Calls the function again and opens the dataset that it returns. */
static mr_code reopen(mr__interleaver *c, mr__stream *s, mr_status *st)
{
    mr_block made = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_code rc = mr_program_run(c->program, &s->element, &made, &errors, st);
    if (rc == MR_OK && errors.n && mr_status_is_of_no_element(&errors.v[0].status)) {
        rc = errors.v[0].status.code; /* does not concern the position */
        if (st)
            *st = errors.v[0].status;
    } else if (rc == MR_OK && made.rows != 1) {
        rc =
            mr_fail(st, MR_INVALID_ARGUMENT, "the position's element no longer makes a dataset: %s",
                    errors.n ? errors.v[0].status.message : "no result");
    }
    if (rc == MR_OK)
        rc = open_stream(c, s, *(mr_dataset **)made.columns[0].data, &s->element.ids, st);
    mr_row_errors_reset(&errors);
    mr_block_reset(&made);
    return rc;
}

static mr_code restore_slot(mr__interleaver *c, size_t i, mr_state_r *r, mr_status *st)
{
    uint64_t open;
    MR_TRY(make_slot(c, i, st));
    MR_TRY(mr_state_get_u64(r, &open, st));
    if (open > 1)
        return damaged(st);
    if (!open)
        return MR_OK;
    MR_TRY(new_stream(c, &c->slots[i], st));
    c->n_open++;
    mr__stream *s = c->slots[i];
    MR_TRY(mr_state_get_block(r, mr_iter_input_spec(c->it, 0), &s->element, st));
    MR_TRY(mr_state_get_i64(r, &s->rows, st));
    if (s->element.rows != 1 || s->rows < 0)
        return damaged(st);
    MR_TRY(reopen(c, s, st));
    return mr__queue_restore(&s->queue, c->it->spec, r, st);
}

mr_code mr__interleaver_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__interleaver *c = it->state;
    uint64_t at, ended, n;
    int64_t b;
    drop_all(c);
    MR_TRY(mr_state_get_u64(r, &at, st));
    MR_TRY(mr_state_get_i64(r, &b, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    if (at >= (uint64_t)c->length || b < 0 || b >= c->block_length || ended > 1)
        return damaged(st);
    MR_TRY(mr__cursor_restore(c->it, 0, &c->outer.in, r, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (n > (uint64_t)c->length)
        return damaged(st);
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(restore_slot(c, (size_t)i, r, st));
    c->c = (size_t)at;
    c->b = b;
    c->input_ended = ended;
    return MR_OK;
}

mr_code mr__interleaver_infer(const mr_dataset *self, const void *params, mr_spec **out,
                              mr_status *st)
{
    mr_fn *const *fn = params;
    const mr_program *program;
    MR_TRY(mr_program_get(*fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, st));
    const mr_spec *made = mr_program_output(program);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) == MR_SPEC_LEAF && mr_spec_leaf(made, 0)->dtype == MR_DATASET) {
        *out = mr_spec_ref(mr_spec_leaf(made, 0)->element);
    } else {
        char text[256], hint[MR__HINT_ROOM];
        mr_spec_format(made, text, sizeof text);
        mr__hint_of_datasets(made, NULL, hint);
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: fn must return a dataset, not %s%s",
                     mr_dataset_op(self)->name, text, *hint ? hint : "; use map for that");
    }
    mr_program_unref(program);
    return rc;
}

int64_t mr__interleaver_cardinality(const mr_dataset *self, mr_fn *fn, int64_t in)
{
    const mr_program *program;
    int64_t n;
    if (in == 0)
        return 0;
    if (in == MR_UNKNOWN_COUNT ||
        mr_program_get(fn, mr_dataset_spec(mr_dataset_input(self, 0)), &program, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    int64_t each = mr__program_dataset_count(program);
    mr_program_unref(program);
    if (each == MR_UNKNOWN_COUNT || (each == 0 && in == MR_INFINITE))
        return MR_UNKNOWN_COUNT;
    if (each == MR_INFINITE || in == MR_INFINITE)
        return MR_INFINITE;
    return __builtin_mul_overflow(in, each, &n) ? INT64_MAX : n;
}
