/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of a job, for tests with several: the cluster comes from the environment.
 *
 * COMMUNICATION says how values travel.
 *
 *     worker REPLICAS collective    every operation of the strategy's collective
 *     worker REPLICAS values        reduce and gather, also of uneven values and of strings; prints
 *                                   what came out, which must be equal on all workers
 *     worker REPLICAS mismatch      gathers another dtype on worker 1
 *     worker REPLICAS broken        gathers a scalar on worker 1
 *     worker REPLICAS sums WHAT     eight steps of two sums each, the second of which is longer in
 *                                   step 3; worker 1 does something else in step 5: WHAT is
 *                                   nothing, shorter, maximum, doubles, fewer, more or leaves
 *     worker REPLICAS predict ROWS BATCH    prints predictions for 0, 1, 2, ... as fn gets them
 *     worker REPLICAS predict_fails         fn fails at the second batch
 *     worker REPLICAS loop DIRECTORY        restores the state of a loop, prints its number and the
 *                                   first weight, counts on, and saves it
 * Ends with 1 and the error on standard error where something failed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/graph/dataset.h"
#include "tests/trainer/kit/collective_check.h"
#include "trainer/loop/fit.h"
#include "trainer/loop/loop_state.h"

static mr_code tensor(mr_array *t, mr_dtype type, int rank, int64_t rows, mr_status *st)
{
    return mr_tensor_alloc(t, type, rank, (int64_t[]){rows, 1}, st);
}

static void print(const char *what, const mr_array *a)
{
    printf("%s [", what);
    for (int i = 0; i < a->rank; i++)
        printf("%s%" PRId64, i ? ", " : "", a->shape[i]);
    printf("]");
    for (size_t i = 0; i < mr_array_row_values(a); i++) {
        if (a->dtype == MR_STRING)
            printf(" %.*s", (int)((mr_bytes *)a->data)[i].size,
                   (const char *)((mr_bytes *)a->data)[i].data);
        else
            printf(" %g", a->dtype == MR_FLOAT32   ? (double)((float *)a->data)[i]
                          : a->dtype == MR_FLOAT64 ? ((double *)a->data)[i]
                                                   : (double)((int64_t *)a->data)[i]);
    }
    printf("\n");
}

/* Replica g of all has g + 1 rows, and the last one none. */
static mr_code uneven(mr_strategy *s, mr_dtype type, mr_distributed *d, mr_status *st)
{
    static const char *const words[] = {"a", "", "ccc", "d", "eeeee", "f", "g", "h"};
    size_t first = mr_strategy_first_replica_id(s), all = mr_strategy_num_replicas_in_sync(s);
    MR_TRY(mr_distributed_init(d, s, st));
    for (size_t r = 0; r < d->n; r++) {
        size_t g = first + r, rows = g + 1 == all ? 0 : g + 1;
        MR_TRY(tensor(&d->values[r], type, 2, (int64_t)rows, st));
        for (size_t i = 0; i < rows; i++) {
            if (type == MR_STRING) {
                const char *word = words[(g + i) % 8];
                ((mr_bytes *)d->values[r].data)[i] = (mr_bytes){word, strlen(word)};
            } else if (type == MR_INT64)
                ((int64_t *)d->values[r].data)[i] = (int64_t)(10 * g + i);
            else
                ((float *)d->values[r].data)[i] = (float)(10 * g + i);
        }
    }
    return MR_OK;
}

static mr_code values(mr_strategy *s, mr_status *st)
{
    static const mr_dtype types[] = {MR_FLOAT32, MR_INT64, MR_STRING};
    const mr_axes rows = {1, {0}}, both = {2, {0, 1}};
    mr_array out;
    for (size_t t = 0; t < 3; t++) {
        mr_distributed d;
        MR_TRY(uneven(s, types[t], &d, st));
        MR_TRY(mr_strategy_gather(s, &d, 0, &out, st));
        print("gather", &out);
        mr_array_reset(&out);
        if (types[t] != MR_STRING) {
            MR_TRY(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &rows, &out, st));
            print("sum", &out);
            mr_array_reset(&out);
            MR_TRY(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &both, &out, st));
            print("mean", &out);
            mr_array_reset(&out);
        }
        mr_distributed_reset(&d);
    }
    return MR_OK;
}

static mr_code differ(mr_strategy *s, bool scalar, mr_status *st)
{
    mr_distributed d;
    mr_array out;
    bool other = mr_strategy_worker(s) == 1;
    MR_TRY(uneven(s, other && !scalar ? MR_INT64 : MR_FLOAT32, &d, st));
    for (size_t r = 0; r < d.n && other && scalar; r++) {
        mr_array_reset(&d.values[r]);
        MR_TRY(tensor(&d.values[r], MR_FLOAT32, 0, 0, st));
    }
    mr_code rc = mr_strategy_gather(s, &d, 0, &out, st);
    mr_distributed_reset(&d);
    return rc;
}

enum { STEPS = 8, VALUES = 1000 };

typedef struct summing {
    int step;
    const char *what; /* worker 1 does in step 5 */
} summing;

