/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the other workers' pipelines after this worker's has ended, to find out how many steps the
 * whole job takes. Graphs are deterministic, so they take the same number of steps here. */
#include "pipeline/graph/op.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/dist_impl.h"
#include "shard/passes/shard_passes.h"

#include <inttypes.h>

/* Elements requested per call while catching up. */
enum { CATCH_UP = 1024 };

static void close_one(mr__peer *peer)
{
    mr_iterator_close(peer->it);
    peer->it = NULL;
    peer->ended = true;
}

static void end_by_error(mr__peers *p, mr__peer *peer, const mr_status *st)
{
    char text[1600];
    mr_status_format(st, text, sizeof text);
    mr_log(MR_LOG_WARNING,
           "worker %" PRId64 " would fail in step %" PRId64 ", which ends its part here: %s",
           peer->worker, peer->elements / p->dd->replicas, text);
    close_one(peer);
}

/* True for errors that concern this process, not the peer. */
static bool is_ours(mr_code rc)
{
    return rc == MR_CANCELLED || rc == MR_RESOURCE_EXHAUSTED;
}

/* Reads elements until the peer has read `need` of them in this pass, ends, or fails. */
static mr_code advance(mr__peers *p, mr__peer *peer, int64_t need, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status error;
    mr_code rc = MR_OK;
    if (peer->counted) {
        peer->elements = need < peer->total ? need : peer->total;
        return MR_OK;
    }
    while (!peer->ended && peer->elements < need) {
        int64_t want = need - peer->elements < CATCH_UP ? need - peer->elements : CATCH_UP;
        rc = mr_iterator_next(peer->it, (size_t)want, &b, &error);
        if (rc == MR_OK)
            peer->elements += (int64_t)b.rows;
        else if (rc == MR_END)
            peer->ended = true;
        else if (is_ours(rc))
            break;
        else {
            /* A failed step does not count. */
            peer->elements -= peer->elements % p->dd->replicas;
            end_by_error(p, peer, &error);
        }
    }
    mr_block_reset(&b);
    if (rc >= 0 || !is_ours(rc))
        return MR_OK;
    if (st)
        *st = error;
    return rc;
}

/* Starts the peer's next pass. */
static mr_code rewind_one(mr__peers *p, mr__peer *peer, mr_status *st)
{
    mr_status error;
    mr_code rc = peer->counted ? MR_OK : mr_iterator_rewind(peer->it, &error);
    peer->elements = 0;
    peer->ended = false;
    if (rc == MR_OK)
        return MR_OK;
    if (is_ours(rc)) {
        if (st)
            *st = error;
        return rc;
    }
    end_by_error(p, peer, &error);
    return MR_OK;
}

static mr_dataset *find_file_elements(void *ctx, mr_dataset *node)
{
    *(bool *)ctx |= (mr_dataset_op(node)->props & MR_OP_FILE_ELEMENTS) != 0;
    return node;
}

/* Where elements are files, running all peers would cost as much as being all workers. */
static void count(mr__peer *peer, mr_dataset *ds, const mr_iterator_opts *run)
{
    bool found = false;
    mr_dataset_unref(mr_dataset_transform(ds, find_file_elements, &found));
    if (run->directory || !found)
        return;
    peer->total = mr_dataset_cardinality(ds);
    peer->counted = peer->total >= 0;
}

static mr_code open_one(mr__peers *p, mr__peer *peer, int64_t passes, mr_status *st)
{
    mr_status error;
    mr_dataset *whole = NULL, *ds = NULL;
    mr_iterator *it = NULL;
    mr_iterator_opts run = mr__dist_run_opts(p->dd, p->run);
    run.positions = run.identities = false;
    run.trace_spans = 0;
    run.ledger = NULL;
    mr_code rc = mr__dist_graph(p->dd, peer->worker, &whole, NULL, NULL, NULL, &error);
    if (rc == MR_OK) /* its caches are files that the other process writes and reads */
        rc = mr__without_files(whole, &ds, &error);
    if (rc == MR_OK)
        count(peer, ds, &run);
    if (rc == MR_OK && !peer->counted)
        rc = mr_iterator_open(&it, ds, &run, &error);
    mr_dataset_unref(ds);
    mr_dataset_unref(whole);
    if (rc == MR_OK)
        peer->it = it;
    else if (is_ours(rc)) {
        if (st)
            *st = error;
        return rc;
    } else {
        end_by_error(p, peer, &error);
        return MR_OK;
    }
    for (; rc == MR_OK && passes > 0 && peer->it; passes--) {
        rc = advance(p, peer, INT64_MAX, st);
        if (rc == MR_OK && peer->it)
            rc = rewind_one(p, peer, st);
    }
    return rc;
}

static mr_code open_all(mr__peers *p, int64_t passes, mr_status *st)
{
    const mr_dist_dataset *dd = p->dd;
    size_t n = (size_t)(dd->workers - dd->local);
    mr__peer *v = mr_calloc(n, sizeof *v);
    if (!v)
        return mr_fail_memory(st, n * sizeof *v, "the peers' pipelines");
    for (size_t i = 0; i < n; i++)
        v[i].worker = (int64_t)i < dd->worker ? (int64_t)i : (int64_t)i + dd->local;
    p->v = v;
    p->n = n;
    for (size_t i = 0; i < n; i++)
        MR_TRY(open_one(p, &p->v[i], passes, st));
    return MR_OK;
}

mr_code mr__peers_have_data(mr__peers *p, int64_t passes, int64_t step, bool *any, mr_status *st)
{
    int64_t replicas = p->dd->replicas, need;
    *any = false;
    if (__builtin_mul_overflow(step + 1, replicas, &need))
        return MR_OK;
    if (!p->n) {
        mr_code rc = open_all(p, passes, st);
        if (rc != MR_OK) {
            mr__peers_close(p);
            return rc;
        }
    }
    for (size_t i = 0; i < p->n; i++) {
        mr__peer *peer = &p->v[i];
        MR_TRY(advance(p, peer, need, st));
        *any = *any || peer->elements > step * replicas;
    }
    return MR_OK;
}

mr_code mr__peers_rewind(mr__peers *p, mr_status *st)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].it || p->v[i].counted)
            MR_TRY(rewind_one(p, &p->v[i], st));
    return MR_OK;
}

void mr__peers_close(mr__peers *p)
{
    for (size_t i = 0; i < p->n; i++)
        close_one(&p->v[i]);
    mr_free(p->v);
    p->v = NULL;
    p->n = 0;
}
