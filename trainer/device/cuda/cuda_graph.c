/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cuda/cuda_graph.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cuda/cuda_host.h"
#include "trainer/device/cuda/cuda_kernels.h"

/* Sections kept per stream: the least recently used is replaced. Segments with fewer calls than
 * LEAST_CALLS are as fast without a graph. A segment that changes more than MOST_CHANGES times gets
 * no graph any more. */
enum { MAX_SECTIONS = 32, LEAST_CALLS = 3, MOST_CHANGES = 8, FIRST_ROOM = 16 };

static const mr_status nothing = {.offset = -1, .record = -1, .element = -1};

typedef struct call {
    mr__cuda_run *run;
    void *args;
    size_t bytes;
    cudaGraphNode_t node;
} call;

typedef enum segment_state {
    LISTING, /* submits, and records a list */
    HOLDING, /* has a graph, and compares */
    PASSING  /* submits */
} segment_state;

typedef struct segment {
    segment_state state;
    call *calls;
    size_t n, room;
    cudaGraph_t graph; /* its nodes are known to the calls */
    cudaGraphExec_t exec;
    unsigned changes;
} segment;

typedef struct section {
    struct section *next;
    uint64_t key;
    segment *segments;
    size_t n, room;
} section;

typedef struct mr__cuda_graphs {
    section *sections;
    section *now;  /* NULL: no section, or it submits everything */
    size_t at;     /* index of the segment */
    size_t calls;  /* so far, in it */
    bool said_why; /* the lack of graphs was logged */
    mr_code late;  /* an error that could not be returned */
    mr_status why;
} graphs;

static void drop_graph(segment *g)
{
    if (g->exec)
        mr__cu.cudaGraphExecDestroy(g->exec);
    if (g->graph)
        mr__cu.cudaGraphDestroy(g->graph);
    g->exec = NULL;
    g->graph = NULL;
}

static void truncate_list(segment *g, size_t n)
{
    while (g->n > n)
        mr_free(g->calls[--g->n].args);
}

static void section_free(section *x)
{
    for (size_t i = 0; i < x->n; i++) {
        drop_graph(&x->segments[i]);
        truncate_list(&x->segments[i], 0);
        mr_free(x->segments[i].calls);
    }
    mr_free(x->segments);
    mr_free(x);
}

void mr__cuda_graphs_free(mr__cuda_stream *s)
{
    if (!s->graphs)
        return;
    while (s->graphs->sections) {
        section *x = s->graphs->sections;
        s->graphs->sections = x->next;
        section_free(x);
    }
    mr_free(s->graphs);
    s->graphs = NULL;
}

/* A list with room for another entry; NULL: out of memory, and the old one stays valid. */
static void *grown(void *list, size_t n, size_t *room, size_t bytes)
{
    size_t more = *room > 0 ? 2 * *room : FIRST_ROOM;
    if (n < *room)
        return list;
    void *p = mr_calloc(more, bytes);
    if (!p)
        return NULL;
    if (n > 0)
        memcpy(p, list, n * bytes);
    mr_free(list);
    *room = more;
    return p;
}

static bool append(segment *g, mr__cuda_run *run, const void *args, size_t bytes)
{
    call *calls = grown(g->calls, g->n, &g->room, sizeof *calls);
    void *copy = mr_calloc(1, bytes);
    g->calls = calls ? calls : g->calls;
    if (!calls || !copy) {
        mr_free(copy);
        return false;
    }
    memcpy(copy, args, bytes);
    g->calls[g->n++] = (call){run, copy, bytes, NULL};
    return true;
}

static void no_graphs(mr__cuda_stream *s, segment *g, const char *why)
{
    drop_graph(g);
    g->state = PASSING;
    if (!s->graphs->said_why)
        mr__cuda_log(MR_LOG_DEBUG, "cuda:%d: a part of the step runs without a CUDA graph: %s",
                     s->d->index, why);
    s->graphs->said_why = true;
}

/* ---- creating a graph */

/* The launches of libraries are only visible to a capturing stream. */
static mr_code capture(mr__cuda_stream *s, const call *c, cudaGraph_t *out, mr_status *st)
{
    *out = NULL;
    MR_CUDA_TRY(mr__cu.cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal),
                "capture a stream");
    mr_code rc = c->run(s, c->args, st);
    cudaError_t e = mr__cu.cudaStreamEndCapture(s->stream, out);
    if (e == cudaSuccess && rc == MR_OK)
        return MR_OK;
    if (*out)
        mr__cu.cudaGraphDestroy(*out);
    *out = NULL;
    return rc == MR_OK ? mr__cuda_fail(st, e, "capture a stream") : rc;
}

