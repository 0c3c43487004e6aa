/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/job.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/splitmix.h"
#include "pipeline/streams/sources/file_list_internal.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/write_roots.h"
#include "shard/passes/auto_shard.h"
#include "shard/passes/own_files.h"
#include "shard/streams/file_lists_internal.h"
#include "shard/streams/stream_cut.h"
#include "shard/streams/stream_splits.h"

#define MOST_ARRAY_BYTES ((size_t)64 << 20)

/* ---- checks of the graph ---- */

static size_t bytes_in(const mr_value *v)
{
    size_t n = 0;
    if (v->kind == MR_V_TENSOR) {
        const mr_block b = {
            .columns = (mr_array *)&v->tensor, .n_columns = 1, .rows = v->tensor.rows};
        n = mr_block_payload_bytes(&b);
    }
    for (size_t i = 0; v->items && i < v->n; i++)
        n += bytes_in(&v->items[i]);
    return n;
}

static mr_code check_node(const mr_dataset *ds, bool replays, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    mr_value v = {0};
    MR_TRY(mr_dataset_param_named(ds, "deterministic", &v, st));
    bool unordered = v.kind == MR_V_BOOL && v.i == 0;
    mr_value_reset(&v);
    mr_code rc = MR_OK;
    if (replays && unordered)
        rc = mr_fail(
            st, MR_FAILED_PRECONDITION,
            "%s with deterministic=false may not produce the same elements again, so exactly_once "
            "cannot be guaranteed; leave it out, or use processing_mode=\"dynamic\"",
            op->name);
    else if (replays && (op->props & MR_OP_NO_REPLAY))
        rc = mr_fail(
            st, MR_FAILED_PRECONDITION,
            "%s cannot produce the same elements again, so exactly_once cannot be guaranteed; put "
            "distribute below it, or use processing_mode=\"parallel_epochs\"",
            op->name);
    for (size_t i = 0; rc == MR_OK && op->params && op->params[i].name; i++) {
        MR_TRY(mr_dataset_param(ds, i, &v, st));
        size_t n = bytes_in(&v);
        mr_value_reset(&v);
        if (n > MOST_ARRAY_BYTES)
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "%s holds an array of %zu bytes, and at most 64 MiB can be sent to "
                         "workers; write it to files that they can read",
                         op->name, n);
    }
    if (rc != MR_OK)
        mr_status_set_op(st, op->name);
    return rc;
}

typedef struct checking {
    bool replays;
    mr_status status;
} checking;

static mr_dataset *visit(void *ctx, mr_dataset *node)
{
    checking *k = ctx;
    if (check_node(node, k->replays, &k->status) == MR_OK)
        return node;
    mr_dataset_unref(node);
    return mr_dataset_fail(&k->status);
}

/* replays: it must be reproducible. */
static mr_code check_graph(mr_dataset *ds, bool replays, mr_status *st)
{
    checking k = {.replays = replays};
    mr_dataset *same = mr_dataset_transform(ds, visit, &k);
    mr_code rc = mr_dataset_check(same, st);
    mr_dataset_unref(same);
    return rc;
}

/* *out = job, owned. */
static mr_code copy(const Mr__Wire__Job *job, Mr__Wire__Job **out, mr_status *st)
{
    size_t n = mr__wire__job__get_packed_size(job);
    uint8_t *bytes = mr_malloc(n ? n : 1);
    if (!bytes)
        return mr_fail_memory(st, n, "a job");
    mr__wire__job__pack(job, bytes);
    mr_code rc = mr__wire_unpack(&mr__wire__job__descriptor, bytes, n, out, st);
    mr_free(bytes);
    return rc;
}

static mr_code check_name(void *ctx, const char *name, mr_status *st)
{
    (void)ctx;
    return mr__name_scope_check((mr__name_scope){.of_service = true}, name, st);
}

mr_code mr__job_check_names(const mr_dataset *ds, mr_status *st)
{
    return mr_dataset_file_names(ds, check_name, NULL, st);
}

/* From now on this thread looks up names as the job's. Returns the previous scope. */
static mr__name_scope enter(const Mr__Wire__Job *job)
{
    mr__name_scope names = mr__name_scope_get();
    names.directory = mr__job_directory(job);
    return mr__name_scope_set(names);
}

