/* SPDX-License-Identifier: Apache-2.0 */
/* Dense layers with cuBLASLt, whose matrices are column major: a row-major [r, c] is its [c, r], so
 * y = x w is computed as y' = w' x', and nothing is transposed in memory.
 *
 * All products are float32, without TF32: the losses of GPUs and CPUs agree. In mixed precision
 * factors are first packed as bfloat16; sums are still float32. The best algorithm for a shape
 * according to cuBLASLt is kept as a plan of the device. */
#include "trainer/device/cuda/cuda_math.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cuda/cuda_graph.h"
#include "trainer/device/cuda/cuda_kernels.h"

/* Plans kept per device: the least recently used is replaced. Packed values are aligned to
 * PACKED. */
enum { WORKSPACE = 32 << 20, MAX_ALIGNMENT = 256, N_POINTERS = 4, MAX_PLANS = 256, PACKED = 128 };

/* D [m, n] = op(A) op(B), column major; the epilogue adds a bias of m values. No padding: it is
 * compared as bytes. */
typedef struct product {
    size_t m, n, k;
    int32_t trans_a, trans_b;
    int64_t epilogue;
    int64_t bfloat; /* a and b are bfloat16; else float */
    const void *a, *b;
    const float *bias;
    float *d;
    void *workspace;
    size_t workspace_bytes;
} product;

typedef struct key {
    size_t m, n, k;
    int trans, epilogue;
    unsigned alignment[N_POINTERS];
} key;

typedef struct mr__cuda_plan {
    struct mr__cuda_plan *next;
    key key;
    cublasLtMatmulDesc_t desc; /* except the bias pointer */
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} plan;

static void plan_free(plan *p)
{
    if (p->a)
        mr__cu.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        mr__cu.cublasLtMatrixLayoutDestroy(p->b);
    if (p->d)
        mr__cu.cublasLtMatrixLayoutDestroy(p->d);
    if (p->desc)
        mr__cu.cublasLtMatmulDescDestroy(p->desc);
    mr_free(p);
}

void mr__cuda_plans_free(mr__cuda_device *d)
{
    while (d->plans) {
        plan *p = d->plans;
        d->plans = p->next;
        plan_free(p);
    }
}

static unsigned alignment_of(const void *p)
{
    unsigned a = (unsigned)((uintptr_t)p & -(uintptr_t)p);
    return a == 0 || a > MAX_ALIGNMENT ? MAX_ALIGNMENT : a;
}

#define BLAS_TRY(call, what)                                                                       \
    do {                                                                                           \
        cublasStatus_t b_ = (call);                                                                \
        if (b_ != CUBLAS_STATUS_SUCCESS)                                                           \
            return mr__cublas_fail(st, b_, what);                                                  \
    } while (0)

static mr_code describe(plan *p, const product *x, mr_status *st)
{
    cublasOperation_t ta = x->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = x->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    size_t a_rows = x->trans_a ? x->k : x->m, a_columns = x->trans_a ? x->m : x->k;
    size_t b_rows = x->trans_b ? x->n : x->k, b_columns = x->trans_b ? x->k : x->n;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)x->epilogue;
    cudaDataType_t type = x->bfloat ? CUDA_R_16BF : CUDA_R_32F;
    static const char what[] = "describe a product";
    BLAS_TRY(mr__cu.cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    BLAS_TRY(
        mr__cu.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta),
        what);
    BLAS_TRY(
        mr__cu.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb),
        what);
    BLAS_TRY(mr__cu.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                   &epilogue, sizeof epilogue),
             what);
    BLAS_TRY(mr__cu.cublasLtMatrixLayoutCreate(&p->a, type, a_rows, a_columns, (int64_t)a_rows),
             what);
    BLAS_TRY(mr__cu.cublasLtMatrixLayoutCreate(&p->b, type, b_rows, b_columns, (int64_t)b_rows),
             what);
    BLAS_TRY(mr__cu.cublasLtMatrixLayoutCreate(&p->d, CUDA_R_32F, x->m, x->n, (int64_t)x->m), what);
    return MR_OK;
}