/* The sum of `count` times 1 over all ranks. */
static mr_code add_ones(mr_replica *r, const summing *x, size_t count, bool other, mr_status *st)
{
    bool doubles = other && strcmp(x->what, "doubles") == 0;
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_collective_call call = {.dtype = doubles ? MR_FLOAT64 : MR_FLOAT32, .count = count};
    uint64_t ticket;
    void *p;
    if (other && strcmp(x->what, "maximum") == 0)
        call.reduction = MR_REDUCTION_MAX;
    if (other && strcmp(x->what, "shorter") == 0)
        call.count--;
    MR_TRY(mr_replica_scratch(r, count * sizeof(double), &p, st));
    MR_TRY(mr_replica_math(r)->fill(mr_replica_stream(r), &(mr_math_fill){2 * count, 1, p}, st));
    call.in = call.out = p;
    MR_TRY(mr_collective_begin(c, mr_replica_id(r), mr_replica_stream(r), &call, &ticket, st));
    return mr_collective_wait(c, mr_replica_id(r), mr_replica_stream(r), ticket, st);
}

static mr_code sum_step(mr_replica *r, void *ctx, mr_status *st)
{
    const summing *x = ctx;
    bool other = x->step == 5 && mr_strategy_worker(mr_replica_strategy(r)) == 1;
    MR_TRY(add_ones(r, x, VALUES, false, st));
    if (!(other && strcmp(x->what, "fewer") == 0))
        MR_TRY(add_ones(r, x, VALUES + 100 * (size_t)(x->step == 3), other, st));
    return other && strcmp(x->what, "more") == 0 ? add_ones(r, x, VALUES, false, st) : MR_OK;
}

static mr_code sums(mr_strategy *s, const char *what, mr_status *st)
{
    summing x = {.what = what};
    for (x.step = 1; x.step <= STEPS; x.step++) {
        if (x.step == 5 && mr_strategy_worker(s) == 1 && strcmp(what, "leaves") == 0)
            return MR_OK;
        MR_TRY(mr_strategy_run(s, sum_step, &x, st));
    }
    printf("%d steps\n", STEPS);
    return MR_OK;
}

static mr_code print_batch(void *ctx, const mr_array *predictions, mr_status *st)
{
    int *fail_at = ctx;
    print("batch", predictions);
    return --*fail_at == 0 ? mr_fail(st, MR_DATA_LOSS, "fn has had enough") : MR_OK;
}

static mr_code predict(mr_strategy *s, const char *rows, const char *batch, int fail_at,
                       mr_status *st)
{
    char text[200];
    mr_dataset *ds = NULL;
    mr_model *m = NULL;
    snprintf(text, sizeof text, "range(%s).map(i => [cast(i, \"float32\")]).batch(%s)", rows,
             batch);
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_model_parse(&m, "dense(1, kernel_initializer=constant(2))", st);
    if (rc == MR_OK)
        rc = mr_predict(s, m, ds, print_batch, &fail_at, NULL, st);
    mr_dataset_unref(ds);
    mr_model_free(m);
    return rc;
}

static mr_code go_on(mr_strategy *s, const char *directory, mr_status *st)
{
    mr_model *m = NULL;
    int64_t count = 0;
    float weight = 0;
    bool found = false;
    const mr_loop_number number = {"count", .i = &count};
    const mr_loop_state all = {
        .strategy = s, .models = &m, .n_models = 1, .numbers = &number, .n_numbers = 1};
    mr_code rc = mr_model_parse(&m, "dense(1)", st);
    if (rc == MR_OK)
        rc = mr_model_build(m, s, 1, (int64_t[]){1}, NULL, st);
    if (rc == MR_OK)
        rc = mr_loop_restore(&all, directory, &found, st);
    if (rc == MR_OK)
        rc = mr_variable_read(mr_model_variable(m, 0), &weight, st);
    if (rc == MR_OK)
        printf("%s %" PRId64 " %.9g\n", found ? "found" : "new", count++, (double)weight);
    if (rc == MR_OK)
        rc = mr_loop_save(&all, directory, st);
    mr_model_free(m);
    return rc;
}

static mr_code run(mr_strategy *s, char **argv, mr_status *st)
{
    const char *what = argv[2];
    if (strcmp(what, "collective") == 0)
        return test_collective(s, st);
    if (strcmp(what, "values") == 0)
        return values(s, st);
    if (strcmp(what, "mismatch") == 0 || strcmp(what, "broken") == 0)
        return differ(s, strcmp(what, "broken") == 0, st);
    if (strcmp(what, "sums") == 0)
        return sums(s, argv[3], st);
    if (strcmp(what, "predict") == 0)
        return predict(s, argv[3], argv[4], -1, st);
    if (strcmp(what, "loop") == 0)
        return go_on(s, argv[3], st);
    return predict(s, "100", "8", 2, st);
}

int main(int argc, char **argv)
{
    mr_status st;
    mr_cluster cluster = {0};
    mr_strategy *s = NULL;
    mr_workers_opts workers = {
        .cluster = &cluster, .connect_timeout_s = 20, .communication = getenv("COMMUNICATION")};
    if (argc < 3)
        return 2;
    mr_strategy_opts o = {.num_replicas = strtoul(argv[1], NULL, 10)};
    mr_code rc = mr_cluster_from_launcher(&cluster, &st);
    if (rc == MR_OK)
        rc = mr_strategy_by_name(&s, NULL, &o, &workers, &st);
    if (rc == MR_OK)
        rc = run(s, argv, &st);
    if (rc != MR_OK)
        fprintf(stderr, "worker: %s\n", st.message);
    mr_strategy_free(s);
    mr_cluster_reset(&cluster);
    return rc != MR_OK;
}
