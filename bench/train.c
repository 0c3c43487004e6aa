/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps on the CPU, with their input already in the replicas' memory:
 *
 *     train                                the time of a step, next to the sum of its primitives
 *                                          run alone (oneDNN's, and loops for the rest); two
 *                                          replicas, next to one, to two independent ones, and to
 *                                          two that only read each other's gradients; how much of
 *                                          the time of their sums overlaps with other work; the
 *                                          overhead of a step of an empty model; how fast fit takes
 *                                          batches
 *     train --replicas                     two replicas alone
 *     train --serve MODEL BATCH REPLICAS   for each line N of standard input runs N steps and
 *                                          prints the wall-clock and CPU seconds that they took
 *                                          (bench/peers/train.py); MODEL: mlp, cnn, empty
 *
 * The models are the quickstart's and the Keras guide's, with Adam. --all: each primitive too.
 * Run it on one core (taskset) for the first part; the second needs two. Ratios are of CPU time,
 * which other programs disturb least, except for two replicas, where wall-clock time counts. */
#include <dnnl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <millrace/millrace-trainer.h>
#include <millrace/millrace.h>

#include "ceiling.h"

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&                \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif

/* Debian's oneDNN runs on OpenMP. */
extern void omp_set_num_threads(int n);

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    CLASSES = 10,
    HIDDEN = 128,
    ROUNDS = 15,
    MAX_VARIABLES = 8,
    MAX_PRIMITIVES = 24
};

static _Thread_local mr_status st;

/* As the device's streams do: Adam's moments of a zero gradient become denormal. */
static void flush_denormals(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- steps */

typedef struct job {
    const char *model_text;
    size_t batch; /* of a replica */
    mr_strategy *s;
    mr_model *model;
    mr_optimizer *optimizer;
    mr_loss *loss;
    mr_array x[2], y[2]; /* of each replica */
    double *sums[2];
    struct exchange *exchange; /* with another job, or NULL */
} job;

/* Two jobs of one replica that wait for each other after the backward pass of every step and read
 * each other's gradients once: the minimum that synchronous replicas need. */
typedef struct exchange {
    const struct exchange *other;
    _Atomic long *arrived; /* of both, since they began */
    long meetings;
    const float *gradients[MAX_VARIABLES];
    uint64_t read; /* meaningless: it uses the values read */
} exchange;

CLONES static uint64_t read_all(const float *x, size_t n)
{
    uint64_t sum = 0, two;
    for (size_t i = 0; i + 2 <= n; i += 2) {
        memcpy(&two, x + i, sizeof two);
        sum += two;
    }
    return sum;
}

static mr_code exchange_gradients(exchange *e, mr_model *m, mr_replica *r, mr_status *status)
{
    size_t n = mr_model_n_variables(m);
    if (n > MAX_VARIABLES)
        bench_die("more variables than MAX_VARIABLES");
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_model_gradient(m, r, i, &e->gradients[i], status));
    e->meetings++;
    atomic_fetch_add(e->arrived, 1);
    for (unsigned i = 1; atomic_load(e->arrived) < 2 * e->meetings; i++)
        if (i % 1024 == 0)
            sched_yield(); /* both may have one core */
    for (size_t i = 0; i < n; i++)
        e->read += read_all(e->other->gradients[i], mr_variable_size(mr_model_variable(m, i)));
    return MR_OK;
}

static mr_code step(mr_replica *r, void *ctx, mr_status *status)
{
    job *j = ctx;
    size_t id = mr_replica_id(r);
    mr_array predicted;
    mr_loss_opts how = {.scale = 1.0 / (double)(j->batch * mr_strategy_num_replicas_in_sync(j->s)),
                        .sum = j->sums[id]};
    MR_TRY(mr_model_forward(j->model, r, &j->x[id], &(mr_forward_opts){.training = true},
                            &predicted, status));
    MR_TRY(mr_loss_compute(j->loss, r, &j->y[id], &predicted, &how, NULL,
                           mr_model_output_gradient(j->model, r), status));
    MR_TRY(mr_model_backward(j->model, r, status));
    if (j->exchange)
        MR_TRY(exchange_gradients(j->exchange, j->model, r, status));
    return mr_model_apply_gradients(j->model, r, j->optimizer, status);
}

