/* SPDX-License-Identifier: Apache-2.0 */
/* FILE: shards the list of files that a pipeline reads. */
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_list_internal.h"
#include "shard/passes/graph_branches.h"

#include <inttypes.h>
#include <string.h>

#define ALL_NAMES (-2) /* buffer size of a shuffle: its whole input */

enum {
    SHARD_INPUT = MR__OWN_MARK, /* of a function op that reads files: its elements are file names */
    SHARD_OUTPUT,               /* the op's elements represent files, or are files */
    SPLIT_READER                /* a reader with a list of files */
};

typedef struct walker {
    mr__branches b; /* first */
    mr_dataset *root;
    mr__id_map uses; /* how often each node is an input in the graph; made when first needed */
} walker;

/* The parameter that holds a reader's list of files; NULL: it has none. */
static const mr_param *file_list_of(const mr_dataset *ds)
{
    for (const mr_param *p = mr_dataset_op(ds)->params; p && p->name; p++)
        if ((p->flags & MR_P_PATTERN) && p->type == MR_PT_STRS)
            return p;
    return NULL;
}

/* ---- the walk ---- */

static bool passes(const mr_dataset *ds)
{
    mr_role role = mr_dataset_op(ds)->role;
    return mr_dataset_n_inputs(ds) > 0 && (role == MR_ROLE_PASS || role == MR_ROLE_FUNCTION);
}

static mr_code count_inputs(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    (void)w;
    walker *k = ctx;
    for (size_t i = 0; i < mr_dataset_n_inputs(node); i++) {
        const mr_dataset *in = mr_dataset_input(node, i);
        const uintptr_t *n = mr__id_map_find(&k->uses, (uintptr_t)in);
        MR_TRY(mr__id_map_put(&k->uses, (uintptr_t)in, n ? *n + 1 : 1, st));
    }
    return MR_OK;
}

/* *out = true if node is the input of only one op. */
static mr_code used_once(walker *k, const mr_dataset *node, bool *out, mr_status *st)
{
    if (!k->uses.n)
        MR_TRY(mr__visit_graph(k->root, count_inputs, k, st));
    const uintptr_t *n = mr__id_map_find(&k->uses, (uintptr_t)node);
    *out = n && *n == 1;
    return MR_OK;
}

/* *out = the function op below this one, past pass-through ops, whose input is slices that are
 * datasets and that feeds no other op; NULL: not found. */
static mr_code find_dataset_slices(walker *k, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    *out = NULL;
    mr_dataset *at = mr_dataset_input(ds, 0);
    while (passes(at) && mr_dataset_op(at)->role != MR_ROLE_FUNCTION)
        at = mr_dataset_input(at, 0);
    if (mr_dataset_op(at)->role != MR_ROLE_FUNCTION || mr_dataset_n_inputs(at) == 0)
        return MR_OK;
    const mr_dataset *source = mr_dataset_input(at, 0);
    const mr_spec *spec = mr_dataset_spec(source);
    if (mr_dataset_op(source)->role != MR_ROLE_SOURCE || mr_spec_n_leaves(spec) != 1 ||
        mr_spec_leaf(spec, 0)->dtype != MR_DATASET)
        return MR_OK;
    bool once = false;
    MR_TRY(used_once(k, at, &once, st));
    if (once)
        *out = at;
    return MR_OK;
}

static mr_code not_found(const mr_dataset *ds, const char *path, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    mr_code rc;
    if (op->props & MR_OP_FILE_NAMES)
        rc = mr_fail(
            st, MR_NOT_FOUND,
            "the walk to the files stopped at '%s', whose names no op of the graph reads; use "
            "auto_shard_policy DATA or OFF (--auto-shard data or off), or shard it yourself",
            op->name);
    else if (op->role == MR_ROLE_SOURCE)
        rc = mr_fail(
            st, MR_NOT_FOUND,
            "the walk to the files stopped at '%s', a source that reads no list of files; use "
            "auto_shard_policy DATA or OFF (--auto-shard data or off)",
            op->name);
    else
        rc = mr_fail(st, MR_NOT_FOUND,
                     "the walk to the files stopped at '%s', below which files cannot be sharded; "
                     "use auto_shard_policy DATA or OFF (--auto-shard data or off)",
                     op->name);
    mr_status_set_op(st, path);
    return rc;
}

