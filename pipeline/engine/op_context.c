/* SPDX-License-Identifier: Apache-2.0 */
/* What ops ask of the engine: sizes of blocks, options, programs, names of files, identities. */
#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/run.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/wait/wait.h"

/* A block's payload, so that it stays in the second-level cache from one op to the next. */
enum { BLOCK_BYTES = 256 * 1024 };

size_t mr_iter_block_rows(const mr_iter *it, size_t want, size_t row_bytes)
{
    size_t rows = row_bytes ? BLOCK_BYTES / row_bytes : BLOCK_BYTES / 8;
    size_t most = (size_t)it->run->opts.block_rows;
    if (most && rows > most)
        rows = most;
    if (rows > want)
        rows = want;
    return rows ? rows : 1;
}

bool mr_iter_keeps_positions(const mr_iter *it)
{
    return it->run->opts.positions;
}
bool mr_iter_identities(const mr_iter *it)
{
    return it->run->opts.identities;
}
bool mr_iter_cancelled(const mr_iter *it)
{
    return mr_cancel_is_cancelled(it->run->cancel);
}
mr_cancel *mr_iter_cancel(const mr_iter *it)
{
    return it->run->cancel;
}
mr_code mr_iter_fail_cancelled(mr_status *st)
{
    return mr_fail(st, MR_CANCELLED, "the iterator was cancelled");
}
bool mr_iter_deterministic(const mr_iter *it)
{
    return it->run->deterministic;
}
void mr_iter_set_takes(mr_iter *it, size_t n)
{
    it->priv->takes = n;
}
size_t mr_iter_in_turn(const mr_iter *it)
{
    return it->priv->in_turn;
}
bool mr_iter_no_uring(const mr_iter *it)
{
    return it->run->opts.no_uring;
}
const mr_iterator_opts *mr_iter_opts(const mr_iter *it)
{
    return &it->run->opts;
}

void mr_iter_bind_program(const mr_iter *it, const mr_program *p)
{
    mr__program_bind(p, mr__function_seed(&it->run->opts), it->run->cancel);
}

mr_code mr_iter_program(const mr_iter *it, mr_fn *fn, const mr_spec *in, const mr_program **out,
                        mr_status *st)
{
    MR_TRY(mr_program_get(fn, in, out, st));
    mr_iter_bind_program(it, *out);
    return MR_OK;
}

mr_code mr_iter_file_path(const mr_iter *it, const char *path, char **out, mr_status *st)
{
    const char *directory = it->run->opts.directory;
    bool whole = !directory || *path == '/' || strcmp(path, "-") == 0;
    size_t n = whole ? 0 : strlen(directory) + 1, m = strlen(path) + 1;
    *out = mr_malloc(n + m);
    if (!*out)
        return mr_fail_memory(st, n + m, "a file name");
    if (n) {
        memcpy(*out, directory, n - 1);
        (*out)[n - 1] = '/';
    }
    memcpy(*out + n, path, m);
    return MR_OK;
}

uint64_t mr_iter_epoch(const mr_iter *it)
{
    const mr__scope *s = it->priv->scope;
    return it->priv->epoch + (s && s->replaced ? s->outer.epoch : 0);
}

mr_code mr_node_shared(mr_dataset *node, size_t size, void (*init)(void *), void (*destroy)(void *),
                       void **out, mr_status *st)
{
    return mr__dataset_shared(node, size, init, destroy, out, st);
}

mr_code mr_iter_shared(mr_iter *it, size_t size, void (*init)(void *), void (*destroy)(void *),
                       void **out, mr_status *st)
{
    return mr__dataset_shared(it->node, size, init, destroy, out, st);
}

static mr_code set_identities(mr_block *b, mr_identity first, mr_status *st)
{
    mr_identity *ids;
    MR_TRY(mr_identities_alloc(&b->ids, b->rows, &ids, st));
    for (size_t i = 0; i < b->rows; i++, first.ordinal++)
        ids[i] = first;
    return MR_OK;
}

mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                               mr_status *st)
{
    if (!mr_iter_identities(it))
        return MR_OK;
    return set_identities(b, (mr_identity){it->source, file, first, mr_iter_epoch(it)}, st);
}

mr_code mr_iter_set_identities_of_file(mr_iter *it, mr_block *b, uint64_t first, mr_status *st)
{
    const mr__scope *s = it->priv->scope;
    if (!s || !s->adopted || !it->priv->owns_scope)
        return mr_iter_set_identities(it, b, 0, first, st);
    const mr_identity *o = &s->outer;
    return set_identities(
        b, (mr_identity){o->source, o->ordinal, first, o->epoch + it->priv->epoch}, st);
}

mr_code mr_iter_name_file(mr_iter *it, const mr_identity *id, const char *path, mr_status *st)
{
    mr_ledger *ledger = it->run->opts.ledger;
    return ledger && id ? mr_ledger_name(ledger, id, path, st) : MR_OK;
}

void mr_iter_add_wait(mr_iter *it, double seconds)
{
    mr__waited_add(mr__stats_to_ticks(&it->run->stats, seconds));
}

bool mr_iter_replays(const mr_iter *it)
{
    /* Relaxed: it is set before the first row that is concerned. */
    return !it || !atomic_load_explicit(&it->priv->no_replay, memory_order_relaxed);
}

void mr_iter_set_no_replay(mr_iter *it)
{
    for (; it; it = it->priv->parent)
        atomic_store_explicit(&it->priv->no_replay, true, memory_order_relaxed);
}
