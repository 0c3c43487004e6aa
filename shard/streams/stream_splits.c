/* SPDX-License-Identifier: Apache-2.0 */
/* A walk from the sink to the sources marks the nodes that it visits; then the graph is rebuilt
 * with each source that it found replaced. */
#include "shard/streams/stream_splits.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/memory/id_map.h"
#include "shard/passes/shard_passes.h"
#include "shard/streams/stream_cut_impl.h"

/* The action of the walk at a node; from SOURCE on, the node is source number mark - SOURCE. */
typedef enum mark { UNMET, WALKED, TAKEN_OUT, SOURCE } mark;

/* A node to visit. names: its elements are file names, or input from which a function reads. */
typedef struct branch {
    mr_dataset *ds;
    bool names;
} branch;

typedef struct walker {
    branch *todo;
    size_t n_todo, todo_capacity;
    mr_split_source *sources;
    size_t n, capacity;
    int64_t splits;
    mr__id_map marks;
    mr_dataset *(*feed)(void *ctx, const mr_split_source *s);
    void *ctx;
    mr_explanation *e;
    mr_status *st;
} walker;

static mr_code add(walker *k, mr_dataset *ds, bool names)
{
    MR_TRY(MR_GROW(k->todo, k->todo_capacity, k->n_todo + 1, SIZE_MAX / 32,
                   "the branches of a graph", k->st));
    k->todo[k->n_todo++] = (branch){ds, names};
    return MR_OK;
}

static mark mark_of(const walker *k, const mr_dataset *ds)
{
    const uintptr_t *m = mr__id_map_find(&k->marks, (uintptr_t)ds);
    return m ? (mark)*m : UNMET;
}

static mr_code set_mark(walker *k, const mr_dataset *ds, uintptr_t m)
{
    return mr__id_map_put(&k->marks, (uintptr_t)ds, m, k->st);
}

/* ---- properties of nodes ---- */

static const mr_param *names_param(const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    for (const mr_param *p = op->params; op->role == MR_ROLE_FILES && p && p->name; p++)
        if ((p->flags & MR_P_PATTERN) && p->type == MR_PT_STRS)
            return p;
    return NULL;
}

static const mr_strs *names_of(const mr_dataset *ds, const mr_param *p)
{
    return (const mr_strs *)((const char *)mr_dataset_params(ds) + p->at);
}

static bool is_zip(const mr_dataset *ds)
{
    const uint32_t props = mr_dataset_op(ds)->props;
    return mr_dataset_op(ds)->role == MR_ROLE_PARALLEL && (props & MR_OP_SOURCE_CALL) &&
           mr_dataset_n_inputs(ds) > 1;
}

/* A source that can be divided into any parts. */
static bool can_be_sliced(const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    return mr_dataset_n_inputs(ds) == 0 && op->role == MR_ROLE_SOURCE &&
           !(op->props & (MR_OP_NO_REPLAY | MR_OP_MAY_BLOCK | MR_OP_RANDOM | MR_OP_FILE_NAMES |
                          MR_OP_LATE_COUNT)) &&
           mr_dataset_cardinality(ds) >= 0;
}

/* ---- sources ---- */

static mr_code add_source(walker *k, mr_dataset *ds, mr_split_source s)
{
    MR_TRY(
        MR_GROW(k->sources, k->capacity, k->n + 1, SIZE_MAX / 64, "the sources of a graph", k->st));
    MR_TRY(set_mark(k, ds, SOURCE + k->n));
    s.ds = ds;
    k->sources[k->n++] = s;
    return MR_OK;
}

/* Adds a source whose splits follow those of the sources found so far. */
static mr_code new_source(walker *k, mr_dataset *ds, mr_split_kind kind, int64_t n, int64_t each)
{
    const mr_split_source s = {.kind = kind, .first = k->splits, .n = n, .each = each};
    if (__builtin_add_overflow(k->splits, n, &k->splits))
        return mr_fail(k->st, MR_INVALID_ARGUMENT, "the graph has too many splits");
    return add_source(k, ds, s);
}

