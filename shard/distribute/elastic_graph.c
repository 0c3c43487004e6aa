/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs of an elastic job: of its steps, and of each stream. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/row_wise_internal.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "shard/distribute/elastic_impl.h"
#include "shard/distribute/lone_streams_internal.h"
#include "shard/passes/own_files.h"
#include "shard/passes/shard_passes.h"
#include "shard/streams/file_lists_internal.h"
#include "shard/streams/stream_cut.h"

/* Identifies caches of streams that this cut made (mr_parts.how). */
enum { ELASTIC = 64 };

/* ---- options ---- */

/* As mr_shard_policy_of: the last value wins. */
static mr_code read_option(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    (void)w;
    int64_t *streams = ctx;
    mr_value v = {0};
    if (!(mr_dataset_op(node)->props & MR_OP_HOLDS_OPTIONS))
        return MR_OK;
    mr_code rc = mr_dataset_param_named(node, "elastic_streams", &v, st);
    if (rc == MR_OK && v.kind == MR_V_INT)
        *streams = v.i;
    mr_value_reset(&v);
    return rc;
}

mr_code mr__elastic_option(mr_dataset *ds, int64_t *streams, mr_status *st)
{
    *streams = 0;
    return mr__visit_graph(ds, read_option, streams, st);
}

/* ---- other numbers ---- */

typedef struct renumbered {
    const mr_dataset *global; /* the batch op whose size is the job's */
    int64_t from, streams, batch;
    mr_status status;
} renumbered;

/* now (taken over) with another number as a parameter. */
static mr_dataset *with_number(mr_dataset *now, const char *name, int64_t n)
{
    mr_dataset *made = mr_dataset_with_param(now, name, &(mr_value){.kind = MR_V_INT, .i = n});
    mr_dataset_unref(now);
    return made;
}

static mr_dataset *renumber(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)w;
    renumbered *r = ctx;
    mr_value v = {0};
    if (old == r->global)
        return with_number(now, "batch_size", r->batch);
    if (!(mr_dataset_op(old)->props & MR_OP_HOLDS_OPTIONS))
        return now;
    mr_code rc = mr_dataset_param_named(old, "elastic_streams", &v, &r->status);
    bool ours = rc == MR_OK && v.kind == MR_V_INT && v.i == r->from;
    mr_value_reset(&v);
    if (rc == MR_OK)
        return ours ? with_number(now, "elastic_streams", r->streams) : now;
    mr_dataset_unref(now);
    return mr_dataset_fail(&r->status);
}

mr_code mr__elastic_renumber(const mr__elastic *x, mr_dataset *ds, int64_t streams, int64_t batch,
                             mr_dataset **out, mr_status *st)
{
    renumbered r = {.global = ds, .from = x->streams, .streams = streams, .batch = batch};
    while (!(mr_dataset_op(r.global)->props & MR_OP_BATCHES))
        r.global = mr_dataset_input(r.global, 0);
    return mr__walk_graph(ds, renumber, &r, out, st);
}

/* ---- checks ---- */

static mr_code refuse_unordered(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    (void)ctx;
    (void)w;
    mr_value v = {0};
    const mr_op *op = mr_dataset_op(node);
    MR_TRY(mr_dataset_param_named(node, "deterministic", &v, st));
    bool unordered = v.kind == MR_V_BOOL && v.i == 0;
    mr_value_reset(&v);
    if (!unordered && !(op->props & MR_OP_NO_REPLAY))
        return MR_OK;
    mr_fail(st, MR_FAILED_PRECONDITION,
            "%s%s may not produce the same elements again, so it cannot be part of an elastic job",
            op->name, unordered ? " with deterministic=false" : "");
    mr_status_set_op(st, op->name);
    return MR_FAILED_PRECONDITION;
}

static mr_code check_graph(mr_dataset *ds, int64_t streams, mr_status *st)
{
    if (streams < 1 || streams > MR_MOST_STREAMS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of elastic streams must be 1 to %d, not %" PRId64,
                       MR_MOST_STREAMS, streams);
    return mr__visit_graph(ds, refuse_unordered, NULL, st);
}

