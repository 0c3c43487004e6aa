/* SPDX-License-Identifier: Apache-2.0 */
/* Emits one of several parts into which an indexed dataset is cut at random.
 *
 * A permutation of the numbers 0..n-1 that the seed determines (engine/permutation.h) gives each
 * element a place; a part has the places of one range:
 *
 *     n = 10, fractions 0.7, 0.3     element   0 1 2 3 4 5 6 7 8 9
 *                                    place     4 8 1 0 7 3 9 2 6 5     index 0: places 0..6
 *                                    part      0 1 0 0 1 0 1 0 0 0              1: places 7..9
 *
 * so that membership is a computation and sizes are exact. A pass tests number after number. An
 * element is found by number with a table of how many members precede every `step`-th number, which
 * the first such access makes: at most 2^20 entries, so a lookup tests n / 2^20 numbers, at least
 * 64. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/permutation.h"
#include "pipeline/streams/lookups.h"

enum { LEAST_STEP = 64, MOST_RANKS = 1 << 20 };
#define SLACK 1e-6 /* of a sum of fractions, which are rounded */

struct params {
    mr_floats fractions;
    int64_t index;
    mr_split_opts o;
};

struct state {
    mr__permutation order;
    bool ready, failed;
    uint64_t n, first, end; /* elements of the input; places of the part: [first, end) */
    uint64_t n_saved;       /* with has_saved: n of the restored position */
    bool has_saved;
    uint64_t at; /* number of the input's element to test next */
    mr__lookups lookups;
    uint64_t step;
    uint64_t *ranks; /* of numbers 0, step, 2 * step, ...; NULL: not needed yet */
};

static const double usual[] = {0.9, 0.1};

static mr_floats fractions_of(const struct params *p)
{
    return p->fractions.n ? p->fractions : (mr_floats){(double *)(uintptr_t)usual, 2};
}

/* The end of part i of n places. */
static uint64_t cut(const mr_floats *f, int64_t i, uint64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k <= i; k++)
        sum += f->v[k];
    uint64_t end = (uint64_t)(sum * (double)n + 0.5);
    return i + 1 == (int64_t)f->n && sum > 1 - SLACK ? n : end < n ? end : n;
}

static void find_places(const struct params *p, uint64_t n, uint64_t *first, uint64_t *end)
{
    const mr_floats f = fractions_of(p);
    *first = p->index ? cut(&f, p->index - 1, n) : 0;
    *end = cut(&f, p->index, n);
}

static mr_code prepare(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_iter_count_input(it, 0, &s->n, st));
    if (s->has_saved && s->n != s->n_saved) {
        mr_fail(st, MR_FAILED_PRECONDITION,
                "the position was saved with %" PRIu64 " elements, but now there are %" PRIu64
                "; restore those files, or start over",
                s->n_saved, s->n);
        return mr_iter_fail_given(it, MR_FAILED_PRECONDITION, st);
    }
    mr__permutation_init(&s->order, (const uint64_t[]){(uint64_t)p->o.seed, 0}, s->n);
    find_places(p, s->n, &s->first, &s->end);
    s->ready = true;
    return MR_OK;
}

static bool is_member(const struct state *s, uint64_t number)
{
    uint64_t place = mr__permutation_at(&s->order, number);
    return place >= s->first && place < s->end;
}

static size_t upcoming(mr_iter *it, uint64_t *numbers, size_t most)
{
    const struct state *s = it->state;
    size_t n = 0;
    for (uint64_t i = s->at; i < s->n && n < most; i++)
        if (is_member(s, i))
            numbers[n++] = i;
    return n;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    size_t done;
    uint64_t last;
    if (s->failed)
        return MR_END;
    if (!s->ready) {
        mr_code rc = prepare(it, st);
        s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        MR_TRY(rc);
    }
    mr_code rc = mr__lookups_next(it, &s->lookups, want, upcoming, out, &done, &last, st);
    if (done)
        s->at = last + 1;
    return rc;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    if (s->failed)
        return MR_OK;
    if (!s->ready) {
        mr_code rc = prepare(it, st);
        s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
        MR_TRY(rc);
    }
    mr__lookups_drop(&s->lookups);
    for (; s->at < s->n && *skipped < n; s->at++)
        *skipped += is_member(s, s->at);
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__lookups_drop(&s->lookups);
    mr_free(s->ranks);
}

/* ---- by number ---- */

