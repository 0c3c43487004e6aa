/* SPDX-License-Identifier: Apache-2.0 */
/* Elements whose position modulo num_shards is index. Errors are not counted as positions.
 *
 * require_non_empty (set by the sharding rewrite): before the first element, num_shards elements
 * must have been seen, so that no worker is without elements from the start. Every worker checks
 * it, including one whose share would be empty.
 *
 * own_errors (set by the rewrites): an error of the input would fail, or be counted, once in each
 * shard. One of them returns it: the shard whose turn it is. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/graph/node.h"

enum { HINT = -1, MAX_PICKED = 4096 };

struct params {
    int64_t num_shards, index;
    mr_shard_opts o;
};

struct state {
    uint64_t seen;  /* elements of the input, modulo num_shards once `checked` */
    bool checked;   /* require_non_empty is satisfied, or not set */
    bool skips;     /* elements of other shards are files, which need not be read */
    mr_block rows;  /* the pulled block, during a call */
    mr_block first; /* the element of the first round, until it is delivered */
    mr_status error;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->num_shards == HINT)
        return mr_fail(
            st, MR_FAILED_PRECONDITION,
            "shard(-1, i) is a hint for the HINT policy and was not replaced; distribute the "
            "dataset with auto_shard_policy=\"HINT\" (--auto-shard hint), outside functions");
    s->checked = !p->o.require_non_empty;
    MR_TRY(mr_iter_open_input(it, 0, st));
    s->skips = (mr__dataset_all_props(mr_dataset_input(it->node, 0)) & MR_OP_FILE_ELEMENTS) &&
               mr_iter_skips_input(it, 0);
    return MR_OK;
}

/* An error of an element that another shard returns. */
static bool is_of_other_shard(const mr_iter *it, mr_code rc)
{
    const struct params *p = it->params;
    const struct state *s = it->state;
    return p->o.own_errors && rc < 0 && rc != MR_CANCELLED && !mr_iter_cancelled(it) &&
           !mr_status_is_of_no_element(&s->error) &&
           s->seen % (uint64_t)p->num_shards != (uint64_t)p->index;
}

static mr_code pull(mr_iter *it, uint64_t want, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc;
    do
        rc = mr_iter_pull(it, 0, (size_t)want, &s->rows, &s->error);
    while (is_of_other_shard(it, rc));
    if (rc < 0 && st)
        *st = s->error;
    return rc;
}

/* Reads the first num_shards elements and keeps this shard's. */
static mr_code check_first_round(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    while (s->seen < (uint64_t)p->num_shards) {
        mr_code rc = pull(it, (uint64_t)p->num_shards - s->seen, st);
        if (rc == MR_END && s->seen) {
            uint64_t found = s->seen;
            s->seen = 0; /* reported once; the next call meets the end */
            mr_block_clear(&s->first);
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "found %" PRIu64 " elements (files) to shard, need at least %" PRId64
                           ", one for each worker; give more files, or use auto_shard_policy "
                           "\"DATA\" or \"OFF\" (--auto-shard data or off)",
                           found, p->num_shards);
        }
        MR_TRY(rc);
        uint64_t mine = (uint64_t)p->index - s->seen;
        if ((uint64_t)p->index >= s->seen && mine < s->rows.rows)
            MR_TRY(mr_block_slice(&s->first, &s->rows, (size_t)mine, 1, st));
        s->seen += s->rows.rows;
        mr_block_clear(&s->rows);
    }
    s->checked = true;
    s->seen = 0;
    return MR_OK;
}

