/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's products of float32, column major, by plain loops. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda_double/double.h"

enum { MOST_ALIGNMENT = 256, POINTERS = 4, WORKSPACE_USED = 256 };

typedef struct handle {
    cd_head head;
    int device;
} handle;

typedef struct desc {
    cd_head head;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    const void *bias;
} desc;

typedef struct layout {
    cd_head head;
    size_t rows, columns;
    int64_t ld;
    cudaDataType type;
} layout;

typedef struct preference {
    cd_head head;
    size_t workspace;
    uint32_t alignment[POINTERS];
} preference;

#define ENTER(call)                                                                                \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return CUBLAS_STATUS_INTERNAL_ERROR;                                                   \
    } while (0)

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    ENTER("cublasLtCreate");
    handle *h = cd_new(CD_BLAS, sizeof *h);
    h->device = cd_current_device();
    *out = (cublasLtHandle_t)h;
    return CUBLAS_STATUS_SUCCESS;
}

/* The end of an object, which happens also where the call is to fail. */
static cublasStatus_t destroy(cd_kind kind, const void *p, const char *call)
{
    bool fails = cd_fails(call);
    cd_drop(kind, (void *)(uintptr_t)p, call);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return destroy(CD_BLAS, h, "cublasLtDestroy");
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    ENTER("cublasLtMatmulDescCreate");
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        cd_misuse("cublasLtMatmulDescCreate: compute type %d, scale %d", (int)compute, (int)scale);
    desc *d = cd_new(CD_PRODUCT, sizeof *d);
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return destroy(CD_PRODUCT, d, "cublasLtMatmulDescDestroy");
}