static mr_code look(mr__branches *k, mr_dataset *ds, const char *path, bool *ends, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    if (op->role == MR_ROLE_FILES && file_list_of(ds)) {
        *ends = true;
        /* A part of all records is not the same part of each file. */
        return mr__reads_range(ds) ? not_found(ds, path, st)
                                   : mr__branches_mark(k, ds, SPLIT_READER, st);
    }
    if (op->props & MR_OP_FILE_ELEMENTS) {
        *ends = true;
        return mr__branches_mark(k, ds, SHARD_OUTPUT, st);
    }
    if (op->role == MR_ROLE_PARALLEL)
        return MR_OK;
    if (!passes(ds))
        return not_found(ds, path, st);
    mr_dataset *inner = NULL;
    if (op->role == MR_ROLE_FUNCTION)
        MR_TRY(find_dataset_slices((walker *)k, ds, &inner, st));
    if (!inner)
        MR_TRY(mr_dataset_functions_have_role(ds, MR_ROLE_FILES, ends, st));
    if (inner)
        *ends = true;
    return *ends ? mr__branches_mark(k, inner ? inner : ds, inner ? SHARD_OUTPUT : SHARD_INPUT, st)
                 : MR_OK;
}

/* ---- rebuilding ---- */

/* Removes the shuffles between the shard and the sources. */
typedef struct shuffles {
    size_t n;
    mr_dataset *last; /* the one counted last from the sink; owned */
    size_t preorder;
    mr_status status;
} shuffles;

static void keep_if_last(shuffles *s, mr_dataset *node, const mr__walk *w)
{
    s->n++;
    if (s->last && mr__walk_preorder(w) < s->preorder)
        return;
    mr_dataset_unref(s->last);
    s->last = mr_dataset_ref(node);
    s->preorder = mr__walk_preorder(w);
}

static mr_dataset *take_out_shuffle(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    shuffles *s = ctx;
    mr_dataset *without = NULL;
    if (!mr__shuffles(old, MR_OP_REORDERS))
        return now;
    keep_if_last(s, old, w);
    if (mr_dataset_n_inputs(old)) {
        without = mr_dataset_ref(mr_dataset_input(now, 0));
    } else {
        mr_value unset = {0}, off = {.kind = MR_V_BOOL, .i = 0};
        mr_dataset *sorted = mr_dataset_with_param(now, mr__shuffle_switch(old)->name, &off);
        bool draws = mr_dataset_op(old)->props & MR_OP_RANDOM;
        without = draws ? mr_dataset_with_param(sorted, "seed", &unset) : mr_dataset_ref(sorted);
        mr_dataset_unref(sorted);
    }
    mr_dataset_unref(now);
    return without;
}

/* input (taken) with a shuffle like that of `like`. */
static mr_dataset *shuffle_like(const mr_dataset *like, mr_dataset *input, mr_status *st)
{
    if (mr_dataset_n_inputs(like))
        return mr_dataset_with_inputs(like, &input, 1);
    mr_value seed = {0};
    if (mr_dataset_param_named(like, "seed", &seed, st) != MR_OK) {
        mr_dataset_unref(input);
        return mr_dataset_fail(st);
    }
    const mr_shuffle_opts o = {.seed = seed.i, .has_seed = seed.kind == MR_V_INT};
    mr_value_reset(&seed);
    mr_dataset *made = mr_shuffle(input, ALL_NAMES, &o);
    mr__dataset_set_origin(made, mr__dataset_origin(like));
    return made;
}

/* names (taken) with the worker's shard after it. Shuffles before the shard are moved after it, as
 * a single one, so that workers agree on which files belong to which worker. */
static mr_dataset *shard_names(mr__branches *k, mr_dataset *names)
{
    shuffles s = {0};
    mr_dataset *made = NULL;
    if (mr_dataset_check(names, NULL) != MR_OK)
        return names; /* it carries the error */
    if (mr__walk_graph(names, take_out_shuffle, &s, &made, &k->status) != MR_OK) {
        made = mr_dataset_fail(&k->status);
        goto out;
    }
    /* With one worker the shuffle moves too, past the ops between it and the reader. */
    if (k->opts->num_workers == 1 && (s.n == 0 || (s.n == 1 && s.last == names))) {
        mr_dataset_unref(made);
        made = mr_dataset_ref(names);
        goto out;
    }
    if (k->opts->num_workers > 1)
        made = mr__insert_shard(made, k->opts);
    if (s.last) {
        made = shuffle_like(s.last, made, &k->status);
        if (mr_explain(k->e, "shuffling", NULL, &k->status,
                       "%s before the shard of the files %s after it, so that all workers deal the "
                       "same order and each shuffles its own files",
                       s.n > 1 ? "the shuffles" : "the shuffle",
                       s.n > 1 ? "become one (the first)" : "moves") != MR_OK) {
            mr_dataset_unref(made);
            made = mr_dataset_fail(&k->status);
        }
    }
out:
    mr_dataset_unref(s.last);
    mr_dataset_unref(names);
    return made;
}