/* Rows of the pulled block from `from` on, every num_shards-th, into out. */
static mr_code pick(struct state *s, size_t from, uint64_t step, mr_block *out, mr_status *st)
{
    size_t n = (size_t)((s->rows.rows - from - 1) / step) + 1;
    if (n == 1)
        return mr_block_slice(out, &s->rows, from, 1, st);
    MR_TRY(mr_block_start(out, &s->rows, n, st));
    uint32_t index[256];
    for (size_t done = 0; done < n;) {
        size_t k = 0;
        for (; k < sizeof index / sizeof *index && done < n; k++, done++)
            index[k] = (uint32_t)(from + done * step);
        MR_TRY(mr_block_append_rows(out, &s->rows, index, k, st));
    }
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (!s->checked)
        MR_TRY(check_first_round(it, st));
    if (s->first.rows) {
        mr_block_move(out, &s->first);
        return MR_OK;
    }
    uint64_t step = (uint64_t)p->num_shards;
    if (step == 1)
        return mr_iter_pull(it, 0, want, out, st);
    if (want > MAX_PICKED)
        want = MAX_PICKED;
    for (;;) {
        uint64_t before = (step + (uint64_t)p->index - s->seen) % step;
        uint64_t need, passed = 0;
        if (s->skips && before) {
            MR_TRY(mr_iter_skip_input(it, 0, before, &passed, st));
            s->seen = (s->seen + passed) % step;
            before -= passed;
        }
        if (s->skips && !before)
            want = 1; /* the next ones are skipped again */
        if (__builtin_mul_overflow(step, want - 1, &need) ||
            __builtin_add_overflow(need, before + 1, &need) || need > UINT32_MAX)
            need = UINT32_MAX;
        MR_TRY(pull(it, need, st));
        s->seen = (s->seen + s->rows.rows) % step;
        if (before < s->rows.rows) {
            mr_code rc = pick(s, (size_t)before, step, out, st);
            mr_block_clear(&s->rows);
            return rc;
        }
    }
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t step = (uint64_t)p->num_shards, all, passed;
    if (!s->checked || s->first.rows)
        return MR_OK;
    if (__builtin_mul_overflow(n, step, &all))
        all = UINT64_MAX;
    uint64_t before = (step + (uint64_t)p->index - s->seen) % step;
    mr_code rc = mr_iter_skip_input(it, 0, all, &passed, st);
    *skipped = passed > before ? (passed - before - 1) / step + 1 : 0;
    s->seen = (s->seen + passed % step) % step;
    return rc;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    return mr_iter_at_steps(it, (uint64_t)p->index, (uint64_t)p->num_shards, index, n, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_block_reset(&s->rows);
    mr_block_reset(&s->first);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->seen, st));
    MR_TRY(mr_state_put_u64(w, s->checked, st));
    MR_TRY(mr_state_put_block(w, &s->first, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    uint64_t checked;
    MR_TRY(mr_state_get_u64(r, &s->seen, st));
    MR_TRY(mr_state_get_u64(r, &checked, st));
    s->checked = checked;
    MR_TRY(mr_state_get_block(r, it->spec, &s->first, st));
    return mr_iter_restore_input(it, 0, r, st);
}

static mr_code check(const void *p, mr_status *st)
{
    const struct params *q = p;
    if (q->num_shards < 1 && q->num_shards != HINT)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "shard: num_shards must be at least 1 (or -1 as a hint), not %" PRId64,
                       q->num_shards);
    if (q->index < 0 || (q->num_shards != HINT && q->index >= q->num_shards))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "shard: index must be 0 or more and below num_shards (%" PRId64
                       "), not %" PRId64,
                       q->num_shards, q->index);
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    if (in[0] < 0)
        return in[0];
    if (q->num_shards == HINT)
        return MR_UNKNOWN_COUNT;
    return in[0] / q->num_shards + (q->index < in[0] % q->num_shards);
}

static const mr_param table[] = {
    MR_ARG(struct params, num_shards, .doc = "Shards in all; -1: to be replaced by the rewrite."),
    MR_ARG(struct params, index, .doc = "The shard to keep, from 0."),
    MR_OPT(struct params, require_non_empty,
           .doc = "Fails if the input has elements, but fewer than num_shards."),
    {0}};

const mr_op mr_op_shard = {
    .abi = MR_ABI_VERSION,
    .name = "shard",
    .doc = "Keeps every num_shards-th element.",
    .example = "range(10).shard(3, 1)",
    .state_doc = "a counter",
    .count_doc = "n / num_shards, rounded up for the first ones",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_OPENS_INPUTS | MR_OP_SHARDS,
    .check = check,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_shard(mr_dataset *input, int64_t num_shards, int64_t index,
                     const mr_shard_opts *opts)
{
    struct params p = {.num_shards = num_shards, .index = index};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_shard, &p, &input, 1);
}