mr_code mr__job_check_writes(const Mr__Wire__Job *job, mr_status *st)
{
    mr_dataset *ds = NULL;
    const mr_op *op = NULL;
    if (mr__write_roots_get()->n) /* each name is checked when it is written to */
        return MR_OK;
    mr__name_scope outer = enter(job);
    mr_code rc = mr_dataset_from_proto(job->graph.data, job->graph.len, &ds, st);
    mr__name_scope_set(outer);
    MR_TRY(rc);
    rc = mr_dataset_writes(ds, &op, st);
    mr_dataset_unref(ds);
    if (rc != MR_OK || !op)
        return rc;
    mr_fail(st, MR_PERMISSION_DENIED,
            "%s writes files, and this worker writes none; put it above distribute, keep a cache "
            "in memory, or let the worker's operator allow it with --allow-writes DIR",
            op->name);
    mr_status_set_op(st, op->name);
    mr_status_of_no_element(st);
    return MR_PERMISSION_DENIED;
}

mr_code mr__job_here(const char *directory, char **out, mr_status *st)
{
    char here[PATH_MAX];
    if (!directory)
        directory = mr__name_scope_get().directory;
    bool whole = directory && *directory == '/';
    if (!whole && !mr__name_scope_here(here, sizeof here))
        return mr_fail_errno(st, errno,
                             "cannot determine the working directory, in which workers look up "
                             "relative file names");
    *out = whole || !directory ? mr_strdup(whole ? directory : here)
                               : mr_strf("%s/%s", here, directory);
    return *out ? MR_OK : mr_fail_memory(st, PATH_MAX, "a directory");
}

mr_code mr__job_new(mr_dataset *ds, const mr__job_opts *opts, Mr__Wire__Job **out, mr_status *st)
{
    char *directory = NULL;
    void *graph = NULL;
    size_t n = 0;
    MR_TRY(mr_dataset_check(ds, st));
    if (opts->of_service)
        MR_TRY(mr__job_check_names(ds, st));
    MR_TRY(check_graph(ds, opts->mode == MR__WIRE__MODE__EXACTLY_ONCE, st));
    MR_TRY(mr__job_here(opts->directory, &directory, st));
    if (mr_dataset_to_proto(ds, &graph, &n, st) != MR_OK) {
        mr_status why = *st;
        mr_free(directory);
        return mr_fail(
            st, why.code,
            "the graph cannot be sent to workers: %s; put distribute below the op that holds it",
            why.message);
    }
    Mr__Wire__Job job = MR__WIRE__JOB__INIT;
    job.graph = (ProtobufCBinaryData){n, graph};
    job.mode = opts->mode;
    job.streams = opts->streams;
    job.block_length = opts->block_length;
    job.consumers = opts->consumers;
    job.seed = opts->seed;
    job.function_seed = opts->function_seed;
    job.place = opts->place;
    job.repetition = opts->repetition;
    job.match = (char *)opts->match;
    job.directory = directory;
    mr_code rc = copy(&job, out, st);
    mr_free(directory);
    mr_free(graph);
    return rc;
}

const char *mr__job_directory(const Mr__Wire__Job *job)
{
    if (!*job->directory)
        return NULL;
    /* Without a directory an iterator has that of the one around it. */
    if (!mr__name_scope_get().directory && mr__name_scope_is_here(job->directory))
        return NULL;
    return job->directory;
}

/* ---- patterns ---- */

typedef struct matching {
    const char *directory; /* NULL: this process's */
    Mr__Wire__FileList **lists;
    size_t n, capacity;
    mr_status status;
} matching;

static void free_list(Mr__Wire__FileList *l)
{
    for (size_t i = 0; i < l->n_files; i++)
        mr_free(l->files[i]);
    mr_free(l->files);
    mr_free(l->pattern);
    mr_free(l);
}

void mr__job_lists_free(Mr__Wire__FileList **lists, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free_list(lists[i]);
    mr_free(lists);
}

static Mr__Wire__FileList *find_list(Mr__Wire__FileList *const *lists, size_t n,
                                     const char *pattern)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(lists[i]->pattern, pattern) == 0)
            return lists[i];
    return NULL;
}

