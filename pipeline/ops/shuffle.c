/* SPDX-License-Identifier: Apache-2.0 */
/* The same order as tf.data, bit for bit. The buffer in its logical order p[0..m) is a ring of slot
 * numbers; the rows themselves are in a store and do not move:
 *
 *     before an output: while m < buffer_size and the input has not ended, append the next row
 *     output p[w mod m], w the next random word; replace it by p[0]; drop p[0]
 *
 * A block of outputs is drawn first and gathered afterwards, so a row that enters and leaves in the
 * same block needs its slot until then: there is one spare slot for each row of a block.
 *
 * Each iterator draws its pair of seeds from a generator shared by all iterators of the dataset.
 *
 * A position contains the input's position when the iterator was opened, the pair, and the
 * number of outputs and errors delivered since; restoring reads the input again from there. If
 * the input cannot be read again, the rows are saved.
 *
 * If many outputs were delivered, most rows that are read again would be stored only to be dropped.
 * Which of them are in the buffer follows from the random words and the number of rows alone: the
 * draws are repeated with the rows' numbers in the ring, then the rows that are left there are
 * stored as they come. */
#include "pipeline/ops/sequence.h"

#include <errno.h>
#include <string.h>

#include "pipeline/engine/philox.h"
#include "pipeline/engine/position.h"
#include "pipeline/streams/read_ahead_queue.h"
#include "pipeline/streams/seeds.h"
#include "pipeline/params/infer.h"
#include "pipeline/columns/row_store.h"
#include "pipeline/engine/op_buffering.h"

enum {
    WHOLE = -2,
    MAX_OUTPUTS = 1 << 16,
    SAVE_ROWS = 1024,
    DRAWS = 64,           /* at once: their places in the ring are fetched together */
    PATIENCE = 1 << 20,   /* draws between two looks whether the iterator was cancelled */
    SKIP_BYTES = 1 << 20, /* a gap in the rows to keep that is worth a skip */
    SKIP_ROWS = 16,       /* at least */
    MOST_PULLED = 1 << 16,
    UNDOUBTED = 1 << 26 /* outputs that a position may claim */
};

struct params {
    int64_t buffer_size;
    mr_shuffle_opts o;
};

struct state {
    uint64_t pair[2];
    mr__philox random;
    uint64_t outputs, errors; /* delivered */
    bool ended;               /* the input */
    mr_buffer *position;      /* the input's position at the start; NULL: it cannot be read again */
    mr__row_store store;
    uint32_t *ring; /* of `capacity`, a power of two */
    size_t capacity, first, held;
    uint32_t *slots; /* of a block entering, and of one leaving */
    uint32_t *outs;
    size_t slots_capacity, outs_capacity;
    size_t due, due_from; /* outputs drawn but not delivered, in outs */
    mr_block rows;
};

static uint64_t limit_of(const struct params *p)
{
    return p->buffer_size == WHOLE ? UINT64_MAX : (uint64_t)p->buffer_size;
}

static mr_code draw_pair(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL,
                          p->o.reshuffle_each_iteration != MR_NO, s->pair, st));
    mr__philox_init(&s->random, s->pair[0], s->pair[1]);
    return MR_OK;
}

/* ---- the ring ---- */

static mr_code grow_ring(struct state *s, size_t need, mr_status *st)
{
    if (need <= s->capacity)
        return MR_OK;
    size_t capacity = s->capacity ? s->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    uint32_t *ring = mr_malloc(capacity * sizeof *ring);
    if (!ring)
        return mr_fail_memory(st, capacity * sizeof *ring, "the order of shuffle");
    for (size_t i = 0; i < s->held; i++)
        ring[i] = s->ring[(s->first + i) & (s->capacity - 1)];
    mr_free(s->ring);
    s->ring = ring;
    s->capacity = capacity;
    s->first = 0;
    return MR_OK;
}

static inline void push(struct state *s, uint32_t slot)
{
    s->ring[(s->first + s->held++) & (s->capacity - 1)] = slot;
}

static inline uint32_t draw(struct state *s)
{
    uint32_t w = mr__philox_next(&s->random);
    size_t j = s->held <= UINT32_MAX ? w % (uint32_t)s->held : w;
    uint32_t *picked = &s->ring[(s->first + j) & (s->capacity - 1)];
    uint32_t slot = *picked;
    *picked = s->ring[s->first & (s->capacity - 1)];
    s->first = (s->first + 1) & (s->capacity - 1);
    s->held--;
    return slot;
}

