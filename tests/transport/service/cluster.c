/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/cluster.h"

#include <string.h>

#include "pipeline/ops/sources.h"
#include "tests/harness.h"

static mr_code count_streams(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st)
{
    (void)ctx;
    (void)st;
    *n = job->streams;
    return MR_OK;
}

static void *dispatch(void *arg)
{
    cluster *c = arg;
    c->rc[0] = mr__dispatcher_run_serve(c->dispatcher, &c->st[0]);
    return NULL;
}

static void *work(void *arg)
{
    cluster *c = arg;
    c->rc[1] = mr__worker_run_serve(c->worker, &c->st[1]);
    return NULL;
}

mr_code cluster_start(cluster *c, mr__loop_kind loop, mr_status *st)
{
    *c = (cluster){0};
    mr_ok(mr_cancel_new(NULL, &c->cancel, st), st);
    mr_ok(mr_executor_new(1, &c->executor, st), st);
    const mr__dispatcher_run_opts d = {
        .listen = "127.0.0.1:0", .loop = loop, .cancel = c->cancel, .streams = count_streams};
    MR_TRY(mr__dispatcher_run_open(&c->dispatcher, &d, st));
    strcpy(c->address, mr__dispatcher_run_address(c->dispatcher));
    const mr__worker_run_opts w = {.dispatcher = c->address,
                                   .listen = "127.0.0.1:0",
                                   .executor = c->executor,
                                   .loop = loop,
                                   .cancel = c->cancel};
    MR_TRY(mr__worker_run_open(&c->worker, &w, st));
    mr_check(mr__worker_run_is_loopback(c->worker));
    c->runs[0] = pthread_create(&c->threads[0], NULL, dispatch, c) == 0;
    c->runs[1] = pthread_create(&c->threads[1], NULL, work, c) == 0;
    mr_check(c->runs[0] && c->runs[1]);
    return MR_OK;
}

void cluster_stop(cluster *c)
{
    mr_cancel_trigger(c->cancel);
    for (int i = 0; i < 2; i++)
        if (c->runs[i])
            pthread_join(c->threads[i], NULL);
    mr__worker_run_close(c->worker);
    mr__dispatcher_run_close(c->dispatcher);
    mr_executor_free(c->executor);
    mr_cancel_unref(c->cancel);
}

mr_code cluster_read(const cluster *c, const mr_service_opts *opts, bool uring, size_t *n,
                     mr_status *st)
{
    mr_dataset *ds = mr_service_distribute(mr_range(0, CLUSTER_ELEMENTS, 1), c->address, opts);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    *n = 0;
    mr_code rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.no_uring = !uring}, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 7, &b, st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, ++*n)
            mr_eq_i64(((const int64_t *)b.columns[0].data)[i], *n);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}
