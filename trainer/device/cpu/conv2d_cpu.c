/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with oneDNN. Images stay as they are (channels last); kernels are converted to the
 * layout that the primitive prefers. bfloat16 factors are packed first, if the CPU has instructions
 * for them (otherwise float32 yields the same result faster); dense layers are then computed in
 * this file too, as matrix products: these take matrices as stored, so that packing is one
 * sequential pass, whereas a 1x1 convolution requires reordering kernels and their gradients. A
 * primitive is created once per shape and kept with the stream, together with its memory;
 * submitting creates it, so that the caller gets the error. */
#include <dnnl.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/operations.h"

enum { MAX_PLANS = 64, ALIGNMENT = 64, AT_ONCE = 512 << 10 /* bytes */ };

typedef enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS } direction;
typedef mr_math_conv2d_shape shape;

typedef struct key {
    shape s;
    direction d;
    bool bias, bfloat;
    bool product; /* of matrices: the shape is that of matrices() */
} key;

/* The operands of any of the three directions. */
enum { IMAGE, KERNEL, BIAS, RESULT, N_OPERANDS };

/* Memory owned by a plan. */
typedef struct room {
    dnnl_memory_t memory;
    void *data;
} room;

typedef struct plan {
    struct plan *next;
    key k;
    dnnl_primitive_t primitive, reorders[N_OPERANDS];
    dnnl_memory_t operands[N_OPERANDS];
    /* For operands that the primitive needs in another layout or type than the caller's: the
     * converted operand, and memory for the reorder. Otherwise empty. */
    room own[N_OPERANDS], reorder_rooms[N_OPERANDS];
    room scratchpad;
} plan;

typedef struct plans {
    dnnl_engine_t engine;
    dnnl_stream_t stream; /* used only by the stream's thread */
    plan *first;          /* the most recently used one */
    size_t n;
} plans;

static mr_code refused(dnnl_status_t s, const key *k, mr_status *st)
{
    static const char *const names[] = {"conv2d", "conv2d by data", "conv2d by weights"};
    if (s == dnnl_success)
        return MR_OK;
    if (s == dnnl_out_of_memory)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "no memory for a convolution");
    return mr_fail(st, s == dnnl_unimplemented ? MR_UNIMPLEMENTED : MR_INTERNAL,
                   "oneDNN refused %s of %zux%zux%zux%zu with %zu filters of %zux%zu (status %d)",
                   names[k->d], k->s.n, k->s.height, k->s.width, k->s.channels, k->s.filters,
                   k->s.kernel_h, k->s.kernel_w, (int)s);
}

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t try_status_ = (call);                                                        \
        if (try_status_ != dnnl_success)                                                           \
            return try_status_;                                                                    \
    } while (0)

static void free_room(room *r)
{
    dnnl_memory_destroy(r->memory);
    mr_free(r->data);
}

static void free_plan(plan *p)
{
    dnnl_primitive_destroy(p->primitive);
    for (size_t i = 0; i < N_OPERANDS; i++) {
        dnnl_primitive_destroy(p->reorders[i]);
        dnnl_memory_destroy(p->operands[i]);
        free_room(&p->own[i]);
        free_room(&p->reorder_rooms[i]);
    }
    free_room(&p->scratchpad);
    mr_free(p);
}

void mr__cpu_plans_free(void *plans_)
{
    plans *all = plans_;
    if (!all)
        return;
    for (plan *p = all->first, *next; p; p = next) {
        next = p->next;
        free_plan(p);
    }
    dnnl_stream_destroy(all->stream);
    dnnl_engine_destroy(all->engine);
    mr_free(all);
}

static mr_code open_plans(mr_stream *s, plans **out, mr_status *st)
{
    void **place = mr__cpu_plans(s);
    *out = *place;
    if (*out)
        return MR_OK;
    plans *all = mr_calloc(1, sizeof *all);
    if (!all)
        return mr_fail_memory(st, sizeof *all, "the plans of a stream");
    if (dnnl_engine_create(&all->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&all->stream, all->engine, dnnl_stream_default_flags) != dnnl_success) {
        mr__cpu_plans_free(all);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "oneDNN could not be started");
    }
    *place = *out = all;
    return MR_OK;
}