/* Names first..end of a reader, which are either all patterns or all plain names. */
static mr_dataset *group_of_names(const mr_strs *names, size_t first, size_t end, bool patterns)
{
    mr_status st;
    size_t n = end - first;
    const char **paths = mr_malloc((n ? n : 1) * sizeof *paths);
    if (!paths) {
        mr_fail_memory(&st, n * sizeof *paths, "file names");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < n; i++)
        paths[i] = names->v[first + i].data;
    mr_dataset *ds = patterns ? mr_list_files(paths, n, NULL) : mr_from_strings(paths, n);
    mr_free((void *)paths);
    return ds;
}

/* A reader's names as a dataset: list_files for patterns, slices for plain names. */
static mr_dataset *names_of(const mr_strs *names)
{
    mr_dataset *all = NULL;
    size_t i = 0;
    do {
        size_t end = i;
        bool patterns = i < names->n && mr__file_is_pattern(names, i);
        while (end < names->n && mr__file_is_pattern(names, end) == patterns)
            end++;
        mr_dataset *group = group_of_names(names, i, end, patterns);
        all = all ? mr_concatenate(all, group) : group;
        i = end;
    } while (i < names->n);
    return all;
}

/* The same records as (the names) + the function that reads one of them, with the names sharded. */
static mr_dataset *split_reader(mr__branches *k, const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    const char *params = mr_dataset_params(ds);
    int64_t reads = 0;
    mr_fn *fn = NULL;
    if (mr_dataset_read_function(ds, &fn, &k->status) != MR_OK)
        return mr_dataset_fail(&k->status);
    for (const mr_param *p = op->params; p->name; p++)
        if (p->flags & MR_P_READS)
            reads = *(const int64_t *)(params + p->at);
    mr_dataset *names = shard_names(k, names_of((const mr_strs *)(params + file_list_of(ds)->at)));
    if (reads == 0)
        return mr_flat_map(names, fn);
    reads = reads == MR_AUTO ? MR_PARALLEL_READS_AUTO : reads;
    return mr_interleave(names, fn,
                         &(mr_interleave_opts){.cycle_length = reads, .num_parallel_calls = reads});
}

static mr_dataset *shard_input(mr__branches *k, mr_dataset *ds)
{
    size_t n = mr_dataset_n_inputs(ds);
    mr_dataset **inputs = mr_calloc(n, sizeof(mr_dataset *));
    if (!inputs) {
        mr_fail_memory(&k->status, n * sizeof(mr_dataset *), "the inputs of a node");
        return mr_dataset_fail(&k->status);
    }
    for (size_t i = 0; i < n; i++)
        inputs[i] = mr_dataset_ref(mr_dataset_input(ds, i));
    inputs[0] = shard_names(k, inputs[0]);
    mr_dataset *made = mr_dataset_with_inputs(ds, inputs, n);
    mr_free(inputs);
    return made;
}

static mr_code explain_place(mr__branches *k, const mr_dataset *ds, uintptr_t what,
                             const char *path)
{
    const char *name = mr_dataset_op(ds)->name;
    if (k->opts->num_workers == 1)
        return mr_explain(k->e, "sharding", path, &k->status,
                          "%s reads the files; one worker reads all of them", name);
    static const char *const around[][2] = {
        [SHARD_INPUT] = {"the input of ", ", which reads files for each of its elements,"},
        [SHARD_OUTPUT] = {"what ", " yields"},
        [SPLIT_READER] = {"the list of files of ", ""}};
    return mr_explain(k->e, "sharding", path, &k->status,
                      "%s%s%s is sharded: this worker takes number %" PRId64 " of every %" PRId64,
                      around[what][0], name, around[what][1], k->opts->index, k->opts->num_workers);
}

static mr_dataset *act(mr__branches *k, mr_dataset *old, mr_dataset *now, uintptr_t what,
                       const char *path)
{
    mr_dataset *made = NULL;
    if (explain_place(k, old, what, path) != MR_OK)
        made = mr_dataset_fail(&k->status);
    else if (k->opts->num_workers == 1 && what != SHARD_INPUT)
        return now; /* nothing to divide, and no shuffle to move */
    else if (what == SPLIT_READER)
        made = split_reader(k, now);
    else if (what == SHARD_INPUT)
        made = shard_input(k, now);
    else
        return shard_names(k, now);
    mr_dataset_unref(now);
    return made;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    walker k = {.b = {.opts = ctx, .look = look, .act = act}, .root = ds};
    mr_code rc = mr__branches_run(&k.b, ds, out, e, st);
    mr__id_map_reset(&k.uses);
    return rc;
}

const mr_pass mr__shard_files_pass = {
    "shard_files", "assigns each worker its part of the files that the graph reads", run};
