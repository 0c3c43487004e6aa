/* SPDX-License-Identifier: Apache-2.0 */
/* One element of each input makes one element. The inputs are pulled left to right in blocks of one
 * size; if a later one returns fewer rows, the surplus of the earlier ones stays in their cursors.
 *
 * An error takes the place of an element: the other inputs still advance by one, so that they stay
 * in step. At the first MR_END the inputs to the right are not pulled.
 *
 * From an input that records what is pulled (MR_OP_REMEMBERS), no row may be pulled that would be
 * surplus at the end. If such an input exists, blocks end with the last full round if it is known;
 * otherwise they have one row. */
#include "pipeline/ops/sequence.h"

#include "pipeline/graph/node.h"
#include "pipeline/streams/cursor.h"
#include "pipeline/params/infer.h"

struct state {
    mr__cursor *inputs; /* n_inputs */
    uint64_t ended;     /* an input ended in the round of an error; reported at the next call */
    uint64_t rounds;    /* done */
    uint64_t in_blocks; /* number of rounds that may be pulled in blocks */
};

/* The number of rounds that leave no surplus in an input that records what is pulled. */
static uint64_t safe_rounds(const mr_iter *it)
{
    uint64_t least = UINT64_MAX;
    size_t remembering = 0, unknown = 0;
    bool both = false;
    for (size_t i = 0; i < it->n_inputs; i++) {
        const mr_dataset *input = mr_dataset_input(it->node, i);
        int64_t n = mr_dataset_cardinality(input);
        bool remembers = mr__dataset_all_props(input) & MR_OP_REMEMBERS;
        remembering += remembers;
        unknown += n == MR_UNKNOWN_COUNT;
        both |= remembers && n == MR_UNKNOWN_COUNT;
        if (n >= 0 && (uint64_t)n < least)
            least = (uint64_t)n;
    }
    if (remembering == 0)
        return UINT64_MAX;
    /* An unknown length may be the shortest: harmless if it is that of the only one that
     * records. */
    return unknown == 0 || (unknown == 1 && both && remembering == 1) ? least : 0;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    s->inputs = mr_calloc(it->n_inputs, sizeof *s->inputs);
    if (!s->inputs)
        return mr_fail_memory(st, it->n_inputs * sizeof *s->inputs, "the inputs of zip");
    s->in_blocks = safe_rounds(it);
    return MR_OK;
}

/* Input `failed` has the error `failure` in this round: consumes the round in all others.
 * Returns `failure`, or an error of no element of another input, which then has not consumed the
 * round. */
static mr_code finish_failed_round(mr_iter *it, size_t failed, mr_code failure, mr_status *st)
{
    struct state *s = it->state;
    s->rounds++;
    for (size_t i = 0; i < failed; i++)
        mr__cursor_use(&s->inputs[i], 1);
    for (size_t i = failed + 1; i < it->n_inputs; i++) {
        mr__cursor *c = &s->inputs[i];
        mr_status error;
        mr_code rc = mr__cursor_left(c) ? MR_OK : mr__cursor_pull(it, i, 1, c, NULL, &error);
        if (rc == MR_OK)
            mr__cursor_use(c, 1);
        else if (rc == MR_END) {
            s->ended = 1;
            break;
        } else if (mr_status_is_of_no_element(&error)) {
            failure = rc;
            if (st)
                *st = error;
        }
    }
    return failure;
}

/* Puts rows [first, first + rows) of `from` next to the *columns columns of out. */
static mr_code add_columns(mr_block *out, size_t *columns, const mr_block *from, size_t first,
                           size_t rows, mr_status *st)
{
    for (size_t k = 0; k < from->n_columns; k++)
        mr_array_slice(&out->columns[(*columns)++], &from->columns[k], first, rows);
    mr_identities mine, both = {0};
    mr_identities_take(&mine, &from->ids, first, rows);
    mr_code rc = mr_identities_join(&both, &out->ids, &mine, rows, st);
    mr_identities_reset(&mine);
    mr_identities_reset(&out->ids);
    out->ids = both;
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->ended)
        return MR_END;
    size_t rows = want, columns = 0;
    uint64_t safe = s->rounds < s->in_blocks ? s->in_blocks - s->rounds : 1;
    if (rows > safe)
        rows = (size_t)safe;
    for (size_t i = 0; i < it->n_inputs; i++) {
        mr__cursor *c = &s->inputs[i];
        mr_status error;
        mr_code rc = mr__cursor_left(c) ? MR_OK : mr__cursor_pull(it, i, rows, c, NULL, &error);
        if (rc < 0 && st)
            *st = error;
        if (rc < 0 && !mr_status_is_of_no_element(&error)) /* else no input was advanced */
            rc = finish_failed_round(it, i, rc, st);
        if (rc != MR_OK)
            return rc;
        if (rows > mr__cursor_left(c))
            rows = mr__cursor_left(c);
        columns += mr__cursor_rows(c)->n_columns;
    }
    MR_TRY(mr_block_prepare(out, columns, st));
    size_t at = 0;
    mr_code rc = MR_OK;
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++)
        rc = add_columns(out, &at, mr__cursor_rows(&s->inputs[i]), mr__cursor_at(&s->inputs[i]),
                         rows, st);
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++)
        mr__cursor_use(&s->inputs[i], rows);
    s->rounds += rows;
    out->rows = rows;
    return rc;
}