/* ---- filling and drawing ---- */

/* Puts the pulled rows into slots, and draws outputs while the buffer is full. If memory is
 * lacking, the rows stay for a retry. */
static mr_code take_in(struct state *s, uint64_t limit, size_t *n_outs, mr_status *st)
{
    size_t n = s->rows.rows;
    MR_TRY(MR_GROW(s->slots, s->slots_capacity, n, UINT32_MAX, "the slots of shuffle", st));
    MR_TRY(grow_ring(s, s->held + n, st));
    MR_TRY(mr__row_store_put(&s->store, &s->rows, 0, n, s->slots, st));
    for (size_t i = 0; i < n; i++) {
        if (s->held == limit)
            s->outs[(*n_outs)++] = draw(s);
        push(s, s->slots[i]);
    }
    mr_block_clear(&s->rows);
    return MR_OK;
}

/* Draws up to `want` outputs into s->outs. Pulls the input that the first output needs; stops
 * before an output that would need more. Returns MR_OK with at least one output, MR_END, or an
 * error that precedes the first output. */
static mr_code draw_outputs(mr_iter *it, size_t want, size_t *n_outs, mr_status *st)
{
    struct state *s = it->state;
    uint64_t limit = limit_of(it->params);
    size_t n = 0;
    mr_code rc = MR_OK;
    while (n < want && rc == MR_OK) {
        if (s->ended || s->held == limit) {
            if (s->held == 0)
                break;
            s->outs[n++] = draw(s);
            continue;
        }
        if (n) /* more input means more waiting: deliver these first */
            break;
        uint64_t ask = limit - s->held;
        ask = ask > SIZE_MAX - want ? SIZE_MAX : ask + want - 1;
        if (s->rows.rows == 0)
            rc = mr_iter_pull(it, 0, (size_t)ask, &s->rows, st);
        if (rc == MR_OK)
            rc = take_in(s, limit, &n, st);
        else if (rc == MR_END) {
            s->ended = true;
            rc = MR_OK;
        } else
            s->errors++;
    }
    *n_outs = n;
    return rc == MR_OK && n == 0 ? MR_END : rc;
}

static mr_code reserve_outs(struct state *s, size_t want, mr_status *st)
{
    return MR_GROW(s->outs, s->outs_capacity, want, UINT32_MAX, "the outputs of shuffle", st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t bytes = mr__row_store_row_bytes(&s->store);
    if (!out->destination)
        want = mr_iter_block_rows(it, want, bytes ? bytes : mr__row_bytes(it->spec));
    if (want > MAX_OUTPUTS)
        want = MAX_OUTPUTS;
    if (s->due == 0) {
        MR_TRY(reserve_outs(s, want, st));
        s->due_from = 0;
        MR_TRY(draw_outputs(it, want, &s->due, st));
    }
    const uint32_t *outs = s->outs + s->due_from;
    /* The size of strings is only known now: outputs that do not fit into one block stay due. */
    if (!out->destination && (bytes = mr__row_store_row_bytes(&s->store)) > 0)
        want = mr_iter_block_rows(it, want, bytes);
    size_t n = mr__row_store_fits(&s->store, outs, s->due < want ? s->due : want);
    MR_TRY(mr__row_store_take(&s->store, outs, n, out, st));
    s->due_from += n;
    s->due -= n;
    s->outputs += n;
    return MR_OK;
}

/* ---- slots of the op ---- */

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    s->store.expected = limit_of(it->params);
    MR_TRY(draw_pair(it, st));
    if (mr_iter_keeps_positions(it) && mr_iter_replays(it->inputs[0]))
        MR_TRY(mr_iter_position(it->inputs[0], &s->position, st));
    return MR_OK;
}

static void clear(struct state *s)
{
    mr__row_store_reset(&s->store);
    mr_block_clear(&s->rows);
    s->first = s->held = s->due = 0;
    s->outputs = s->errors = 0;
    s->ended = false;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__row_store_reset(&s->store);
    mr_block_reset(&s->rows);
    mr_buffer_unref(s->position);
    mr_free(s->ring);
    mr_free(s->slots);
    mr_free(s->outs);
}

static mr_code check(const void *p, mr_status *st)
{
    const struct params *q = p;
    if (q->buffer_size <= 0 && q->buffer_size != WHOLE)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "shuffle: buffer_size must be greater than zero (or -2: the whole dataset), "
                       "not %lld",
                       (long long)q->buffer_size);
    return MR_OK;
}

