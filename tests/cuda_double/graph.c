/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, of nodes one after another: what was captured from a stream, and kernels. A launch
 * submits copies of their operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda_double/double.h"

struct CUgraphNode_st {
    struct CUgraphNode_st *next;
    struct CUgraph_st *graph;
    cd_op *ops; /* one after another; they never run */
    bool is_kernel;
};

struct CUgraph_st {
    cd_head head;
    cudaGraphNode_t first, last;
};

/* Nodes of the graph that it was made of, and what has become of their operations. */
typedef struct made {
    cudaGraphNode_t of;
    cd_op *ops;
} made;

struct CUgraphExec_st {
    cd_head head;
    cudaGraph_t graph;
    int device;
    size_t n;
    made *nodes;
};

#define ENTER(call)                                                                                \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return cd_keep_error(cudaErrorUnknown);                                                \
        if (cd_device_error(cd_current_device()))                                                  \
            return cd_keep_error(cd_device_error(cd_current_device()));                            \
    } while (0)

static cd_op *copies(const cd_op *ops)
{
    cd_op *first = NULL, **at = &first;
    for (; ops; ops = ops->next, at = &(*at)->next)
        *at = cd_op_copy(ops, NULL);
    return first;
}

static void free_ops(cd_op *ops)
{
    for (cd_op *op; (op = ops);) {
        ops = op->next;
        free(op);
    }
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    ENTER("cudaStreamBeginCapture");
    (void)cd_stream_device(s, "cudaStreamBeginCapture");
    if (mode != cudaStreamCaptureModeThreadLocal)
        cd_misuse("cudaStreamBeginCapture: mode %d", (int)mode);
    cd_capture_begin(s);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    bool fails = cd_fails("cudaStreamEndCapture");
    cd_op *ops = cd_capture_end(s);
    *out = NULL;
    if (fails || cd_device_error(cd_current_device())) {
        free_ops(ops);
        return cd_keep_error(fails ? cudaErrorUnknown : cd_device_error(cd_current_device()));
    }
    cudaGraph_t g = cd_new(CD_GRAPH, sizeof *g);
    g->first = g->last = calloc(1, sizeof *g->first);
    if (!g->first)
        cd_misuse("no memory of the host");
    *g->first = (struct CUgraphNode_st){.graph = g, .ops = ops};
    *out = g;
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags)
{
    ENTER("cudaGraphCreate");
    if (flags)
        cd_misuse("cudaGraphCreate: flags %u", flags);
    *out = cd_new(CD_GRAPH, sizeof **out);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    bool fails = cd_fails("cudaGraphDestroy");
    cd_check(CD_GRAPH, g, "cudaGraphDestroy");
    for (cudaGraphNode_t n; (n = g->first);) {
        g->first = n->next;
        free_ops(n->ops);
        free(n);
    }
    cd_drop(CD_GRAPH, g, "cudaGraphDestroy");
    return cd_keep_error(fails ? cudaErrorUnknown : cudaSuccess);
}

/* After all that the graph has. */
static cudaGraphNode_t add(cudaGraph_t g, const cudaGraphNode_t *after, size_t n, cd_op *ops,
                           bool is_kernel, const char *call)
{
    cd_check(CD_GRAPH, g, call);
    if (n != (g->last ? 1 : 0) || (n == 1 && *after != g->last))
        cd_misuse("%s: the node does not follow the one before it", call);
    cudaGraphNode_t node = calloc(1, sizeof *node);
    if (!node)
        cd_misuse("no memory of the host");
    *node = (struct CUgraphNode_st){.graph = g, .ops = ops, .is_kernel = is_kernel};
    *(g->last ? &g->last->next : &g->first) = node;
    return g->last = node;
}

static cd_op *kernel_of(const struct cudaKernelNodeParams *p)
{
    if (p->extra)
        cd_misuse("a kernel of a graph has parameters of two kinds");
    return cd_kernel_op(NULL, p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes);
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *out, cudaGraph_t g,
                                   const cudaGraphNode_t *after, size_t n,
                                   const struct cudaKernelNodeParams *p)
{
    ENTER("cudaGraphAddKernelNode");
    *out = add(g, after, n, kernel_of(p), true, "cudaGraphAddKernelNode");
    return cudaSuccess;
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *out, cudaGraph_t g,
                                       const cudaGraphNode_t *after, size_t n, cudaGraph_t child)
{
    cd_op *ops = NULL, **at = &ops;
    ENTER("cudaGraphAddChildGraphNode");
    cd_check(CD_GRAPH, child, "cudaGraphAddChildGraphNode");
    for (cudaGraphNode_t i = child->first; i; i = i->next)
        for (*at = copies(i->ops); *at; at = &(*at)->next)
            ;
    *out = add(g, after, n, ops, false, "cudaGraphAddChildGraphNode");
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
    ENTER("cudaGraphInstantiate");
    cd_check(CD_GRAPH, g, "cudaGraphInstantiate");
    if (flags)
        cd_misuse("cudaGraphInstantiate: flags %llu", flags);
    cudaGraphExec_t x = cd_new(CD_GRAPH_EXEC, sizeof *x);
    x->graph = g;
    x->device = cd_current_device();
    for (cudaGraphNode_t i = g->first; i; i = i->next)
        x->n++;
    x->nodes = calloc(x->n + 1, sizeof *x->nodes);
    if (!x->nodes)
        cd_misuse("no memory of the host");
    size_t n = 0;
    for (cudaGraphNode_t i = g->first; i; i = i->next)
        x->nodes[n++] = (made){i, copies(i->ops)};
    *out = x;
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *p)
{
    static const char call[] = "cudaGraphExecKernelNodeSetParams";
    size_t i = 0;
    ENTER(call);
    cd_check(CD_GRAPH_EXEC, x, call);
    cd_check(CD_GRAPH, x->graph, call); /* whose nodes these are */
    while (i < x->n && x->nodes[i].of != node)
        i++;
    if (i == x->n || !node->is_kernel)
        cd_misuse("%s: the node is no kernel of the graph", call);
    cd_op *op = kernel_of(p);
    if (op->device != x->device)
        cd_misuse("%s: a graph of cuda:%d while cuda:%d is current", call, x->device, op->device);
    free_ops(x->nodes[i].ops);
    x->nodes[i].ops = op;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    int device = cd_stream_device(s, "cudaGraphLaunch");
    if (cd_fails("cudaGraphLaunch"))
        return cd_keep_error(cudaErrorUnknown);
    if (cd_device_error(device))
        return cd_keep_error(cd_device_error(device));
    cd_check(CD_GRAPH_EXEC, x, "cudaGraphLaunch");
    if (device != x->device)
        cd_misuse("cudaGraphLaunch: a graph of cuda:%d in a stream of cuda:%d", x->device, device);
    for (size_t i = 0; i < x->n; i++)
        for (const cd_op *op = x->nodes[i].ops; op; op = op->next)
            cd_submit(cd_op_copy(op, s));
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    bool fails = cd_fails("cudaGraphExecDestroy");
    cd_check(CD_GRAPH_EXEC, x, "cudaGraphExecDestroy");
    for (size_t i = 0; i < x->n; i++)
        free_ops(x->nodes[i].ops);
    free(x->nodes);
    cd_drop(CD_GRAPH_EXEC, x, "cudaGraphExecDestroy");
    return cd_keep_error(fails ? cudaErrorUnknown : cudaSuccess);
}