static mr_code match_files(matching *m, Mr__Wire__FileList *l, mr_status *st)
{
    return mr__match_files(m->directory, l->pattern, &l->files, &l->n_files, st);
}

static mr_code match_pattern(matching *m, const char *pattern, size_t *files, mr_status *st)
{
    Mr__Wire__FileList *l = find_list(m->lists, m->n, pattern);
    if (!l) {
        MR_TRY(MR_GROW(m->lists, m->capacity, m->n + 1, 1 << 20, "lists of files", st));
        l = mr_malloc(sizeof *l);
        if (!l)
            return mr_fail_memory(st, sizeof *l, "a list of files");
        mr__wire__file_list__init(l);
        l->pattern = mr_strdup(pattern);
        m->lists[m->n++] = l;
        if (!l->pattern)
            return mr_fail_memory(st, strlen(pattern), "a file pattern");
        MR_TRY(match_files(m, l, st));
    }
    *files += l->n_files;
    return MR_OK;
}

static mr_code match_names(matching *m, const mr_strs *names, bool all, mr_status *st)
{
    for (size_t i = 0; i < names->n;) {
        size_t files = 0, first = i;
        for (; i < names->n && (all || mr__file_is_pattern(names, i)); i++)
            MR_TRY(match_pattern(m, names->v[i].data, &files, st));
        if (i > first && !files)
            return mr_fail(st, MR_NOT_FOUND, "no file matches '%.200s'%s in %s",
                           names->v[first].data, i > first + 1 ? " and the patterns after it" : "",
                           m->directory ? m->directory : "the working directory");
        i += i == first;
    }
    return MR_OK;
}

static mr_dataset *match_node(void *ctx, mr_dataset *node)
{
    matching *m = ctx;
    bool all;
    const mr_param *p = mr__file_names_of(node, &all);
    if (!p)
        return node;
    const mr_strs *names = (const mr_strs *)((const char *)mr_dataset_params(node) + p->at);
    if (match_names(m, names, all, &m->status) == MR_OK)
        return node;
    mr_dataset_unref(node);
    return mr_dataset_fail(&m->status);
}

static mr_code match_all(const Mr__Wire__Job *job, Mr__Wire__FileList ***lists, size_t *n,
                         mr_status *st)
{
    matching m = {.directory = mr__job_directory(job)};
    mr_dataset *ds = NULL;
    MR_TRY(mr_dataset_from_proto(job->graph.data, job->graph.len, &ds, st));
    mr_dataset *same = mr_dataset_transform(ds, match_node, &m);
    mr_code rc = mr_dataset_check(same, st);
    mr_dataset_unref(same);
    mr_dataset_unref(ds);
    if (rc != MR_OK) {
        mr__job_lists_free(m.lists, m.n);
        return rc;
    }
    *lists = m.lists;
    *n = m.n;
    return MR_OK;
}

mr_code mr__job_match(const Mr__Wire__Job *job, Mr__Wire__FileList ***lists, size_t *n,
                      mr_status *st)
{
    mr__name_scope outer = enter(job);
    mr_code rc = match_all(job, lists, n, st);
    mr__name_scope_set(outer);
    return rc;
}

/* ---- replacing patterns by lists ---- */

static mr_code find_files(void *ctx, const char *pattern, char *const **files, size_t *n,
                          mr_status *st)
{
    const Mr__Wire__Job *job = ctx;
    const Mr__Wire__FileList *l = find_list(job->lists, job->n_lists, pattern);
    if (!l)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the job has no list of files for '%.200s'",
                       pattern);
    *files = l->files;
    *n = l->n_files;
    return MR_OK;
}

static mr__file_lists lists_of(const Mr__Wire__Job *job)
{
    return (mr__file_lists){find_files, (void *)(uintptr_t)job};
}

/* *out = the job's graph with the lists of its readers. Sources of names are unchanged until it is
 * cut: a shard goes after them, even if they shuffle. */
