/* SPDX-License-Identifier: Apache-2.0 */
/* sample_from_datasets whose inputs have names: the same draws, but a position has a part for each
 * source, so that a restore by name may find other sources and weights:
 *
 *     position   "web" | "code" | "books"        graph   "web" | "books" | "wiki"
 *
 *     web, books   continue where they were, maybe with other weights
 *     wiki         is new: begins at its beginning
 *     code         is removed: its part is kept, and written into each later position
 *
 * The draws depend on the seed and on the number of elements drawn so far, so the words that were
 * read ahead are drawn again, with the new weights.
 *
 * A position is exact for another mixture only if nothing above has to pull rows again that the old
 * one emitted. So mix does not replay (mr_iter_set_no_replay): the ops above save the rows that
 * they hold. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "pipeline/engine/fingerprint_internal.h"
#include "pipeline/engine/position.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/log.h"
#include "pipeline/params/params.h"
#include "pipeline/streams/seeds.h"
#include "pipeline/streams/weighted_draws.h"

struct params {
    mr_value weights; /* a record of floats; its names are those of the sources */
    mr_mix_opts o;
};

/* What a position says of a source. */
struct record {
    char *name;
    double weight;
    uint64_t graph; /* the fingerprint of its outline */
    void *bytes;    /* its state */
    size_t size;
};

struct state {
    mr__weighted_selection drawn; /* first, for mr__weighted_next */
    uint64_t *graphs;             /* the fingerprint of each source; NULL: not computed yet */
    struct record *kept;
    size_t n_kept, kept_capacity;
};

static const char *const stops[] = {"first", "all", "repeat", NULL};

static mr__stop stop_of(const struct params *p)
{
    if (!p->o.stop || strcmp(p->o.stop, stops[0]) == 0)
        return MR__STOP_FIRST;
    return strcmp(p->o.stop, stops[1]) == 0 ? MR__STOP_ALL : MR__STOP_REPEAT;
}

static const char *name_of(const mr_iter *it, size_t i)
{
    const struct params *p = it->params;
    return p->weights.names[i];
}

static double weight_of(const mr_iter *it, size_t i)
{
    const struct params *p = it->params;
    return p->weights.items[i].f;
}

/* ---- running ---- */

static mr_code open_draws(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    double *weights = mr_calloc(it->n_inputs, sizeof *weights);
    if (!weights)
        return mr_fail_memory(st, it->n_inputs * sizeof *weights, "weights");
    for (size_t i = 0; i < it->n_inputs; i++)
        weights[i] = weight_of(it, i);
    mr_code rc = mr__weighted_open(&s->drawn.draws, weights, it->n_inputs, st);
    mr_free(weights);
    return rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr_iter_set_no_replay(it);
    MR_TRY(open_draws(it, st));
    MR_TRY(mr__selection_open(&s->drawn.selection, it, it->n_inputs, NULL, stop_of(p), st));
    MR_TRY(mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL, false, s->drawn.draws.pair, st));
    mr__weighted_start(&s->drawn.draws, 0);
    return MR_OK;
}

static void free_record(struct record *r)
{
    mr_free(r->name);
    mr_free(r->bytes);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__selection_reset(&s->drawn.selection);
    mr__weighted_reset(&s->drawn.draws);
    mr_free(s->graphs);
    for (size_t i = 0; i < s->n_kept; i++)
        free_record(&s->kept[i]);
    mr_free(s->kept);
}

/* ---- positions ----
 *   the pair, the number of words used, ended
 *   the number of sources, then of each:
 *       name, weight (the bits of a double), fingerprint, its state as a part (engine/position.h)
 *   the number of removed sources, then the same of each */

static mr_code find_graphs(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    if (s->graphs)
        return MR_OK;
    uint64_t *graphs = mr_calloc(it->n_inputs, sizeof *graphs);
    mr_code rc = graphs ? MR_OK : mr_fail_memory(st, it->n_inputs * sizeof *graphs, "positions");
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++)
        rc = mr__graph_outline_fingerprint(mr_dataset_input(it->node, i), &graphs[i], st);
    if (rc == MR_OK)
        s->graphs = graphs;
    else
        mr_free(graphs);
    return rc;
}

