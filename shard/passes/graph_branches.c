/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/passes/graph_branches.h"

#include <string.h>

#include "pipeline/memory/alloc.h"

/* A branch that was not walked yet. */
struct mr__branch {
    mr_dataset *node;
    char path[256]; /* of the op above it */
    int64_t input;  /* which input of that op this is; -1: the only one */
};

mr_code mr__branches_mark(mr__branches *k, const mr_dataset *node, uintptr_t mark, mr_status *st)
{
    return mr__id_map_put(&k->marks, (uintptr_t)node, mark, st);
}

static mr_code add(mr__branches *k, mr_dataset *node, const char *path, int64_t input,
                   mr_status *st)
{
    MR_TRY(MR_GROW(k->todo, k->capacity, k->n + 1, SIZE_MAX / 1024, "the branches of a graph", st));
    struct mr__branch *b = &k->todo[k->n++];
    b->node = node;
    b->input = input;
    strcpy(b->path, path);
    return MR_OK;
}

static mr_code walk(mr__branches *k, struct mr__branch b, mr_status *st)
{
    for (mr_dataset *ds = b.node;; ds = mr_dataset_input(ds, 0), b.input = -1) {
        const mr_op *op = mr_dataset_op(ds);
        bool ends = false;
        mr__path_append(b.path, sizeof b.path, b.input, op->name);
        if (mr__id_map_find(&k->marks, (uintptr_t)ds))
            return MR_OK;
        MR_TRY(mr__branches_mark(k, ds, op->props & MR_OP_WHOLE_INPUT ? MR__DROP : MR__WALKED, st));
        MR_TRY(k->look(k, ds, b.path, &ends, st));
        if (ends)
            return MR_OK;
        if (op->role == MR_ROLE_PARALLEL) {
            for (size_t i = mr_dataset_n_inputs(ds); i-- > 0;)
                MR_TRY(add(k, mr_dataset_input(ds, i), b.path, (int64_t)i, st));
            return MR_OK;
        }
    }
}

static mr_dataset *apply(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    mr__branches *k = ctx;
    const uintptr_t *mark = mr__id_map_find(&k->marks, (uintptr_t)old);
    char path[256];
    if (!mark || *mark == MR__WALKED)
        return now;
    mr__walk_path(w, path, sizeof path);
    if (*mark != MR__DROP)
        return k->act(k, old, now, *mark, path);
    mr_code rc =
        mr__warn(k->e, path, &k->status,
                 "%s is dropped: the number that it asserts counts the elements of all workers",
                 mr_dataset_op(old)->name);
    mr_dataset *made =
        rc == MR_OK ? mr_dataset_ref(mr_dataset_input(now, 0)) : mr_dataset_fail(&k->status);
    mr_dataset_unref(now);
    return made;
}

mr_code mr__branches_run(mr__branches *k, mr_dataset *ds, mr_dataset **out, mr_explanation *e,
                         mr_status *st)
{
    k->e = e;
    mr_code rc = add(k, ds, "", -1, st);
    while (rc == MR_OK && k->n)
        rc = walk(k, k->todo[--k->n], st);
    if (rc == MR_OK)
        rc = mr__walk_graph(ds, apply, k, out, st);
    mr__id_map_reset(&k->marks);
    mr_free(k->todo);
    return rc;
}