static void run(job *j, long steps)
{
    for (long i = 0; i < steps; i++)
        bench_must(mr_strategy_run(j->s, step, j, &st), &st);
}

/* Pixels in [0, 1), the same in every process. */
static void fill(float *x, size_t n)
{
    uint32_t v = 12345;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((v = v * 1664525u + 1013904223u) >> 8) * 0x1p-24f;
}

static void open_job(job *j, const char *name, size_t batch, size_t replicas)
{
    bool empty = strcmp(name, "empty") == 0, cnn = strcmp(name, "cnn") == 0;
    int64_t image[] = {(int64_t)batch, SIDE, SIDE, 1}, one[] = {(int64_t)batch, 1},
            *shape = empty ? one : image;
    int rank = empty ? 2 : cnn ? 4 : 3;
    *j = (job){.batch = batch};
    bench_must(
        mr_model_parse(&j->model,
                       empty ? "input(1).activation(\"linear\")"
                       : cnn ? "conv2d(32, 3, activation=\"relu\").max_pool(2).flatten().dense(64, "
                               "activation=\"relu\").dense(10)"
                             : "flatten().dense(128, activation=\"relu\").dense(10)",
                       &st),
        &st);
    bench_must(mr_optimizer_parse(&j->optimizer, "adam(learning_rate=0.001)", &st), &st);
    bench_must(mr_loss_parse(&j->loss,
                             empty ? "mse" : "sparse_categorical_crossentropy(from_logits=true)",
                             &st),
               &st);
    bench_must(mr_strategy_mirrored(&j->s, &(mr_strategy_opts){.num_replicas = replicas}, &st),
               &st);
    bench_must(
        mr_model_build(j->model, j->s, rank - 1, shape + 1, &(mr_model_opts){.seed = 1}, &st), &st);
    for (size_t r = 0; r < replicas; r++) {
        mr_device *d = mr_replica_device(mr_strategy_replica(j->s, r));
        void *sum;
        bench_must(mr_tensor_alloc(&j->x[r], MR_FLOAT32, rank, shape, &st), &st);
        bench_must(
            mr_tensor_alloc(&j->y[r], empty ? MR_FLOAT32 : MR_INT64, empty ? 2 : 1, shape, &st),
            &st);
        fill(j->x[r].data, batch * (empty ? 1 : PIXELS));
        for (size_t i = 0; i < batch; i++)
            if (empty)
                ((float *)j->y[r].data)[i] = 0;
            else
                ((int64_t *)j->y[r].data)[i] = (int64_t)(i % CLASSES);
        bench_must(mr_device_alloc(d, MR_MEMORY_DEVICE, sizeof(double), &sum, &st), &st);
        j->sums[r] = sum;
    }
    run(j, 20);
}

static void close_job(job *j)
{
    for (size_t r = 0; r < mr_strategy_num_local_replicas(j->s); r++) {
        mr_device_free(mr_replica_device(mr_strategy_replica(j->s, r)), MR_MEMORY_DEVICE,
                       j->sums[r]);
        mr_array_reset(&j->x[r]);
        mr_array_reset(&j->y[r]);
    }
    mr_loss_free(j->loss);
    mr_optimizer_free(j->optimizer);
    mr_model_free(j->model);
    mr_strategy_free(j->s);
}

/* ---- primitives */

typedef struct primitive {
    const char *name;
    dnnl_primitive_t primitive; /* NULL: loop */
    int n_args;
    dnnl_exec_arg_t args[8];
    void (*loop)(size_t n);
    size_t n;
} primitive;

static primitive primitives[MAX_PRIMITIVES];
static size_t n_primitives;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void must_dnnl(dnnl_status_t rc)
{
    if (rc == dnnl_success)
        return;
    char text[64];
    snprintf(text, sizeof text, "oneDNN's status %d", (int)rc);
    bench_die(text);
}