static dnnl_status_t describe(const shape *s, dnnl_memory_desc_t md[N_OPERANDS])
{
    const dnnl_dim_t g = (dnnl_dim_t)s->groups, c = (dnnl_dim_t)(s->channels / s->groups),
                     o = (dnnl_dim_t)s->filters, h = (dnnl_dim_t)s->kernel_h,
                     w = (dnnl_dim_t)s->kernel_w;
    const dnnl_dims_t image = {(dnnl_dim_t)s->n, (dnnl_dim_t)s->channels, (dnnl_dim_t)s->height,
                               (dnnl_dim_t)s->width};
    const dnnl_dims_t result = {(dnnl_dim_t)s->n, o, (dnnl_dim_t)s->out_h, (dnnl_dim_t)s->out_w};
    const dnnl_dims_t kernel = {g, o / g, c, h, w}, strides = {o / g, 1, o, w * c * o, c * o};
    const dnnl_dims_t bias = {o};
    bool grouped = g > 1;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[IMAGE], 4, image, dnnl_f32, dnnl_nhwc));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[RESULT], 4, result, dnnl_f32, dnnl_nhwc));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[BIAS], 1, bias, dnnl_f32, dnnl_a));
    return dnnl_memory_desc_init_by_strides(&md[KERNEL], grouped ? 5 : 4, kernel + !grouped,
                                            dnnl_f32, strides + !grouped);
}

/* Describes a product [rows, in] [in, out] for the primitive: a transposed matrix is a view. */
static dnnl_status_t describe_matrices(const key *k, dnnl_memory_desc_t md[N_OPERANDS])
{
    const dnnl_dim_t rows = (dnnl_dim_t)k->s.width, in = (dnnl_dim_t)k->s.channels,
                     out = (dnnl_dim_t)k->s.filters;
    const dnnl_dims_t x = {rows, in}, turned_x = {in, rows}, w = {in, out}, turned_w = {out, in},
                      y = {rows, out}, bias = {1, out};
    bool turns_x = k->d == BACKWARD_WEIGHTS, turns_w = k->d == BACKWARD_DATA;
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[IMAGE], 2, turns_x ? turned_x : x, dnnl_f32,
                                          turns_x ? dnnl_ba : dnnl_ab));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[KERNEL], 2, turns_w ? turned_w : w, dnnl_f32,
                                          turns_w ? dnnl_ba : dnnl_ab));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&md[BIAS], 2, bias, dnnl_f32, dnnl_ab));
    return dnnl_memory_desc_init_by_tag(&md[RESULT], 2, y, dnnl_f32, dnnl_ab);
}

static dnnl_dim_t pad_after(size_t out, size_t stride, size_t kernel, size_t dilation, size_t size,
                            size_t pad)
{
    return (dnnl_dim_t)((out - 1) * stride + (kernel - 1) * dilation + 1) - (dnnl_dim_t)size -
           (dnnl_dim_t)pad;
}

static size_t result_of(direction d)
{
    return d == FORWARD ? RESULT : d == BACKWARD_DATA ? IMAGE : KERNEL;
}

/* The forms in which the primitive takes the caller's operands. */
static void choose_types(const key *k, const dnnl_memory_desc_t md[N_OPERANDS],
                         dnnl_memory_desc_t as[N_OPERANDS])
{
    memcpy(as, md, N_OPERANDS * sizeof *md);
    if (!k->product)
        as[KERNEL].format_kind = dnnl_format_kind_any;
    for (size_t i = 0; i < N_OPERANDS; i++)
        if (k->bfloat && i != BIAS && i != result_of(k->d))
            as[i].data_type = dnnl_bf16;
}