static mr_code make_ranks(struct state *s, mr_status *st)
{
    s->step = s->n / MOST_RANKS + 1;
    s->step = s->step < LEAST_STEP ? LEAST_STEP : s->step;
    size_t n_ranks = (size_t)(s->n / s->step) + 1;
    s->ranks = mr_malloc(n_ranks * sizeof *s->ranks);
    if (!s->ranks)
        return mr_fail_memory(st, n_ranks * sizeof *s->ranks, "the numbers of a part");
    uint64_t members = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        if (i % s->step == 0)
            s->ranks[i / s->step] = members;
        members += is_member(s, i);
    }
    if (s->n % s->step == 0)
        s->ranks[s->n / s->step] = members;
    return MR_OK;
}

/* The number in the input of the part's member `rank`. */
static uint64_t select_member(const struct state *s, uint64_t rank)
{
    uint64_t low = 0, high = s->n / s->step + 1; /* ranks[low] <= rank < ranks[high] */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (s->ranks[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    uint64_t number = low * s->step;
    for (uint64_t before = s->ranks[low];; number++) {
        bool member = is_member(s, number);
        if (member && before == rank)
            return number;
        before += member;
    }
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    uint64_t numbers[MR__MOST_LOOKUPS];
    if (!s->ready)
        MR_TRY(prepare(it, st));
    if (!s->ranks)
        MR_TRY(make_ranks(s, st));
    n = n < MR__MOST_LOOKUPS ? n : MR__MOST_LOOKUPS;
    for (size_t i = 0; i < n; i++)
        numbers[i] = select_member(s, index[i]);
    return mr_iter_at_input(it, 0, numbers, n, out, st);
}

/* ---- position: failed, the next number, and how many there are if known; the input ---- */

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    bool known = s->ready || s->has_saved;
    MR_TRY(mr_state_put_u64(w, s->failed, st));
    MR_TRY(mr_state_put_u64(w, s->at, st));
    MR_TRY(mr_state_put_u64(w, known, st));
    MR_TRY(mr_state_put_u64(w, s->ready ? s->n : s->n_saved, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t failed, known;
    mr__lookups_drop(&s->lookups);
    mr_free(s->ranks);
    s->ranks = NULL;
    s->ready = false;
    MR_TRY(mr_state_get_u64(r, &failed, st));
    MR_TRY(mr_state_get_u64(r, &s->at, st));
    MR_TRY(mr_state_get_u64(r, &known, st));
    MR_TRY(mr_state_get_u64(r, &s->n_saved, st));
    s->failed = failed;
    s->has_saved = known;
    if (failed > 1 || known > 1 || (known ? s->at > s->n_saved : s->at > 0))
        return mr_state_damaged(st, "more elements were passed than exist");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
}

/* ---- the graph ---- */

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    const mr_floats f = fractions_of(p);
    double sum = 0;
    for (size_t i = 0; i < f.n; i++) {
        if (!(f.v[i] >= 0))
            return mr_fail(st, MR_INVALID_ARGUMENT, "split: fractions must be at least 0, found %g",
                           f.v[i]);
        sum += f.v[i];
    }
    if (!(sum <= 1 + SLACK))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "split: fractions must add up to at most 1, found %g", sum);
    if (p->index < 0 || (uint64_t)p->index >= f.n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "split: index must be 0 to %zu, one of the %zu fractions, found %" PRId64,
                       f.n - 1, f.n, p->index);
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    uint64_t first, end;
    (void)self;
    if (in[0] < 0)
        return in[0];
    find_places(p, (uint64_t)in[0], &first, &end);
    return (int64_t)(end - first);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, fractions, MR_P_OPTIONAL | MR_P_NONE,
                  .doc = "The share of each part, together at most 1; default: [0.9, 0.1]."),
    MR_PARAM(struct params, index, .doc = "The part to emit, from 0."),
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL,
           .doc = "Determines the cut; must be the same for all parts."),
    {0}};

const mr_op mr_op_split = {
    .abi = MR_ABI_VERSION,
    .name = "split",
    .doc = "Emits one part of a random cut of an indexed dataset.",
    .example = "range(10).split([0.7, 0.3], index=1, seed=5)",
    .memory_doc = "as global_shuffle; 8 MiB at most for access by number",
    .state_doc = "a counter",
    .count_doc = "n times the fraction, rounded",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER, /* a part of the files would be cut in another way */
    .check = check,
    .infer = mr__lookups_infer,
    .cardinality = cardinality,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_split(mr_dataset *input, const double *fractions, size_t n, int64_t index,
                     const mr_split_opts *opts)
{
    struct params p = {.fractions = {(double *)(uintptr_t)fractions, n}, .index = index};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_split, &p, &input, 1);
}
