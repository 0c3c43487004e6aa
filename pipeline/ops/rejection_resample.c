/* SPDX-License-Identifier: Apache-2.0 */
/* An element of class c is kept with probability r[c] / max r, where r is target over initial.
 * So the classes of the kept elements have the target distribution, and no more elements are
 * dropped than necessary. Without initial_dist, the counts so far are used, starting with
 * SMOOTHING for each class, as in tf.data. Each element uses one random word; each iterator
 * draws its seeds as shuffle does. */
#include "pipeline/ops/apply.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "pipeline/streams/row_filter.h"
#include "pipeline/engine/philox.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/cursor.h"
#include "pipeline/streams/groups.h"
#include "pipeline/streams/seeds.h"

enum { SMOOTHING = 10 };

struct params {
    mr_fn *class_fn;
    mr_floats target_dist, initial_dist;
    mr_rejection_resample_opts o;
};

/* The state that drawing changes; a block that cannot be delivered leaves it unchanged. */
struct drawing {
    mr__philox words;
    uint64_t drawn;
    uint64_t *counts; /* elements of each class so far; constant with initial_dist */
};

struct state {
    mr__cursor input;
    const mr_program *program;
    uint64_t pair[2];
    struct drawing now, next;
    size_t n; /* classes */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->n = p->target_dist.n;
    s->now.counts = mr_calloc(s->n, sizeof(uint64_t));
    s->next.counts = mr_calloc(s->n, sizeof(uint64_t));
    if (!s->now.counts || !s->next.counts)
        return mr_fail_memory(st, s->n * sizeof(uint64_t), "the counts of classes");
    for (size_t i = 0; i < s->n; i++)
        s->now.counts[i] = SMOOTHING;
    MR_TRY(mr__seeds_draw(it, p->o.has_seed ? &p->o.seed : NULL, true, s->pair, st));
    mr__philox_init(&s->now.words, s->pair[0], s->pair[1]);
    return mr_iter_program(it, p->class_fn, mr_iter_input_spec(it, 0), &s->program, st);
}

/* The probability that an element of class c is kept. A class that never occurs does not limit
 * others. */
static double chance(const struct params *p, const struct drawing *d, size_t c)
{
    double largest = 0, own = 1;
    for (size_t i = 0; i < p->target_dist.n; i++) {
        double initial = p->initial_dist.n ? p->initial_dist.v[i] : (double)d->counts[i];
        double ratio = initial > 0 ? p->target_dist.v[i] / initial : 0;
        largest = ratio > largest ? ratio : largest;
        if (i == c)
            own = initial > 0 ? ratio : INFINITY;
    }
    return largest > 0 ? own / largest : 1;
}

static bool stays(const struct params *p, struct drawing *d, size_t c)
{
    double u = mr__philox_next(&d->words) / 4294967296.0;
    d->drawn++;
    if (!p->initial_dist.n)
        d->counts[c]++;
    return u < chance(p, d, c);
}

/* Draws for all rows: the rows to keep (index), their classes (of), and the places of errors among
 * them. A class out of range is an error of its row. */
static mr_code choose(mr_iter *it, const mr_block *classes, size_t rows, mr_row_errors *failed,
                      mr_row_errors *errors, uint32_t *index, uint32_t *of, size_t *n,
                      mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t e = 0;
    *n = 0;
    for (size_t row = 0; row < rows; row++) {
        if (e < failed->n && failed->v[e].row == row) {
            MR_TRY(mr_row_errors_add(errors, *n + errors->n, &failed->v[e++].status, st));
            continue;
        }
        int64_t c = ((const int64_t *)classes->columns[0].data)[row - e];
        if (c < 0 || (uint64_t)c >= s->n) {
            mr_status why;
            (void)mr_fail(&why, MR_INVALID_ARGUMENT,
                          "a class must be in the range 0 to %zu, found %" PRId64, s->n - 1, c);
            MR_TRY(mr_row_errors_add(errors, *n + errors->n, &why, st));
            continue;
        }
        if (stays(p, &s->next, (size_t)c)) {
            index[*n] = (uint32_t)row;
            of[(*n)++] = (uint32_t)(row - e);
        }
    }
    return MR_OK;
}

