/* SPDX-License-Identifier: Apache-2.0 */
/* The data service without its commands: this program is a dispatcher, two workers and a client,
 * each in its own thread. In production they are usually different processes; here one of the
 * workers is drained while the client reads, and no element is lost or repeated.
 *
 *     build/examples/service_in_process */
#include <millrace/millrace-transport.h>
#include <millrace/millrace.h>

#include <inttypes.h>
#include <stdio.h>

enum { ELEMENTS = 1000 };

static int report(const mr_status *st)
{
    char line[1600];
    mr_status_format(st, line, sizeof line);
    fprintf(stderr, "service_in_process: %s\n", line);
    return 1;
}

/* Sums range(ELEMENTS), which the service yields in batches; drains a worker on the way. */
static mr_code read_sum(const char *service, const char *to_drain, int64_t *sum, mr_status *st)
{
    const mr_service_opts opts = {.streams = 4, .job_name = "sum"};
    mr_dataset *ds = mr_batch(mr_range(0, ELEMENTS, 1), 10, NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    bool drained = false;
    ds = mr_service_distribute(ds, service, &opts);
    mr_code rc = mr_iterator_open(&it, ds, NULL, st);
    for (int batch = 0; rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, st)) == MR_OK; batch++) {
        const int64_t *v = mr_array_at(&b.columns[0], 0);
        for (int64_t i = 0; i < b.columns[0].shape[0]; i++)
            *sum += v[i];
        if (batch >= 10 && !drained) {
            /* Waits until the worker has returned its streams and ended. */
            rc = mr_service_drain(service, to_drain, NULL, st);
            drained = rc == MR_OK;
            if (rc == MR_NOT_FOUND) /* it has not reached the dispatcher yet */
                rc = MR_OK;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc == MR_END ? MR_OK : rc;
}

static mr_code start_worker(const char *service, mr_service_worker **out, mr_status *st)
{
    const mr_service_worker_opts opts = {.dispatcher = service};
    MR_TRY(mr_service_worker_open(out, &opts, st));
    return mr_service_worker_start(*out, st);
}

int main(void)
{
    mr_service_dispatcher *dispatcher = NULL;
    mr_service_worker *workers[2] = {NULL, NULL};
    int64_t sum = 0;
    char *jobs = NULL;
    mr_status st;
    /* With .state = "DIRECTORY" the account of what was read outlives the process. */
    const mr_service_dispatcher_opts opts = {.listen = "127.0.0.1:0"};
    mr_code rc = mr_service_dispatcher_open(&dispatcher, &opts, &st);
    if (rc != MR_OK)
        return report(&st);
    rc = mr_service_dispatcher_start(dispatcher, &st);
    const char *service = mr_service_dispatcher_address(dispatcher);
    for (int i = 0; rc == MR_OK && i < 2; i++)
        rc = start_worker(service, &workers[i], &st);
    if (rc == MR_OK)
        rc = read_sum(service, mr_service_worker_address(workers[0]), &sum, &st);
    if (rc == MR_OK)
        rc = mr_service_report(service, "jobs", NULL, NULL, &jobs, &st);
    if (rc == MR_OK)
        printf("sum %" PRId64 "\n%s\n", sum, jobs);
    mr_free(jobs);
    for (int i = 0; i < 2; i++)
        mr_service_worker_close(workers[i]); /* stops it first */
    mr_service_dispatcher_close(dispatcher);
    return rc == MR_OK ? 0 : report(&st);
}
