/* SPDX-License-Identifier: Apache-2.0 */
/* FILE: shards the list of files that a pipeline reads.
 *
 * First the walk, from the sink to the sources, which only looks and marks; then, if every branch
 * ended well, the graph is rebuilt with what was marked. So a branch that cannot be sharded leaves
 * the others as they were. */
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/order.h"
#include "shard/shard_passes.h"

#include <inttypes.h>
#include <string.h>

#define ALL_NAMES (-2) /* as buffer of a shuffle: the whole of its input */

typedef enum action {
    SHARD_INPUT,  /* of a function op that reads files: its elements name them */
    SHARD_BEHIND, /* the op's elements stand for files */
    SPLIT_READER, /* a reader with a list of files */
    DROP,         /* assert_cardinality: does not hold for a part */
    WALKED        /* a parallel op whose branches are on the stack, or were */
} action;

typedef struct mark {
    const mr_dataset *node;
    action what;
} mark;

typedef struct branch {
    mr_dataset *node;
    char path[256]; /* of the op above it */
    int64_t input;  /* which input of that op this is; -1: the only one */
} branch;

typedef struct walker {
    const mr_auto_shard_opts *opts;
    mr_explanation *e;
    mr_dataset *root;
    mark *marks;
    size_t n_marks, marks_capacity;
    branch *branches;
    size_t n_branches, branches_capacity;
    mr_status status;
} walker;

static const mark *find_mark(const walker *k, const mr_dataset *node)
{
    for (size_t i = 0; i < k->n_marks; i++)
        if (k->marks[i].node == node)
            return &k->marks[i];
    return NULL;
}

static mr_code add_mark(walker *k, const mr_dataset *node, action what, mr_status *st)
{
    if (find_mark(k, node))
        return MR_OK;
    MR_TRY(mr_grow((void **)&k->marks, &k->marks_capacity, k->n_marks + 1, sizeof *k->marks,
                   SIZE_MAX / 64, "the places to shard", st));
    k->marks[k->n_marks++] = (mark){node, what};
    return MR_OK;
}

static mr_code add_branch(walker *k, mr_dataset *node, const char *path, int64_t input,
                          mr_status *st)
{
    MR_TRY(mr_grow((void **)&k->branches, &k->branches_capacity, k->n_branches + 1,
                   sizeof *k->branches, SIZE_MAX / 1024, "the branches of a graph", st));
    branch *b = &k->branches[k->n_branches++];
    b->node = node;
    b->input = input;
    strcpy(b->path, path);
    return MR_OK;
}

/* ---- the walk ---- */

static bool passes(const mr_dataset *ds)
{
    if (mr_dataset_n_inputs(ds) == 0)
        return false;
    switch (mr_dataset_op(ds)->role) {
    case MR_ROLE_PASS:
    case MR_ROLE_FUNCTION:
    case MR_ROLE_BATCH:
    case MR_ROLE_SHUFFLE:
    case MR_ROLE_SHARD:
    case MR_ROLE_PREFETCH:
    case MR_ROLE_OPTIONS:
        return true;
    default:
        return false;
    }
}

typedef struct count_uses {
    const mr_dataset *of;
    size_t n;
} count_uses;

static mr_dataset *count_node(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)w;
    count_uses *c = ctx;
    for (size_t i = 0; i < mr_dataset_n_inputs(old); i++)
        c->n += mr_dataset_input(old, i) == c->of;
    return now;
}

/* *out = the function op below this one, behind pass-through ops, that goes straight over slices
 * that are datasets and feeds nothing else; NULL: there is none. */
static mr_code find_dataset_slices(const walker *k, mr_dataset *ds, mr_dataset **out, mr_status *st)
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
    count_uses uses = {at, 0};
    mr_dataset *same = NULL;
    MR_TRY(mr__walk_graph(k->root, count_node, &uses, &same, st));
    mr_dataset_unref(same);
    if (uses.n == 1)
        *out = at;
    return MR_OK;
}