static mr_code new_slices(walker *k, mr_dataset *ds, bool names)
{
    bool numbers = mr_dataset_op(ds)->props & MR_OP_IS_RANGE;
    int64_t count = mr_dataset_cardinality(ds);
    int64_t each = names || count <= MR_RANGE_SPLITS ? 1 : (count - 1) / MR_RANGE_SPLITS + 1;
    return new_source(k, ds, numbers ? MR_SPLIT_NUMBERS : MR_SPLIT_SLICES,
                      count ? (count - 1) / each + 1 : 0, each);
}

/* ---- zip ---- */

/* *out = true if the walk can reach a source of files below ds. */
static mr_code finds_files(mr_dataset *ds, bool *out, mr_status *st)
{
    walker k = {.st = st};
    *out = false;
    mr_code rc = add(&k, ds, false);
    while (rc == MR_OK && k.n_todo && !*out) {
        mr_dataset *at = k.todo[--k.n_todo].ds;
        if (mark_of(&k, at) != UNMET)
            continue;
        rc = set_mark(&k, at, WALKED);
        if (rc == MR_OK)
            rc = mr__stream_reads_files(at, out, st);
        *out |= names_param(at) != NULL;
        for (size_t i = 0; rc == MR_OK && mr__stream_splits(at) && i < mr_dataset_n_inputs(at); i++)
            rc = add(&k, mr_dataset_input(at, i), false);
    }
    mr__id_map_reset(&k.marks);
    mr_free(k.todo);
    return rc;
}

/* The reader that ds is in step with: one element for each record, in order. NULL: none. */
static mr_dataset *reader_below(mr_dataset *ds)
{
    while (!names_param(ds)) {
        const uint32_t props = mr_dataset_op(ds)->props;
        if (!mr__stream_splits(ds) || mr_dataset_n_inputs(ds) != 1 ||
            !(props & MR_OP_KEEPS_COUNT) || (props & MR_OP_REORDERS))
            return NULL;
        ds = mr_dataset_input(ds, 0);
    }
    return ds;
}

/* *out = true if two readers read the same files in the same order. */
static mr_code are_equal(mr_dataset *a, const mr_dataset *b, bool *out, mr_status *st)
{
    void *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    *out = a == b;
    /* Shuffled lists of two places have two orders. */
    if (*out || mr_dataset_op(a) != mr_dataset_op(b) || mr__any_wants_seed(a))
        return MR_OK;
    MR_TRY(mr__dataset_to_bare_proto(a, &x, &n, st));
    mr_code rc = mr__dataset_to_bare_proto(b, &y, &m, st);
    *out = rc == MR_OK && n == m && memcmp(x, y, n) == 0;
    mr_free(x);
    mr_free(y);
    return rc;
}

static mr_code come_apart(const mr_dataset *zip, mr_status *st)
{
    mr_fail(st, MR_FAILED_PRECONDITION,
            "%s cannot be split by the files of its first input: its inputs would no longer match, "
            "because they do not all advance with the same files; put distribute below it, or use "
            "processing_mode=\"exactly_once\"",
            mr_dataset_op(zip)->name);
    mr_status_set_op(st, mr_dataset_op(zip)->name);
    return st->code;
}

static mr_code walk_zip(walker *k, mr_dataset *zip)
{
    bool files = false, equal = true;
    MR_TRY(finds_files(mr_dataset_input(zip, 0), &files, k->st));
    if (!files)
        return new_source(k, zip, MR_SPLIT_WHOLE, 1, 0);
    mr_dataset *first = reader_below(mr_dataset_input(zip, 0));
    for (size_t i = 1; i < mr_dataset_n_inputs(zip) && first; i++) {
        mr_dataset *other = reader_below(mr_dataset_input(zip, i));
        if (!other)
            return come_apart(zip, k->st);
        MR_TRY(are_equal(first, other, &equal, k->st));
        if (!equal)
            return come_apart(zip, k->st);
    }
    if (!first)
        return come_apart(zip, k->st);
    MR_TRY(set_mark(k, zip, WALKED));
    MR_TRY(
        new_source(k, first, MR_SPLIT_FILES, (int64_t)names_of(first, names_param(first))->n, 0));
    const mr_split_source same = k->sources[k->n - 1];
    for (size_t i = 1; i < mr_dataset_n_inputs(zip); i++) {
        mr_dataset *other = reader_below(mr_dataset_input(zip, i));
        if (mark_of(k, other) == UNMET)
            MR_TRY(add_source(k, other, same));
    }
    return MR_OK;
}

