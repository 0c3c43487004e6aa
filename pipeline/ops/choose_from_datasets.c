/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of the last input are the numbers of the inputs to take the next elements from. */
#include "pipeline/ops/sequence.h"

#include "pipeline/graph/node.h"
#include "pipeline/streams/selection.h"

struct params {
    mr_choose_from_datasets_opts o;
};

struct state {
    mr__selection selection;
    mr_block choices; /* empty between calls */
};

static size_t n_datasets(const mr_iter *it)
{
    return it->n_inputs - 1;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    return mr__selection_open(&s->selection, it, n_datasets(it), NULL,
                              p->o.stop_on_empty_dataset != MR_NO ? MR__STOP_FIRST : MR__STOP_ALL,
                              st);
}

static mr_code refill(mr_iter *it, size_t want, mr_status *st)
{
    struct state *s = it->state;
    int64_t *to;
    /* If the choices record what is pulled, none may be surplus at the end. */
    if (mr__dataset_all_props(mr_dataset_input(it->node, n_datasets(it))) & MR_OP_REMEMBERS)
        want = 1;
    MR_TRY(mr__selection_room(&s->selection, want, &to, st));
    MR_TRY(mr_iter_pull(it, n_datasets(it), want, &s->choices, st));
    const mr_array *a = &s->choices.columns[0];
    mr_code rc = MR_OK;
    if (a->storage != MR_DENSE || a->rank != 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "the numbers of datasets must be scalars, found rank %d", a->rank);
    else {
        for (size_t i = 0; i < a->rows; i++)
            to[i] = ((const int64_t *)a->data)[i];
        s->selection.n_numbers += a->rows;
    }
    mr_block_clear(&s->choices);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    return mr__selection_next(&s->selection, want, refill, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__selection_reset(&s->selection);
    mr_block_reset(&s->choices);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__selection_save(&s->selection, w, st));
    return mr_iter_save_input(it, n_datasets(it), w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__selection_restore(&s->selection, r, st));
    MR_TRY(mr_iter_restore_input(it, n_datasets(it), r, st));
    return it->inputs[n_datasets(it)] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    size_t n = mr_dataset_n_inputs(self) - 1;
    const mr_spec *choice = mr_dataset_spec(mr_dataset_input(self, n));
    const mr_leaf *leaf = mr_spec_n_leaves(choice) == 1 ? mr_spec_leaf(choice, 0) : NULL;
    if (mr_spec_kind_of(choice) != MR_SPEC_LEAF || leaf->dtype != MR_INT64 || leaf->rank > 0) {
        char text[160];
        mr_spec_format(choice, text, sizeof text);
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "choose_from_datasets: the last dataset must hold the numbers of the others, "
            "scalars of int64, not %s",
            text);
    }
    return mr__selection_infer(self, n, out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)p;
    for (size_t i = 0; i + 1 < mr_dataset_n_inputs(self); i++)
        if (in[i] == MR_INFINITE)
            return MR_INFINITE;
    return MR_UNKNOWN_COUNT;
}

static const mr_param table[] = {
    MR_OPT(struct params, stop_on_empty_dataset, .flags = MR_P_OPTIONAL, .def.b = true,
           .doc =
               "Ends with the first dataset that ends; false: ignores its numbers from then on."),
    {0}};

const mr_op mr_op_choose_from_datasets = {
    .abi = MR_ABI_VERSION,
    .name = "choose_from_datasets",
    .doc = "Takes each element from the dataset whose number the last dataset yields.",
    .example = "choose_from_datasets([range(3), range(10, 13)], from_tensor_slices([0, 1, 1, 0]))",
    .order_doc = "of each input kept; between them as the last input says",
    .memory_doc = "a block of each input",
    .count_doc = "unknown; without end where every input is",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 2,
    .max_inputs = -1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_SOURCE_CALL | MR_OP_LISTS_INPUTS,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_choose_from_datasets(mr_dataset *const *inputs, size_t n, mr_dataset *choice,
                                    const mr_choose_from_datasets_opts *opts)
{
    mr_dataset **all = mr_calloc(n + 1, sizeof(mr_dataset *));
    mr_status st;
    if (!all) {
        (void)mr_fail_memory(&st, n * sizeof(mr_dataset *), "a list of datasets");
        for (size_t i = 0; i < n; i++)
            mr_dataset_unref(inputs[i]);
        mr_dataset_unref(choice);
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < n; i++)
        all[i] = inputs[i];
    all[n] = choice;
    struct params p = {0};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_choose_from_datasets, &p, all, n + 1);
    mr_free(all);
    return ds;
}
