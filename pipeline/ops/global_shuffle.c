/* SPDX-License-Identifier: Apache-2.0 */
/* Emits all elements of an indexed dataset in one random order: the input is opened, but never
 * pulled; its elements are looked up by number.
 *
 * The order is a permutation that is computed, not stored (streams/shuffled_order.h): a position
 * consists of its pair of words and the number of elements passed; elements that were read and not
 * delivered are read again after a restore.
 *
 * Each iterator draws its pair as shuffle does. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/streams/lookups.h"
#include "pipeline/streams/seeds.h"
#include "pipeline/streams/shuffled_order.h"

struct params {
    mr_global_shuffle_opts o;
};

struct state {
    uint64_t pair[2];
    mr__shuffled_order order;
    bool ordered, failed;
    uint64_t n;       /* elements */
    uint64_t n_saved; /* with has_saved: n of the restored position */
    bool has_saved;
    uint64_t at; /* elements delivered, failed ones counted */
    mr__lookups lookups;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    return mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL,
                          p->o.reshuffle_each_iteration != MR_NO, s->pair, st);
}

static void close(mr_iter *it)
{
    mr__lookups_drop(&((struct state *)it->state)->lookups);
}

/* Counts the elements at the first pull, because a restore may precede it. */
static mr_code prepare(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_iter_count_input(it, 0, &s->n, st));
    if (s->has_saved && s->n != s->n_saved) {
        mr_fail(st, MR_FAILED_PRECONDITION,
                "the position was saved with %" PRIu64
                " records in the files, but now there are %" PRIu64
                "; restore those files, or start over",
                s->n_saved, s->n);
        return mr_iter_fail_given(it, MR_FAILED_PRECONDITION, st);
    }
    mr__shuffled_order_init(&s->order, s->pair, s->n, (uint64_t)p->o.window);
    s->ordered = true;
    return MR_OK;
}

static size_t upcoming(mr_iter *it, uint64_t *numbers, size_t most)
{
    struct state *s = it->state;
    size_t n = s->n - s->at < most ? (size_t)(s->n - s->at) : most;
    for (size_t i = 0; i < n; i++)
        numbers[i] = mr__shuffled_order_at(&s->order, s->at + i);
    return n;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t done;
    uint64_t last;
    if (s->failed)
        return MR_END;
    if (!s->ordered) {
        mr_code rc = prepare(it, st);
        s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        if (rc != MR_OK)
            return rc;
    }
    mr_code rc = mr__lookups_next(it, &s->lookups, want, upcoming, out, &done, &last, st);
    s->at += done;
    return rc;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    uint64_t numbers[MR__MOST_LOOKUPS];
    if (!s->ordered)
        MR_TRY(prepare(it, st));
    n = n < MR__MOST_LOOKUPS ? n : MR__MOST_LOOKUPS;
    for (size_t i = 0; i < n; i++)
        numbers[i] = mr__shuffled_order_at(&s->order, index[i]);
    return mr_iter_at_input(it, 0, numbers, n, out, st);
}

/* ---- position: the pair, failed, elements delivered, and how many there are if that is known;
 * the input ---- */

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    bool known = s->ordered || s->has_saved;
    MR_TRY(mr_state_put_u64(w, s->pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->failed, st));
    MR_TRY(mr_state_put_u64(w, s->at, st));
    MR_TRY(mr_state_put_u64(w, known, st));
    MR_TRY(mr_state_put_u64(w, s->ordered ? s->n : s->n_saved, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t failed, known;
    mr__lookups_drop(&s->lookups);
    s->ordered = false;
    MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
    MR_TRY(mr_state_get_u64(r, &failed, st));
    MR_TRY(mr_state_get_u64(r, &s->at, st));
    MR_TRY(mr_state_get_u64(r, &known, st));
    MR_TRY(mr_state_get_u64(r, &s->n_saved, st));
    s->failed = failed;
    s->has_saved = known;
    if (failed > 1 || known > 1 || (known ? s->at > s->n_saved : s->at > 0))
        return mr_state_damaged(st, "more records were consumed than exist");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

/* Advances in the order without reading. */
static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    if (s->failed)
        return MR_OK;
    if (!s->ordered) {
        mr_code rc = prepare(it, st);
        s->failed = rc != MR_OK;
        if (rc != MR_OK)
            return rc;
    }
    mr__lookups_drop(&s->lookups);
    *skipped = n < s->n - s->at ? n : s->n - s->at;
    s->at += *skipped;
    return MR_OK;
}

static void note(const mr_dataset *self, const void *params, char *text, size_t size)
{
    const struct params *p = params;
    int64_t n = mr_dataset_cardinality(mr_dataset_input(self, 0));
    if (p->o.window && n >= 0)
        snprintf(text, size, "mixing quality %.2g (1: no window)",
                 mr__shuffled_order_quality((uint64_t)n, (uint64_t)p->o.window));
}

static const mr_param table[] = {
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes the order; drawn at random if absent."),
    MR_OPT(struct params, reshuffle_each_iteration, .flags = MR_P_OPTIONAL, .def.b = true,
           .doc = "Draws a new order in each epoch."),
    MR_OPT(struct params, window, .flags = MR_P_OPTIONAL | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX,
           .doc = "Permutes blocks of this number of neighbours, and the "
                  "elements within each; none: all elements."),
    {0}};

const mr_op mr_op_global_shuffle = {
    .abi = MR_ABI_VERSION,
    .name = "global_shuffle",
    .doc = "Emits all elements of an indexed dataset in one random order, without a buffer.",
    .example = "tfrecord(\"train-*.tfrecord\").global_shuffle(seed=42)",
    .order_doc = "random: a permutation of all elements",
    .memory_doc = "the files' indexes, and up to a thousand elements of a source, about 1 MiB",
    .state_doc = "two numbers and a counter",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_KEEPS_COUNT | MR_OP_RANDOM | MR_OP_SEEKS_INPUT,
    .infer = mr__lookups_infer,
    .note = note,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_global_shuffle(mr_dataset *input, const mr_global_shuffle_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_global_shuffle, &p, &input, 1);
}
