/* SPDX-License-Identifier: Apache-2.0 */
/* Elements by number: counts and lookups of iterators that are never pulled. */
#include <inttypes.h>
#include <stdlib.h>

#include "pipeline/memory/merge_rows.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/run.h"

static mr_code count_by_inputs(mr_iter *it, uint64_t *n, mr_status *st)
{
    int64_t few[4] = {0}, *in = few, all = MR_UNKNOWN_COUNT;
    if (it->n_inputs > sizeof few / sizeof *few && !(in = mr_calloc(it->n_inputs, sizeof *in)))
        return mr_fail_memory(st, it->n_inputs * sizeof *in, "numbers of elements");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < it->n_inputs && rc == MR_OK; i++) {
        uint64_t k = 0;
        rc = mr_iter_count_input(it, i, &k, st);
        in[i] = (int64_t)k;
    }
    if (rc == MR_OK && (it->op->props & MR_OP_KEEPS_COUNT))
        all = in[0];
    else if (rc == MR_OK && it->op->cardinality)
        all = it->op->cardinality(it->node, it->params, in);
    if (in != few)
        mr_free(in);
    if (rc == MR_OK && all < 0)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the number of elements of %s is not known, so they cannot be looked up",
                     it->op->name);
    *n = (uint64_t)all;
    return rc;
}

mr_code mr__iter_count(mr_iter *it, uint64_t *n, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    if (!p->counted) {
        MR_TRY(it->op->count ? it->op->count(it, &p->n_elements, st)
                             : count_by_inputs(it, &p->n_elements, st));
        p->counted = true;
    }
    *n = p->n_elements;
    return MR_OK;
}

/* Ops that open inputs while they run, or none at all, look up elements of any. */
static mr_code open_missing(mr_iter *it, size_t i, mr_status *st)
{
    return it->inputs[i] ? MR_OK : mr_iter_open_input(it, i, st);
}

mr_code mr_iter_count_input(mr_iter *it, size_t i, uint64_t *n, mr_status *st)
{
    MR_TRY(open_missing(it, i, st));
    return mr__iter_count(it->inputs[i], n, st);
}

mr_code mr_iter_at_input(mr_iter *it, size_t i, const uint64_t *index, size_t n, mr_block *b,
                         mr_status *st)
{
    mr_block_clear(b);
    MR_TRY(open_missing(it, i, st));
    return mr__iter_at(it->inputs[i], index, n, b, st);
}

mr_code mr_iter_at_same(mr_iter *it, const uint64_t *index, size_t n, mr_block *b, mr_status *st)
{
    return mr_iter_at_input(it, 0, index, n, b, st);
}

mr_code mr_iter_at_steps(mr_iter *it, uint64_t first, uint64_t step, const uint64_t *index,
                         size_t n, mr_block *b, mr_status *st)
{
    enum { MOST = 256 };
    uint64_t in[MOST] = {0};
    n = n < MOST ? n : MOST;
    for (size_t i = 0; i < n; i++)
        in[i] = first + index[i] * step;
    return mr_iter_at_input(it, 0, in, n, b, st);
}

/* ---- for sources that read on from a place ---- */

enum { MOST_GAP = 64 }; /* elements so near are read through, which is cheaper than a seek */

typedef struct wanted {
    uint64_t number;
    size_t at; /* in the list of numbers */
} wanted;

static int by_number(const void *a, const void *b)
{
    const wanted *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Reads the first of n numbers and those that follow it, as far as one call returns them. An error
 * is that of the first. *seeks: whether the next number must be sought; *done: how many of the
 * numbers the part is for. */
static mr_code read_part(mr_iter *it, mr_iter_seek_fn *seek, const wanted *w, size_t n, bool *seeks,
                         mr__part *part, size_t *done, mr_status *st)
{
    size_t run = 1;
    while (run < n && w[run].number - w[run - 1].number <= MOST_GAP)
        run++;
    uint64_t first = w[0].number, want = w[run - 1].number + 1 - first, got = 1;
    part->rc = MR_OK;
    if (*seeks) {
        mr__iter_drop_pending(it->priv);
        it->priv->deferred = false;
        part->rc = seek(it, first, &part->error);
    }
    if (part->rc == MR_OK)
        part->rc = mr__iter_next_rows(it, (size_t)want, &part->rows, &part->error);
    if (part->rc == MR_END)
        part->rc = mr_fail(&part->error, MR_OUT_OF_RANGE,
                           "there is no element %" PRIu64
                           " any more: a file has become shorter since it was opened",
                           first);
    if (part->rc != MR_OK &&
        (part->rc == MR_CANCELLED || mr_status_is_of_no_element(&part->error))) {
        *st = part->error;
        return part->rc;
    }
    *seeks = part->rc != MR_OK;
    if (part->rc == MR_OK)
        got = part->rows.rows;
    for (*done = 0; *done < run && w[*done].number < first + got;)
        ++*done;
    *seeks = *seeks || *done == n || w[*done].number != first + got;
    return MR_OK;
}

static mr_code read_parts(mr_iter *it, mr_iter_seek_fn *seek, const wanted *w, size_t n,
                          mr__part *parts, mr__row_place *places, mr_status *st)
{
    bool seeks = true;
    size_t done = 0;
    for (uint32_t k = 0; n > 0; k++, w += done, n -= done) {
        MR_TRY(read_part(it, seek, w, n, &seeks, &parts[k], &done, st));
        for (size_t i = 0; i < done; i++)
            places[w[i].at] = (mr__row_place){k, (uint32_t)(w[i].number - w[0].number)};
    }
    return MR_OK;
}

mr_code mr_iter_at_by_seeking(mr_iter *it, mr_iter_seek_fn *seek, const uint64_t *index, size_t n,
                              mr_block *out, mr_status *st)
{
    wanted *w = mr_malloc(n * sizeof *w);
    mr__part *parts = mr_calloc(n, sizeof *parts);
    mr__row_place *places = mr_malloc(n * sizeof *places);
    mr_code rc = w && parts && places ? MR_OK : mr_fail_memory(st, n * sizeof *parts, "a lookup");
    for (size_t i = 0; rc == MR_OK && i < n; i++)
        w[i] = (wanted){index[i], i};
    if (rc == MR_OK) {
        qsort(w, n, sizeof *w, by_number);
        rc = read_parts(it, seek, w, n, parts, places, st);
    }
    if (rc == MR_OK)
        rc = mr__merge_rows(parts, places, n, out, st);
    mr__parts_free(parts, n);
    mr_free(places);
    mr_free(w);
    return rc;
}