/* *out = the op is a map whose function treats the rows of a batch separately. */
static mr_code is_row_wise_map(const mr_dataset *ds, bool *out, mr_status *st)
{
    const uint32_t map = MR_OP_KEEPS_COUNT | MR_OP_KEEPS_SHARDS;
    const mr_op *op = mr_dataset_op(ds);
    mr_value fn = {0};
    const mr_program *p = NULL;
    *out = false;
    if ((op->props & map) != map || op->role != MR_ROLE_PASS)
        return MR_OK;
    MR_TRY(mr_dataset_param_named(ds, "fn", &fn, st));
    if (fn.kind == MR_V_FN) {
        mr_code rc = mr_program_get(fn.fn, mr_dataset_spec(mr_dataset_input(ds, 0)), &p, st);
        if (rc != MR_OK) {
            mr_value_reset(&fn);
            return rc;
        }
        *out = mr__program_is_row_wise(p);
        mr_program_unref(p);
    }
    mr_value_reset(&fn);
    return MR_OK;
}

static mr_code check_above(const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    bool row_wise = false;
    if (op->props & (MR_OP_COUNTS_STEPS | MR_OP_READS_AHEAD | MR_OP_HOLDS_OPTIONS))
        return MR_OK;
    if (mr_dataset_n_inputs(ds) == 1)
        MR_TRY(is_row_wise_map(ds, &row_wise, st));
    if (row_wise)
        return MR_OK;
    if (mr_dataset_n_inputs(ds) == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "an elastic job is cut below its global batch, but there is no batch op; "
                       "batch the dataset by the global batch size");
    mr_fail(st, MR_FAILED_PRECONDITION,
            "%s is above the global batch of an elastic job, where each replica has only its "
            "rows; there may be take, skip, repeat, enumerate, prefetch, with_options, and a map "
            "whose function treats the rows of a batch separately, by arithmetic, comparisons and "
            "casts; move it below the batch",
            op->name);
    mr_status_set_op(st, op->name);
    return MR_FAILED_PRECONDITION;
}

/* ---- the graph of the steps ---- */

/* Sets a parameter of *ds that is not at its default. */
static mr_code set(mr_dataset **ds, const char *name, mr_value v, mr_status *st)
{
    mr_value now = {0};
    MR_TRY(mr_dataset_check(*ds, st));
    MR_TRY(mr_dataset_param_named(*ds, name, &now, st));
    bool set = now.kind != MR_V_UNSET;
    mr_value_reset(&now);
    if (!set)
        return MR_OK;
    mr_dataset *made = mr_dataset_with_param(*ds, name, &v);
    mr_dataset_unref(*ds);
    *ds = made;
    return mr_dataset_check(made, st);
}

/* Adds what the prefetch ds reads ahead. */
static mr_code add_prefetch(mr__elastic *x, const mr_dataset *ds, mr_status *st)
{
    mr_value depth = {0};
    MR_TRY(mr_dataset_param_named(ds, "buffer_size", &depth, st));
    if (depth.kind != MR_V_INT || depth.i < 0 || x->prefetched == MR_AUTO ||
        __builtin_add_overflow(x->prefetched, depth.i, &x->prefetched))
        x->prefetched = MR_AUTO;
    mr_value_reset(&depth);
    return MR_OK;
}

/* x->rows, x->steps = below the batch, and the batch of this job. */
static mr_code begin_steps(mr__elastic *x, mr_dataset *batch, mr_status *st)
{
    mr_value v = {0};
    MR_TRY(mr_dataset_param_named(batch, "batch_size", &v, st));
    x->batch = v.i;
    MR_TRY(mr_dataset_param_named(batch, "drop_remainder", &v, st));
    x->drop_remainder = v.kind == MR_V_BOOL && v.i;
    x->rows = mr_dataset_ref(mr_dataset_input(batch, 0));
    mr_dataset *input = mr__elastic_rows(mr_dataset_ref(x->rows), x->streams);
    x->steps = mr_dataset_with_inputs(batch, &input, 1);
    MR_TRY(set(&x->steps, "drop_remainder", (mr_value){.kind = MR_V_BOOL}, st));
    x->steps = mr__elastic_steps(x->steps);
    return mr_dataset_check(x->steps, st);
}

/* Puts the op of ds, which is above the batch, on x->steps. */
static mr_code add_above(mr__elastic *x, mr_dataset *ds, mr_status *st)
{
    if (mr_dataset_op(ds)->props & MR_OP_READS_AHEAD)
        return add_prefetch(x, ds, st);
    mr_dataset *input = x->steps;
    x->steps = mr_dataset_with_inputs(ds, &input, 1);
    /* Steps are not made ahead: which streams have ended is agreed on step by step. */
    return set(&x->steps, "num_parallel_calls", (mr_value){.kind = MR_V_NONE}, st);
}

