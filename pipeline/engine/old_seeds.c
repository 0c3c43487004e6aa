/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/old_seeds.h"

#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/memory/alloc.h"

typedef struct taking {
    const mr__nodes *theirs;
    size_t at; /* the transform visits the nodes of ours in the same order */
    bool differs;
} taking;

static mr_dataset *take_seed(void *ctx, mr_dataset *node)
{
    taking *t = ctx;
    mr_value seed = {0}, own = {0};
    const mr_dataset *from = t->at < t->theirs->n ? t->theirs->v[t->at++] : NULL;
    if (!from || mr_dataset_op(from) != mr_dataset_op(node)) {
        t->differs = true;
        return node;
    }
    mr_dataset *made = node;
    if (mr__dataset_origin(node).has_seed && (mr_dataset_op(node)->props & MR_OP_RANDOM) &&
        mr_dataset_param_named(from, "seed", &seed, NULL) == MR_OK && seed.kind == MR_V_INT &&
        mr_dataset_param_named(node, "seed", &own, NULL) == MR_OK &&
        (own.kind == MR_V_UNSET || own.kind == MR_V_NONE)) {
        made = mr_dataset_with_param(node, "seed", &seed);
        mr_dataset_unref(node);
    }
    mr_value_reset(&seed);
    mr_value_reset(&own);
    return made;
}

static bool has_text(const mr_dataset *ds, const char *text, size_t n)
{
    char *own = NULL;
    if (mr_dataset_to_text(ds, &own, NULL) != MR_OK)
        return false;
    bool same = strlen(own) == n && memcmp(own, text, n) == 0;
    mr_free(own);
    return same;
}

mr_code mr__with_old_seeds(mr_dataset *ds, const char *text, size_t n, mr_dataset **out,
                           mr_status *st)
{
    mr_dataset *theirs = NULL;
    mr__nodes nodes;
    *out = NULL;
    /* Text that refers to the program's own arrays and functions is not parsed here. */
    if (mr_dataset_from_text(text, n, NULL, &theirs, NULL) != MR_OK)
        return MR_OK;
    mr_code rc = mr__nodes_of(theirs, &nodes, st);
    if (rc == MR_OK) {
        taking t = {.theirs = &nodes};
        mr_dataset *made = mr_dataset_transform(ds, take_seed, &t);
        if (!t.differs && mr_dataset_check(made, NULL) == MR_OK && has_text(made, text, n))
            *out = mr_dataset_ref(made);
        mr_dataset_unref(made);
        mr__nodes_reset(&nodes);
    }
    mr_dataset_unref(theirs);
    return rc;
}