static mr_code graph_of(const Mr__Wire__Job *job, mr_dataset **out, mr_status *st)
{
    mr_dataset *ds = NULL, *placed = NULL;
    MR_TRY(mr_dataset_from_proto(job->graph.data, job->graph.len, &ds, st));
    mr_code rc =
        mr__dataset_settle(ds, job->place ? job->place : MR__PLACE_ROOT, NULL, &placed, st);
    mr_dataset_unref(ds);
    const mr__file_lists l = lists_of(job);
    return rc == MR_OK ? mr__put_file_lists(&l, false, placed, out, st) : rc;
}

/* Makes ops that may emit their elements in any order keep it, so that a stream that continues on
 * another worker has the same elements. */
static mr_dataset *keep_order(void *ctx, mr_dataset *node)
{
    mr_status *st = ctx;
    mr_value v = {0};
    const mr_value on = {.kind = MR_V_BOOL, .i = 1};
    mr_dataset *made = node;
    if (mr_dataset_param_named(node, "deterministic", &v, st) != MR_OK)
        made = mr_dataset_fail(st);
    else if (v.kind == MR_V_BOOL && v.i == 0)
        made = mr_dataset_with_param(node, "deterministic", &on);
    mr_value_reset(&v);
    if (made != node)
        mr_dataset_unref(node);
    return made;
}

/* job->splits = the number of splits of the graph ds. */
static mr_code count_splits(Mr__Wire__Job *job, mr_dataset *ds, mr_status *st)
{
    mr_dataset *listed = NULL;
    int64_t n = 0;
    const mr__file_lists l = lists_of(job);
    MR_TRY(mr__put_file_lists(&l, true, mr_dataset_ref(ds), &listed, st));
    mr_code rc = mr_count_splits(listed, &n, st);
    mr_dataset_unref(listed);
    job->splits = (uint64_t)n;
    return rc;
}

static mr_code finish(const Mr__Wire__Job *job, Mr__Wire__FileList **lists, size_t n,
                      Mr__Wire__Job **out, mr_status *st)
{
    Mr__Wire__Job final = *job;
    mr_dataset *ds = NULL;
    int64_t streams = job->streams;
    final.lists = lists;
    final.n_lists = n;
    final.has_lists = true;
    MR_TRY(graph_of(&final, &ds, st));
    mr__file_lists of_job = lists_of(&final);
    const mr_stream_cut_opts o = {.count_names = mr__count_file_names, .ctx = &of_job};
    bool is_cut = job->mode == MR__WIRE__MODE__EXACTLY_ONCE;
    mr_code rc = streams || !is_cut ? MR_OK : mr_count_streams(ds, &o, &streams, st);
    if (rc == MR_OK && job->mode == MR__WIRE__MODE__DYNAMIC)
        rc = count_splits(&final, ds, st);
    mr_dataset_unref(ds);
    MR_TRY(rc);
    if (is_cut && job->consumers > streams)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_consumers is %" PRIu32 ", but there are %" PRId64
                       " streams to read; use at most that many, or more streams",
                       job->consumers, streams);
    final.streams = (uint32_t)streams;
    return copy(&final, out, st);
}

mr_code mr__job_finish(const Mr__Wire__Job *job, Mr__Wire__FileList **lists, size_t n,
                       Mr__Wire__Job **out, mr_status *st)
{
    mr__name_scope outer = enter(job);
    mr_code rc = finish(job, lists, n, out, st);
    mr__name_scope_set(outer);
    return rc;
}

/* The seed of one stream in a mode with a separate seed for each stream. */
static uint64_t seed_of(const Mr__Wire__Job *job, uint32_t stream)
{
    return mr__splitmix(job->seed + MR__GOLDEN * ((uint64_t)stream + 1));
}

void mr__job_seed(const Mr__Wire__Job *job, mr_iterator_opts *o, mr__iterator_internal *internal)
{
    bool own = job->mode == MR__WIRE__MODE__DYNAMIC || job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
    o->has_seed = true;
    internal->seed_made_up = !own;
    internal->function_seed = job->function_seed;
    o->internal = internal;
}