static mr_code put_head(mr_state_w *w, const char *name, double weight, uint64_t graph,
                        mr_status *st)
{
    uint64_t bits;
    memcpy(&bits, &weight, sizeof bits);
    MR_TRY(mr_state_put_bytes(w, name, strlen(name), st));
    MR_TRY(mr_state_put_u64(w, bits, st));
    return mr_state_put_u64(w, graph, st);
}

struct source {
    mr_iter *it;
    size_t i;
};

static mr_code put_source(void *ctx, mr_state_w *w, mr_status *st)
{
    const struct source *x = ctx;
    struct state *s = x->it->state;
    return mr__selection_save_input(&s->drawn.selection, x->i, w, st);
}

static mr_code get_source(void *ctx, mr_state_r *r, mr_status *st)
{
    const struct source *x = ctx;
    struct state *s = x->it->state;
    return mr__selection_restore_input(&s->drawn.selection, x->i, r, st);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    uint64_t ahead =
        s->drawn.draws.n > 1 ? 2 * (s->drawn.selection.n_numbers - s->drawn.selection.at) : 0;
    MR_TRY(find_graphs(it, st));
    MR_TRY(mr_state_put_u64(w, s->drawn.draws.pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->drawn.draws.pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->drawn.draws.drawn - ahead, st));
    MR_TRY(mr_state_put_u64(w, s->drawn.selection.ended, st));
    MR_TRY(mr_state_put_u64(w, it->n_inputs, st));
    for (size_t i = 0; i < it->n_inputs; i++) {
        MR_TRY(put_head(w, name_of(it, i), weight_of(it, i), s->graphs[i], st));
        MR_TRY(mr__state_put_part(w, put_source, &(struct source){it, i}, st));
    }
    MR_TRY(mr_state_put_u64(w, s->n_kept, st));
    for (size_t i = 0; i < s->n_kept; i++) {
        const struct record *k = &s->kept[i];
        MR_TRY(put_head(w, k->name, k->weight, k->graph, st));
        MR_TRY(mr_state_put_bytes(w, k->bytes, k->size, st));
    }
    return MR_OK;
}

static mr_code keep(struct state *s, const char *name, const struct record *r, mr_status *st)
{
    MR_TRY(MR_GROW(s->kept, s->kept_capacity, s->n_kept + 1, SIZE_MAX / sizeof *s->kept,
                   "the positions of sources", st));
    struct record copy = {.weight = r->weight, .graph = r->graph, .size = r->size};
    copy.name = mr_strdup(name);
    copy.bytes = mr_malloc(r->size ? r->size : 1);
    if (!copy.name || !copy.bytes) {
        free_record(&copy);
        return mr_fail_memory(st, r->size, "the position of a source");
    }
    if (r->size)
        memcpy(copy.bytes, r->bytes, r->size);
    s->kept[s->n_kept++] = copy;
    return MR_OK;
}

/* The source called `name`; n_inputs: none is. */
static size_t find_source(const mr_iter *it, const char *name, size_t n)
{
    size_t i = 0;
    while (i < it->n_inputs &&
           (strlen(name_of(it, i)) != n || memcmp(name_of(it, i), name, n) != 0))
        i++;
    return i;
}

/* Without names to go by, the graph is that of the position, or its iterator refuses it. In a
 * function its text depends on the element that it was called with. */
static mr_code check_source(const mr_iter *it, size_t i, const struct record *r, mr_status *st)
{
    const struct state *s = it->state;
    if (!mr__iter_restores_by_name(it) || r->graph == s->graphs[i])
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "source \"%s\" of %s is another graph than in the position; give it the graph "
                   "that it was saved with, or another name to begin at its beginning",
                   name_of(it, i), it->op->name);
}

