/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/loop/fit_run.h"
#include "trainer/strategy/strategy_impl.h"

/* Replica r's predictions of an output: their place in the lists of a step. */
static size_t place(const mr__run *x, size_t r, size_t output)
{
    return r * x->n_outputs + output;
}

static mr_code alloc_rows(const mr__step_result *s, size_t output, size_t rows, mr_array *out,
                          mr_status *st)
{
    mr_array like = s->shapes[output];
    like.shape[0] = (int64_t)rows;
    return mr_tensor_alloc(out, MR_FLOAT32, like.rank, like.shape, st);
}

/* Copies what this process's replicas predicted, one after the other. */
static void copy_own(const mr__run *x, const mr__step_result *s, size_t output, char *to)
{
    for (size_t r = 0; r < x->n_replicas; r++) {
        size_t bytes = mr_array_row_bytes(&s->shapes[place(x, r, output)]);
        if (bytes > 0)
            memcpy(to, s->predictions[place(x, r, output)], bytes);
        to += bytes;
    }
}

/* Slices go round the workers: the k-th slice of a batch is on worker k mod workers. */
static void copy_in_order(const double *rows, size_t workers, size_t replicas, size_t row_bytes,
                          const char *from, char *to)
{
    for (size_t r = 0; r < replicas; r++)
        for (size_t w = 0; w < workers; w++) {
            size_t before = 0, bytes = (size_t)rows[w * replicas + r] * row_bytes;
            for (size_t k = 0; k < w * replicas + r; k++)
                before += (size_t)rows[k];
            if (bytes > 0)
                memcpy(to, from + before * row_bytes, bytes);
            to += bytes;
        }
}

static mr_code exchange(const mr__run *x, const mr__step_result *s, size_t output, double *rows,
                        size_t *sizes, mr_array *out, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s), n = x->n_replicas, total = 0, before = 0;
    double own[MR_MAX_REPLICAS];
    for (size_t r = 0; r < n; r++)
        own[r] = (double)s->shapes[place(x, r, output)].shape[0];
    MR_TRY(mr__world_exchange(mr__strategy_world(x->s), MR__CHANNEL_RESULTS, own, (uint32_t)n, rows,
                              st));
    mr_array one = s->shapes[output];
    one.shape[0] = 1;
    size_t row_bytes = mr_array_row_bytes(&one);
    for (size_t w = 0; w < workers; w++) {
        size_t of_worker = 0;
        for (size_t r = 0; r < n; r++)
            of_worker += (size_t)rows[w * n + r];
        sizes[w] = of_worker * row_bytes;
        before += w < mr_strategy_worker(x->s) ? sizes[w] : 0;
        total += of_worker;
    }
    char *all = mr_malloc(total * row_bytes + 1);
    if (!all)
        return mr_fail_memory(st, total * row_bytes, "predictions of all workers");
    copy_own(x, s, output, all + before);
    mr_code rc = mr__ring_all_gather(mr__strategy_ring(x->s), all, sizes, st);
    if (rc == MR_OK)
        rc = alloc_rows(s, output, total, out, st);
    if (rc == MR_OK)
        copy_in_order(rows, workers, n, row_bytes, all, out->data);
    mr_free(all);
    return rc;
}

mr_code mr__run_predictions(const mr__run *x, const mr__step_result *s, size_t output,
                            mr_array *out, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(x->s);
    if (workers == 1) {
        MR_TRY(alloc_rows(s, output, (size_t)s->rows, out, st));
        copy_own(x, s, output, out->data);
        return MR_OK;
    }
    double *rows = mr_calloc(workers * x->n_replicas, sizeof *rows);
    size_t *sizes = mr_calloc(workers, sizeof *sizes);
    mr_code rc = rows && sizes ? exchange(x, s, output, rows, sizes, out, st)
                               : mr_fail_memory(st, workers * sizeof *sizes, "predictions");
    mr_free(rows);
    mr_free(sizes);
    return rc;
}