/* ---- positions ----
 * An iterator: pair, outputs, errors, then
 *   1, position                                 the input can be read again, and has not ended
 *   0, ended, rows in order (outputs due, then the buffer): number of them and of the due ones,
 *      blocks; rows that found no memory yet; the input */

/* The slots of all rows held, in order: those due, then the buffer. */
static mr_code list_slots(const struct state *s, uint32_t **out, mr_status *st)
{
    size_t n = s->due + s->held;
    uint32_t *slots = mr_malloc((n ? n : 1) * sizeof *slots);
    if (!slots)
        return mr_fail_memory(st, n * sizeof *slots, "the position of shuffle");
    if (s->due)
        memcpy(slots, s->outs + s->due_from, s->due * sizeof *slots);
    for (size_t i = 0; i < s->held; i++)
        slots[s->due + i] = s->ring[(s->first + i) & (s->capacity - 1)];
    *out = slots;
    return MR_OK;
}

static mr_code save_rows(struct state *s, mr_state_w *w, mr_status *st)
{
    size_t n = s->due + s->held;
    uint32_t *slots = NULL;
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    MR_TRY(mr_state_put_u64(w, n, st));
    MR_TRY(mr_state_put_u64(w, s->due, st));
    MR_TRY(list_slots(s, &slots, st));
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (size_t at = 0; at < n && rc == MR_OK;) {
        size_t k =
            mr__row_store_fits(&s->store, slots + at, n - at < SAVE_ROWS ? n - at : SAVE_ROWS);
        rc = mr__row_store_copy(&s->store, slots + at, k, &b, st);
        if (rc == MR_OK)
            rc = mr_state_put_block(w, &b, st);
        at += k;
    }
    mr_block_reset(&b);
    mr_free(slots);
    return rc == MR_OK ? mr_state_put_block(w, &s->rows, st) : rc;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->outputs, st));
    MR_TRY(mr_state_put_u64(w, s->errors, st));
    /* At the end there are no rows to save, and the input's end was reached, which may have
     * effects. */
    bool is_over = s->ended && s->due + s->held == 0;
    bool positioned = s->position && !is_over && mr_iter_replays(it->inputs[0]);
    MR_TRY(mr_state_put_u64(w, positioned, st));
    if (positioned)
        return mr_state_put_bytes(w, mr_buffer_data(s->position), mr_buffer_size(s->position), st);
    MR_TRY(save_rows(s, w, st));
    return mr_iter_save_input(it, 0, w, st);
}

/* ---- restoring by numbers ---- */

/* n times: draws from the buffer of `held` numbers, and appends the next number. */
static void draw_and_push(struct state *s, uint32_t *number, uint64_t n)
{
    uint32_t *ring = s->ring, held = (uint32_t)s->held, picks[DRAWS];
    size_t mask = s->capacity - 1;
    for (uint64_t k; n; n -= k) {
        k = n < DRAWS ? n : DRAWS;
        for (size_t i = 0; i < k; i++) {
            picks[i] = (uint32_t)((s->first + i + mr__philox_next(&s->random) % held) & mask);
            __builtin_prefetch(&ring[picks[i]], 1);
        }
        for (size_t i = 0; i < k; i++) {
            ring[picks[i]] = ring[(s->first + i) & mask];
            ring[(s->first + i + held) & mask] = (*number)++;
        }
        s->first = (s->first + k) & mask;
    }
}

/* The buffer after `outputs` outputs from an input of `rows` rows, with their numbers as slots. */
static mr_code draw_numbers(mr_iter *it, uint64_t rows, uint64_t outputs, mr_status *st)
{
    struct state *s = it->state;
    uint64_t limit = limit_of(it->params), fill = rows < limit ? rows : limit;
    uint64_t pairs = rows - fill < outputs - 1 ? rows - fill : outputs - 1, left = outputs - pairs;
    uint32_t number = 0;
    s->first = s->held = 0;
    mr__philox_init(&s->random, s->pair[0], s->pair[1]);
    MR_TRY(grow_ring(s, (size_t)fill + 1, st));
    while (number < fill)
        push(s, number++);
    for (uint64_t n; pairs; pairs -= n) {
        if (mr_iter_cancelled(it))
            return mr_iter_fail_cancelled(st);
        n = pairs < PATIENCE ? pairs : PATIENCE;
        draw_and_push(s, &number, n);
    }
    while (left--)
        draw(s);
    return MR_OK;
}

