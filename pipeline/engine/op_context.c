/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's services for ops: sizes of blocks, options, programs, seeds, shared state. */
#include <sys/random.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/run.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/system/system.h"

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
    mr_fail(st, MR_CANCELLED, "the iterator was cancelled");
    mr_status_of_no_element(st);
    return MR_CANCELLED;
}
bool mr_iter_deterministic(const mr_iter *it)
{
    return it->run->deterministic;
}

const mr_iterator_opts *mr_iter_opts(const mr_iter *it)
{
    return &it->run->opts;
}

void mr_iter_bind_program(const mr_iter *it, const mr_program *p)
{
    mr__program_bind(p, mr__function_seed(&it->run->opts), it->run->cancel);
}

static mr_code begin(mr_run *run, mr_fn *fn, const mr_rows_fn *f, void **out, mr_status *st)
{
    for (size_t i = 0; i < run->n_begun; i++)
        if (run->begun[i].fn == fn) {
            *out = run->begun[i].run;
            return MR_OK;
        }
    MR_TRY(MR_GROW(run->begun, run->begun_capacity, run->n_begun + 1, 1 << 20,
                   "the functions of an iterator", st));
    MR_TRY(f->begin(f->ctx, out, st));
    run->begun[run->n_begun++] = (mr__begun){mr_fn_ref(fn), f->ctx, *out, f->end};
    return MR_OK;
}

void mr__run_end_functions(mr_run *run)
{
    for (size_t i = 0; i < run->n_begun; i++) {
        mr__begun *b = &run->begun[i];
        if (b->end)
            b->end(b->ctx, b->run);
        mr_fn_unref(b->fn);
    }
    mr_free(run->begun);
    run->begun = NULL;
    run->n_begun = run->begun_capacity = 0;
}

mr_code mr_iter_program(const mr_iter *it, mr_fn *fn, const mr_spec *in, const mr_program **out,
                        mr_status *st)
{
    MR_TRY(mr_program_get(fn, in, out, st));
    mr_iter_bind_program(it, *out);
    const mr_rows_fn *f = mr__program_rows(*out);
    if (!f || !f->begin)
        return MR_OK;
    void *run = NULL;
    pthread_mutex_lock(&it->run->lock);
    mr_code rc = begin(it->run, fn, f, &run, st);
    pthread_mutex_unlock(&it->run->lock);
    mr__program_set_run(*out, run);
    if (rc != MR_OK)
        mr_program_unref(*out);
    return rc;
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

uint64_t mr_iter_fresh_seed(mr_iter *it)
{
    uint64_t v;
    if (mr__iter_job_seed(it, &v))
        return mr__seed_at(v, it->priv->in_graph, it->op->name);
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        struct timespec t;
        mr__sys->clock_gettime(CLOCK_REALTIME, &t);
        v = mr__mix((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    }
    return v;
}

MR_API bool mr__iter_job_seed(const mr_iter *it, uint64_t *seed)
{
    const struct mr_iter_private *p = it->priv;
    *seed = p->has_seed ? p->seed : it->run->opts.seed;
    return p->has_seed || it->run->opts.has_seed;
}

MR_API uint64_t mr__iter_place(const mr_iter *it)
{
    return it->priv->in_graph;
}

uint64_t mr_iter_function_seed(const mr_iter *it)
{
    return mr__function_seed(&it->run->opts);
}