static mr_code choose(mr__cuda_device *d, plan *p, cublasLtMatmulPreference_t preference,
                      mr_status *st)
{
    static const cublasLtMatmulPreferenceAttributes_t attributes[N_POINTERS] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t workspace = WORKSPACE;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    BLAS_TRY(mr__cu.cublasLtMatmulPreferenceSetAttribute(preference,
                                                         CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof workspace),
             "set up the search for a product");
    for (int i = 0; i < N_POINTERS; i++)
        BLAS_TRY(mr__cu.cublasLtMatmulPreferenceSetAttribute(
                     preference, attributes[i], &p->key.alignment[i], sizeof p->key.alignment[i]),
                 "set up the search for a product");
    BLAS_TRY(mr__cu.cublasLtMatmulAlgoGetHeuristic(d->blas, p->desc, p->a, p->b, p->d, p->d,
                                                   preference, 1, &best, &found),
             "find an algorithm for a product");
    if (found == 0)
        return mr__cublas_fail(st, CUBLAS_STATUS_NOT_SUPPORTED, "find an algorithm for a product");
    p->algo = best.algo;
    return MR_OK;
}

static mr_code make_plan(mr__cuda_device *d, const product *x, const key *k, plan **out,
                         mr_status *st)
{
    cublasLtMatmulPreference_t preference;
    plan *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "the plan of a product");
    p->key = *k;
    mr_code rc = describe(p, x, st);
    if (rc == MR_OK) {
        cublasStatus_t b = mr__cu.cublasLtMatmulPreferenceCreate(&preference);
        rc = b == CUBLAS_STATUS_SUCCESS ? choose(d, p, preference, st)
                                        : mr__cublas_fail(st, b, "set up the search for a product");
        if (b == CUBLAS_STATUS_SUCCESS)
            mr__cu.cublasLtMatmulPreferenceDestroy(preference);
    }
    if (rc != MR_OK) {
        plan_free(p);
        return rc;
    }
    *out = p;
    return MR_OK;
}

/* Removes the plan of that key from the list, NULL: none; frees the last of too many. */
static plan *take_plan(mr__cuda_device *d, const key *k)
{
    size_t n = 0;
    for (plan **at = &d->plans; *at; at = &(*at)->next) {
        plan *p = *at;
        if (memcmp(&p->key, k, sizeof *k) == 0) {
            *at = p->next;
            return p;
        }
        if (++n >= MAX_PLANS && !p->next) {
            *at = NULL;
            plan_free(p);
            return NULL;
        }
    }
    return NULL;
}

/* The bias pointer is part of the descriptor, so the lock covers the submission. */
static mr_code submit(mr__cuda_stream *s, const product *x, plan *p, mr_status *st)
{
    const float one = 1, zero = 0;
    if (x->bias)
        BLAS_TRY(mr__cu.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                       &x->bias, sizeof x->bias),
                 "set the bias of a product");
    BLAS_TRY(mr__cu.cublasLtMatmul(s->d->blas, p->desc, &one, x->a, p->a, x->b, p->b, &zero, x->d,
                                   p->d, x->d, p->d, &p->algo, x->workspace, x->workspace_bytes,
                                   s->stream),
             "compute a product");
    return MR_OK;
}

static mr_code run_product(mr__cuda_stream *s, const void *args, mr_status *st)
{
    const product *x = args;
    key k;
    memset(&k, 0, sizeof k); /* compared as bytes */
    k.m = x->m;
    k.n = x->n;
    k.k = x->k;
    k.trans = (int)(x->trans_a | x->trans_b << 1 | x->bfloat << 2);
    k.epilogue = (int)x->epilogue;
    const void *const pointers[N_POINTERS] = {x->a, x->b, x->d, x->d};
    for (int i = 0; i < N_POINTERS; i++)
        k.alignment[i] = alignment_of(pointers[i]);
    MR_CUDA_TRY(mr__cu.cudaSetDevice(s->d->index), "choose the device");
    pthread_mutex_lock(&s->d->plans_lock);
    plan *p = take_plan(s->d, &k);
    mr_code rc = p ? MR_OK : make_plan(s->d, x, &k, &p, st);
    if (p) {
        p->next = s->d->plans;
        s->d->plans = p;
    }
    if (rc == MR_OK)
        rc = submit(s, x, p, st);
    pthread_mutex_unlock(&s->d->plans_lock);
    return rc;
}