/* ---- the walk ---- */

/* *out = true if an iterator of ds, which has several inputs, reads each source below it once.
 * Splits are assigned in the order of the sources, those of one repetition before the next. */
static mr_code is_gone_over_once(mr_dataset *ds, bool *out, mr_status *st)
{
    walker k = {.st = st};
    mr_code rc = add(&k, ds, false);
    *out = true;
    while (rc == MR_OK && k.n_todo && *out) {
        mr_dataset *at = k.todo[--k.n_todo].ds;
        const uint32_t props = mr_dataset_op(at)->props;
        *out = mark_of(&k, at) == UNMET && !is_zip(at) &&
               !(mr_dataset_n_inputs(at) == 1 && (props & MR_OP_OPENS_LATER));
        rc = set_mark(&k, at, WALKED);
        for (size_t i = 0; rc == MR_OK && mr__stream_splits(at) && i < mr_dataset_n_inputs(at); i++)
            rc = add(&k, mr_dataset_input(at, i), false);
    }
    mr__id_map_reset(&k.marks);
    mr_free(k.todo);
    return rc;
}

static mr_code look(walker *k, mr_dataset *ds, bool names)
{
    const mr_param *p = names_param(ds);
    bool reads = false, once = true;
    if (p)
        return new_source(k, ds, MR_SPLIT_FILES, (int64_t)names_of(ds, p)->n, 0);
    if (is_zip(ds))
        return walk_zip(k, ds);
    if (!mr__stream_splits(ds))
        return can_be_sliced(ds) ? new_slices(k, ds, names)
                                 : new_source(k, ds, MR_SPLIT_WHOLE, 1, 0);
    if (mr_dataset_n_inputs(ds) > 1)
        MR_TRY(is_gone_over_once(ds, &once, k->st));
    if (!once)
        return new_source(k, ds, MR_SPLIT_WHOLE, 1, 0);
    /* A shuffle of names would request all of them at once. */
    MR_TRY(set_mark(k, ds, names && mr__shuffles(ds, MR_OP_REORDERS) ? TAKEN_OUT : WALKED));
    MR_TRY(mr__stream_reads_files(ds, &reads, k->st));
    for (size_t i = mr_dataset_n_inputs(ds); i-- > 0;)
        MR_TRY(add(k, mr_dataset_input(ds, i), names || reads));
    return MR_OK;
}

static mr_code find_sources(walker *k, mr_dataset *ds)
{
    MR_TRY(add(k, ds, false));
    while (k->n_todo) {
        branch b = k->todo[--k->n_todo];
        MR_TRY(look(k, b.ds, b.names));
    }
    return MR_OK;
}

static void reset(walker *k)
{
    mr__id_map_reset(&k->marks);
    mr_free(k->sources);
    mr_free(k->todo);
}

mr_code mr_count_splits(mr_dataset *ds, int64_t *n, mr_status *st)
{
    walker k = {.st = st};
    MR_TRY(mr_dataset_check(ds, st));
    mr_code rc = find_sources(&k, ds);
    *n = k.splits;
    reset(&k);
    return rc;
}

/* ---- splits ---- */