static dnnl_memory_desc_t tensor(dnnl_format_tag_t tag, int rank, const dnnl_dim_t *dims)
{
    dnnl_memory_desc_t md;
    must_dnnl(dnnl_memory_desc_init_by_tag(&md, rank, dims, dnnl_f32, tag));
    return md;
}
#define TENSOR(tag, ...)                                                                           \
    tensor(tag, sizeof((dnnl_dim_t[]){__VA_ARGS__}) / sizeof(dnnl_dim_t),                          \
           (dnnl_dim_t[]){__VA_ARGS__})

/* Adds the primitive of desc, with memory for everything it reads and writes; returns its
 * description, a hint for backward primitives. */
static dnnl_primitive_desc_t add(const char *name, const void *desc, bool relu,
                                 dnnl_primitive_desc_t hint)
{
    static const int operands[] = {DNNL_ARG_SRC,          DNNL_ARG_DST,       DNNL_ARG_WEIGHTS,
                                   DNNL_ARG_BIAS,         DNNL_ARG_DIFF_SRC,  DNNL_ARG_DIFF_DST,
                                   DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_WORKSPACE};
    primitive *p = &primitives[n_primitives++];
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t after;
    dnnl_primitive_desc_t pd;
    p->name = name;
    must_dnnl(dnnl_primitive_attr_create(&attr));
    must_dnnl(dnnl_post_ops_create(&after));
    if (relu)
        must_dnnl(dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0));
    must_dnnl(dnnl_primitive_attr_set_post_ops(attr, after));
    must_dnnl(dnnl_primitive_desc_create(&pd, desc, attr, engine, hint));
    must_dnnl(dnnl_primitive_create(&p->primitive, pd));
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, operands[i]);
        size_t bytes = md ? dnnl_memory_desc_get_size(md) : 0;
        dnnl_memory_t memory;
        void *data;
        if (bytes == 0)
            continue;
        must_dnnl(dnnl_memory_create(&memory, md, engine, DNNL_MEMORY_ALLOCATE));
        must_dnnl(dnnl_memory_get_data_handle(memory, &data));
        if (operands[i] == DNNL_ARG_WORKSPACE)
            memset(data, 0, bytes);
        else
            fill(data, bytes / sizeof(float));
        p->args[p->n_args++] = (dnnl_exec_arg_t){operands[i], memory};
    }
    dnnl_post_ops_destroy(after);
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static void add_loop(const char *name, void (*loop)(size_t n), size_t n)
{
    primitives[n_primitives++] = (primitive){.name = name, .loop = loop, .n = n};
}

/* The three primitives of a dense layer; the first layer has no gradient by data. */
static void add_dense(dnnl_dim_t rows, dnnl_dim_t in, dnnl_dim_t out, bool relu, bool first)
{
    dnnl_memory_desc_t x = TENSOR(dnnl_nc, rows, in), w = TENSOR(dnnl_format_tag_any, out, in),
                       b = TENSOR(dnnl_a, out), y = TENSOR(dnnl_nc, rows, out);
    dnnl_inner_product_desc_t d;
    must_dnnl(dnnl_inner_product_forward_desc_init(&d, dnnl_forward_training, &x, &w, &b, &y));
    dnnl_primitive_desc_t hint = add("dense", &d, relu, NULL);
    must_dnnl(dnnl_inner_product_backward_weights_desc_init(&d, &x, &w, &b, &y));
    dnnl_primitive_desc_destroy(add("dense by weights", &d, false, hint));
    if (!first) {
        must_dnnl(dnnl_inner_product_backward_data_desc_init(&d, &x, &w, &y));
        dnnl_primitive_desc_destroy(add("dense by data", &d, false, hint));
    }
    dnnl_primitive_desc_destroy(hint);
}

static void add_relu_backward(dnnl_memory_desc_t y)
{
    dnnl_eltwise_desc_t d;
    must_dnnl(dnnl_eltwise_forward_desc_init(&d, dnnl_forward_training,
                                             dnnl_eltwise_relu_use_dst_for_bwd, &y, 0, 0));
    primitive *forward = &primitives[n_primitives];
    dnnl_primitive_desc_t hint = add("", &d, false, NULL);
    dnnl_primitive_destroy(forward->primitive); /* it was needed only for the hint */
    *forward = (primitive){0};
    n_primitives--;
    must_dnnl(dnnl_eltwise_backward_desc_init(&d, dnnl_eltwise_relu_use_dst_for_bwd, &y, &y, 0, 0));
    dnnl_primitive_desc_destroy(add("relu backward", &d, false, hint));
    dnnl_primitive_desc_destroy(hint);
}

