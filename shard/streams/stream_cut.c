/* SPDX-License-Identifier: Apache-2.0 */
/* The walk goes from the sink to the sources with an explicit stack, and rebuilds the visited nodes
 * on its way back. Nodes below a cut are unchanged, except for their seeds. */
#include "shard/streams/stream_cut.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/splitmix.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/id_map.h"
#include "shard/passes/shard_passes.h"
#include "shard/streams/stream_cut_impl.h"

typedef struct frame {
    mr_dataset *node;
    mr_dataset **inputs; /* their replacements; owned, the first `next` of them */
    size_t next;
    uint64_t place; /* of the node (graph/origin_internal.h) */
    bool apart;     /* `outer` holds what k->made will be again after the current input */
    mr__id_map outer;
} frame;

typedef struct cutter {
    const mr_stream_cut_opts *opts;
    mr_explanation *e;
    frame *stack;
    size_t depth, capacity;
    mr__id_map made;      /* the replacement of a node: an owned dataset */
    bool functions_below; /* an op below a cut has a function */
    mr_status *st;
} cutter;

static uint64_t seed_of_stream(const mr_stream_cut_opts *o)
{
    return mr__splitmix(o->seed + MR__GOLDEN * ((uint64_t)o->stream + 1));
}

/* ---- properties of nodes ---- */

/* Its elements are kept in a file. */
static bool keeps_file(const mr_dataset *ds)
{
    for (const mr_param *p = mr_dataset_op(ds)->params; p && p->name; p++) {
        if (!(p->flags & MR_P_KEEPS_FILE))
            continue;
        const char *name = *(char *const *)((const char *)mr_dataset_params(ds) + p->at);
        if (name && name[0])
            return true;
    }
    return false;
}

/* A stream keeps its part of a cache in a separate file. o may be NULL. */
static bool passes(const mr_stream_cut_opts *o, const mr_dataset *ds)
{
    uint32_t passed = MR_OP_KEEPS_SHARDS | (o && o->elastic ? MR_OP_MIXES : 0);
    return mr_dataset_n_inputs(ds) > 0 && (mr_dataset_op(ds)->props & passed);
}

bool mr__stream_splits(const mr_dataset *ds)
{
    return passes(NULL, ds) && !keeps_file(ds);
}

/* Its inputs run at the same time, so that they cannot share iterators. */
static bool runs_side_by_side(const mr_dataset *ds)
{
    return mr_dataset_op(ds)->props & (MR_OP_MIXES | MR_OP_PAIRS);
}

/* The names of a reader of whole files; NULL: ds is another op. */
static const mr_strs *names_read(const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    if (op->role != MR_ROLE_FILES || mr__reads_range(ds))
        return NULL;
    for (const mr_param *p = op->params; p && p->name; p++)
        if ((p->flags & MR_P_PATTERN) && p->type == MR_PT_STRS)
            return (const mr_strs *)((const char *)mr_dataset_params(ds) + p->at);
    return NULL;
}

mr_code mr__stream_reads_files(const mr_dataset *ds, bool *out, mr_status *st)
{
    *out = false;
    return mr_dataset_op(ds)->role == MR_ROLE_FUNCTION
               ? mr_dataset_functions_have_role(ds, MR_ROLE_FILES, out, st)
               : MR_OK;
}

/* The nodes to visit, and those visited. */
typedef struct todo {
    const mr_dataset **v;
    size_t n, capacity;
    mr__id_map seen;
} todo;

static mr_code add(todo *t, const mr_dataset *ds, mr_status *st)
{
    if (mr__id_map_find(&t->seen, (uintptr_t)ds))
        return MR_OK;
    MR_TRY(MR_GROW(t->v, t->capacity, t->n + 1, SIZE_MAX / 16, "the branches of a graph", st));
    t->v[t->n++] = ds;
    return mr__id_map_put(&t->seen, (uintptr_t)ds, 1, st);
}

static mr_code add_inputs(todo *t, const mr_dataset *ds, mr_status *st)
{
    for (size_t i = 0; i < mr_dataset_n_inputs(ds); i++)
        MR_TRY(add(t, mr_dataset_input(ds, i), st));
    return MR_OK;
}

static void forget(todo *t)
{
    mr_free((void *)t->v);
    mr__id_map_reset(&t->seen);
}