/* The part of worker `index` of job->streams: random ops draw the same numbers on all workers. */
static mr_code shard_for_worker(const Mr__Wire__Job *job, uint32_t index, mr_dataset *ds,
                                mr_dataset **out, mr_explanation *e, mr_status *st)
{
    static const mr_shard_policy policies[] = {[MR__WIRE__MODE__FILE] = MR_SHARD_FILE,
                                               [MR__WIRE__MODE__DATA] = MR_SHARD_DATA,
                                               [MR__WIRE__MODE__FILE_OR_DATA] = MR_SHARD_AUTO,
                                               [MR__WIRE__MODE__HINT] = MR_SHARD_HINT};
    const mr_auto_shard_opts o = {
        .num_workers = job->streams, .index = index, .policy = policies[job->mode]};
    mr_dataset *seeded = NULL;
    MR_TRY(mr_seed_random_ops(ds, job->seed, &seeded, e, st));
    mr_code rc = mr_auto_shard(seeded, &o, out, NULL, e, st);
    mr_dataset_unref(seeded);
    return rc;
}

/* *out = ds with the names that its sources of names yield: a new file makes it another graph. */
static mr_code with_data_lists(void *ctx, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    const mr__file_lists l = lists_of(ctx);
    return mr__put_file_lists(&l, true, mr_dataset_ref(ds), out, st);
}

/* *out = ds (taken over), whose caches have a file of the stream's own each. */
static mr_code own_files(const Mr__Wire__Job *job, uint32_t stream, mr_dataset *ds,
                         mr_dataset **out, mr_status *st)
{
    bool shared = job->mode == MR__WIRE__MODE__DYNAMIC ||
                  job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS; /* by the streams that come */
    const mr_parts parts = {.index = stream,
                            .n = shared && job->streams != 1 ? 0 : job->streams,
                            .what = "streams",
                            .how = (uint64_t)job->mode,
                            .graph_of = with_data_lists,
                            .ctx = (void *)(uintptr_t)job};
    mr_code rc = mr_own_files(ds, &parts, out, st);
    mr_dataset_unref(ds);
    return rc;
}

static mr_code cut_stream(const Mr__Wire__Job *job, uint32_t stream, mr_dataset **out,
                          uint64_t *run_seed, mr_explanation *e, mr_status *st)
{
    mr__file_lists lists = lists_of(job);
    const mr_stream_cut_opts o = {.streams = job->streams,
                                  .stream = stream,
                                  .seed = job->seed,
                                  .count_names = mr__count_file_names,
                                  .ctx = &lists};
    mr_dataset *ds = NULL, *cut = NULL;
    mr_code rc;
    MR_TRY(graph_of(job, &ds, st));
    MR_TRY(own_files(job, stream, ds, &ds, st));
    switch (job->mode) {
    case MR__WIRE__MODE__EXACTLY_ONCE:
        rc = mr_cut_stream(ds, &o, &cut, run_seed, e, st);
        break;
    case MR__WIRE__MODE__DYNAMIC:
    case MR__WIRE__MODE__PARALLEL_EPOCHS:
        rc = mr_explain(e, "seed", NULL, st,
                        "random ops without a seed get a different one in each stream, derived "
                        "from the job's seed");
        if (rc == MR_OK)
            rc = mr_seed_random_ops(ds, seed_of(job, stream), &cut, NULL, st);
        if (rc == MR_OK) {
            mr_dataset *any_order = cut;
            cut = mr_dataset_transform(any_order, keep_order, st);
            mr_dataset_unref(any_order);
            if ((rc = mr_dataset_check(cut, st)) != MR_OK)
                mr_dataset_unref(cut);
        }
        if (run_seed)
            *run_seed = seed_of(job, stream);
        break;
    default:
        rc = shard_for_worker(job, stream, ds, &cut, e, st);
        if (run_seed)
            *run_seed = job->seed;
    }
    mr_dataset_unref(ds);
    return rc == MR_OK ? mr__put_file_lists(&lists, true, cut, out, st) : rc;
}

mr_code mr__job_cut(const Mr__Wire__Job *job, uint32_t stream, mr_dataset **out, uint64_t *run_seed,
                    mr_explanation *e, mr_status *st)
{
    mr__name_scope outer = enter(job);
    mr_code rc = cut_stream(job, stream, out, run_seed, e, st);
    mr__name_scope_set(outer);
    return rc;
}