static void add_images(dnnl_dim_t n)
{
    dnnl_memory_desc_t x = TENSOR(dnnl_nhwc, n, 1, 28, 28), y = TENSOR(dnnl_nhwc, n, 32, 26, 26),
                       k = TENSOR(dnnl_format_tag_any, 32, 1, 3, 3), b = TENSOR(dnnl_a, 32),
                       z = TENSOR(dnnl_nhwc, n, 32, 13, 13);
    const dnnl_dims_t ones = {1, 1}, none = {0, 0}, twos = {2, 2};
    dnnl_convolution_desc_t c;
    dnnl_pooling_desc_t p;
    must_dnnl(dnnl_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct,
                                                 &x, &k, &b, &y, ones, none, none));
    dnnl_primitive_desc_t hint = add("conv2d", &c, true, NULL);
    must_dnnl(dnnl_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &x, &k, &b,
                                                          &y, ones, none, none));
    dnnl_primitive_desc_destroy(add("conv2d by weights", &c, false, hint));
    dnnl_primitive_desc_destroy(hint);
    must_dnnl(dnnl_pooling_forward_desc_init(&p, dnnl_forward_training, dnnl_pooling_max, &y, &z,
                                             twos, twos, none, none));
    hint = add("max_pool", &p, false, NULL);
    must_dnnl(
        dnnl_pooling_backward_desc_init(&p, dnnl_pooling_max, &y, &z, twos, twos, none, none));
    dnnl_primitive_desc_destroy(add("max_pool backward", &p, false, hint));
    dnnl_primitive_desc_destroy(hint);
    add_relu_backward(y);
}

static float *values[4]; /* what the loops work on */

CLONES static void adam(size_t n)
{
    float *restrict w = values[0], *restrict m = values[1], *restrict v = values[2];
    const float *restrict g = values[3];
    for (size_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * 0.1f;
        v[i] += (g[i] * g[i] - v[i]) * 0.001f;
        w[i] -= m[i] * 1e-6f / (sqrtf(v[i]) + 1e-7f);
    }
}

/* Of n rows: losses and gradients. */
static void crossentropy(size_t n)
{
    float *x = values[0], *g = values[1], total = 0;
    for (size_t i = 0; i < n; i++, x += CLASSES, g += CLASSES) {
        float most = x[0], sum = 0;
        for (size_t c = 1; c < CLASSES; c++)
            most = x[c] > most ? x[c] : most;
        for (size_t c = 0; c < CLASSES; c++)
            sum += g[c] = expf(x[c] - most);
        for (size_t c = 0; c < CLASSES; c++)
            g[c] /= sum;
        g[i % CLASSES] -= 1;
        total += logf(sum) + most - x[i % CLASSES];
    }
    values[2][0] = total;
}

static void run_primitive(const primitive *p)
{
    if (p->loop)
        p->loop(p->n);
    else {
        must_dnnl(dnnl_primitive_execute(p->primitive, stream, p->n_args, p->args));
        must_dnnl(dnnl_stream_wait(stream));
    }
}

static void drop_primitives(void)
{
    for (size_t i = 0; i < n_primitives; i++) {
        dnnl_primitive_destroy(primitives[i].primitive);
        for (int k = 0; k < primitives[i].n_args; k++)
            dnnl_memory_destroy(primitives[i].args[k].memory);
    }
    memset(primitives, 0, sizeof primitives);
    n_primitives = 0;
}