/* *out = the total number of elements at the nodes below ds where it would be cut: names, for an op
 * that reads files. MR_UNKNOWN_COUNT: unknown for one of them. */
static mr_code count_names(const mr_stream_cut_opts *o, const mr_dataset *ds, int64_t *out,
                           mr_status *st)
{
    int64_t n = mr_dataset_cardinality(ds);
    todo t = {0};
    mr_code rc = MR_OK;
    if (n < 0) {
        n = 0;
        rc = add(&t, ds, st);
    }
    while (rc == MR_OK && t.n) {
        const mr_dataset *at = t.v[--t.n];
        int64_t more = mr_dataset_cardinality(at);
        if (o && o->count_names && (mr_dataset_op(at)->props & MR_OP_FILE_NAMES))
            more = o->count_names(o->ctx, at);
        if (passes(o, at))
            rc = add_inputs(&t, at, st);
        else if (n < 0 || more < 0 || __builtin_add_overflow(n, more, &n))
            n = MR_UNKNOWN_COUNT;
    }
    forget(&t);
    *out = n;
    return rc;
}

mr_code mr_count_streams(mr_dataset *ds, const mr_stream_cut_opts *opts, int64_t *out,
                         mr_status *st)
{
    todo t = {0};
    int64_t files = 0;
    MR_TRY(mr_dataset_check(ds, st));
    mr_code rc = add(&t, ds, st);
    bool any = false;
    while (rc == MR_OK && t.n) {
        const mr_dataset *at = t.v[--t.n];
        const mr_strs *names = names_read(at);
        bool reads = false;
        int64_t more = names ? (int64_t)names->n : 0;
        rc = mr__stream_reads_files(at, &reads, st);
        if (rc == MR_OK && reads)
            rc = count_names(opts, mr_dataset_input(at, 0), &more, st);
        any = any || names || reads;
        if (more < 0 || __builtin_add_overflow(files, more, &files))
            files = MR_AUTO_STREAMS;
        if (rc == MR_OK && !reads && passes(opts, at))
            rc = add_inputs(&t, at, st);
    }
    forget(&t);
    *out = !any || files > MR_AUTO_STREAMS ? MR_AUTO_STREAMS : files > 1 ? files : 1;
    return rc;
}

/* ---- seeds ---- */

/* Gives ds, which is new, the seed of the stream, and returns it. */
static mr_dataset *with_seed(cutter *k, mr_dataset *ds, const char *path)
{
    if (mr_dataset_check(ds, NULL) != MR_OK)
        return ds;
    mr__origin origin = mr__dataset_origin(ds);
    origin.has_seed = true;
    origin.seed = seed_of_stream(k->opts);
    if (k->opts->elastic) {
        origin.in_stream = true;
        origin.has_place = true; /* a node with several users has several copies */
        origin.place = k->stack[k->depth - 1].place;
    }
    mr__dataset_set_origin(ds, origin);
    if (!mr__wants_seed(ds) || mr_explain(k->e, "seed", path, k->st,
                                          "%s has no seed: it draws from the job's seed %" PRIu64
                                          " and the stream's number, so each stream differs",
                                          mr_dataset_op(ds)->name, k->opts->seed) == MR_OK)
        return ds;
    mr_dataset_unref(ds);
    return mr_dataset_fail(k->st);
}

static mr_dataset *find_functions(void *ctx, mr_dataset *node)
{
    for (const mr_param *p = mr_dataset_op(node)->params; p && p->name; p++)
        if (p->type == MR_PT_FN)
            *(bool *)ctx = true;
    return node;
}

/* ---- cutting ---- */

static mr_dataset *shard(const cutter *k, mr_dataset *input)
{
    return mr_shard(input, k->opts->streams, k->opts->stream, &(mr_shard_opts){.own_errors = true});
}

/* Others than sources that skip what other streams have. */
static bool is_dealt(const cutter *k, const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    return k->opts->deal && (mr_dataset_n_inputs(ds) || op->role != MR_ROLE_SOURCE || !op->skip);
}

/* *out = ds, which runs in every stream, and the stream's shard after it. */
static mr_code cut_after(cutter *k, mr_dataset *ds, mr_dataset **out)
{
    mr_dataset *seeded = NULL;
    uint64_t place = k->stack[k->depth - 1].place;
    MR_TRY(mr_seed_random_ops(ds, k->opts->seed, &seeded, k->e, k->st));
    mr_dataset_unref(mr_dataset_transform(seeded, find_functions, &k->functions_below));
    *out = is_dealt(k, ds) ? k->opts->deal(k->opts->deal_ctx, seeded, place) : shard(k, seeded);
    return MR_OK;
}

