/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a function of a batch treats its rows separately: each row of the result depends on the
 * same row of the batch alone. */
#include "pipeline/functions/compiler/row_wise_internal.h"
#include "pipeline/functions/compiler/typed_tree.h"

static int rank_of(const typed *t)
{
    return mr_spec_n_leaves(t->spec) == 1 ? mr_spec_leaf(t->spec, 0)->rank : -1;
}

/* Inputs that hold rows have the axes of the result, so that axis 0 meets axis 0; the others have
 * fewer, or one entry there. */
static bool keeps_rows(const typed *call)
{
    int rank = rank_of(call);
    if (!(call->function->props & MR_FUNCTION_ELEMENTWISE) || rank < 1)
        return false;
    for (size_t i = 0; i < call->n; i++) {
        const typed *in = call->children[i];
        int own = rank_of(in);
        if (own < 0 || (in->constant ? own >= rank && mr_spec_leaf(in->spec, 0)->shape[0] != 1
                                     : own != rank || !mr__is_row_wise(in)))
            return false;
    }
    return true;
}

bool mr__is_row_wise(const typed *t)
{
    switch (t->kind) {
    case TYPED_COLUMN:
        for (size_t i = 0; i < mr_spec_n_leaves(t->spec); i++)
            if (mr_spec_leaf(t->spec, i)->rank == 0)
                return false; /* the number of a batch */
        return true;
    case TYPED_GROUP:
    case TYPED_PART:
        for (size_t i = 0; i < t->n; i++)
            if (t->children[i]->constant || !mr__is_row_wise(t->children[i]))
                return false;
        return true;
    case TYPED_CALL:
        return !t->constant && keeps_rows(t);
    case TYPED_PROGRAM:
        for (size_t i = 0; i < t->n; i++)
            if (t->children[i]->constant || !mr__is_row_wise(t->children[i]))
                return false;
        return mr__program_is_row_wise(t->program);
    case TYPED_CONST:
    case TYPED_CHOICE:
    case TYPED_DATASET:
        break;
    }
    return false;
}
