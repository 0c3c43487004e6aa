/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/op_buffering.h"

#include "pipeline/engine/executor.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/run.h"

mr_executor *mr_iter_executor(mr_iter *it)
{
    mr_run *run = it->run;
    if (mr__iter_counts_exactly(it->priv, it->node))
        return mr__executor_none();
    pthread_mutex_lock(&run->lock);
    if (!run->executor) {
        int n = run->opts.has_threads ? (int)run->opts.threads : mr_usable_cpus();
        if (mr_executor_new(n, &run->executor, NULL) == MR_OK ||
            mr_executor_new(0, &run->executor, NULL) == MR_OK)
            run->own_executor = true;
    }
    if (run->executor && run->memory.limit && !run->memory.of_group)
        mr__executor_keep_places(run->executor);
    /* If the pool cannot be allocated, use the calling thread. */
    mr_executor *ex = run->executor ? run->executor : mr__executor_none();
    pthread_mutex_unlock(&run->lock);
    return ex;
}

bool mr__iter_counts_exactly(const struct mr_iter_private *p, const mr_dataset *node)
{
    return p->scope && p->again && (mr__dataset_all_props(node) & MR_OP_OPENS_LATER);
}

bool mr_iter_pulls_count(const mr_iter *it)
{
    const struct mr_iter_private *p = it->priv;
    uint32_t props = mr__dataset_all_props(it->node);
    /* Relaxed: what is below may be pulled in another thread, which decides when it is done. */
    return mr__iter_counts_exactly(p, it->node) ||
           (p->again && ((props & MR__OPENS_RANDOM) ||
                         ((props & MR_OP_REMEMBERS) &&
                          atomic_load_explicit(&p->recording, memory_order_relaxed) > 0)));
}

bool mr_iter_opened_again(const mr_iter *it)
{
    return it->priv->again;
}

void mr_iter_set_records(mr_iter *it, bool does)
{
    if (it->priv->records == does)
        return;
    it->priv->records = does;
    for (mr_iter *i = it; i; i = i->priv->place == SIZE_MAX ? NULL : i->priv->parent)
        atomic_fetch_add_explicit(&i->priv->recording, does ? 1 : -1, memory_order_relaxed);
}

bool mr_iter_replays(const mr_iter *it)
{
    /* Relaxed: it is set before the first row that it affects. */
    return !it || !atomic_load_explicit(&it->priv->no_replay, memory_order_relaxed);
}

void mr_iter_set_may_block(const mr_iter *it)
{
    /* Relaxed: it orders nothing. */
    for (; it; it = it->priv->parent)
        atomic_store_explicit(&it->priv->may_block, true, memory_order_relaxed);
}

bool mr__iter_may_block(const mr_iter *it)
{
    /* Relaxed: set by pulls that have returned, or by tasks that run ahead. */
    return atomic_load_explicit(&it->priv->may_block, memory_order_relaxed);
}

void mr_iter_set_no_replay(mr_iter *it)
{
    for (; it; it = it->priv->parent)
        atomic_store_explicit(&it->priv->no_replay, true, memory_order_relaxed);
}

void mr__iter_set_no_position(mr_iter *it, const char *message)
{
    /* Of several inputs, the message is that of the last one that was opened, until all are closed.
     */
    for (; it; it = it->priv->place == SIZE_MAX ? NULL : it->priv->parent) {
        if (message) {
            atomic_store(&it->priv->no_position, message);
            atomic_fetch_add(&it->priv->no_positions, 1);
        } else {
            atomic_fetch_sub(&it->priv->no_positions, 1);
        }
    }
}

const char *mr__iter_no_position(const mr_iter *it)
{
    return atomic_load(&it->priv->no_positions) ? atomic_load(&it->priv->no_position) : NULL;
}