static dnnl_status_t describe_convolution(const key *k, const dnnl_memory_desc_t md[N_OPERANDS],
                                          dnnl_convolution_desc_t *out)
{
    const shape *s = &k->s;
    const dnnl_dims_t strides = {(dnnl_dim_t)s->stride_h, (dnnl_dim_t)s->stride_w};
    const dnnl_dims_t dilates = {(dnnl_dim_t)s->dilation_h - 1, (dnnl_dim_t)s->dilation_w - 1};
    const dnnl_dims_t before = {(dnnl_dim_t)s->pad_top, (dnnl_dim_t)s->pad_left};
    const dnnl_dims_t after = {
        pad_after(s->out_h, s->stride_h, s->kernel_h, s->dilation_h, s->height, s->pad_top),
        pad_after(s->out_w, s->stride_w, s->kernel_w, s->dilation_w, s->width, s->pad_left)};
    dnnl_memory_desc_t as[N_OPERANDS];
    choose_types(k, md, as);
    const dnnl_memory_desc_t *bias = k->bias ? &as[BIAS] : NULL;
    if (k->d == FORWARD)
        return dnnl_dilated_convolution_forward_desc_init(
            out, dnnl_forward_training, dnnl_convolution_direct, &as[IMAGE], &as[KERNEL], bias,
            &as[RESULT], strides, dilates, before, after);
    if (k->d == BACKWARD_DATA)
        return dnnl_dilated_convolution_backward_data_desc_init(
            out, dnnl_convolution_direct, &as[IMAGE], &as[KERNEL], &as[RESULT], strides, dilates,
            before, after);
    return dnnl_dilated_convolution_backward_weights_desc_init(
        out, dnnl_convolution_direct, &as[IMAGE], &as[KERNEL], bias, &as[RESULT], strides, dilates,
        before, after);
}

static dnnl_status_t make_product_desc(dnnl_engine_t engine, const key *k,
                                       const dnnl_memory_desc_t md[N_OPERANDS],
                                       const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    static const size_t factors[3][2] = {{IMAGE, KERNEL}, {RESULT, KERNEL}, {IMAGE, RESULT}};
    dnnl_memory_desc_t as[N_OPERANDS];
    dnnl_matmul_desc_t d;
    choose_types(k, md, as);
    TRY_DNNL(dnnl_matmul_desc_init(&d, &as[factors[k->d][0]], &as[factors[k->d][1]],
                                   k->bias ? &as[BIAS] : NULL, &as[result_of(k->d)]));
    return dnnl_primitive_desc_create(out, &d, attr, engine, NULL);
}

/* oneDNN's kernels for strided 1x1 windows write beyond the requested scratchpad if a gradient with
 * respect to weights has fewer channels than their block, 8 or 16 (oneDNN issue 6035). */
static bool writes_beyond(const key *k)
{
    const shape *s = &k->s;
    return k->d == BACKWARD_WEIGHTS && s->kernel_h * s->kernel_w == 1 &&
           s->stride_h * s->stride_w > 1 && s->channels / s->groups < 16;
}

/* Like dnnl_primitive_desc_create, without these kernels. */
static dnnl_status_t make_without_1x1(dnnl_primitive_desc_t *out, const dnnl_convolution_desc_t *d,
                                      const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                      dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t rc = dnnl_primitive_desc_iterator_create(&it, d, attr, engine, hint);
    while (rc == dnnl_success) {
        const char *name = NULL;
        *out = dnnl_primitive_desc_iterator_fetch(it);
        rc = *out ? dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &name)
                  : dnnl_out_of_memory;
        if (rc != dnnl_success || !strstr(name, "1x1"))
            break;
        dnnl_primitive_desc_destroy(*out);
        *out = NULL;
        rc = dnnl_primitive_desc_iterator_next(it);
    }
    dnnl_primitive_desc_iterator_destroy(it);
    return rc == dnnl_iterator_ends ? dnnl_unimplemented : rc;
}

static dnnl_status_t make_convolution_desc(dnnl_engine_t engine, const key *k,
                                           const dnnl_memory_desc_t md[N_OPERANDS],
                                           const_dnnl_primitive_attr_t attr,
                                           dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t d;
    key forward = {k->s, FORWARD, false, k->bfloat, false};
    dnnl_status_t rc = dnnl_success;
    if (k->d != FORWARD)
        rc = describe_convolution(&forward, md, &d);
    if (rc == dnnl_success && k->d != FORWARD)
        rc = dnnl_primitive_desc_create(&hint, &d, attr, engine, NULL);
    if (rc == dnnl_success)
        rc = describe_convolution(k, md, &d);
    if (rc == dnnl_success)
        rc = writes_beyond(k) ? make_without_1x1(out, &d, attr, engine, hint)
                              : dnnl_primitive_desc_create(out, &d, attr, engine, hint);
    dnnl_primitive_desc_destroy(hint);
    return rc;
}