static mr_code build_steps(mr__elastic *x, mr_dataset *sink, mr_status *st)
{
    mr_dataset **above = NULL, *at = sink;
    size_t n = 0, room = 0;
    mr_code rc = MR_OK;
    for (; rc == MR_OK && !(mr_dataset_op(at)->props & MR_OP_BATCHES);
         at = mr_dataset_input(at, 0)) {
        rc = check_above(at, st);
        if (rc == MR_OK)
            rc = MR_GROW(above, room, n + 1, SIZE_MAX / sizeof *above, "the ops of a graph", st);
        if (rc != MR_OK)
            break;
        above[n++] = at;
    }
    if (rc == MR_OK)
        rc = begin_steps(x, at, st);
    while (rc == MR_OK && n)
        rc = add_above(x, above[--n], st);
    mr_free(above);
    return rc;
}

static mr_code warn_of_policy(mr_dataset *ds, mr_explanation *e, mr_status *st)
{
    mr_shard_policy policy;
    MR_TRY(mr_shard_policy_of(ds, &policy, st));
    if (policy == MR_SHARD_AUTO)
        return MR_OK;
    return mr__warn(e, NULL, st,
                    "the graph's auto_shard_policy %s has no effect: the job is elastic",
                    mr_shard_policy_name(policy));
}

mr_code mr__elastic_init(mr__elastic *x, mr_dataset *ds, int64_t streams, mr_explanation *e,
                         mr_status *st)
{
    mr_dataset *placed = NULL;
    MR_TRY(check_graph(ds, streams, st));
    x->streams = streams;
    MR_TRY(warn_of_policy(ds, e, st));
    MR_TRY(mr__dataset_settle(ds, MR__PLACE_ROOT, NULL, &placed, st));
    mr_code rc = build_steps(x, placed, st);
    mr_dataset_unref(placed);
    return rc;
}

void mr__elastic_reset(mr__elastic *x)
{
    mr_dataset_unref(x->rows);
    mr_dataset_unref(x->steps);
    *x = (mr__elastic){0};
}

/* ---- files ---- */

struct mr__matched_pattern {
    char *pattern;
    char **files;
    size_t n;
};

void mr__matched_reset(mr__matched *m)
{
    for (size_t i = 0; i < m->n; i++) {
        mr_free(m->v[i].pattern);
        mr__free_files(m->v[i].files, m->v[i].n);
    }
    mr_free(m->v);
    *m = (mr__matched){0};
}

static mr_code find_files(void *ctx, const char *pattern, char *const **files, size_t *n,
                          mr_status *st)
{
    mr__matched *m = ctx;
    size_t i = 0;
    while (i < m->n && strcmp(m->v[i].pattern, pattern) != 0)
        i++;
    if (i == m->n) {
        struct mr__matched_pattern p = {0};
        MR_TRY(MR_GROW(m->v, m->capacity, m->n + 1, 1 << 20, "lists of files", st));
        MR_TRY(mr__match_files(m->directory, pattern, &p.files, &p.n, st));
        if (!(p.pattern = mr_strdup(pattern))) {
            mr__free_files(p.files, p.n);
            return mr_fail_memory(st, strlen(pattern), "a file pattern");
        }
        m->v[m->n++] = p;
    }
    *files = m->v[i].files;
    *n = m->v[i].n;
    return *n ? MR_OK
              : mr_fail(st, MR_NOT_FOUND, "no file matches '%.200s' in %s", pattern,
                        m->directory ? m->directory : "the working directory");
}

static mr_code put_data_lists(void *ctx, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    return mr__put_file_lists(ctx, true, mr_dataset_ref(ds), out, st);
}

/* ---- streams ---- */

void mr__elastic_wholes_reset(mr__elastic_wholes *w)
{
    for (size_t i = 0; i < w->n; i++)
        mr_dataset_unref(w->v[i].ds);
    mr_free(w->v);
    *w = (mr__elastic_wholes){0};
}

typedef struct dealing {
    const mr__elastic *x;
    mr__file_lists *lists;
    mr__elastic_wholes *wholes;
    int64_t stream;
    size_t n; /* cuts of this stream so far */
    mr_status status;
} dealing;

static mr_code add_whole(dealing *d, mr_dataset *whole, int64_t place, mr_status *st)
{
    mr__elastic_wholes *w = d->wholes;
    if (d->n < w->n)
        return MR_OK;
    MR_TRY(MR_GROW(w->v, w->room, w->n + 1, SIZE_MAX / sizeof *w->v, "the ops of a graph", st));
    w->v[w->n].place = place;
    MR_TRY(mr__put_file_lists(d->lists, true, mr_dataset_ref(whole), &w->v[w->n].ds, st));
    w->n++;
    return MR_OK;
}

