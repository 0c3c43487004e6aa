/* SPDX-License-Identifier: Apache-2.0 */
/* A step with a custom kernel: the length of a vector that is divided among four replicas. Each
 * replica squares its part with a kernel and adds up the squares with an operation of the table;
 * the sums are then all-reduced over the replicas, all in stream order. */
#include <math.h>
#include <stdio.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

enum { REPLICAS = 4, PIECE = 3 };

typedef struct pieces {
    mr_array values[REPLICAS]; /* on the host */
    float length[REPLICAS];    /* out: the result of each replica */
} pieces;

/* On the CPU a kernel is a function, which receives a copy of its arguments; on an accelerator it
 * is launched on mr_stream_native(stream). */
struct square_args {
    size_t n;
    const float *x;
    float *y;
};

static void square(void *args)
{
    const struct square_args *a = args;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = a->x[i] * a->x[i];
}

static mr_code measure(mr_replica *r, void *ctx, mr_status *st)
{
    pieces *p = ctx;
    size_t id = mr_replica_id(r);
    mr_stream *s = mr_replica_stream(r);
    const mr_math_table *math = mr_replica_math(r);
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    mr_array x;
    void *squares, *exact, *sum;
    uint64_t ticket;
    MR_TRY(mr_replica_to_device(r, &p->values[id], &x, st));
    MR_TRY(mr_replica_scratch(r, PIECE * sizeof(float), &squares, st));
    MR_TRY(mr_replica_scratch(r, sizeof(double), &exact, st));
    MR_TRY(mr_replica_scratch(r, sizeof(float), &sum, st));
    const struct square_args a = {PIECE, x.data, squares};
    const mr_math_sum add = {.n = PIECE, .x = squares, .out = exact};
    const mr_math_cast as_float = {
        .n = 1, .from = MR_FLOAT64, .scale = 1, .src = exact, .dst = sum};
    MR_TRY(mr_stream_launch(s, square, &a, sizeof a, st));
    MR_TRY(math->sum(s, &add, st));
    MR_TRY(math->cast(s, &as_float, st));
    MR_TRY(mr_collective_start(c, id, s, sum, 1, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    /* The result is ready when mr_strategy_run returns. */
    return mr_stream_copy(s, &p->length[id], sum, sizeof(float), st);
}

int main(void)
{
    const char *devices[REPLICAS] = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
    float values[REPLICAS][PIECE];
    pieces p = {0};
    mr_strategy *s = NULL;
    mr_status st;
    for (int r = 0; r < REPLICAS; r++) {
        for (int i = 0; i < PIECE; i++)
            values[r][i] = (float)(r + 1);
        p.values[r] = (mr_array){.dtype = MR_FLOAT32,
                                 .storage = MR_DENSE,
                                 .rank = 1,
                                 .shape = {PIECE},
                                 .rows = 1,
                                 .data = values[r]};
    }
    mr_code rc = mr_strategy_mirrored(
        &s, &(mr_strategy_opts){.devices = devices, .n_devices = REPLICAS}, &st);
    if (rc == MR_OK)
        rc = mr_strategy_run(s, measure, &p, &st);
    if (rc != MR_OK)
        fprintf(stderr, "custom_kernel: %s\n", st.message);
    for (int r = 0; rc == MR_OK && r < REPLICAS; r++)
        printf("replica %d: %.4f\n", r, sqrt((double)p.length[r]));
    mr_strategy_free(s);
    return rc != MR_OK;
}