/* rows = (class, element) of the n rows kept. */
static mr_code join(mr_block *classes, const uint32_t *of, mr_block *in, const uint32_t *index,
                    size_t n, mr_block *rows, mr_status *st)
{
    mr_block a = MR_BLOCK_EMPTY, b = MR_BLOCK_EMPTY;
    mr_identities_reset(&classes->ids);
    mr_code rc = mr__pick_rows(classes, of, n, &a, st);
    if (rc == MR_OK)
        rc = mr__pick_rows(in, index, n, &b, st);
    if (rc == MR_OK && n)
        rc = mr_block_prepare(rows, 1 + b.n_columns, st);
    if (rc == MR_OK && n) {
        mr_array_move(&rows->columns[0], &a.columns[0]);
        for (size_t c = 0; c < b.n_columns; c++)
            mr_array_move(&rows->columns[1 + c], &b.columns[c]);
        rows->ids = b.ids;
        b.ids = (mr_identities){0};
        rows->rows = n;
    }
    mr_block_reset(&a);
    mr_block_reset(&b);
    return rc;
}

static mr_code resample(mr_iter *it, mr_block *in, mr_block *rows, mr_row_errors *errors,
                        mr_status *st)
{
    struct state *s = it->state;
    mr_block classes = MR_BLOCK_EMPTY;
    mr_row_errors failed = MR_ROW_ERRORS_EMPTY;
    mr_buffer *index = NULL;
    size_t n = 0;
    uint64_t *counts = s->next.counts;
    memcpy(counts, s->now.counts, s->n * sizeof *counts);
    s->next = s->now;
    s->next.counts = counts;
    mr_code rc = mr_program_run(s->program, in, &classes, &failed, st);
    if (rc == MR_OK && classes.rows &&
        (classes.columns[0].storage != MR_DENSE || classes.columns[0].rank != 0))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "a class must be a scalar");
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&index, 2 * in->rows * sizeof(uint32_t), st);
    if (rc == MR_OK) {
        uint32_t *v = mr_buffer_data(index), *of = v + in->rows;
        rc = choose(it, &classes, in->rows, &failed, errors, v, of, &n, st);
        if (rc == MR_OK)
            rc = join(&classes, of, in, v, n, rows, st);
    }
    mr_buffer_unref(index);
    mr_row_errors_reset(&failed);
    mr_block_reset(&classes);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    for (;;) {
        if (mr__cursor_left(&s->input) == 0)
            MR_TRY(mr__cursor_pull(it, 0, want, &s->input, NULL, st));
        mr_block in = MR_BLOCK_EMPTY, rows = MR_BLOCK_EMPTY;
        mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
        size_t left = mr__cursor_left(&s->input);
        mr_code rc =
            mr_block_slice(&in, mr__cursor_rows(&s->input), mr__cursor_at(&s->input), left, st);
        if (rc == MR_OK)
            rc = resample(it, &in, &rows, &errors, st);
        mr_block_reset(&in);
        bool any = rows.rows || errors.n;
        if (rc == MR_OK) {
            struct drawing done = s->now;
            s->now = s->next;
            s->next = done;
            mr__cursor_use(&s->input, left);
            if (any)
                rc = mr_iter_emit(it, want, &rows, &errors, out, st);
        }
        mr_block_reset(&rows);
        mr_row_errors_reset(&errors);
        if (rc != MR_OK || any)
            return rc;
    }
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__cursor_reset(&s->input);
    mr_program_unref(s->program);
    mr_free(s->now.counts);
    mr_free(s->next.counts);
}

