/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/passes/own_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/fingerprint_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/memory/id_map.h"
#include "pipeline/splitmix.h"
#include "shard/passes/graph_walk.h"
#include "shard/passes/shard_passes.h"

typedef struct owner {
    const mr_parts *parts;
    mr_dataset **nodes; /* inputs before their users; borrowed */
    size_t n, capacity;
    mr__id_map elsewhere; /* nodes that other processes run */
    mr_status status;
} owner;

/* The file that the node keeps elements in; NULL: none. */
static const char *file_of(const mr_dataset *ds, const mr_param **p)
{
    *p = mr__param_with(ds, MR_P_KEEPS_FILE);
    const char *name = *p ? *(char *const *)((const char *)mr_dataset_params(ds) + (*p)->at) : NULL;
    return name && *name ? name : NULL;
}

/* ---- what is refused ---- */

static mr_code refuse(const mr_dataset *ds, const mr_op *op, const char *why, const mr_parts *k,
                      mr_status *st)
{
    char several[64] = "several ";
    if (k->n && k->n != MR_SEVERAL_PARTS)
        snprintf(several, sizeof several, "%" PRId64 " ", k->n);
    mr_fail(st, MR_FAILED_PRECONDITION, "%s below %s%s%s", op->name, several, k->what, why);
    mr_status_set_op(st, mr_dataset_op(ds)->name);
    return MR_FAILED_PRECONDITION;
}

static mr_code check(void *ctx, mr_dataset *ds, const mr__walk *w, mr_status *st)
{
    (void)w;
    const mr_parts *k = ((const owner *)ctx)->parts;
    const mr_op *op = mr_dataset_op(ds), *inner = NULL;
    const mr_param *p;
    if (k->n == 1)
        return MR_OK;
    if (file_of(ds, &p)) {
        if (!(op->props & MR_OP_KEEPS_SHARDS))
            return refuse(ds, op,
                          " would have each of them write the same file; write it in a separate "
                          "run with one worker and one stream, or, with a data service, put it "
                          "above distribute",
                          k, st);
        if (k->n == 0)
            return refuse(ds, op,
                          ", whose number is not fixed in this processing_mode, can have no file "
                          "for each; keep it in memory, put it above distribute, or use "
                          "processing_mode=\"exactly_once\"",
                          k, st);
    }
    MR_TRY(mr_dataset_functions_keep_files(ds, &inner, st));
    return inner ? refuse(ds, inner,
                          " in a function would have each of them write the same file; put it "
                          "outside of the function, or, with a data service, above distribute",
                          k, st)
                 : MR_OK;
}

mr_code mr_check_own_files(mr_dataset *ds, const mr_parts *parts, mr_status *st)
{
    owner k = {.parts = parts};
    MR_TRY(mr_dataset_check(ds, st));
    return mr__visit_graph(ds, check, &k, st);
}

/* ---- names ---- */

/* ds (taken) with `text` as parameter p. */
static mr_dataset *with_text(mr_dataset *ds, const mr_param *p, const char *text)
{
    const mr_value v = {.kind = MR_V_STRING, .s = (char *)(uintptr_t)text, .size = strlen(text)};
    mr_dataset *made = mr_dataset_with_param(ds, p->name, &v);
    mr_dataset_unref(ds);
    return made;
}

/* The fingerprint of the node's input before the rewrites, and of how the part is made. A list of
 * file names that graph_of puts into it counts too. */
static mr_code fingerprint(const mr_dataset *ds, const mr_parts *k, char out[17], mr_status *st)
{
    uint64_t h = 0;
    mr_dataset *of = mr_dataset_ref(mr_dataset_input(ds, 0));
    if (k->graph_of) {
        mr_dataset *input = of;
        of = NULL;
        mr_code rc = k->graph_of(k->ctx, input, &of, st);
        mr_dataset_unref(input);
        MR_TRY(rc);
    }
    mr_code rc = mr__graph_fingerprint(of, &h, NULL, st);
    uint64_t seed = mr__any_wants_seed(of) ? k->seed : 0;
    mr_dataset_unref(of);
    snprintf(out, 17, "%016" PRIx64, mr__splitmix(h + k->how + seed * MR__GOLDEN));
    return rc;
}

static mr_code list(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    owner *k = ctx;
    (void)w;
    MR_TRY(MR_GROW(k->nodes, k->capacity, k->n + 1, SIZE_MAX / 16, "a graph", st));
    k->nodes[k->n++] = node;
    return MR_OK;
}

/* Marks the inputs of ops that other processes run. These may share them by name, so that the graph
 * must be the same for all parts. */
static mr_code find_elsewhere(owner *k, mr_dataset *ds, mr_status *st)
{
    mr_code rc = mr__visit_graph(ds, list, k, st);
    for (size_t i = k->n; i-- > 0 && rc == MR_OK;) { /* users before their inputs */
        const mr_dataset *at = k->nodes[i];
        int64_t copies = 1, blocks = 0;
        const mr_op *op = mr_dataset_op(at);
        bool away = mr__id_map_find(&k->elsewhere, (uintptr_t)at) != NULL;
        if (op->needs)
            op->needs(at, mr_dataset_params(at), &copies, &blocks);
        for (size_t n = 0; n < mr_dataset_n_inputs(at) && (away || copies == 0) && rc == MR_OK; n++)
            rc = mr__id_map_put(&k->elsewhere, (uintptr_t)mr_dataset_input(at, n), 1, st);
    }
    mr_free(k->nodes);
    return rc;
}

static mr_dataset *own(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    owner *k = ctx;
    (void)w;
    const mr_param *p, *graph = mr__param_with(old, MR_P_OF_GRAPH);
    const char *name = file_of(old, &p);
    char print[17], *mine = NULL;
    if (!name || !graph || mr__id_map_find(&k->elsewhere, (uintptr_t)old))
        return now;
    const char *set = *(char *const *)((const char *)mr_dataset_params(old) + graph->at);
    mr_code rc = set ? MR_OK : fingerprint(old, k->parts, print, &k->status);
    if (rc == MR_OK && k->parts->n > 1) {
        mine = mr_strf("%s-stream-%" PRId64 "-of-%" PRId64, name, k->parts->index, k->parts->n);
        rc = mine ? MR_OK : mr_fail_memory(&k->status, strlen(name), "a file name");
    }
    if (rc != MR_OK) {
        mr_dataset_unref(now);
        return mr_dataset_fail(&k->status);
    }
    if (mine)
        now = with_text(now, p, mine);
    if (!set && mr_dataset_check(now, NULL) == MR_OK)
        now = with_text(now, graph, print);
    mr_free(mine);
    return now;
}

mr_code mr_own_files(mr_dataset *ds, const mr_parts *parts, mr_dataset **out, mr_status *st)
{
    owner k = {.parts = parts};
    MR_TRY(mr_check_own_files(ds, parts, st));
    mr_code rc = find_elsewhere(&k, ds, st);
    if (rc == MR_OK)
        rc = mr__walk_graph(ds, own, &k, out, st);
    mr__id_map_reset(&k.elsewhere);
    return rc;
}

static mr_dataset *without(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)ctx;
    (void)w;
    const mr_param *p;
    if (!file_of(old, &p))
        return now;
    mr_dataset *input = mr_dataset_ref(mr_dataset_input(now, 0));
    mr_dataset_unref(now);
    return input;
}

mr_code mr__without_files(mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    return mr__walk_graph(ds, without, NULL, out, st);
}
