/* SPDX-License-Identifier: Apache-2.0 */
/* One cache per dataset object. An iterator that finds it incomplete reads the input and records
 * the elements that it emits. The cache is complete when the input has ended, or when the number of
 * elements known from the graph was reached. Later iterators replay it and never open the input.
 * The records of an abandoned iterator are discarded.
 *
 * A position contains no elements. For a recording iterator it contains the input's position where
 * recording began and the counts since; for a complete cache the same, and the cache is filled
 * again when first needed. The rows are saved only if the input cannot be read again.
 *
 * With a file name, streams/file_cache.c does all of this. */
#include "pipeline/ops/sequence.h"

#include <string.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/log.h"
#include "pipeline/streams/elements/file_cache.h"
#include "pipeline/streams/read_ahead_queue.h"
#include "pipeline/system/fork.h"

struct params {
    char *filename; /* NULL or empty: in memory */
    mr_cache_opts o;
};

/* Recorded rows: dense ones contiguously in large blocks, so that batches of them are views;
 * others, and those of arrays in memory, in the input's blocks. */
struct record {
    mr_block *blocks;
    size_t n, capacity;
    size_t room;         /* row capacity of the last block */
    uint64_t rows;       /* recorded since `position` */
    uint64_t errors;     /* after the last of them */
    mr_buffer *position; /* the input's position where it began; NULL: cannot be read again */
};

struct shared {
    mr__file_cache_shared file; /* of a cache in a file, which uses nothing else */
    mr__lock lock;              /* guards the rest */
    bool complete;
    bool lost; /* complete, but must be read again from record.position before use */
    struct record record;
};

struct state {
    mr__file_cache file;  /* first; a cache in a file uses nothing else */
    bool reading;         /* from the cache */
    bool published;       /* this iterator completed the cache */
    struct record record; /* what it records */
    mr_block ahead;       /* next rows of the input */
    size_t block, row;    /* next to read */
    uint64_t at;
};

enum { MAX_BLOCKS = 1 << 28, MOST_BYTES = 32 << 20 /* of a large block */ };

static void init_shared(void *p)
{
    struct shared *c = p;
    mr__file_cache_init_shared(&c->file);
    mr__lock_init(&c->lock);
}

static void reset_record(struct record *r)
{
    for (size_t i = 0; i < r->n; i++)
        mr_block_reset(&r->blocks[i]);
    mr_free(r->blocks);
    mr_buffer_unref(r->position);
    *r = (struct record){0};
}

static void destroy_shared(void *p)
{
    struct shared *c = p;
    reset_record(&c->record);
    mr__file_cache_destroy_shared(&c->file);
    mr__lock_destroy(&c->lock);
}

static mr_code shared_of(mr_iter *it, struct shared **c, mr_status *st)
{
    void *p;
    MR_TRY(mr_iter_shared(it, sizeof **c, init_shared, destroy_shared, &p, st));
    *c = p;
    return MR_OK;
}

/* ---- recording ---- */

static bool is_copied(const mr_block *b)
{
    for (size_t c = 0; c < b->n_columns; c++)
        if (b->columns[c].storage != MR_DENSE || b->columns[c].resident)
            return false;
    return mr_block_payload_bytes(b) < MOST_BYTES;
}

/* A block for b's rows and, if they are copied, for as many more rows as are already recorded. */
static mr_code start_block(const struct record *r, const mr_block *b, bool copied, mr_block *to,
                           size_t *room, mr_status *st)
{
    size_t most = MOST_BYTES / (mr_block_payload_bytes(b) / b->rows + 1);
    size_t more = r->rows < most ? (size_t)r->rows : most;
    *to = (mr_block)MR_BLOCK_EMPTY;
    *room = copied ? more : 0;
    if (!copied)
        return mr_block_slice(to, b, 0, b->rows, st);
    mr_code rc = mr_block_start(to, b, b->rows + more, st);
    if (rc == MR_OK)
        rc = mr_block_append(to, b, 0, b->rows, st);
    if (rc != MR_OK)
        mr_block_reset(to);
    return rc;
}

