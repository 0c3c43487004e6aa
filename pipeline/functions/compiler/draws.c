/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/compiler/draws.h"

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/graph/fn.h"
#include "pipeline/splitmix.h"

static uint64_t join(uint64_t key, uint64_t word)
{
    return mr__splitmix(key + MR__GOLDEN + mr__splitmix(word + MR__GOLDEN));
}

static size_t row_of(const mr_row_sink *sink, size_t row)
{
    return sink->rows ? sink->rows[sink->base + row] : sink->base + row;
}

mr__draws mr__draws_of_part(const mr_rows *r, size_t row, size_t part, size_t parts, int64_t seed)
{
    const mr_row_sink *sink = r->errors;
    size_t at = row_of(sink, row), n = 0;
    for (; sink->outer; sink = sink->outer)
        at = row_of(sink->outer, at);
    const mr_identities *ids = sink->ids;
    uint64_t key = join(join((uint64_t)seed, sink->seed), r->number);
    const mr_identity *id = NULL;
    if (ids && ids->ids) {
        id = ids->ids + (ids->offsets ? ids->offsets[at] : at);
        n = ids->offsets ? (size_t)(ids->offsets[at + 1] - ids->offsets[at]) : 1;
    }
    if (parts > 1 && n >= parts && n % parts == 0) {
        n /= parts;
        id += part * n;
    } else if (parts > 1)
        key = join(key, part);
    for (size_t i = 0; i < n; i++)
        key = join(join(join(join(key, id[i].source), id[i].file), id[i].ordinal), id[i].epoch);
    return (mr__draws){.key = key};
}

mr__draws mr__draws_of(const mr_rows *r, size_t row, int64_t seed)
{
    return mr__draws_of_part(r, row, 0, 1, seed);
}

static uint64_t draw_word(mr__draws *d)
{
    return mr__splitmix(d->key + ++d->n * MR__GOLDEN);
}

uint64_t mr__draw_below(mr__draws *d, uint64_t n)
{
    /* Words from `limit` on would make the smallest numbers more likely. */
    uint64_t limit = UINT64_MAX - (UINT64_MAX % n + 1) % n, word;
    do
        word = draw_word(d);
    while (word > limit);
    return word % n;
}

double mr__draw_uniform(mr__draws *d)
{
    return (double)(draw_word(d) >> 11) * 0x1p-53;
}

static bool draws(const char *name)
{
    const mr_function *f = mr_function_find(name);
    return f ? f->props & MR_FUNCTION_DRAWS : mr__registered_does(name, MR__DRAWS, mr__fn_draws);
}

static bool rows_draw(const mr_fn *fn)
{
    return fn->kind == MR_FN_ROWS && fn->rows->draws;
}

bool mr__fn_draws(const mr_fn *fn)
{
    return rows_draw(fn) || (fn->kind == MR_FN_EXPR && fn->expr && mr__expr_calls(fn->expr, draws));
}

mr_code mr__graph_draws(const mr_dataset *ds, bool *out, mr_status *st)
{
    MR_TRY(mr__dataset_calls(ds, draws, out, st));
    return *out ? MR_OK : mr__dataset_has_fn(ds, rows_draw, out, st);
}

uint64_t mr_rows_key(const mr_rows_call *c, size_t row, int64_t seed)
{
    mr__draws d = mr__draws_of(c->rows, row, seed);
    return draw_word(&d);
}