/* *out = the reader ds as the stream's shard of its names, followed by the function that reads one
 * of them. */
static mr_code split_reader(cutter *k, const mr_dataset *ds, const mr_strs *names, mr_dataset **out)
{
    mr_fn *fn = NULL;
    int64_t reads = 0;
    for (const mr_param *p = mr_dataset_op(ds)->params; p->name; p++)
        if (p->flags & MR_P_READS)
            reads = *(const int64_t *)((const char *)mr_dataset_params(ds) + p->at);
    const char **paths = mr_malloc(names->n * sizeof *paths);
    if (!paths)
        return mr_fail_memory(k->st, names->n * sizeof *paths, "file names");
    for (size_t i = 0; i < names->n; i++)
        paths[i] = names->v[i].data;
    mr_code rc = mr_dataset_read_function(ds, &fn, k->st);
    if (rc == MR_OK) {
        mr_dataset *mine = shard(k, mr_from_strings(paths, names->n));
        if (reads == MR_AUTO)
            reads = MR_PARALLEL_READS_AUTO;
        *out = reads ? mr_interleave(mine, fn,
                                     &(mr_interleave_opts){.cycle_length = reads,
                                                           .num_parallel_calls = reads})
                     : mr_flat_map(mine, fn);
    }
    mr_free((void *)paths);
    return rc;
}

static void path_of(const cutter *k, char *path, size_t size)
{
    path[0] = 0;
    for (size_t i = 0; i < k->depth && strlen(path) + 1 < size; i++) {
        const frame *above = i ? &k->stack[i - 1] : NULL;
        bool several = above && mr_dataset_n_inputs(above->node) > 1;
        mr__path_append(path, size, several ? (int64_t)above->next : -1,
                        mr_dataset_op(k->stack[i].node)->name);
    }
}

static const char *reads_all(const cutter *k, const mr_dataset *ds)
{
    return is_dealt(k, ds) ? "each process reads all of them once and deals the records to its "
                             "streams"
                           : "every stream reads all of them and keeps its records";
}

static mr_code cut_reader(cutter *k, mr_dataset *ds, const mr_strs *names, mr_dataset **out)
{
    char path[256];
    const char *name = mr_dataset_op(ds)->name;
    path_of(k, path, sizeof path);
    if (names->n >= (size_t)k->opts->streams) {
        MR_TRY(mr_explain(k->e, "sharding", path, k->st,
                          "the %zu files of %s are dealt to %" PRId64
                          " streams: file i belongs to stream i mod %" PRId64,
                          names->n, name, k->opts->streams, k->opts->streams));
        return split_reader(k, ds, names, out);
    }
    MR_TRY(mr_explain(k->e, "sharding", path, k->st,
                      "%s has %zu files, fewer than the %" PRId64 " streams: %s", name, names->n,
                      k->opts->streams, reads_all(k, ds)));
    return cut_after(k, ds, out);
}

/* The walk ends at ds: a source, or an op whose output would change if its input were sharded. */
static mr_code cut_stop(cutter *k, mr_dataset *ds, mr_dataset **out)
{
    char path[256];
    const char *name = mr_dataset_op(ds)->name;
    path_of(k, path, sizeof path);
    if (mr_dataset_n_inputs(ds))
        MR_TRY(mr_explain(k->e, "sharding", path, k->st,
                          "the shard goes after %s, whose result depends on how many elements came "
                          "before or on another input: everything below it %s",
                          name,
                          is_dealt(k, ds) ? "runs once in each process and is dealt to its streams"
                                          : "runs in every stream"));
    else
        MR_TRY(mr_explain(k->e, "sharding", path, k->st,
                          "the shard goes after %s, the source: stream s keeps element s of every "
                          "%" PRId64,
                          name, k->opts->streams));
    return cut_after(k, ds, out);
}

/* An op above the node on top of the stack reads the files that the node names. */
static mr_code is_of_names(const cutter *k, bool *out)
{
    *out = false;
    for (size_t i = 0; i + 1 < k->depth && !*out; i++)
        MR_TRY(mr__stream_reads_files(k->stack[i].node, out, k->st));
    return MR_OK;
}