static mr_code add(struct record *r, const mr_block *b, mr_status *st)
{
    bool copied = is_copied(b);
    if (copied && r->room >= b->rows && mr_block_fits(&r->blocks[r->n - 1], b)) {
        MR_TRY(mr_block_append(&r->blocks[r->n - 1], b, 0, b->rows, st));
        r->room -= b->rows;
    } else {
        MR_TRY(MR_GROW(r->blocks, r->capacity, r->n + 1, MAX_BLOCKS, "a cache", st));
        mr_block *to = &r->blocks[r->n];
        size_t room;
        MR_TRY(start_block(r, b, copied, to, &room, st));
        r->room = room;
        for (size_t c = 0; c < to->n_columns; c++)
            to->columns[c].resident = true;
        r->n++;
    }
    r->rows += b->rows;
    r->errors = 0;
    return MR_OK;
}

static mr_code begin(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_iter_open_input(it, 0, st));
    mr_iter_set_records(it, true);
    if (mr_iter_keeps_positions(it) && mr_iter_replays(it->inputs[0]))
        MR_TRY(mr_iter_position(it->inputs[0], &s->record.position, st));
    return MR_OK;
}

static mr_code publish(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    struct shared *c;
    MR_TRY(shared_of(it, &c, st));
    if (!mr_iter_replays(it->inputs[0])) {
        mr_buffer_unref(s->record.position);
        s->record.position = NULL;
    }
    mr__lock_take(&c->lock);
    if (!c->complete) {
        struct record old = c->record;
        c->record = s->record;
        s->record = old;
        c->complete = true;
        c->lost = false;
    }
    mr__lock_release(&c->lock);
    s->published = true;
    mr_iter_set_records(it, false);
    reset_record(&s->record);
    return MR_OK;
}

static bool all_seen(const mr_iter *it, const struct state *s)
{
    int64_t n = mr_dataset_cardinality(mr_dataset_input(it->node, 0));
    return n >= 0 && s->record.rows == (uint64_t)n;
}

static mr_code record_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    const mr_destination *destination = out->destination;
    out->destination = NULL; /* cached rows must not be in the consumer's memory */
    mr_code rc = MR_OK;
    if (s->ahead.rows)
        mr_block_move(out, &s->ahead);
    else
        rc = mr_iter_pull(it, 0, want, out, st);
    out->destination = destination;
    if (s->published)
        return rc;
    if (rc == MR_OK) {
        rc = add(&s->record, out, st);
        if (rc != MR_OK) {
            mr_block_move(&s->ahead, out);
            return rc;
        }
        if (all_seen(it, s))
            MR_TRY(publish(it, st));
    } else if (rc == MR_END)
        MR_TRY(publish(it, st));
    else if (!mr_status_is_of_no_element(st))
        s->record.errors++;
    return rc;
}

/* Fills s->record from its position up to these counts. */
static mr_code record_again(mr_iter *it, const void *position, size_t n, uint64_t rows,
                            uint64_t errors, mr_status *st)
{
    struct state *s = it->state;
    reset_record(&s->record);
    MR_TRY(mr_buffer_alloc(&s->record.position, n, st));
    memcpy(mr_buffer_data(s->record.position), position, n);
    MR_TRY(mr__reopen_at(it, 0, position, n, st));
    mr_block b = MR_BLOCK_EMPTY;
    mr_status error;
    mr_code rc = MR_OK;
    while (rc >= 0 && s->record.rows < rows) {
        rc = mr_iter_pull(it, 0, (size_t)(rows - s->record.rows), &b, &error);
        if (rc == MR_END)
            rc = mr_state_damaged(&error, "the input has fewer elements than were cached");
        else if (rc == MR_OK)
            rc = add(&s->record, &b, &error);
        else if (!mr_iter_cancelled(it) && !mr_status_is_of_no_element(&error))
            rc = MR_OK; /* was already reported */
    }
    if (rc < 0 && st)
        *st = error;
    for (uint64_t i = 0; rc == MR_OK && i < errors; i++) {
        rc = mr_iter_pull(it, 0, 1, &s->ahead, &error);
        if (rc >= 0) /* the error was temporary: a row or the end comes next */
            break;
        if (!mr_iter_cancelled(it) && !mr_status_is_of_no_element(&error))
            rc = MR_OK;
        else if (st)
            *st = error;
    }
    s->record.errors = errors;
    mr_block_reset(&b);
    return rc == MR_END ? MR_OK : rc;
}