static void add_primitives(bool cnn, size_t batch)
{
    dnnl_dim_t rows = (dnnl_dim_t)batch, features = cnn ? 13 * 13 * 32 : PIXELS,
               hidden = cnn ? 64 : HIDDEN;
    size_t parameters = (size_t)(features * hidden + hidden * CLASSES + hidden + CLASSES);
    if (cnn)
        add_images(rows);
    add_dense(rows, features, hidden, true, !cnn);
    add_dense(rows, hidden, CLASSES, false, false);
    add_relu_backward(TENSOR(dnnl_nc, rows, hidden));
    add_loop("crossentropy", crossentropy, batch);
    add_loop("adam", adam, parameters + (cnn ? 320 : 0));
}

/* ---- figures */

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, bench_compare);
    return v[n / 2];
}

/* A step and each of its primitives alone, in turns. */
static void beside_primitives(const char *name, size_t batch, bool say_all)
{
    static double times[MAX_PRIMITIVES][ROUNDS], steps[ROUNDS];
    double sum = 0, of_onednn = 0;
    bool cnn = strcmp(name, "cnn") == 0;
    long repeats = cnn ? 30 : 100;
    job j;
    open_job(&j, name, batch, 1);
    add_primitives(cnn, batch);
    for (int round = -1; round < ROUNDS; round++) {
        double began = cpu_now();
        run(&j, repeats);
        steps[round < 0 ? 0 : round] = (cpu_now() - began) / (double)repeats;
        for (size_t i = 0; i < n_primitives; i++) {
            began = cpu_now();
            for (long k = 0; k < repeats; k++)
                run_primitive(&primitives[i]);
            times[i][round < 0 ? 0 : round] = (cpu_now() - began) / (double)repeats;
        }
    }
    for (size_t i = 0; i < n_primitives; i++) {
        double took = median(times[i], ROUNDS);
        sum += took;
        of_onednn += primitives[i].loop ? 0 : took;
        if (say_all)
            printf("    %-28s %9.1f us\n", primitives[i].name, 1e6 * took);
    }
    double took = median(steps, ROUNDS);
    printf(
        "%s, batch %-16zu %9.1f us   primitives %9.1f us   ratio %.2f (oneDNN's alone %.1f us)\n",
        name, batch, 1e6 * took, 1e6 * sum, took / sum, 1e6 * of_onednn);
    fflush(stdout);
    drop_primitives();
    close_job(&j);
}

static double seconds_of(job *j, long steps)
{
    double began = bench_now();
    run(j, steps);
    return bench_now() - began;
}

/* How much of the time of the sums overlaps with the backward pass. */
static void overlap_of(job *j)
{
    enum { STEPS = 1000 };
    mr_collective *c = mr_strategy_collective(j->s);
    mr_collective_times t;
    bench_must(mr_collective_measure(c, &st), &st);
    run(j, STEPS);
    mr_collective_measured(c, &t);
    printf("    sums a step %24.1f us   waited for %9.1f us   overlap %.2f\n",
           1e6 * t.seconds / STEPS, 1e6 * t.exposed_seconds / STEPS,
           1 - t.exposed_seconds / t.seconds);
}

/* One replica on a core that nothing else uses. */
typedef struct lone {
    const char *name;
    size_t batch;
    int core;
    bool is_open;
    job j;
    pthread_t thread;
    long steps;
} lone;

static void *lone_main(void *lone_)
{
    lone *l = lone_;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)l->core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        bench_die("cannot keep a thread on one core");
    if (!l->is_open) /* its streams' threads stay on that core */
        open_job(&l->j, l->name, l->batch, 1);
    l->is_open = true;
    run(&l->j, l->steps);
    return NULL;
}

/* The first two cores of this process; the same one twice if it has only one. */
static void two_cores(int cores[2])
{
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        bench_die("cannot determine the available cores");
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET((unsigned)i, &set))
            cores[found++] = i;
    if (found == 1)
        cores[1] = cores[0];
}