/* ds (taken over) with a buffer of its part of the rows. */
static mr_dataset *with_buffer(const cutter *k, mr_dataset *ds)
{
    mr_value n = {0};
    if (!k->opts->elastic || mr_dataset_check(ds, NULL) != MR_OK ||
        !mr__shuffles(ds, MR_OP_REORDERS) ||
        mr_dataset_param_named(ds, "buffer_size", &n, k->st) != MR_OK || n.kind != MR_V_INT ||
        n.i < 0)
        return ds;
    n.i = n.i / k->opts->streams + (n.i % k->opts->streams != 0);
    mr_dataset *made = mr_dataset_with_param(ds, "buffer_size", &n);
    mr_dataset_unref(ds);
    return made;
}

/* ds (taken over); a mixture with a seed draws from it and the stream. If all streams drew the
 * same, the rows of a step would be of one input. */
static mr_dataset *with_draws(const cutter *k, mr_dataset *ds)
{
    mr_value seed = {0};
    if (!k->opts->elastic || mr_dataset_check(ds, NULL) != MR_OK ||
        !(mr_dataset_op(ds)->props & MR_OP_MIXES) ||
        mr_dataset_param_named(ds, "seed", &seed, k->st) != MR_OK || seed.kind != MR_V_INT)
        return ds;
    uint64_t own = mr__splitmix((uint64_t)seed.i + MR__GOLDEN * ((uint64_t)k->opts->stream + 1));
    seed.i = (int64_t)(own >> 1);
    mr_dataset *made = mr_dataset_with_param(ds, "seed", &seed);
    mr_dataset_unref(ds);
    return made;
}

/* *out = the replacement of the node on top of the stack; NULL: its inputs must be visited first.
 */
static mr_code look(cutter *k, mr_dataset *ds, mr_dataset **out)
{
    const mr_strs *names = names_read(ds);
    bool reads = false;
    int64_t n = MR_UNKNOWN_COUNT;
    *out = NULL;
    if (names)
        return cut_reader(k, ds, names, out);
    if (k->opts->elastic && (mr_dataset_op(ds)->props & MR_OP_PAIRS)) {
        MR_TRY(mr__stream_keeps_step(ds, &reads, k->st));
        return reads ? MR_OK : cut_stop(k, ds, out);
    }
    if (!passes(k->opts, ds))
        return cut_stop(k, ds, out);
    if (k->opts->elastic && mr__shuffles(ds, MR_OP_REORDERS)) {
        MR_TRY(is_of_names(k, &reads));
        if (reads)
            return cut_stop(k, ds, out);
    }
    MR_TRY(mr__stream_reads_files(ds, &reads, k->st));
    if (!reads)
        return MR_OK;
    MR_TRY(count_names(k->opts, mr_dataset_input(ds, 0), &n, k->st));
    if (n < 0 || n >= k->opts->streams)
        return MR_OK;
    char path[256];
    path_of(k, path, sizeof path);
    MR_TRY(mr_explain(k->e, "sharding", path, k->st,
                      "%s reads %" PRId64 " files, fewer than the %" PRId64 " streams: %s",
                      mr_dataset_op(ds)->name, n, k->opts->streams, reads_all(k, ds)));
    return cut_after(k, ds, out);
}

/* ---- the walk ---- */

static mr_code push(cutter *k, mr_dataset *node)
{
    MR_TRY(
        MR_GROW(k->stack, k->capacity, k->depth + 1, SIZE_MAX / 64, "the depth of a graph", k->st));
    size_t n = mr_dataset_n_inputs(node);
    mr_dataset **inputs = mr_calloc(n ? n : 1, sizeof(mr_dataset *));
    if (!inputs)
        return mr_fail_memory(k->st, n * sizeof(mr_dataset *), "the inputs of a node");
    const frame *above = k->depth ? &k->stack[k->depth - 1] : NULL;
    uint64_t place = above ? mr__dataset_input_place(above->node, above->place, above->next)
                           : mr__dataset_origin(node).place;
    k->stack[k->depth++] = (frame){.node = node, .inputs = inputs, .place = place};
    return MR_OK;
}

static void forget_made(mr__id_map *made)
{
    for (size_t i = 0; i < made->n; i++)
        mr_dataset_unref((mr_dataset *)made->entries[i].value);
    mr__id_map_reset(made);
}