/* Reads the rows of a restored complete cache again. */
static mr_code refill(mr_iter *it, struct shared *c, mr_status *st)
{
    struct state *s = it->state;
    mr__lock_take(&c->lock);
    bool lost = c->lost;
    mr_buffer *position = lost ? mr_buffer_ref(c->record.position) : NULL;
    uint64_t rows = c->record.rows, errors = c->record.errors;
    mr__lock_release(&c->lock);
    if (!lost)
        return MR_OK;
    mr_code rc =
        record_again(it, mr_buffer_data(position), mr_buffer_size(position), rows, errors, st);
    mr_buffer_unref(position);
    mr_iter_close_input(it, 0);
    if (rc == MR_OK) {
        mr__lock_take(&c->lock);
        struct record old = c->record;
        c->record = s->record;
        c->lost = false;
        mr__lock_release(&c->lock);
        s->record = old;
    }
    reset_record(&s->record);
    return rc;
}

/* ---- slots ---- */

static bool names_file(const void *params)
{
    const struct params *p = params;
    return p->filename && p->filename[0];
}

static bool in_file(const mr_iter *it)
{
    return names_file(it->params);
}

static mr_code open_file(mr_iter *it, mr_status *st)
{
    static const char ending[] = ".cache";
    const struct params *p = it->params;
    char *prefix, *path;
    struct shared *c;
    MR_TRY(shared_of(it, &c, st));
    MR_TRY(mr_iter_file_path(it, p->filename, &prefix, st));
    size_t n = strlen(prefix);
    path = mr_realloc(prefix, n + sizeof ending);
    if (!path) {
        mr_free(prefix);
        return mr_fail_memory(st, n, "a path");
    }
    memcpy(path + n, ending, sizeof ending);
    const mr__file_cache_opts opts = {
        .reuse = true, .strict = p->o.strict, .graph = p->o.graph, .shared = &c->file};
    return mr__file_cache_open(it, path, &opts, st);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    struct shared *c;
    if (in_file(it))
        return open_file(it, st);
    MR_TRY(shared_of(it, &c, st));
    mr__lock_take(&c->lock);
    s->reading = c->complete;
    mr__lock_release(&c->lock);
    return s->reading ? MR_OK : begin(it, st);
}

/* A complete cache does not change: blocks are read without the lock. */
static mr_code read_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    struct shared *c;
    MR_TRY(shared_of(it, &c, st));
    MR_TRY(refill(it, c, st));
    if (s->block == c->record.n)
        return MR_END;
    const mr_block *b = &c->record.blocks[s->block];
    size_t left = b->rows - s->row, n = left < want ? left : want;
    MR_TRY(mr_block_slice(out, b, s->row, n, st));
    s->at += n;
    s->row += n;
    if (s->row == b->rows) {
        s->block++;
        s->row = 0;
    }
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (in_file(it))
        return mr__file_cache_next(it, want, out, st);
    return s->reading ? read_next(it, want, out, st) : record_next(it, want, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__file_cache_close(it);
    if (!s->reading && !s->published && s->record.rows)
        mr_log(MR_LOG_WARNING,
               "cache: an iterator was closed before the end of its input; what it recorded, %llu "
               "element%s, is thrown away (put take() before cache() to keep a part)",
               (unsigned long long)s->record.rows, s->record.rows == 1 ? "" : "s");
    reset_record(&s->record);
    mr_block_reset(&s->ahead);
}

/* ---- positions ----
 * A record: rows, errors, 1 and the position, or 0 and its blocks (number of them, then each).
 * Shared: whether it is complete, then the record if so. Of a cache in a file: 0, or 2 if the file
 * was complete.
 * An iterator: 0 recording, the record | 1 reading, rows read | 2 has completed it; the input. */