static void log_source(const mr_iter *it, size_t i, const struct record *r, bool kept)
{
    if (kept)
        mr_log(MR_LOG_WARNING, "%s: source \"%s\" is back and continues where it was removed",
               it->op->name, name_of(it, i));
    if (r->weight != weight_of(it, i))
        mr_log(MR_LOG_WARNING, "%s: source \"%s\" has the weight %g, in the position %g",
               it->op->name, name_of(it, i), weight_of(it, i), r->weight);
}

/* Reads a record. restored[i] is set if it is that of source i. */
static mr_code restore_record(mr_iter *it, bool kept, bool *restored, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    const void *name, *bytes;
    size_t n;
    uint64_t bits;
    struct record x = {0};
    bool by_name = mr__iter_restores_by_name(it);
    MR_TRY(mr_state_get_bytes(r, &name, &n, st));
    MR_TRY(mr_state_get_u64(r, &bits, st));
    MR_TRY(mr_state_get_u64(r, &x.graph, st));
    MR_TRY(mr_state_get_bytes(r, &bytes, &x.size, st));
    memcpy(&x.weight, &bits, sizeof bits);
    size_t i = find_source(it, name, n);
    if (memchr(name, 0, n) || (i < it->n_inputs && (restored[i] || (kept && !by_name))))
        return mr_state_damaged(st, "its sources are not those of its graph");
    if (i < it->n_inputs) {
        restored[i] = true;
        MR_TRY(check_source(it, i, &x, st));
        if (by_name && mr__iter_speaks(it))
            log_source(it, i, &x, kept);
        return mr__state_get_part(r, bytes, x.size, get_source, &(struct source){it, i}, st);
    }
    char *text = mr_strndup(name, n);
    if (!text)
        return mr_fail_memory(st, n + 1, "the name of a source");
    if (!kept && mr__iter_speaks(it))
        mr_log(MR_LOG_WARNING,
               "%s: source \"%s\" is removed; positions keep its place, so that it can come back",
               it->op->name, text);
    x.bytes = (void *)(uintptr_t)bytes;
    mr_code rc = keep(s, text, &x, st);
    mr_free(text);
    return rc;
}

static mr_code restore_records(mr_iter *it, bool *restored, mr_state_r *r, mr_status *st)
{
    for (int kept = 0; kept < 2; kept++) {
        uint64_t n;
        MR_TRY(mr_state_get_u64(r, &n, st));
        for (uint64_t k = 0; k < n; k++)
            MR_TRY(restore_record(it, kept, restored, r, st));
        for (size_t i = 0; i < it->n_inputs && !kept && !mr__iter_restores_by_name(it); i++)
            if (!restored[i])
                return mr_state_damaged(st, "a source is missing");
    }
    for (size_t i = 0; i < it->n_inputs; i++)
        if (!restored[i] && mr__iter_speaks(it))
            mr_log(MR_LOG_WARNING, "%s: source \"%s\" is new and begins at its beginning",
                   it->op->name, name_of(it, i));
    return MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t words, ended;
    MR_TRY(find_graphs(it, st));
    MR_TRY(mr_state_get_u64(r, &s->drawn.draws.pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->drawn.draws.pair[1], st));
    MR_TRY(mr_state_get_u64(r, &words, st));
    MR_TRY(mr_state_get_u64(r, &ended, st));
    if (ended > 1 || words % 2)
        return mr_state_damaged(st, "the draws of a mixture");
    bool *restored = mr_calloc(it->n_inputs, sizeof *restored);
    if (!restored)
        return mr_fail_memory(st, it->n_inputs, "the sources of a mixture");
    mr_code rc = restore_records(it, restored, r, st);
    mr_free(restored);
    MR_TRY(rc);
    mr__weighted_start(&s->drawn.draws, words);
    mr__selection_restored(&s->drawn.selection,
                           mr__iter_may_go_on(it) ? NULL : &(bool){ended == 1});
    return MR_OK;
}

/* ---- slots of the op ---- */