static mr_code not_found(const mr_dataset *ds, const char *path, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    mr_code rc;
    if (op->role == MR_ROLE_FILE_NAMES)
        rc = mr_fail(
            st, MR_NOT_FOUND,
            "the walk to the files stopped at '%s', whose names no op of the graph reads; use "
            "auto_shard_policy DATA or OFF, or shard it yourself",
            op->name);
    else if (op->role == MR_ROLE_SOURCE)
        rc = mr_fail(st, MR_NOT_FOUND,
                     "the walk to the files stopped at '%s', a source that reads no files; use "
                     "auto_shard_policy DATA or OFF",
                     op->name);
    else
        rc = mr_fail(st, MR_NOT_FOUND,
                     "the walk to the files stopped at '%s', behind which files cannot be sharded; "
                     "use auto_shard_policy DATA or OFF",
                     op->name);
    mr_status_set_op(st, path);
    return rc;
}

static mr_code walk_branch(walker *k, const branch *from, mr_status *st)
{
    char path[256];
    strcpy(path, from->path);
    int64_t input = from->input;
    for (mr_dataset *ds = from->node;; ds = mr_dataset_input(ds, 0), input = -1) {
        const mr_op *op = mr_dataset_op(ds);
        bool reads = false;
        mr__path_append(path, sizeof path, input, op->name);
        if (find_mark(k, ds) && op->role != MR_ROLE_ASSERT)
            return MR_OK;
        if (op->role == MR_ROLE_FILES && op->split_files)
            return add_mark(k, ds, SPLIT_READER, st);
        if (op->role == MR_ROLE_PARALLEL) {
            MR_TRY(add_mark(k, ds, WALKED, st));
            for (size_t i = mr_dataset_n_inputs(ds); i-- > 0;)
                MR_TRY(add_branch(k, mr_dataset_input(ds, i), path, (int64_t)i, st));
            return MR_OK;
        }
        if (op->role == MR_ROLE_ASSERT) {
            MR_TRY(add_mark(k, ds, DROP, st));
            continue;
        }
        if (!passes(ds))
            return not_found(ds, path, st);
        if (op->role == MR_ROLE_FUNCTION) {
            mr_dataset *inner;
            MR_TRY(find_dataset_slices(k, ds, &inner, st));
            if (inner)
                return add_mark(k, inner, SHARD_BEHIND, st);
        }
        MR_TRY(mr_dataset_functions_have_role(ds, MR_ROLE_FILES, &reads, st));
        if (reads)
            return add_mark(k, ds, SHARD_INPUT, st);
    }
}

static mr_code walk(walker *k, mr_status *st)
{
    MR_TRY(add_branch(k, k->root, "", -1, st));
    while (k->n_branches) {
        branch b = k->branches[--k->n_branches];
        MR_TRY(walk_branch(k, &b, st));
    }
    return MR_OK;
}

/* ---- rebuilding ---- */

/* Taking the shuffles out of what lies above a shard. */
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
    mr_role role = mr_dataset_op(old)->role;
    mr_dataset *without = NULL;
    if (role == MR_ROLE_SHUFFLE) {
        keep_if_last(s, old, w);
        without = mr_dataset_ref(mr_dataset_input(now, 0));
    } else if (role == MR_ROLE_FILE_NAMES && mr__param_is(old, MR__SHUFFLE_PARAM, 1)) {
        mr_value unset = {0}, off = {.kind = MR_V_BOOL, .i = 0};
        keep_if_last(s, old, w);
        mr_dataset *sorted = mr_dataset_with_param(now, MR__SHUFFLE_PARAM, &off);
        without = mr_dataset_with_param(sorted, "seed", &unset);
        mr_dataset_unref(sorted);
    } else
        return now;
    mr_dataset_unref(now);
    return without;
}