enum { RECORDING, READING, PUBLISHED };
enum { COMPLETE_FILE = 2 };

static mr_code save_record(const struct record *r, bool replays, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, r->rows, st));
    MR_TRY(mr_state_put_u64(w, r->errors, st));
    MR_TRY(mr_state_put_u64(w, r->position && replays, st));
    if (r->position && replays)
        return mr_state_put_bytes(w, mr_buffer_data(r->position), mr_buffer_size(r->position), st);
    MR_TRY(mr_state_put_u64(w, r->n, st));
    for (size_t i = 0; i < r->n; i++)
        MR_TRY(mr_state_put_block(w, &r->blocks[i], st));
    return MR_OK;
}

/* Into r: its counts and position, or its blocks. */
static mr_code restore_record(struct record *r, const mr_spec *spec, mr_state_r *in, mr_status *st)
{
    uint64_t rows, errors, positioned, n;
    reset_record(r);
    MR_TRY(mr_state_get_u64(in, &rows, st));
    MR_TRY(mr_state_get_u64(in, &errors, st));
    MR_TRY(mr_state_get_u64(in, &positioned, st));
    if (positioned) {
        const void *position;
        size_t bytes;
        MR_TRY(mr_state_get_bytes(in, &position, &bytes, st));
        MR_TRY(mr_buffer_alloc(&r->position, bytes, st));
        memcpy(mr_buffer_data(r->position), position, bytes);
        r->rows = rows;
        r->errors = errors;
        return MR_OK;
    }
    MR_TRY(mr_state_get_u64(in, &n, st));
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (uint64_t i = 0; i < n && rc == MR_OK; i++) {
        rc = mr_state_get_block(in, spec, &b, st);
        if (rc == MR_OK && b.rows == 0)
            rc = mr_state_damaged(st, "a cached block has no rows");
        if (rc == MR_OK)
            rc = add(r, &b, st);
    }
    mr_block_reset(&b);
    if (rc == MR_OK && r->rows != rows)
        rc = mr_state_damaged(st, "a cache has another number of rows");
    r->errors = errors;
    return rc;
}

static mr_code save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    void *p;
    MR_TRY(mr_node_shared(node, sizeof(struct shared), init_shared, destroy_shared, &p, st));
    struct shared *c = p;
    if (names_file(mr_dataset_params(node)))
        return mr_state_put_u64(w, mr__file_cache_was_complete(&c->file) ? COMPLETE_FILE : 0, st);
    mr__lock_take(&c->lock);
    bool complete = c->complete;
    mr__lock_release(&c->lock);
    MR_TRY(mr_state_put_u64(w, complete, st));
    return complete ? save_record(&c->record, true, w, st) : MR_OK;
}

static mr_code restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    void *p;
    uint64_t complete;
    MR_TRY(mr_node_shared(node, sizeof(struct shared), init_shared, destroy_shared, &p, st));
    struct shared *c = p;
    MR_TRY(mr_state_get_u64(r, &complete, st));
    if (names_file(mr_dataset_params(node))) {
        mr__file_cache_restore_shared(&c->file, complete == COMPLETE_FILE);
        return MR_OK;
    }
    struct record fresh = {0};
    mr_code rc = MR_OK;
    if (complete)
        rc = restore_record(&fresh, mr_dataset_spec(node), r, st);
    if (rc != MR_OK) {
        reset_record(&fresh);
        return rc;
    }
    mr__lock_take(&c->lock);
    struct record old = c->record;
    c->record = fresh;
    c->complete = complete;
    c->lost = complete && fresh.position;
    mr__lock_release(&c->lock);
    reset_record(&old);
    return MR_OK;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    if (in_file(it))
        return mr__file_cache_save(it, w, st);
    MR_TRY(mr_state_put_u64(w, s->reading ? READING : s->published ? PUBLISHED : RECORDING, st));
    if (s->reading)
        MR_TRY(mr_state_put_u64(w, s->at, st));
    else if (!s->published)
        MR_TRY(save_record(&s->record, mr_iter_replays(it->inputs[0]), w, st));
    return mr_iter_save_input(it, 0, w, st);
}