static mr_code add_node(mr__cuda_stream *s, segment *g, call *c, const cudaGraphNode_t *after,
                        mr_status *st)
{
    size_t n = after ? 1 : 0;
    cudaGraph_t captured;
    struct cudaKernelNodeParams p;
    void *params;
    if (mr__cuda_is_kernel(c->run)) {
        mr__cuda_kernel_node(c->args, &p, &params);
        MR_CUDA_TRY(mr__cu.cudaGraphAddKernelNode(&c->node, g->graph, after, n, &p),
                    "add a kernel to a graph");
        return MR_OK;
    }
    MR_TRY(capture(s, c, &captured, st));
    cudaError_t e =
        mr__cu.cudaGraphAddChildGraphNode(&c->node, g->graph, after, n, captured); /* a copy */
    mr__cu.cudaGraphDestroy(captured);
    MR_CUDA_TRY(e, "add the captured work to a graph");
    return MR_OK;
}

static mr_code make_graph(mr__cuda_stream *s, segment *g, mr_status *st)
{
    MR_CUDA_TRY(mr__cu.cudaSetDevice(s->d->index), "choose the device");
    MR_CUDA_TRY(mr__cu.cudaGraphCreate(&g->graph, 0), "create a graph");
    for (size_t i = 0; i < g->n; i++)
        MR_TRY(add_node(s, g, &g->calls[i], i > 0 ? &g->calls[i - 1].node : NULL, st));
    MR_CUDA_TRY(mr__cu.cudaGraphInstantiate(&g->exec, g->graph, 0), "instantiate a graph");
    return MR_OK;
}

/* A list is complete: creates its graph. Without one training is only slower. */
static void settle(mr__cuda_stream *s, segment *g)
{
    mr_status why = nothing;
    if (g->n < LEAST_CALLS)
        g->state = PASSING;
    else if (make_graph(s, g, &why) == MR_OK)
        g->state = HOLDING;
    else
        no_graphs(s, g, why.message);
    if (g->state == PASSING)
        truncate_list(g, 0);
}

/* ---- using it */

/* Submits the first n calls of the list. A failed one ends the section. */
static mr_code issue(mr__cuda_stream *s, const segment *g, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        mr_code rc = g->calls[i].run(s, g->calls[i].args, st);
        if (rc != MR_OK) {
            s->graphs->now = NULL;
            return rc;
        }
    }
    return MR_OK;
}

/* The segment deviates from its list: truncates the list here. */
static mr_code change(mr__cuda_stream *s, segment *g, mr_status *st)
{
    drop_graph(g);
    truncate_list(g, s->graphs->calls);
    g->state = LISTING;
    MR_TRY(issue(s, g, g->n, st));
    if (++g->changes > MOST_CHANGES) {
        no_graphs(s, g, "it changes every time");
        truncate_list(g, 0);
    }
    return MR_OK;
}

static mr_code launch(mr__cuda_stream *s, segment *g, mr_status *st)
{
    mr_status why = nothing;
    cudaError_t e = mr__cu.cudaSetDevice(s->d->index);
    if (e == cudaSuccess)
        e = mr__cu.cudaGraphLaunch(g->exec, s->stream);
    if (e == cudaSuccess)
        return MR_OK;
    mr_code rc = mr__cuda_fail(&why, e, "launch a graph");
    (void)rc; /* if the device has failed, the next line fails too */
    no_graphs(s, g, why.message);
    rc = issue(s, g, g->n, st);
    truncate_list(g, 0);
    return rc;
}

/* Moves to the next segment, which is created if necessary. */
static void go_on(graphs *x)
{
    section *now = x->now;
    x->calls = 0;
    if (++x->at < now->n)
        return;
    segment *segments = grown(now->segments, now->n, &now->room, sizeof *segments);
    if (segments) {
        now->segments = segments;
        now->segments[now->n++] = (segment){.state = LISTING};
    } else
        x->now = NULL;
}

static mr_code take_late(graphs *x, mr_status *st)
{
    mr_code rc = x->late;
    if (rc != MR_OK && st)
        *st = x->why;
    x->late = MR_OK;
    return rc;
}