static mr_dataset *one_file(const mr_split_source *s, int64_t k)
{
    const mr_param *p = names_param(s->ds);
    const mr_bytes *name = &names_of(s->ds, p)->v[k];
    mr_value v = {.kind = MR_V_STRING,
                  .computed = true, /* not a pattern */
                  .s = (char *)(uintptr_t)name->data,
                  .size = name->size};
    const mr_value list = {.kind = MR_V_LIST, .items = &v, .n = 1};
    return mr_dataset_with_param(s->ds, p->name, &list);
}

static mr_dataset *numbers(const mr_split_source *s, int64_t from, int64_t count)
{
    mr_status st;
    mr_value start = {0}, stop = {0}, step = {0};
    if (mr_dataset_param_named(s->ds, "start", &start, &st) != MR_OK ||
        mr_dataset_param_named(s->ds, "stop", &stop, &st) != MR_OK ||
        mr_dataset_param_named(s->ds, "step", &step, &st) != MR_OK)
        return mr_dataset_fail(&st);
    /* A single argument is the stop. */
    uint64_t first = stop.kind == MR_V_INT ? (uint64_t)start.i : 0;
    uint64_t by = step.kind == MR_V_INT ? (uint64_t)step.i : 1;
    first += (uint64_t)from * by;
    /* The stop is one past the last number: a whole step past it could overflow. */
    uint64_t last = first + (uint64_t)(count - 1) * by;
    if ((int64_t)last == ((int64_t)by > 0 ? INT64_MAX : INT64_MIN))
        return mr_take(mr_skip(mr_dataset_ref(s->ds), from), count);
    return mr_range((int64_t)first, (int64_t)(last + ((int64_t)by > 0 ? 1u : UINT64_MAX)),
                    (int64_t)by);
}

mr_dataset *mr_split_dataset(const mr_split_source *s, int64_t k)
{
    int64_t from = 0, left = 0;
    switch (s->kind) {
    case MR_SPLIT_FILES:
        return one_file(s, k);
    case MR_SPLIT_WHOLE:
        return mr_dataset_ref(s->ds);
    default:
        from = k * s->each;
        left = mr_dataset_cardinality(s->ds) - from;
        left = left < s->each ? left : s->each;
        return s->kind == MR_SPLIT_NUMBERS ? numbers(s, from, left)
                                           : mr_take(mr_skip(mr_dataset_ref(s->ds), from), left);
    }
}

/* ---- rebuilding ---- */

static mr_code explain(walker *k, const mr_split_source *s, const mr__walk *w)
{
    static const char *const what[] = {"file", "range of the numbers", "range of the slices",
                                       "split that covers all of it"};
    char path[256];
    mr__walk_path(w, path, sizeof path);
    return mr_explain(k->e, "splits", path, k->st,
                      "%s is handed out on demand, in %" PRId64 " splits, each a %s",
                      mr_dataset_op(s->ds)->name, s->n, what[s->kind]);
}

static mr_dataset *apply(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    walker *k = ctx;
    mark m = mark_of(k, old);
    mr_dataset *made = now;
    if (m == TAKEN_OUT) {
        made = mr_dataset_ref(mr_dataset_input(now, 0));
        mr_dataset_unref(now);
    } else if (m >= SOURCE) {
        const mr_split_source *s = &k->sources[m - SOURCE];
        made = explain(k, s, w) == MR_OK ? k->feed(k->ctx, s) : mr_dataset_fail(k->st);
        mr_dataset_unref(now);
    }
    return made;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    walker *k = ctx;
    k->e = e;
    k->st = st;
    MR_TRY(find_sources(k, ds));
    return mr__walk_graph(ds, apply, k, out, st);
}

static const mr_pass feed_pass = {"feed_splits",
                                  "assigns a stream its splits as they are handed out", run};

mr_code mr_feed_splits(mr_dataset *ds, mr_dataset *(*feed)(void *ctx, const mr_split_source *s),
                       void *ctx, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    walker k = {.feed = feed, .ctx = ctx};
    mr_code rc = mr_pass_run(&feed_pass, &k, ds, out, e, st);
    reset(&k);
    return rc;
}