static void take(void *to, size_t size, const void *from, size_t given, const char *call)
{
    if (size != given)
        cd_misuse("%s: %zu bytes for a value of %zu", call, given, size);
    memcpy(to, from, size);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t size)
{
    static const char call[] = "cublasLtMatmulDescSetAttribute";
    desc *d = (desc *)p;
    ENTER(call);
    cd_check(CD_PRODUCT, d, call);
    if (what == CUBLASLT_MATMUL_DESC_TRANSA)
        take(&d->ta, sizeof d->ta, value, size, call);
    else if (what == CUBLASLT_MATMUL_DESC_TRANSB)
        take(&d->tb, sizeof d->tb, value, size, call);
    else if (what == CUBLASLT_MATMUL_DESC_EPILOGUE)
        take(&d->epilogue, sizeof d->epilogue, value, size, call);
    else if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        take(&d->bias, sizeof d->bias, value, size, call);
    else
        cd_misuse("%s: attribute %d is not known to the double", call, (int)what);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    ENTER("cublasLtMatrixLayoutCreate");
    if ((type != CUDA_R_32F && type != CUDA_R_16BF) || rows == 0 || columns == 0 ||
        ld < (int64_t)rows)
        cd_misuse("cublasLtMatrixLayoutCreate: type %d, %llu x %llu, %lld apart", (int)type,
                  (unsigned long long)rows, (unsigned long long)columns, (long long)ld);
    layout *l = cd_new(CD_LAYOUT, sizeof *l);
    l->rows = rows;
    l->columns = columns;
    l->ld = ld;
    l->type = type;
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return destroy(CD_LAYOUT, l, "cublasLtMatrixLayoutDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    ENTER("cublasLtMatmulPreferenceCreate");
    preference *p = cd_new(CD_PREFERENCE, sizeof *p);
    for (int i = 0; i < POINTERS; i++)
        p->alignment[i] = MOST_ALIGNMENT;
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return destroy(CD_PREFERENCE, p, "cublasLtMatmulPreferenceDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t size)
{
    static const char call[] = "cublasLtMatmulPreferenceSetAttribute";
    static const cublasLtMatmulPreferenceAttributes_t alignments[POINTERS] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    preference *p = (preference *)pref;
    ENTER(call);
    cd_check(CD_PREFERENCE, p, call);
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        take(&p->workspace, sizeof p->workspace, value, size, call);
        return CUBLAS_STATUS_SUCCESS;
    }
    for (int i = 0; i < POINTERS; i++)
        if (what == alignments[i]) {
            take(&p->alignment[i], sizeof p->alignment[i], value, size, call);
            return CUBLAS_STATUS_SUCCESS;
        }
    cd_misuse("%s: attribute %d is not known to the double", call, (int)what);
}

/* The shape of a product, and what its pointers were said to be aligned to. */
typedef struct algorithm {
    uint32_t m, n, k, trans;
    size_t workspace;
    uint32_t alignment[POINTERS];
} algorithm;
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it fits");

static algorithm shape_of(const desc *d, const layout *a, const layout *b, const layout *c,
                          const char *call)
{
    cd_check(CD_PRODUCT, d, call);
    cd_check(CD_LAYOUT, a, call);
    cd_check(CD_LAYOUT, b, call);
    cd_check(CD_LAYOUT, c, call);
    size_t m = d->ta == CUBLAS_OP_N ? a->rows : a->columns;
    size_t k = d->ta == CUBLAS_OP_N ? a->columns : a->rows;
    size_t k2 = d->tb == CUBLAS_OP_N ? b->rows : b->columns;
    size_t n = d->tb == CUBLAS_OP_N ? b->columns : b->rows;
    if (a->type != b->type || c->type != CUDA_R_32F)
        cd_misuse("%s: types %d and %d into %d", call, (int)a->type, (int)b->type, (int)c->type);
    if (k != k2 || c->rows != m || c->columns != n)
        cd_misuse("%s: [%zu, %zu] times [%zu, %zu] into [%zu, %zu]", call, m, k, k2, n, c->rows,
                  c->columns);
    return (algorithm){.m = (uint32_t)m,
                       .n = (uint32_t)n,
                       .k = (uint32_t)k,
                       .trans = (uint32_t)d->ta << 8 | (uint32_t)d->tb | (uint32_t)a->type << 16};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dst,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *found)
{
    static const char call[] = "cublasLtMatmulAlgoGetHeuristic";
    const preference *p = (const preference *)pref;
    ENTER(call);
    cd_check(CD_BLAS, h, call);
    cd_check(CD_PREFERENCE, p, call);
    algorithm x = shape_of((desc *)d, (layout *)a, (layout *)b, (layout *)dst, call);
    if (c != dst || wanted < 1)
        cd_misuse("%s: C is not D, or %d algorithms are wanted", call, wanted);
    x.workspace = p->workspace;
    memcpy(x.alignment, p->alignment, sizeof x.alignment);
    memset(out, 0, sizeof *out);
    memcpy(&out->algo, &x, sizeof x);
    out->workspaceSize = x.workspace;
    out->state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

typedef struct matmul {
    algorithm shape;
    desc d;
    layout a, b, c;
    const void *pa, *pb;
    float *pd;
    void *workspace;
    size_t workspace_bytes;
    float alpha;
} matmul;

static size_t bytes_of(const layout *l)
{
    size_t size = l->type == CUDA_R_16BF ? sizeof(uint16_t) : sizeof(float);
    return ((l->columns - 1) * (size_t)l->ld + l->rows) * size;
}

static double value_of(const layout *l, const void *p, size_t i)
{
    float v;
    uint32_t bits;
    if (l->type != CUDA_R_16BF)
        return (double)((const float *)p)[i];
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

static void run_matmul(cd_op *op)
{
    const matmul *x = (const matmul *)op->payload;
    bool relu = x->d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    bool biased = relu || x->d.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const void *a = cd_reads(op, x->pa, bytes_of(&x->a)), *b = cd_reads(op, x->pb, bytes_of(&x->b));
    const float *bias = biased ? cd_reads(op, x->d.bias, x->shape.m * sizeof(float)) : NULL;
    float *d = cd_writes(op, x->pd, bytes_of(&x->c));
    /* Two products that share a workspace must not run at the same time. */
    if (x->workspace_bytes > 0)
        cd_writes(op, x->workspace,
                  x->workspace_bytes < WORKSPACE_USED ? x->workspace_bytes : WORKSPACE_USED);
    size_t am = x->d.ta == CUBLAS_OP_N ? 1 : (size_t)x->a.ld,
           ak = x->d.ta == CUBLAS_OP_N ? (size_t)x->a.ld : 1;
    size_t bk = x->d.tb == CUBLAS_OP_N ? 1 : (size_t)x->b.ld,
           bn = x->d.tb == CUBLAS_OP_N ? (size_t)x->b.ld : 1;
    for (size_t j = 0; j < x->shape.n; j++)
        for (size_t i = 0; i < x->shape.m; i++) {
            double sum = 0;
            for (size_t k = 0; k < x->shape.k; k++)
                sum += value_of(&x->a, a, i * am + k * ak) * value_of(&x->b, b, k * bk + j * bn);
            float v = x->alpha * (float)sum + (bias ? bias[i] : 0);
            d[j * (size_t)x->c.ld + i] = relu && v < 0 ? 0 : v;
        }
}

static void check_pointer(const void *p, uint32_t alignment, const char *which)
{
    if (cd_arena_of(p) < 0)
        cd_misuse("cublasLtMatmul: %s, %p, is not memory of a device", which, p);
    if (alignment == 0 || (uintptr_t)p % alignment)
        cd_misuse("cublasLtMatmul: %s, %p, is not aligned to the %u bytes that the algorithm was "
                  "asked for with",
                  which, p, alignment);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle_, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *pa, cublasLtMatrixLayout_t a, const void *pb,
                              cublasLtMatrixLayout_t b, const void *beta, const void *pc,
                              cublasLtMatrixLayout_t c, void *pd, cublasLtMatrixLayout_t dst,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t s)
{
    static const char call[] = "cublasLtMatmul";
    const handle *h = (const handle *)handle_;
    ENTER(call);
    cd_check(CD_BLAS, h, call);
    int device = cd_stream_device(s, call);
    if (cd_device_error(device))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (h->device != device || cd_current_device() != device)
        cd_misuse("%s: a handle of cuda:%d and a stream of cuda:%d while cuda:%d is current", call,
                  h->device, device, cd_current_device());
    algorithm x = shape_of((desc *)d, (layout *)a, (layout *)b, (layout *)dst, call), chosen;
    memcpy(&chosen, algo, sizeof chosen);
    if (memcmp(&x, &chosen, offsetof(algorithm, workspace)) != 0)
        cd_misuse("%s: the algorithm is for a product of another shape", call);
    if (workspace_bytes < chosen.workspace)
        cd_misuse("%s: a workspace of %zu bytes, of %zu that the algorithm may use", call,
                  workspace_bytes, chosen.workspace);
    if (*(const float *)beta != 0 || pc != pd || c != dst)
        cd_misuse("%s: C is not D, or beta is not 0", call);
    check_pointer(pa, chosen.alignment[0], "A");
    check_pointer(pb, chosen.alignment[1], "B");
    check_pointer(pd, chosen.alignment[3], "D");
    cd_op *op = cd_op_new(s, call, run_matmul, sizeof(matmul));
    *(matmul *)op->payload = (matmul){.shape = chosen,
                                      .d = *(desc *)d,
                                      .a = *(layout *)a,
                                      .b = *(layout *)b,
                                      .c = *(layout *)dst,
                                      .pa = pa,
                                      .pb = pb,
                                      .pd = pd,
                                      .workspace = workspace,
                                      .workspace_bytes = workspace_bytes,
                                      .alpha = *(const float *)alpha};
    cd_submit(op);
    return CUBLAS_STATUS_SUCCESS;
}