/* Packs the n values at *values as bfloat16 at `to`. */
static mr_code pack(mr__cuda_stream *s, size_t n, const void **values, uint16_t *to, mr_status *st)
{
    const mr_k_pack_bfloat k = {n, *values, (uint32_t *)(void *)to};
    *values = to;
    return mr__launch_pack_bfloat(s, &k, (n + 1) / 2, st);
}

static mr_code pack_both(mr__cuda_stream *s, product *x, mr_status *st)
{
    size_t a = x->m * x->k, b = x->k * x->n, b_at = (a + PACKED - 1) / PACKED * PACKED;
    MR_TRY(mr__cuda_reserve(s, &s->packed, (b_at + b + 1) * sizeof(uint16_t), st));
    uint16_t *to = s->packed.p;
    MR_TRY(pack(s, a, &x->a, to, st));
    return pack(s, b, &x->b, to + b_at, st);
}

static mr_code multiply(mr__cuda_stream *s, product *x, mr_status *st)
{
    if (x->bfloat)
        MR_TRY(pack_both(s, x, st));
    MR_TRY(mr__cuda_reserve(s, &s->workspace, WORKSPACE, st));
    x->workspace = s->workspace.p;
    x->workspace_bytes = s->workspace.bytes;
    return mr__cuda_submit(s, run_product, x, sizeof *x, st);
}

static mr_code zero(mr__cuda_stream *s, float *p, size_t n, mr_status *st)
{
    return n > 0 ? mr__cuda_set(s, p, 0, n * sizeof *p, st) : MR_OK;
}

mr_code mr__cuda_dense(mr_stream *stream, const mr_math_dense *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    if (p->rows == 0 || p->out == 0)
        return MR_OK;
    if (p->in == 0) {
        MR_TRY(zero(s, p->y, p->rows * p->out, st));
        return mr__cuda_bias_activate(s, p->f, p->rows, p->out, p->bias, p->y, st);
    }
    bool relu = p->f == MR_ACT_RELU && p->bias;
    product x = {.m = p->out,
                 .n = p->rows,
                 .k = p->in,
                 .epilogue = relu      ? CUBLASLT_EPILOGUE_RELU_BIAS
                             : p->bias ? CUBLASLT_EPILOGUE_BIAS
                                       : CUBLASLT_EPILOGUE_DEFAULT,
                 .a = p->w,
                 .b = p->x,
                 .bias = p->bias,
                 .d = p->y,
                 .bfloat = p->bfloat};
    MR_TRY(multiply(s, &x, st));
    return mr__cuda_bias_activate(s, relu ? MR_ACT_LINEAR : p->f, p->rows, p->out, NULL, p->y, st);
}

mr_code mr__cuda_dense_backward_data(mr_stream *stream, const mr_math_dense_backward_data *p,
                                     mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    if (p->rows == 0 || p->in == 0)
        return MR_OK;
    if (p->out == 0)
        return zero(s, p->dx, p->rows * p->in, st);
    product x = {.m = p->in,
                 .n = p->rows,
                 .k = p->out,
                 .trans_a = true,
                 .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                 .a = p->w,
                 .b = p->dy,
                 .d = p->dx,
                 .bfloat = p->bfloat};
    return multiply(s, &x, st);
}

mr_code mr__cuda_dense_backward_weights(mr_stream *stream, const mr_math_dense_backward_weights *p,
                                        mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    if (p->out == 0)
        return MR_OK;
    if (p->dbias)
        MR_TRY(mr__cuda_column_sums(s, p->rows, p->out, p->dy, p->dbias, st));
    if (p->in == 0 || p->rows == 0)
        return zero(s, p->dw, p->in * p->out, st);
    product x = {.m = p->out,
                 .n = p->in,
                 .k = p->rows,
                 .trans_b = true,
                 .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                 .a = p->dy,
                 .b = p->x,
                 .d = p->dw,
                 .bfloat = p->bfloat};
    return multiply(s, &x, st);
}