/* Runs the first n at the same time. */
static double seconds_apart(lone *l, size_t n, long steps, bool exchanges)
{
    _Atomic long arrived = 0;
    exchange of[2] = {{.other = &of[1], .arrived = &arrived},
                      {.other = &of[0], .arrived = &arrived}};
    double began = bench_now();
    for (size_t i = 0; i < n; i++) {
        l[i].steps = steps;
        l[i].j.exchange = exchanges ? &of[i] : NULL;
        if (pthread_create(&l[i].thread, NULL, lone_main, &l[i]) != 0)
            bench_die("cannot start a thread");
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(l[i].thread, NULL);
    return bench_now() - began;
}

/* The same batch for each replica: ideally twice the work in the same time. Also measures two
 * independent replicas, and two that exchange gradients without summing them: the limits of the
 * machine. */
static void beside_one_replica(const char *name, size_t batch)
{
    double one[ROUNDS], two[ROUNDS], apart[ROUNDS], least[ROUNDS], alone[ROUNDS], ratio[ROUNDS];
    int cores[2];
    long steps = strcmp(name, "cnn") == 0 ? 40 : 200; /* 0.1 to 0.2 s */
    job a, b;
    open_job(&a, name, batch, 1);
    open_job(&b, name, batch, 2);
    two_cores(cores);
    lone lones[2] = {{name, batch, cores[0], .is_open = false},
                     {name, batch, cores[1], .is_open = false}};
    seconds_apart(lones, 2, 1, false);
    for (int i = 0; i < ROUNDS; i++) {
        one[i] = seconds_of(&a, steps);
        two[i] = seconds_of(&b, steps);
        apart[i] = seconds_apart(lones, 2, steps, false);
        least[i] = seconds_apart(lones, 2, steps, true);
        alone[i] = seconds_apart(lones, 1, steps, false);
        ratio[i] = 2 * one[i] / two[i];
    }
    double rows = 1e-3 * (double)(batch * (size_t)steps), first = median(one, ROUNDS),
           second = median(two, ROUNDS), both = median(apart, ROUNDS),
           exchanged = median(least, ROUNDS), single = median(alone, ROUNDS);
    qsort(ratio, ROUNDS, sizeof *ratio, bench_compare);
    printf("%s, 2 replicas of %-9zu %9.1f rows/ms   1 replica %9.1f rows/ms   ratio %.2f (best "
           "%.2f)\n",
           name, batch, 2 * rows / second, rows / first, 2 * first / second, ratio[ROUNDS - 1]);
    printf("    2 apart, a core each %12.1f rows/ms   1 of them %9.1f rows/ms   ratio %.2f   of "
           "them the 2 replicas do %.2f\n",
           2 * rows / both, rows / single, 2 * single / both, both / second);
    printf(
        "    2 that exchange gradients %7.1f rows/ms   %33s ratio %.2f   of them the 2 replicas do "
        "%.2f\n",
        2 * rows / exchanged, "", 2 * single / exchanged, exchanged / second);
    overlap_of(&b);
    fflush(stdout);
    close_job(&a);
    close_job(&b);
    for (int i = 0; i < 2; i++)
        close_job(&lones[i].j);
}

static void around_a_step(size_t replicas)
{
    double wall[ROUNDS], cpu[ROUNDS];
    job j;
    open_job(&j, "empty", 1, replicas);
    for (int i = 0; i < ROUNDS; i++) {
        double began = cpu_now();
        wall[i] = seconds_of(&j, 2000) / 2000;
        cpu[i] = (cpu_now() - began) / 2000;
    }
    qsort(wall, ROUNDS, sizeof *wall, bench_compare);
    printf("empty model, %zu replica%s     %9.1f us by the clock (best %.1f)   %9.1f us of the "
           "processor\n",
           replicas, replicas > 1 ? "s" : " ", 1e6 * wall[ROUNDS / 2], 1e6 * wall[0],
           1e6 * median(cpu, ROUNDS));
    close_job(&j);
}

/* ---- input: batches of 128 images, read alone and by fit with a layer that does nothing */

static mr_code nothing_build(mr_layer *l, mr_status *status)
{
    (void)status;
    l->out = (mr_dims){.rank = 1, .shape = {1}};
    return MR_OK;
}

static mr_code nothing_forward(const mr_layer_pass *p, mr_status *status)
{
    return p->math->fill(p->stream, &(mr_math_fill){.n = p->rows, .dst = p->y}, status);
}

static mr_code nothing_backward(const mr_layer_pass *p, mr_status *status)
{
    (void)p;
    (void)status;
    return MR_OK;
}

static const mr_param no_params[] = {{0}};
static const mr_layer_desc nothing = {.is = {.abi = MR_ABI_VERSION,
                                             .name = "nothing",
                                             .doc = "Gives 0.",
                                             .example = "nothing()",
                                             .params = no_params,
                                             .params_size = sizeof(int)},
                                      .build = nothing_build,
                                      .forward = nothing_forward,
                                      .backward = nothing_backward};

enum { TAKEN = 2000 }; /* batches */

static mr_dataset *batches(void)
{
    char text[256];
    mr_dataset *ds = NULL;
    snprintf(text, sizeof text,
             "range(%d).map(i => (ones([784]) * cast(i %% 7, \"float32\"), cast(i, \"float32\")))"
             ".batch(128)",
             TAKEN * 128);
    bench_must(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

static void read_alone(void)
{
    mr_dataset *ds = batches();
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    bench_must(mr_iterator_open(&it, ds, NULL, &st), &st);
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        mr_block_clear(&b);
    bench_must(rc == MR_END ? MR_OK : rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

static void read_by_fit(void)
{
    mr_dataset *ds = batches();
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_optimizer *o = NULL;
    bench_must(mr_model_parse(&m, "nothing()", &st), &st);
    bench_must(mr_loss_parse(&l, "mse", &st), &st);
    bench_must(mr_optimizer_parse(&o, "sgd(0.1)", &st), &st);
    bench_must(mr_strategy_one_device(&s, NULL, &st), &st);
    bench_must(mr_fit(s, m, ds, l, o, NULL, NULL, &st), &st);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    mr_strategy_free(s);
    mr_dataset_unref(ds);
}

static void taking_batches(void)
{
    double times[2][2][ROUNDS]; /* by reader; wall-clock and CPU time */
    bench_must(mr_layer_register(&nothing, &st), &st);
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 2; k++) {
            double began = bench_now(), cpu = cpu_now();
            (k ? read_by_fit : read_alone)();
            times[k][0][i] = bench_now() - began;
            times[k][1][i] = cpu_now() - cpu;
        }
    double a = median(times[0][0], ROUNDS), b = median(times[1][0], ROUNDS);
    printf("batches taken by fit %12.1f thousand/s   read alone %12.1f thousand/s   ratio %.2f (of "
           "the "
           "processor's time %.2f)\n",
           1e-3 * TAKEN / b, 1e-3 * TAKEN / a, a / b,
           median(times[0][1], ROUNDS) / median(times[1][1], ROUNDS));
}

static void serve(const char *model, size_t batch, size_t replicas)
{
    char line[64];
    job j;
    open_job(&j, model, batch, replicas);
    while (fgets(line, sizeof line, stdin)) {
        double began = bench_now(), cpu = cpu_now();
        run(&j, atol(line));
        printf("%.9f %.9f\n", bench_now() - began, cpu_now() - cpu);
        fflush(stdout);
    }
    close_job(&j);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--serve") == 0) {
        serve(argv[2], (size_t)atol(argv[3]), (size_t)atol(argv[4]));
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--replicas") == 0) {
        beside_one_replica("mlp", 128);
        beside_one_replica("cnn", 64);
        return 0;
    }
    bool say_all = argc == 2 && strcmp(argv[1], "--all") == 0;
    omp_set_num_threads(1); /* the primitives' */
    flush_denormals();
    must_dnnl(dnnl_engine_create(&engine, dnnl_cpu, 0));
    must_dnnl(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < 4; i++) {
        values[i] = malloc(400000 * sizeof(float));
        if (!values[i])
            return 1;
        fill(values[i], 400000);
    }
    beside_primitives("mlp", 128, say_all);
    beside_primitives("cnn", 64, say_all);
    beside_primitives("cnn", 128, say_all);
    beside_one_replica("mlp", 128);
    beside_one_replica("cnn", 64);
    around_a_step(1);
    around_a_step(2);
    taking_batches();
    for (int i = 0; i < 4; i++)
        free(values[i]);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