/* input (taken) with the shuffle that `like` does. */
static mr_dataset *shuffle_like(const mr_dataset *like, mr_dataset *input, mr_status *st)
{
    if (mr_dataset_op(like)->role == MR_ROLE_SHUFFLE)
        return mr_dataset_with_inputs(like, &input, 1);
    mr_value seed = {0};
    if (mr_dataset_param_named(like, "seed", &seed, st) != MR_OK) {
        mr_dataset_unref(input);
        return mr_dataset_fail(st);
    }
    const mr_shuffle_opts o = {.seed = seed.i, .has_seed = seed.kind == MR_V_INT};
    mr_value_reset(&seed);
    return mr_shuffle(input, ALL_NAMES, &o);
}

/* names (taken) with the worker's shard behind it, and the shuffles that stood before it moved
 * behind: one of them, so that workers agree on whose files are whose. */
static mr_dataset *shard_names(void *ctx, mr_dataset *names)
{
    walker *k = ctx;
    shuffles s = {0};
    mr_dataset *made = NULL;
    if (mr_dataset_check(names, NULL) != MR_OK)
        return names; /* it carries its error on */
    if (mr__walk_graph(names, take_out_shuffle, &s, &made, &k->status) != MR_OK) {
        made = mr_dataset_fail(&k->status);
        goto out;
    }
    if (k->opts->num_workers == 1 && s.n < 2) {
        mr_dataset_unref(made);
        made = mr_dataset_ref(names);
        goto out;
    }
    if (k->opts->num_workers > 1)
        made = mr__insert_shard(made, k->opts);
    if (s.last) {
        made = shuffle_like(s.last, made, &k->status);
        if (mr_explain(
                k->e, "shuffling", NULL, &k->status,
                "%s before the shard of the files %s behind it, so that all workers deal the "
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

static mr_dataset *shard_input(walker *k, mr_dataset *ds)
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

static mr_code explain_place(walker *k, const mr_dataset *ds, action what, const char *path)
{
    const char *name = mr_dataset_op(ds)->name;
    if (what == DROP)
        return mr__warn(k->e, path, &k->status,
                        "%s is dropped: the number it asserts is that of all workers' elements",
                        name);
    if (k->opts->num_workers == 1)
        return mr_explain(k->e, "sharding", path, &k->status,
                          "%s reads the files; one worker reads all of them", name);
    static const char *const around[][2] = {
        [SHARD_INPUT] = {"the input of ", ", which reads files for each of its elements,"},
        [SHARD_BEHIND] = {"what ", " yields"},
        [SPLIT_READER] = {"the list of files of ", ""}};
    return mr_explain(k->e, "sharding", path, &k->status,
                      "%s%s%s is sharded: this worker takes number %" PRId64 " of every %" PRId64,
                      around[what][0], name, around[what][1], k->opts->index, k->opts->num_workers);
}

static mr_dataset *apply(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    walker *k = ctx;
    const mark *m = find_mark(k, old);
    char path[256];
    if (!m || m->what == WALKED)
        return now;
    mr__walk_path(w, path, sizeof path);
    mr_dataset *made = NULL;
    if (explain_place(k, old, m->what, path) != MR_OK)
        made = mr_dataset_fail(&k->status);
    else if (m->what == DROP)
        made = mr_dataset_ref(mr_dataset_input(now, 0));
    else if (k->opts->num_workers == 1 && m->what != SHARD_INPUT)
        return now; /* nothing to divide, and no shuffle stands before it */
    else if (m->what == SPLIT_READER)
        made = mr_dataset_op(now)->split_files(now, shard_names, k);
    else if (m->what == SHARD_INPUT)
        made = shard_input(k, now);
    else
        return shard_names(k, now);
    mr_dataset_unref(now);
    return made;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    walker k = {.opts = ctx, .e = e, .root = ds};
    mr_code rc = walk(&k, st);
    if (rc == MR_OK)
        rc = mr__walk_graph(ds, apply, &k, out, st);
    mr_free(k.marks);
    mr_free(k.branches);
    return rc;
}

const mr_pass mr__shard_files_pass = {
    "shard_files", "gives each worker its part of the files that the graph reads", run};