static mr_code check_weights(const struct params *p, size_t n, mr_status *st)
{
    const mr_value *w = &p->weights;
    if (w->kind != MR_V_RECORD || w->n != n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "mix: weights must be a record with a number for each of the %zu sources",
                       n);
    for (size_t i = 0; i < n; i++) {
        float weight = w->items[i].kind == MR_V_FLOAT ? (float)w->items[i].f : NAN;
        if (!(weight > 0) || isinf(weight))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "mix: weights must be positive and finite numbers of float32, found %g "
                           "for \"%s\"",
                           w->items[i].f, w->names[i]);
    }
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    size_t n = mr_dataset_n_inputs(self);
    if (!mr_param_unknown(self, offsetof(struct params, weights)) &&
        !mr__value_unknown(&p->weights))
        MR_TRY(check_weights(p, n, st));
    return mr__selection_infer(self, n, out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    mr__stop stop = stop_of(params);
    size_t n = mr_dataset_n_inputs(self), infinite = 0, unknown = 0;
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        infinite += in[i] == MR_INFINITE;
        unknown += in[i] == MR_UNKNOWN_COUNT;
        if (in[i] > 0 && __builtin_add_overflow(sum, in[i], &sum))
            sum = INT64_MAX;
    }
    if (n == 1)
        return in[0];
    if (infinite == n || (infinite && stop != MR__STOP_FIRST))
        return MR_INFINITE;
    return stop == MR__STOP_ALL && !unknown ? sum : MR_UNKNOWN_COUNT;
}

static const mr_param table[] = {
    {.name = "weights",
     .doc = "How often each source is drawn, in proportion, as in {\"web\": 0.7, \"code\": 0.3}; "
            "equally often if absent.",
     .type = MR_PT_VALUE,
     .flags = MR_P_OPTIONAL | MR_P_NONE,
     .at = offsetof(struct params, weights)},
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes the order; drawn at random if absent."),
    MR_OPT(struct params, stop, .flags = MR_P_OPTIONAL, .names = stops, .def.s = "first",
           .doc =
               "When the mixture ends: with the first source that ends; when all have ended, and "
               "until then without those that have; or when all have ended once, while one that "
               "ends begins its next epoch."),
    {0}};

const mr_op mr_op_mix = {
    .abi = MR_ABI_VERSION,
    .name = "mix",
    .doc = "Takes each element from a source drawn at random; the sources have names, by which a "
           "later mixture finds their positions.",
    .example = "mix({\"web\": range(5), \"code\": range(10, 15)}, weights={\"web\": 0.7, \"code\": "
               "0.3}, seed=42)",
    .order_doc = "of each source kept; between them random",
    .memory_doc = "a block of each source",
    .state_doc = "the draws, and the sources by name",
    .count_doc = "unknown; with stop=\"all\" the sum of its sources'",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = -1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_SOURCE_CALL | MR_OP_NAMES_INPUTS | MR_OP_RANDOM | MR_OP_MIXES,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = mr__weighted_next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

/* *weights = a record, owned; of the numbers if there are some. */
static mr_code record_of(const char *const *names, const double *weights, size_t n, mr_value *out,
                         mr_status *st)
{
    mr_value given = {0};
    for (size_t i = 0; i < n; i++)
        if (!names[i])
            return mr_fail(st, MR_INVALID_ARGUMENT, "mix: name %zu is NULL", i);
    MR_TRY(mr__name_inputs("mix", names, n, &given, st));
    for (size_t i = 0; weights && i < n; i++)
        given.items[i].f = weights[i];
    *out = given;
    return MR_OK;
}

mr_dataset *mr_mix(const char *const *names, mr_dataset *const *sources, size_t n,
                   const double *weights, const mr_mix_opts *opts)
{
    struct params p = {0};
    mr_status st;
    mr_status_init(&st);
    if (opts)
        p.o = *opts;
    if (n && record_of(names, weights, n, &p.weights, &st) != MR_OK) {
        for (size_t i = 0; i < n; i++)
            mr_dataset_unref(sources[i]);
        return mr_dataset_fail(&st);
    }
    mr_dataset *ds = mr_dataset_new(&mr_op_mix, &p, sources, n);
    mr_value_reset(&p.weights);
    return ds;
}