static dnnl_status_t make_primitive_desc(dnnl_engine_t engine, const key *k,
                                         const dnnl_memory_desc_t md[N_OPERANDS],
                                         dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t rc = dnnl_primitive_attr_create(&attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (rc == dnnl_success)
        rc = (k->product ? make_product_desc : make_convolution_desc)(engine, k, md, attr, out);
    dnnl_primitive_attr_destroy(attr);
    return rc;
}

static dnnl_status_t make_room(dnnl_engine_t engine, const dnnl_memory_desc_t *md, room *out)
{
    size_t bytes = dnnl_memory_desc_get_size(md);
    out->data = mr_aligned_alloc(ALIGNMENT, bytes ? bytes : 1);
    return out->data ? dnnl_memory_create(&out->memory, md, engine, out->data) : dnnl_out_of_memory;
}

static dnnl_status_t make_scratchpad(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd,
                                     room *out)
{
    return make_room(engine, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), out);
}

static dnnl_status_t make_reorder(dnnl_engine_t engine, const dnnl_memory_desc_t *from,
                                  const dnnl_memory_desc_t *to, room *scratchpad,
                                  dnnl_primitive_t *out)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = NULL;
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    dnnl_status_t rc = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (rc == dnnl_success)
        rc = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(out, pd);
    if (rc == dnnl_success)
        rc = make_scratchpad(engine, pd, scratchpad);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return rc;
}

static dnnl_status_t finish_plan(dnnl_engine_t engine, plan *p, const dnnl_memory_desc_t *md,
                                 const_dnnl_primitive_desc_t pd)
{
    dnnl_memory_desc_t as[N_OPERANDS];
    choose_types(&p->k, md, as);
    if (!p->k.product)
        as[KERNEL] = *dnnl_primitive_desc_query_md(
            pd, p->k.d == BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    TRY_DNNL(dnnl_primitive_create(&p->primitive, pd));
    TRY_DNNL(make_scratchpad(engine, pd, &p->scratchpad));
    for (size_t i = 0; i < N_OPERANDS; i++) {
        bool given = i != result_of(p->k.d);
        TRY_DNNL(dnnl_memory_create(&p->operands[i], &md[i], engine, DNNL_MEMORY_NONE));
        if (dnnl_memory_desc_equal(&as[i], &md[i]))
            continue;
        TRY_DNNL(make_room(engine, &as[i], &p->own[i]));
        TRY_DNNL(make_reorder(engine, given ? &md[i] : &as[i], given ? &as[i] : &md[i],
                              &p->reorder_rooms[i], &p->reorders[i]));
    }
    return dnnl_success;
}

static dnnl_status_t make_plan(dnnl_engine_t engine, plan *p)
{
    dnnl_memory_desc_t md[N_OPERANDS];
    dnnl_primitive_desc_t pd = NULL;
    TRY_DNNL(p->k.product ? describe_matrices(&p->k, md) : describe(&p->k.s, md));
    TRY_DNNL(make_primitive_desc(engine, &p->k, md, &pd));
    dnnl_status_t rc = finish_plan(engine, p, md, pd);
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

static void run_free(void *args)
{
    free_plan(*(plan **)args);
}

/* Drops the least recently used plan, once the stream has finished with it. */
static mr_code drop_last(mr_stream *s, plans *all, mr_status *st)
{
    plan **last = &all->first;
    while ((*last)->next)
        last = &(*last)->next;
    MR_TRY(mr__cpu_launch(s, run_free, last, sizeof *last, st));
    *last = NULL;
    all->n--;
    return MR_OK;
}

static mr_code find_plan(mr_stream *s, const key *k, plan **out, mr_status *st)
{
    plans *all;
    MR_TRY(mr__onednn_room(st));
    MR_TRY(open_plans(s, &all, st));
    plan **at = &all->first;
    while (*at && memcmp(&(*at)->k, k, sizeof *k) != 0)
        at = &(*at)->next;
    plan *p = *at;
    if (p) {
        *at = p->next;
    } else {
        if (all->n == MAX_PLANS)
            MR_TRY(drop_last(s, all, st));
        p = mr_calloc(1, sizeof *p);
        if (!p)
            return mr_fail_memory(st, sizeof *p, "a convolution");
        p->k = *k;
        int threads = mr__matmul_enter_one_thread();
        dnnl_status_t rc = make_plan(all->engine, p);
        mr__matmul_leave_one_thread(threads);
        if (rc != dnnl_success) {
            free_plan(p);
            return refused(rc, k, st);
        }
        all->n++;
    }
    p->next = all->first;
    all->first = p;
    *out = p;
    return MR_OK;
}

/* Arguments of a kernel of any direction. */
typedef struct call {
    plan *p;
    plan *rest;   /* of the images that remain after p's number; NULL: none */
    size_t times; /* how often p runs */
    dnnl_stream_t stream;
    void *operands[N_OPERANDS];
    mr_math_activation f;
} call;

/* Converts an operand from the caller's memory to the plan's, or a result back. */
static dnnl_status_t reorder(const plan *p, size_t i, dnnl_stream_t s)
{
    bool given = i != result_of(p->k.d);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, given ? p->operands[i] : p->own[i].memory},
                                    {DNNL_ARG_TO, given ? p->own[i].memory : p->operands[i]},
                                    {DNNL_ARG_SCRATCHPAD, p->reorder_rooms[i].memory}};
    return p->reorders[i] ? dnnl_primitive_execute(p->reorders[i], s, 3, args) : dnnl_success;
}