static mr_dataset *deal(void *ctx, mr_dataset *whole, uint64_t at)
{
    dealing *d = ctx;
    int64_t place = (int64_t)(at >> 1);
    if (add_whole(d, whole, place, &d->status) != MR_OK) {
        mr_dataset_unref(whole);
        return mr_dataset_fail(&d->status);
    }
    d->n++;
    return mr__elastic_dealt(whole, place, d->x->streams, d->stream);
}

mr_code mr__elastic_stream(const mr__elastic *x, mr__matched *m, int64_t stream, uint64_t seed,
                           mr__elastic_wholes *wholes, mr_dataset **out, uint64_t *run_seed,
                           mr_explanation *e, mr_status *st)
{
    mr__file_lists lists = {find_files, m};
    dealing d = {.x = x, .lists = &lists, .wholes = wholes, .stream = stream};
    const mr_parts parts = {.index = stream,
                            .n = x->streams,
                            .what = "streams",
                            .how = ELASTIC,
                            .graph_of = put_data_lists,
                            .ctx = &lists,
                            .seed = seed};
    const mr_stream_cut_opts cut = {.streams = x->streams,
                                    .stream = stream,
                                    .seed = seed,
                                    .count_names = mr__count_file_names,
                                    .ctx = &lists,
                                    .elastic = true,
                                    .deal = wholes ? deal : NULL,
                                    .deal_ctx = &d};
    mr_dataset *listed = NULL, *own = NULL, *made = NULL;
    MR_TRY(mr__put_file_lists(&lists, false, mr_dataset_ref(x->rows), &listed, st));
    mr_code rc = mr_own_files(listed, &parts, &own, st);
    if (rc == MR_OK)
        rc = mr_cut_stream(own, &cut, &made, run_seed, e, st);
    if (rc == MR_OK)
        rc = mr__put_file_lists(&lists, true, made, out, st);
    mr_dataset_unref(listed);
    mr_dataset_unref(own);
    return rc;
}

/* ---- streams by themselves ---- */

struct mr__lone_streams {
    mr__elastic graph; /* rows: the whole graph */
    uint64_t seed;
    mr__matched matched;
};

MR_API mr_code mr__lone_streams_open(mr__lone_streams **out, mr_dataset *ds, int64_t streams,
                                     uint64_t seed, const char *directory, mr_status *st)
{
    MR_TRY(check_graph(ds, streams, st));
    mr__lone_streams *x = mr_calloc(1, sizeof *x);
    if (!x)
        return mr_fail_memory(st, sizeof *x, "the streams of a job");
    x->graph.streams = streams;
    x->seed = seed;
    x->matched.directory = directory;
    mr_code rc = mr__dataset_settle(ds, MR__PLACE_ROOT, NULL, &x->graph.rows, st);
    if (rc == MR_OK)
        *out = x;
    else
        mr__lone_streams_close(x);
    return rc;
}

MR_API void mr__lone_streams_close(mr__lone_streams *x)
{
    if (!x)
        return;
    mr__elastic_reset(&x->graph);
    mr__matched_reset(&x->matched);
    mr_free(x);
}

MR_API const char *mr__lone_streams_files(const mr__lone_streams *x, size_t i, char *const **files,
                                          size_t *n)
{
    if (i >= x->matched.n)
        return NULL;
    *files = x->matched.v[i].files;
    *n = x->matched.v[i].n;
    return x->matched.v[i].pattern;
}

MR_API mr_code mr__lone_streams_set_files(mr__lone_streams *x, const char *pattern,
                                          const char *const *files, size_t n, mr_status *st)
{
    mr__matched *m = &x->matched;
    struct mr__matched_pattern p = {mr_strdup(pattern), mr_calloc(n + 1, sizeof *p.files), 0};
    bool good = p.pattern && p.files;
    while (good && p.n < n) {
        good = (p.files[p.n] = mr_strdup(files[p.n])) != NULL;
        p.n += good;
    }
    mr_code rc = good ? MR_GROW(m->v, m->capacity, m->n + 1, 1 << 20, "lists of files", st)
                      : mr_fail_memory(st, n * sizeof *p.files, "lists of files");
    if (rc == MR_OK) {
        m->v[m->n++] = p;
        return MR_OK;
    }
    mr_free(p.pattern);
    mr__free_files(p.files, p.n);
    return rc;
}

MR_API mr_code mr__lone_streams_make(mr__lone_streams *x, int64_t stream, mr_dataset **out,
                                     uint64_t *run_seed, mr_status *st)
{
    return mr__elastic_stream(&x->graph, &x->matched, stream, x->seed, NULL, out, run_seed, NULL,
                              st);
}
