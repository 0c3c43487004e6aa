/* SPDX-License-Identifier: Apache-2.0 */
/* custom_kernel.c on GPUs: the length of a vector that is divided among several replicas. Each
 * replica squares its part with a custom CUDA kernel, on the stream of its step.
 *   custom_kernel_cuda [DEVICE...]     a replica on each; default: two replicas on cuda:0 */
#include <math.h>
#include <stdio.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

enum { MOST = 16, PIECE = 3 };

static const char *devices[MOST] = {"cuda:0", "cuda:0"};
static size_t replicas = 2;
static float values[MOST][PIECE], length[MOST];

__global__ static void square(size_t n, const float *x, float *y)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] * x[i];
}

static mr_code measure(mr_replica *r, void *, mr_status *st)
{
    size_t id = mr_replica_id(r);
    mr_stream *s = mr_replica_stream(r);
    const mr_math_table *math = mr_replica_math(r);
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(r));
    void *x, *squares, *exact, *sum;
    uint64_t ticket;
    MR_TRY(mr_replica_scratch(r, sizeof values[id], &x, st));
    MR_TRY(mr_replica_scratch(r, sizeof values[id], &squares, st));
    MR_TRY(mr_replica_scratch(r, sizeof(double), &exact, st));
    MR_TRY(mr_replica_scratch(r, sizeof(float), &sum, st));
    MR_TRY(mr_stream_copy(s, x, values[id], sizeof values[id], st));

    /* The replica's device is current in its thread; the launch returns at once. */
    square<<<1, 32, 0, static_cast<cudaStream_t>(mr_stream_native(s))>>>(
        PIECE, static_cast<const float *>(x), static_cast<float *>(squares));
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        return mr_fail(st, MR_INTERNAL, "the kernel cannot be launched: %s", cudaGetErrorString(e));

    mr_math_sum add = {};
    add.n = PIECE;
    add.x = static_cast<const float *>(squares);
    add.out = static_cast<double *>(exact);
    MR_TRY(math->sum(s, &add, st));
    mr_math_cast as_float = {};
    as_float.n = 1;
    as_float.from = MR_FLOAT64;
    as_float.scale = 1;
    as_float.src = exact;
    as_float.dst = static_cast<float *>(sum);
    MR_TRY(math->cast(s, &as_float, st));
    MR_TRY(mr_collective_start(c, id, s, static_cast<float *>(sum), 1, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    /* The result is ready when mr_strategy_run returns. */
    return mr_stream_copy(s, &length[id], sum, sizeof(float), st);
}

int main(int argc, char **argv)
{
    mr_status st;
    mr_strategy *s = NULL;
    for (int i = 1; i < argc && i <= MOST; i++) {
        devices[i - 1] = argv[i];
        replicas = static_cast<size_t>(i);
    }
    for (size_t r = 0; r < replicas; r++)
        for (int i = 0; i < PIECE; i++)
            values[r][i] = static_cast<float>(r + 1);
    mr_strategy_opts opts = {};
    opts.devices = devices;
    opts.n_devices = replicas;
    mr_code rc = mr_strategy_mirrored(&s, &opts, &st);
    if (rc == MR_OK)
        rc = mr_strategy_run(s, measure, NULL, &st);
    if (rc != MR_OK)
        fprintf(stderr, "custom_kernel: %s\n", st.message);
    for (size_t r = 0; r < replicas && rc == MR_OK; r++)
        printf("replica %zu: %.4f\n", r, static_cast<double>(sqrtf(length[r])));
    mr_strategy_free(s);
    return rc != MR_OK;
}