/* A set of numbers, as bits from `base` on. */
typedef struct numbers {
    uint64_t base;
    size_t words;
    uint64_t *bits;
    uint32_t *before; /* how many numbers are in the words before each */
} numbers;

static void numbers_reset(numbers *k)
{
    mr_free(k->bits);
    mr_free(k->before);
    *k = (numbers){0};
}

/* The numbers in the ring. */
static mr_code numbers_held(const struct state *s, numbers *k, mr_status *st)
{
    uint32_t least = UINT32_MAX, most = 0;
    size_t mask = s->capacity - 1;
    for (size_t i = 0; i < s->held; i++) {
        uint32_t number = s->ring[(s->first + i) & mask];
        least = number < least ? number : least;
        most = number > most ? number : most;
    }
    k->base = s->held ? least : 0;
    k->words = s->held ? (most - least) / 64 + 1 : 0;
    k->bits = mr_calloc(k->words + 1, sizeof *k->bits);
    k->before = mr_calloc(k->words + 1, sizeof *k->before);
    if (!k->bits || !k->before)
        return mr_fail_memory(st, k->words * 12, "the rows that shuffle held");
    for (size_t i = 0; i < s->held; i++) {
        uint64_t bit = s->ring[(s->first + i) & mask] - k->base;
        k->bits[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    for (size_t i = 0; i < k->words; i++)
        k->before[i + 1] = k->before[i] + (uint32_t)__builtin_popcountll(k->bits[i]);
    return MR_OK;
}

/* The first of the numbers that is not below `from`, or `end`. */
static uint64_t numbers_next(const numbers *k, uint64_t from, uint64_t end)
{
    uint64_t bit = from < k->base ? 0 : from - k->base;
    for (size_t i = (size_t)(bit / 64); i < k->words; i++, bit = 0) {
        uint64_t left = k->bits[i] >> bit % 64 << bit % 64;
        if (left)
            return k->base + 64 * i + (uint64_t)__builtin_ctzll(left);
    }
    return end;
}

/* How many of the numbers are below this one, which is one of them. */
static size_t numbers_below(const numbers *k, uint64_t number)
{
    uint64_t bit = number - k->base;
    uint64_t below = k->bits[bit / 64] & (((uint64_t)1 << bit % 64) - 1);
    return k->before[bit / 64] + (size_t)__builtin_popcountll(below);
}

/* Rows from `at` on to pull at once: up to a gap that is worth a skip. */
static size_t rows_to_pull(const numbers *k, uint64_t at, uint64_t rows, uint64_t gap)
{
    uint64_t end = at, next;
    while ((next = numbers_next(k, end, rows)) - end < gap && end < rows && end - at < MOST_PULLED)
        end = next < rows ? next + 1 : rows;
    return (size_t)(end > at ? end - at : 1);
}

/* Stores those of the pulled rows, the first of which has number `at`, that are among the numbers.
 * slots[i]: that of the i-th number; *n: how many were stored before. */
static mr_code store_kept(struct state *s, const numbers *k, uint64_t at, uint32_t *slots,
                          size_t *n, mr_status *st)
{
    uint64_t end = at + s->rows.rows, from = numbers_next(k, at, end);
    while (from < end) {
        uint64_t next = from + 1;
        while (next < end && numbers_next(k, next, end) == next)
            next++;
        size_t run = (size_t)(next - from);
        MR_TRY(mr__row_store_put(&s->store, &s->rows, (size_t)(from - at), run, slots + *n, st));
        *n += run;
        from = numbers_next(k, next, end);
    }
    return MR_OK;
}

/* A gap in the rows to keep that is worth a skip, by the size of the rows pulled so far. */
static uint64_t long_gap(uint64_t bytes, uint64_t rows)
{
    uint64_t mean = rows ? bytes / rows : 0, gap = SKIP_BYTES / (mean ? mean : 1);
    return gap > SKIP_ROWS ? gap : SKIP_ROWS;
}

/* Reads `rows` rows of the input, and stores those with one of the numbers. *at: how many were
 * read. */
static mr_code read_kept(mr_iter *it, const numbers *k, uint64_t rows, uint32_t *slots,
                         uint64_t *at, mr_status *st)
{
    struct state *s = it->state;
    bool skips = it->inputs[0]->op->skip != NULL;
    uint64_t bytes = 0, pulled = 0, passed;
    size_t stored = 0;
    for (*at = 0; *at < rows;) {
        uint64_t gap = skips ? long_gap(bytes, pulled) : UINT64_MAX;
        uint64_t next = numbers_next(k, *at, rows);
        if (pulled && next - *at >= gap) {
            MR_TRY(mr_iter_skip_input(it, 0, next - *at, &passed, st));
            *at += passed;
            skips = passed > 0;
            continue;
        }
        size_t want = rows_to_pull(k, *at, rows, gap);
        MR_TRY(mr_iter_pull(it, 0, pulled || want < SKIP_ROWS ? want : SKIP_ROWS, &s->rows, st));
        MR_TRY(store_kept(s, k, *at, slots, &stored, st));
        *at += s->rows.rows;
        pulled += s->rows.rows;
        if (skips)
            bytes += mr_block_payload_bytes(&s->rows);
        mr_block_clear(&s->rows);
    }
    return MR_OK;
}

/* Restores the buffer after `outputs` outputs of an input that has `rows` rows, if it has as many:
 * otherwise *found is less. */
static mr_code restore_numbers(mr_iter *it, uint64_t rows, uint64_t outputs, uint64_t *found,
                               mr_status *st)
{
    struct state *s = it->state;
    numbers kept = {0};
    MR_TRY(draw_numbers(it, rows, outputs, st));
    uint32_t *slots = mr_malloc((s->held + 1) * sizeof *slots);
    mr_code rc = slots ? numbers_held(s, &kept, st)
                       : mr_fail_memory(st, s->held * sizeof *slots, "the rows that shuffle held");
    if (rc == MR_OK)
        rc = read_kept(it, &kept, rows, slots, found, st);
    for (size_t i = 0; i < s->held && rc == MR_OK; i++) {
        uint32_t *at = &s->ring[(s->first + i) & (s->capacity - 1)];
        *at = slots[numbers_below(&kept, *at)];
    }
    numbers_reset(&kept);
    mr_free(slots);
    return rc == MR_END ? MR_OK : rc;
}

/* true: replay_numbers is worth while, and the position does not claim more outputs than there can
 * be, which drawing would find out late. */
static bool replays_numbers(const mr_iter *it, uint64_t outputs, uint64_t errors)
{
    uint64_t limit = limit_of(it->params);
    if (errors || outputs <= limit || outputs > UINT32_MAX || outputs + limit > UINT32_MAX)
        return false;
    if (outputs <= UNDOUBTED)
        return true;
    int64_t rows = mr_dataset_cardinality(it->inputs[0]->node);
    return rows == MR_INFINITE || (rows >= 0 && (uint64_t)rows >= outputs);
}

/* As replay, without errors, where most of the rows that were read have left the buffer. The number
 * of rows is only known once the input has ended before the last output: then it is read twice. */
static mr_code replay_numbers(mr_iter *it, const void *position, size_t n, uint64_t outputs,
                              mr_status *st)
{
    struct state *s = it->state;
    uint64_t rows = limit_of(it->params) + outputs - 1, found;
    MR_TRY(restore_numbers(it, rows, outputs, &found, st));
    s->outputs = outputs;
    if (found == rows)
        return MR_OK;
    if (found < outputs)
        return mr_state_damaged(st, "elements before it are missing");
    mr__row_store_reset(&s->store);
    MR_TRY(mr__reopen_at(it, 0, position, n, st));
    rows = found;
    MR_TRY(restore_numbers(it, rows, outputs, &found, st));
    if (found < rows)
        return mr_state_damaged(st, "elements before it are missing");
    mr_code rc = mr_iter_pull(it, 0, 1, &s->rows, st);
    s->ended = rc == MR_END;
    return rc == MR_OK    ? mr_state_damaged(st, "there are more elements than before")
           : rc == MR_END ? MR_OK
                          : rc;
}

/* Draws `outputs` outputs and reads `errors` errors again, without delivering any. */
static mr_code replay(mr_iter *it, uint64_t outputs, uint64_t errors, mr_status *st)
{
    struct state *s = it->state;
    uint64_t limit = limit_of(it->params), met = 0;
    MR_TRY(reserve_outs(s, SAVE_ROWS, st));
    while (s->outputs < outputs || met < errors) {
        uint64_t left = outputs - s->outputs;
        size_t n = 0;
        mr_code rc;
        mr_status error;
        if (left)
            rc = draw_outputs(it, left < SAVE_ROWS ? (size_t)left : SAVE_ROWS, &n, &error);
        else { /* errors read while filling for an output not drawn yet */
            if (s->held == limit)
                return MR_OK;
            rc = mr_iter_pull(it, 0, (size_t)(limit - s->held), &s->rows, &error);
            s->errors += rc < 0;
            if (rc == MR_OK)
                rc = take_in(s, limit, &n, &error);
            if (rc == MR_END) /* one of them was temporary */
                return MR_OK;
        }
        mr__row_store_drop(&s->store, s->outs, n);
        s->outputs += n;
        if (rc == MR_END)
            return mr_state_damaged(st, "elements before it are missing");
        /* An error of no element is not one of the errors. */
        if (rc < 0 && (++met > errors || s->rows.rows || mr_status_is_of_no_element(&error) ||
                       mr_iter_cancelled(it))) {
            if (st)
                *st = error;
            return rc;
        }
    }
    return MR_OK;
}

static mr_code restore_rows(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t ended, n, due;
    MR_TRY(mr_state_get_u64(r, &ended, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    MR_TRY(mr_state_get_u64(r, &due, st));
    s->ended = ended && !mr__iter_may_go_on(it);
    if (due > n || due > MAX_OUTPUTS || n - due > limit_of(it->params))
        return mr_state_damaged(st, "more rows are held than allowed");
    MR_TRY(reserve_outs(s, (size_t)due, st));
    s->due_from = 0;
    for (uint64_t at = 0; at < n;) {
        mr_code rc = mr_state_get_block(r, it->spec, &s->rows, st);
        size_t k = s->rows.rows;
        if (rc == MR_OK && (k == 0 || k > n - at))
            rc = mr_state_damaged(st, "a block has another number of rows");
        if (rc == MR_OK)
            rc = MR_GROW(s->slots, s->slots_capacity, k, UINT32_MAX, "the slots of shuffle", st);
        if (rc == MR_OK)
            rc = grow_ring(s, s->held + k, st);
        if (rc == MR_OK)
            rc = mr__row_store_put(&s->store, &s->rows, 0, k, s->slots, st);
        mr_block_clear(&s->rows);
        if (rc != MR_OK)
            return rc;
        for (size_t i = 0; i < k; i++, at++) {
            if (at < due)
                s->outs[s->due++] = s->slots[i];
            else
                push(s, s->slots[i]);
        }
    }
    MR_TRY(mr_state_get_block(r, it->spec, &s->rows, st));
    return mr_iter_restore_input(it, 0, r, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t outputs, errors, positioned;
    clear(s);
    MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
    MR_TRY(mr_state_get_u64(r, &outputs, st));
    MR_TRY(mr_state_get_u64(r, &errors, st));
    MR_TRY(mr_state_get_u64(r, &positioned, st));
    mr__philox_init(&s->random, s->pair[0], s->pair[1]);
    mr_buffer_unref(s->position);
    s->position = NULL;
    if (!positioned) {
        MR_TRY(restore_rows(it, r, st));
        mr__philox_skip(&s->random, outputs + s->due);
        s->outputs = outputs;
        s->errors = errors;
        return MR_OK;
    }
    const void *position;
    size_t n;
    MR_TRY(mr_state_get_bytes(r, &position, &n, st));
    MR_TRY(mr_buffer_alloc(&s->position, n, st));
    memcpy(mr_buffer_data(s->position), position, n);
    MR_TRY(mr__reopen_at(it, 0, position, n, st));
    if (replays_numbers(it, outputs, errors))
        return replay_numbers(it, position, n, outputs, st);
    return replay(it, outputs, errors, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, buffer_size, MR_P_POSITIONAL | MR_P_HOLDS,
                  .doc = "Elements held, at least 1; -2: the whole dataset."),
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes the order; drawn at random if absent."),
    MR_OPT(struct params, reshuffle_each_iteration, .flags = MR_P_OPTIONAL, .def.b = true,
           .doc = "Draws a new order in each epoch."),
    {0}};

const mr_op mr_op_shuffle = {
    .abi = MR_ABI_VERSION,
    .name = "shuffle",
    .doc = "Emits the elements in random order, each drawn from a buffer of the next ones.",
    .example = "range(10).shuffle(10, seed=42)",
    .order_doc = "random, from a buffer",
    .memory_doc = "buffer_size elements",
    .state_doc = "the input's position at its start and counters; the elements where the input "
                 "cannot be read again",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT | MR_OP_RANDOM | MR_OP_REORDERS | MR_OP_KEEPS_SHARDS,
    .check = check,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_shuffle(mr_dataset *input, int64_t buffer_size, const mr_shuffle_opts *opts)
{
    struct params p = {.buffer_size = buffer_size};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_shuffle, &p, &input, 1);
}