/* the pair, words drawn, the counts, the input */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->pair[0], st));
    MR_TRY(mr_state_put_u64(w, s->pair[1], st));
    MR_TRY(mr_state_put_u64(w, s->now.drawn, st));
    for (size_t i = 0; i < s->n; i++)
        MR_TRY(mr_state_put_u64(w, s->now.counts[i], st));
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->pair[0], st));
    MR_TRY(mr_state_get_u64(r, &s->pair[1], st));
    MR_TRY(mr_state_get_u64(r, &s->now.drawn, st));
    for (size_t i = 0; i < s->n; i++)
        MR_TRY(mr_state_get_u64(r, &s->now.counts[i], st));
    mr__philox_init(&s->now.words, s->pair[0], s->pair[1]);
    mr__philox_skip(&s->now.words, s->now.drawn);
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

/* A distribution: at least one number, none below 0, not all 0. */
static mr_code check_dist(const char *what, const mr_floats *d, mr_status *st)
{
    double sum = 0;
    for (size_t i = 0; i < d->n; i++) {
        if (!(d->v[i] >= 0) || isinf(d->v[i]))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "rejection_resample: %s must be finite and at least 0, found %g", what,
                           d->v[i]);
        sum += d->v[i];
    }
    return sum > 0 ? MR_OK
                   : mr_fail(st, MR_INVALID_ARGUMENT,
                             "rejection_resample: %s must have a number above 0", what);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    MR_TRY(mr__groups_check_number(self, "class_fn", p->class_fn, in, st));
    bool known = !mr_param_unknown(self, offsetof(struct params, target_dist)) &&
                 !mr_param_unknown(self, offsetof(struct params, initial_dist));
    if (known)
        MR_TRY(check_dist("target_dist", &p->target_dist, st));
    if (known && p->initial_dist.n)
        MR_TRY(check_dist("initial_dist", &p->initial_dist, st));
    if (known && p->initial_dist.n && p->initial_dist.n != p->target_dist.n)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "rejection_resample: initial_dist has %zu numbers, target_dist %zu; give one "
            "for each class",
            p->initial_dist.n, p->target_dist.n);
    mr_spec *both[] = {mr_spec_scalar(MR_INT64), mr_spec_ref(in)};
    return mr__inferred(mr_spec_tuple(both, 2), out, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, class_fn, .doc = "The class of an element, an integer from 0."),
    {.name = "target_dist",
     .doc = "Target frequency of each class, in proportion.",
     .type = MR_PT_FLOATS,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, target_dist)},
    {.name = "initial_dist",
     .doc = "Current frequency of each class, in proportion; counted while running if absent.",
     .type = MR_PT_FLOATS,
     .flags = MR_P_OPTIONAL | MR_P_NONE,
     .at = offsetof(struct params, initial_dist)},
    MR_OPT(struct params, seed, .flags = MR_P_OPTIONAL | MR_P_NONE,
           .has_at = offsetof(struct params, o.has_seed),
           .doc = "Fixes which elements are dropped; drawn at random if absent."),
    {0}};

const mr_op mr_op_rejection_resample = {
    .abi = MR_ABI_VERSION,
    .name = "rejection_resample",
    .doc = "Drops elements at random so that classes have the target frequencies; emits (class, "
           "element).",
    .example = "range(20).rejection_resample(x => x % 2, [0.9, 0.1], initial_dist=[0.5, 0.5], "
               "seed=1)",
    .memory_doc = "a counter for each class",
    .state_doc = "the counters and the draws",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_RANDOM,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__seeds_save_shared,
    .restore_shared = mr__seeds_restore_shared,
};

mr_dataset *mr_rejection_resample(mr_dataset *input, mr_fn *class_fn, const double *target_dist,
                                  const double *initial_dist, size_t n,
                                  const mr_rejection_resample_opts *opts)
{
    struct params p = {.class_fn = class_fn,
                       .target_dist = {(double *)(uintptr_t)target_dist, n},
                       .initial_dist = {(double *)(uintptr_t)initial_dist, initial_dist ? n : 0}};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_rejection_resample, &p, &input, 1);
    mr_fn_unref(class_fn);
    return ds;
}