/* again: reuse the kernel of the previous run. */
static dnnl_status_t execute(const plan *p, const call *c, bool again)
{
    static const int all_names[2][3][N_OPERANDS] = {
        {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
         {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST},
         {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST}},
        {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
         {DNNL_ARG_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_SRC},
         {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_BIAS, DNNL_ARG_WEIGHTS}}};
    const int *names = all_names[p->k.product][p->k.d];
    dnnl_exec_arg_t args[N_OPERANDS + 1];
    size_t result = result_of(p->k.d);
    int n = 0;
    for (size_t i = 0; i < N_OPERANDS; i++) {
        if (i == BIAS && !p->k.bias)
            continue;
        TRY_DNNL(dnnl_memory_set_data_handle(p->operands[i], c->operands[i]));
        args[n++] =
            (dnnl_exec_arg_t){names[i], p->own[i].memory ? p->own[i].memory : p->operands[i]};
        if (i != result && !(i == KERNEL && again))
            TRY_DNNL(reorder(p, i, c->stream));
    }
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->scratchpad.memory};
    TRY_DNNL(dnnl_primitive_execute(p->primitive, c->stream, n, args));
    TRY_DNNL(reorder(p, result, c->stream));
    return dnnl_stream_wait(c->stream);
}

static size_t image_values(const shape *s)
{
    return s->n * s->height * s->width * s->channels;
}

static size_t result_values(const shape *s)
{
    return s->n * s->out_h * s->out_w * s->filters;
}

static void run_plan(const plan *p, const call *c, bool again)
{
    const shape *s = &p->k.s;
    sigset_t before;
    mr__onednn_enter(&before);
    dnnl_status_t rc = execute(p, c, again);
    mr__onednn_leave(&before);
    if (rc != dnnl_success)
        mr__cpu_fail(rc == dnnl_out_of_memory ? MR_RESOURCE_EXHAUSTED : MR_INTERNAL,
                     "oneDNN failed in a convolution (status %d)", (int)rc);
    if (p->k.d == FORWARD)
        mr__cpu_apply(c->f, c->operands[RESULT], s->n * s->out_h * s->out_w, s->filters);
}

static void run_convolution(void *args)
{
    call *c = args;
    mr_status full;
    if (mr__onednn_room(&full) != MR_OK) {
        mr__cpu_fail(full.code, "%s", full.message);
        return;
    }
    /* Last to first: an earlier operation ended with the last images, and a pool after this one
     * begins with the first, which are still in the cache. */
    float *image = c->operands[IMAGE], *result = c->operands[RESULT];
    for (size_t i = c->times + (c->rest != NULL); i-- > 0;) {
        c->operands[IMAGE] = image + i * image_values(&c->p->k.s);
        c->operands[RESULT] = result + i * result_values(&c->p->k.s);
        if (i == c->times)
            run_plan(c->rest, c, false);
        else
            run_plan(c->p, c, i + 1 < c->times);
    }
}