mr_code mr__cuda_flush(mr__cuda_stream *s, mr_status *st)
{
    graphs *x = s->graphs;
    mr_code rc = MR_OK;
    if (!x)
        return MR_OK;
    MR_TRY(take_late(x, st));
    if (!x->now || x->calls == 0)
        return MR_OK;
    segment *g = &x->now->segments[x->at];
    if (g->state == HOLDING)
        rc = x->calls == g->n ? launch(s, g, st) : change(s, g, st);
    if (rc == MR_OK && g->state == LISTING)
        settle(s, g);
    if (x->now)
        go_on(x);
    return rc;
}

void mr__cuda_flush_later(mr__cuda_stream *s)
{
    graphs *x = s->graphs;
    mr_status why = nothing;
    mr_code rc = mr__cuda_flush(s, &why);
    if (rc == MR_OK)
        return;
    x->late = rc;
    x->why = why;
}

bool mr__cuda_is_plain(const mr__cuda_stream *s)
{
    return !s->graphs || (!s->graphs->now && s->graphs->late == MR_OK);
}

/* If only the parameters of one of our kernels differ: updates its node. */
static bool adjust(mr__cuda_stream *s, const segment *g, call *c, const void *args)
{
    struct cudaKernelNodeParams p;
    void *params;
    if (!mr__cuda_is_kernel(c->run) || !mr__cuda_same_launch(c->args, args))
        return false;
    mr__cuda_kernel_node(args, &p, &params);
    if (mr__cu.cudaSetDevice(s->d->index) != cudaSuccess ||
        mr__cu.cudaGraphExecKernelNodeSetParams(g->exec, c->node, &p) != cudaSuccess) {
        mr__cu.cudaGetLastError();
        return false;
    }
    memcpy(c->args, args, c->bytes);
    return true;
}

/* Whether it is the next call of the list. */
static bool is_next(mr__cuda_stream *s, const segment *g, mr__cuda_run *run, const void *args,
                    size_t bytes)
{
    size_t i = s->graphs->calls;
    call *c = &g->calls[i];
    if (i == g->n || c->run != run || c->bytes != bytes)
        return false;
    return memcmp(c->args, args, bytes) == 0 || adjust(s, g, c, args);
}

mr_code mr__cuda_submit(mr__cuda_stream *s, mr__cuda_run *run, const void *args, size_t bytes,
                        mr_status *st)
{
    graphs *x = s->graphs;
    if (mr__cuda_is_plain(s))
        return run(s, args, st);
    MR_TRY(take_late(x, st));
    if (!x->now)
        return run(s, args, st);
    segment *g = &x->now->segments[x->at];
    if (g->state == HOLDING && is_next(s, g, run, args, bytes)) {
        x->calls++;
        return MR_OK;
    }
    if (g->state == HOLDING)
        MR_TRY(change(s, g, st));
    MR_TRY(run(s, args, st));
    x->calls++;
    if (g->state == LISTING && !append(g, run, args, bytes)) {
        g->state = PASSING;
        truncate_list(g, 0);
    }
    return MR_OK;
}

/* The section of that key, moved to the front; NULL: none. */
static section *find_section(graphs *x, uint64_t key)
{
    size_t n = 0;
    for (section **at = &x->sections; *at; at = &(*at)->next) {
        section *p = *at;
        bool found = p->key == key;
        if (!found && ++n < MAX_SECTIONS)
            continue;
        *at = p->next;
        if (found) {
            p->next = x->sections;
            return x->sections = p;
        }
        section_free(p);
        break;
    }
    return NULL;
}

mr_code mr__cuda_repeat_begin(void *stream, uint64_t key, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_repeat_end(s, st));
    if (!s->graphs && !(s->graphs = mr_calloc(1, sizeof *s->graphs)))
        return MR_OK; /* works without */
    graphs *x = s->graphs;
    section *p = find_section(x, key);
    x->at = x->calls = 0;
    if (!p && (p = mr_calloc(1, sizeof *p))) { /* the first time is a warm-up */
        p->key = key;
        p->next = x->sections;
        x->sections = p;
        return MR_OK;
    }
    x->now = p;
    if (p && p->n == 0) {
        x->at = SIZE_MAX;
        go_on(x);
    }
    return MR_OK;
}

mr_code mr__cuda_repeat_end(void *stream, mr_status *st)
{
    mr__cuda_stream *s = stream;
    mr_code rc = mr__cuda_flush(s, st);
    if (s->graphs)
        s->graphs->now = NULL;
    return rc;
}