/* Pulls and drops rows of input i, of which `n` are to be skipped. Errors among them are not
 * reported, as those of skipped elements. */
static mr_code drop(mr_iter *it, size_t i, uint64_t n, mr_status *st)
{
    struct state *s = it->state;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (n > 0) {
        rc = mr_iter_pull(it, i, n < SIZE_MAX ? (size_t)n : SIZE_MAX, &b, st);
        if (rc == MR_END || rc == MR_CANCELLED || (rc != MR_OK && mr_status_is_of_no_element(st)))
            break;
        n -= rc == MR_OK ? b.rows : 1;
        rc = MR_OK;
    }
    mr_block_reset(&b);
    s->ended |= rc == MR_END;
    return rc == MR_END ? MR_OK : rc;
}

/* As many rounds as input 0 can skip; the other inputs follow. */
static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    for (size_t i = 0; i < it->n_inputs; i++)
        if (!mr__queue_idle(&s->inputs[i].queue) || !mr_iter_skips_input(it, i))
            return MR_OK;
    if (s->ended ||
        s->in_blocks != UINT64_MAX) /* of an input that records, no row is passed over */
        return MR_OK;
    MR_TRY(mr_iter_skip_input(it, 0, n, skipped, st));
    s->rounds += *skipped;
    for (size_t i = 1; i < it->n_inputs && *skipped; i++) {
        uint64_t passed;
        mr_code rc = mr_iter_skip_input(it, i, *skipped, &passed, st);
        if (rc != MR_OK && (rc == MR_CANCELLED || mr_status_is_of_no_element(st)))
            return rc;
        MR_TRY(drop(it, i, *skipped - passed, st));
    }
    return MR_OK;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    mr_block *rows = mr_calloc(it->n_inputs, sizeof *rows);
    size_t columns = 0, placed = 0;
    mr_code rc = rows ? MR_OK : mr_fail_memory(st, it->n_inputs * sizeof *rows, "rows of zip");
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++) {
        rc = mr_iter_at_input(it, i, index, n, &rows[i], st);
        n = rows[i].rows < n ? rows[i].rows : n;
        columns += rows[i].n_columns;
    }
    if (rc == MR_OK)
        rc = mr_block_prepare(out, columns, st);
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++)
        rc = add_columns(out, &placed, &rows[i], 0, n, st);
    out->rows = n;
    for (size_t i = 0; rows && i < it->n_inputs; i++)
        mr_block_reset(&rows[i]);
    mr_free(rows);
    return rc;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    for (size_t i = 0; s->inputs && i < it->n_inputs; i++)
        mr__cursor_reset(&s->inputs[i]);
    mr_free(s->inputs);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    MR_TRY(mr_state_put_u64(w, s->rounds, st));
    for (size_t i = 0; i < it->n_inputs; i++)
        MR_TRY(mr__cursor_save(it, i, &s->inputs[i], 0, w, st));
    return MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->ended, st));
    MR_TRY(mr_state_get_u64(r, &s->rounds, st));
    for (size_t i = 0; i < it->n_inputs; i++)
        MR_TRY(mr__cursor_restore(it, i, &s->inputs[i], r, st));
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    size_t n = mr_dataset_n_inputs(self);
    mr_spec **children = mr_calloc(n, sizeof(mr_spec *));
    if (!children)
        return mr_fail_memory(st, n * sizeof(mr_spec *), "the spec of zip");
    for (size_t i = 0; i < n; i++)
        children[i] = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, i)));
    mr_code rc = mr__inferred(mr_spec_tuple(children, n), out, st);
    mr_free(children);
    return rc;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)p;
    int64_t least = MR_INFINITE;
    for (size_t i = 0; i < mr_dataset_n_inputs(self); i++) {
        if (in[i] == MR_UNKNOWN_COUNT)
            return MR_UNKNOWN_COUNT;
        if (in[i] >= 0 && (least < 0 || in[i] < least))
            least = in[i];
    }
    return least;
}

const mr_op mr_op_zip = {
    .abi = MR_ABI_VERSION,
    .name = "zip",
    .doc = "Combines one element of each input; ends with the shortest.",
    .example = "zip(range(3), range(10, 20))",
    .order_doc = "of each input kept",
    .memory_doc = "a block of each input",
    .count_doc = "that of the shortest input",
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = -1,
    .role = MR_ROLE_PARALLEL,
    .props = MR_OP_SOURCE_CALL | MR_OP_PAIRS,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_zip(mr_dataset *const *inputs, size_t n)
{
    return mr_dataset_new(&mr_op_zip, NULL, inputs, n);
}