/* Inputs are const in the caller's struct: one array holds all operands. */
static void *plain(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* An activation finds its values in the cache if there are not too many. */
static size_t images_at_once(const shape *s, direction d, mr_math_activation f)
{
    size_t n = AT_ONCE / (result_values(s) / s->n * sizeof(float));
    return d != FORWARD || f == MR_ACT_LINEAR || n >= s->n ? s->n : n > 0 ? n : 1;
}

bool mr__cpu_multiplies_bfloat(void)
{
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa(),
                   needs = dnnl_cpu_isa_avx512_core_bf16;
    return (has & needs) == needs;
}

static mr_code submit(mr_stream *s, direction d, bool bfloat, bool product, const shape *sh,
                      call *c, mr_status *st)
{
    key k;
    memset(&k, 0, sizeof k); /* compared as bytes */
    k.s = *sh;
    k.d = d;
    k.product = product;
    k.bias = c->operands[BIAS] != NULL;
    k.bfloat = bfloat && mr__cpu_multiplies_bfloat();
    k.s.n = images_at_once(sh, d, c->f);
    c->times = sh->n / k.s.n;
    c->rest = NULL;
    MR_TRY(find_plan(s, &k, &c->p, st));
    k.s.n = sh->n % k.s.n;
    if (k.s.n > 0)
        MR_TRY(find_plan(s, &k, &c->rest, st));
    c->stream = ((plans *)*mr__cpu_plans(s))->stream;
    return mr__cpu_launch(s, run_convolution, c, sizeof *c, st);
}

mr_code mr__cpu_conv2d(mr_stream *s, const mr_math_conv2d *p, mr_status *st)
{
    call c = {.operands = {plain(p->x), plain(p->kernel), plain(p->bias), p->y}, .f = p->f};
    if (result_values(&p->s) == 0)
        return MR_OK;
    return submit(s, FORWARD, p->bfloat, false, &p->s, &c, st);
}

mr_code mr__cpu_conv2d_backward_data(mr_stream *s, const mr_math_conv2d_backward_data *p,
                                     mr_status *st)
{
    call c = {.operands = {p->dx, plain(p->kernel), NULL, plain(p->dy)}};
    if (image_values(&p->s) == 0)
        return MR_OK;
    if (result_values(&p->s) == 0)
        return mr__cpu_fill(s, &(mr_math_fill){.n = image_values(&p->s), .dst = p->dx}, st);
    return submit(s, BACKWARD_DATA, p->bfloat, false, &p->s, &c, st);
}

mr_code mr__cpu_conv2d_backward_weights(mr_stream *s, const mr_math_conv2d_backward_weights *p,
                                        mr_status *st)
{
    const shape *sh = &p->s;
    size_t kernel = sh->kernel_h * sh->kernel_w * (sh->channels / sh->groups) * sh->filters;
    call c = {.operands = {plain(p->x), p->dkernel, p->dbias, plain(p->dy)}};
    if (result_values(sh) > 0)
        return submit(s, BACKWARD_WEIGHTS, p->bfloat, false, sh, &c, st);
    MR_TRY(mr__cpu_fill(s, &(mr_math_fill){.n = kernel, .dst = p->dkernel}, st));
    if (!p->dbias)
        return MR_OK;
    return mr__cpu_fill(s, &(mr_math_fill){.n = sh->filters, .dst = p->dbias}, st);
}

/* A product's shape in the fields of a convolution's. */
static shape matrices(size_t rows, size_t in, size_t out)
{
    return (shape){.n = 1,
                   .height = 1,
                   .out_h = 1,
                   .width = rows,
                   .out_w = rows,
                   .channels = in,
                   .filters = out};
}

mr_code mr__cpu_dense_bfloat(mr_stream *s, const mr_math_dense *p, mr_status *st)
{
    const shape sh = matrices(p->rows, p->in, p->out);
    call c = {.operands = {plain(p->x), plain(p->w), plain(p->bias), p->y}, .f = p->f};
    return submit(s, FORWARD, true, true, &sh, &c, st);
}

mr_code mr__cpu_dense_bfloat_backward_data(mr_stream *s, const mr_math_dense_backward_data *p,
                                           mr_status *st)
{
    const shape sh = matrices(p->rows, p->in, p->out);
    call c = {.operands = {p->dx, plain(p->w), NULL, plain(p->dy)}};
    return submit(s, BACKWARD_DATA, true, true, &sh, &c, st);
}

mr_code mr__cpu_dense_bfloat_backward_weights(mr_stream *s, const mr_math_dense_backward_weights *p,
                                              mr_status *st)
{
    const shape sh = matrices(p->rows, p->in, p->out);
    call c = {.operands = {plain(p->x), p->dw, NULL, plain(p->dy)}};
    return submit(s, BACKWARD_WEIGHTS, true, true, &sh, &c, st);
}