/* Seeks to row `at` of the complete cache. */
static mr_code seek(mr_iter *it, uint64_t at, mr_status *st)
{
    struct state *s = it->state;
    struct shared *c;
    MR_TRY(shared_of(it, &c, st));
    MR_TRY(refill(it, c, st));
    if (!c->complete || at > c->record.rows)
        return mr_state_damaged(st, "a row is after the end of the cache");
    for (s->at = s->block = 0; s->block < c->record.n; s->block++) {
        size_t rows = c->record.blocks[s->block].rows;
        if (s->at + rows > at)
            break;
        s->at += rows;
    }
    s->row = (size_t)(at - s->at);
    s->at = at;
    return MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t mode, at;
    if (in_file(it))
        return mr__file_cache_restore(it, r, st);
    MR_TRY(mr_state_get_u64(r, &mode, st));
    if (mode > PUBLISHED)
        return mr_state_damaged(st, "a cache has no such mode");
    reset_record(&s->record);
    mr_block_clear(&s->ahead);
    s->reading = mode == READING;
    s->published = mode == PUBLISHED;
    mr_iter_set_records(it, mode == RECORDING);
    if (s->reading) {
        MR_TRY(mr_state_get_u64(r, &at, st));
        MR_TRY(seek(it, at, st));
    } else if (mode == RECORDING) {
        struct record saved = {0};
        mr_code rc = restore_record(&saved, it->spec, r, st);
        if (rc == MR_OK && saved.position)
            rc = record_again(it, mr_buffer_data(saved.position), mr_buffer_size(saved.position),
                              saved.rows, saved.errors, st);
        else if (rc == MR_OK) {
            s->record = saved;
            saved = (struct record){0};
        }
        reset_record(&saved);
        MR_TRY(rc);
    }
    return mr_iter_restore_input(it, 0, r, st);
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    if (!names_file(p) && (p->o.strict || p->o.graph))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "cache: strict and graph are for a cache in a file; give a filename");
    if (p->o.graph && (strlen(p->o.graph) != 16 || strspn(p->o.graph, "0123456789abcdef") != 16))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "cache: graph is a fingerprint of 16 hexadecimal digits, not '%.64s'",
                       p->o.graph);
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    if (names_file(params))
        return mr__file_cache_infer(self, params, out, st);
    *out = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0)));
    return MR_OK;
}

static const mr_param table[] = {
    {.name = "filename",
     .doc = "Keeps the elements in the file FILENAME.cache, for later runs too; else in memory.",
     .type = MR_PT_STR,
     .flags = MR_P_OPTIONAL | MR_P_KEEPS_FILE | MR_P_WRITES,
     .at = offsetof(struct params, filename)},
    MR_OPT(struct params, strict,
           .doc = "Refuses the file if an input was written since, even if its size is the same."),
    MR_OPT(struct params, graph, .flags = MR_P_OF_GRAPH,
           .doc = "Fingerprint of the graph that the elements come from, set where streams or "
                  "workers run parts of a graph; default: that of the graph below."),
    {0}};

const mr_op mr_op_cache = {
    .abi = MR_ABI_VERSION,
    .name = "cache",
    .doc = "Keeps the elements in memory or in a file; later passes do not read the input again.",
    .example = "range(3).cache().repeat(2)",
    .memory_doc = "all elements; with a file, a block and the names of the files read",
    .state_doc = "a counter, and the input's position where recording began",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT | MR_OP_OPENS_INPUTS | MR_OP_KEEPS_SHARDS | MR_OP_REMEMBERS,
    .check = check,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = save_shared,
    .restore_shared = restore_shared,
};

mr_dataset *mr_cache(mr_dataset *input)
{
    struct params p = {0};
    return mr_dataset_new(&mr_op_cache, &p, &input, 1);
}

mr_dataset *mr_cache_file(mr_dataset *input, const char *filename)
{
    return mr_cache_in(input, filename, NULL);
}

mr_dataset *mr_cache_in(mr_dataset *input, const char *filename, const mr_cache_opts *opts)
{
    struct params p = {.filename = (char *)(uintptr_t)filename};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_cache, &p, &input, 1);
}