/* What is made for the next input of the top node is not for others. */
static void part(cutter *k)
{
    frame *f = &k->stack[k->depth - 1];
    f->apart = true;
    f->outer = k->made;
    k->made = (mr__id_map){0};
}

static void join(cutter *k)
{
    frame *f = &k->stack[k->depth - 1];
    f->apart = false;
    forget_made(&k->made);
    k->made = f->outer;
}

static void pop(cutter *k)
{
    if (k->stack[k->depth - 1].apart)
        join(k);
    frame *f = &k->stack[--k->depth];
    for (size_t i = 0; i < f->next; i++)
        mr_dataset_unref(f->inputs[i]);
    mr_free(f->inputs);
}

/* `made` (taken) replaces the node on top of the stack: stores it as an input of its user. */
static mr_code finish(cutter *k, mr_dataset *made)
{
    mr_dataset *node = k->stack[k->depth - 1].node;
    mr_code rc = mr_dataset_check(made, k->st);
    if (rc == MR_OK)
        rc = mr__id_map_put(&k->made, (uintptr_t)node, (uintptr_t)made, k->st);
    if (rc != MR_OK) {
        mr_dataset_unref(made);
        return rc;
    }
    pop(k);
    return MR_OK;
}

/* All inputs of the node on top of the stack are finished. */
static mr_code rebuild(cutter *k)
{
    frame *f = &k->stack[k->depth - 1];
    char path[256];
    path_of(k, path, sizeof path);
    size_t n = f->next;
    f->next = 0; /* the inputs are taken over */
    mr_dataset *made = with_buffer(k, mr_dataset_with_inputs(f->node, f->inputs, n));
    return finish(k, with_seed(k, with_draws(k, made), path));
}

static mr_code step(cutter *k)
{
    frame *f = &k->stack[k->depth - 1];
    mr_dataset *made = NULL;
    if (f->next == 0 && !f->apart) {
        MR_TRY(look(k, f->node, &made));
        if (made)
            return finish(k, made);
    }
    for (; f->next < mr_dataset_n_inputs(f->node); f->next++) {
        mr_dataset *in = mr_dataset_input(f->node, f->next);
        if (k->opts->elastic && runs_side_by_side(f->node) && !f->apart)
            part(k);
        const uintptr_t *there = mr__id_map_find(&k->made, (uintptr_t)in);
        if (!there)
            return push(k, in);
        f->inputs[f->next] = mr_dataset_ref((mr_dataset *)*there);
        if (f->apart)
            join(k);
    }
    return rebuild(k);
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    cutter *k = ctx;
    k->e = e;
    k->st = st;
    mr_code rc = push(k, ds);
    while (rc == MR_OK && k->depth)
        rc = step(k);
    if (rc == MR_OK)
        *out = mr_dataset_ref((mr_dataset *)*mr__id_map_find(&k->made, (uintptr_t)ds));
    while (k->depth)
        pop(k);
    forget_made(&k->made);
    mr_free(k->stack);
    return rc;
}

static const mr_pass cut_pass = {"stream_cut", "assigns a stream its part of the elements", run};

mr_code mr_cut_stream(mr_dataset *ds, const mr_stream_cut_opts *opts, mr_dataset **out,
                      uint64_t *run_seed, mr_explanation *e, mr_status *st)
{
    mr_status unused;
    cutter k = {.opts = opts};
    if (opts->streams < 1 || opts->streams > MR_MOST_STREAMS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of streams must be 1 to %d, not %" PRId64, MR_MOST_STREAMS,
                       opts->streams);
    if (opts->stream < 0 || opts->stream >= opts->streams)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the stream must be 0 to %" PRId64 ", not %" PRId64,
                       opts->streams - 1, opts->stream);
    mr_dataset *placed = NULL;
    MR_TRY(mr_dataset_check(ds, st));
    MR_TRY(mr__dataset_settle(ds, MR__PLACE_ROOT, NULL, &placed, st));
    mr_code rc = mr_pass_run(&cut_pass, &k, placed, out, e, st ? st : &unused);
    mr_dataset_unref(placed);
    MR_TRY(rc);
    /* Random ops inside functions draw from the seed of the run. If such an op may run in every
     * stream, the seed must be the same in all. */
    if (run_seed)
        *run_seed = k.functions_below ? opts->seed : seed_of_stream(opts);
    return MR_OK;
}
