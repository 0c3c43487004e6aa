/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy/strategy.h"
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/device_doubles.h"
#include "trainer/device/cpu/device_cpu.h"
#include "trainer/strategy/strategy_impl.h"

static mr_status st;

static mr_array tensor(mr_dtype t, int rank, const int64_t *shape, const void *values)
{
    mr_array a;
    mr_ok(mr_tensor_alloc(&a, t, rank, shape, &st), &st);
    if (mr_array_row_bytes(&a) > 0)
        memcpy(a.data, values, mr_array_row_bytes(&a));
    return a;
}

/* [0..3] and [4, 5] on two replicas, as after a partial batch. */
static mr_distributed uneven(mr_strategy *s, mr_dtype t)
{
    mr_distributed d;
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    if (t == MR_INT64) {
        d.values[0] = tensor(t, 1, (int64_t[]){4}, (int64_t[]){0, 1, 2, 3});
        d.values[1] = tensor(t, 1, (int64_t[]){2}, (int64_t[]){4, 5});
    } else {
        d.values[0] = tensor(t, 1, (int64_t[]){4}, (float[]){0, 1, 2, 3});
        d.values[1] = tensor(t, 1, (int64_t[]){2}, (float[]){4, 5});
    }
    return d;
}

MR_TEST(mean_along_an_axis_divides_by_the_rows_there_are)
{
    mr_strategy *s = open_strategy(2);
    mr_distributed d = uneven(s, MR_FLOAT32);
    mr_axes rows = {1, {0}}, last = {1, {-1}};
    mr_array out;
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &rows, &out, &st), &st);
    mr_eq_i64(out.rank, 0);
    mr_eq_f64(*(float *)out.data, 2.5, 0);
    mr_array_reset(&out);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &last, &out, &st), &st);
    mr_eq_f64(*(float *)out.data, 15, 0);
    mr_array_reset(&out);
    mr_distributed_reset(&d);
    d = uneven(s, MR_INT64);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &rows, &out, &st), &st);
    mr_eq_i64(out.dtype, MR_FLOAT64);
    mr_eq_f64(*(double *)out.data, 2.5, 0);
    mr_array_reset(&out);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &rows, &out, &st), &st);
    mr_eq_i64(out.dtype, MR_INT64);
    mr_eq_i64(*(int64_t *)out.data, 15);
    mr_array_reset(&out);
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

MR_TEST(without_an_axis_shapes_must_agree_and_mean_divides_by_replicas)
{
    mr_strategy *s = open_strategy(3);
    mr_distributed d;
    mr_array out;
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    for (int i = 0; i < 3; i++)
        d.values[i] = tensor(MR_FLOAT32, 1, (int64_t[]){2}, (float[]){(float)i, 10});
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, NULL, &out, &st), &st);
    mr_eq_i64(out.rank, 1);
    mr_eq_f64(((float *)out.data)[0], 1, 0);
    mr_eq_f64(((float *)out.data)[1], 10, 0);
    mr_array_reset(&out);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, NULL, &out, &st), &st);
    mr_eq_f64(((float *)out.data)[1], 30, 0);
    mr_array_reset(&out);
    mr_distributed_reset(&d);
    mr_strategy_free(s);
    s = open_strategy(2);
    d = uneven(s, MR_FLOAT32);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, NULL, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "differs in shape");
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

MR_TEST(empty_replicas_count_nothing_and_a_mean_of_nothing_is_nan)
{
    mr_strategy *s = open_strategy(2);
    mr_axes rows = {1, {0}};
    mr_distributed d;
    mr_array out;
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    d.values[0] = tensor(MR_FLOAT32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4});
    d.values[1] = tensor(MR_FLOAT32, 2, (int64_t[]){0, 2}, NULL);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &rows, &out, &st), &st);
    mr_eq_i64(out.rank, 1);
    mr_eq_f64(((float *)out.data)[0], 2, 0);
    mr_eq_f64(((float *)out.data)[1], 3, 0);
    mr_array_reset(&out);
    mr_array_reset(&d.values[0]);
    d.values[0] = tensor(MR_FLOAT32, 2, (int64_t[]){0, 2}, NULL);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &rows, &out, &st), &st);
    mr_check(isnan(((float *)out.data)[0]));
    mr_array_reset(&out);
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

MR_TEST(plain_values_count_once_a_replica_along_an_axis)
{
    mr_strategy *s = open_strategy(2);
    mr_axes rows = {1, {0}}, twice = {2, {0, -1}}, far = {1, {1}};
    mr_distributed d;
    mr_array a = tensor(MR_FLOAT32, 1, (int64_t[]){2}, (float[]){1, 2}), out;
    const mr_array *values;
    size_t n;
    mr_ok(mr_distributed_init_plain(&d, &a, &st), &st);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &rows, &out, &st), &st);
    mr_eq_f64(*(float *)out.data, 6, 0);
    mr_array_reset(&out);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, &rows, &out, &st), &st);
    mr_eq_f64(*(float *)out.data, 1.5, 0);
    mr_array_reset(&out);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, NULL, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_MEAN, &d, NULL, &out, &st), &st);
    mr_eq_f64(((float *)out.data)[1], 2, 0);
    mr_array_reset(&out);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &twice, &out, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &far, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_strategy_local_results(s, &d, &values, &n);
    mr_eq_u64(n, 1);
    mr_distributed_reset(&d);
    a = tensor(MR_FLOAT32, 0, NULL, (float[]){1});
    mr_ok(mr_distributed_init_plain(&d, &a, &st), &st);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &rows, &out, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "scalar");
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

MR_TEST(gather_joins_in_replica_order_along_any_axis)
{
    mr_strategy *s = open_strategy(2);
    mr_distributed d = uneven(s, MR_FLOAT32);
    mr_array out;
    mr_ok(mr_strategy_gather(s, &d, 0, &out, &st), &st);
    mr_eq_i64(out.shape[0], 6);
    for (int i = 0; i < 6; i++)
        mr_eq_f64(((float *)out.data)[i], i, 0);
    mr_array_reset(&out);
    mr_code_is(mr_strategy_gather(s, &d, 1, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_distributed_reset(&d);
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    d.values[0] = tensor(MR_INT64, 2, (int64_t[]){2, 1}, (int64_t[]){1, 4});
    d.values[1] = tensor(MR_INT64, 2, (int64_t[]){2, 2}, (int64_t[]){2, 3, 5, 6});
    mr_ok(mr_strategy_gather(s, &d, -1, &out, &st), &st);
    mr_eq_mem(out.data, ((int64_t[]){1, 2, 3, 4, 5, 6}), 6 * sizeof(int64_t));
    mr_array_reset(&out);
    mr_code_is(mr_strategy_gather(s, &d, 0, &out, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "differs in shape");
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

MR_TEST(bools_and_strings_are_gathered)
{
    static const char *const words[] = {"the", "quick", "", "brown"};
    mr_strategy *s = open_strategy(2);
    mr_distributed d;
    mr_array out;
    mr_axes rows = {1, {0}};
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    d.values[0] = tensor(MR_BOOL, 1, (int64_t[]){2}, (bool[]){true, false});
    d.values[1] = tensor(MR_BOOL, 1, (int64_t[]){1}, (bool[]){true});
    mr_ok(mr_strategy_gather(s, &d, 0, &out, &st), &st);
    mr_eq_i64(out.dtype, MR_BOOL);
    mr_eq_mem(out.data, ((bool[]){true, false, true}), 3);
    mr_array_reset(&out);
    mr_code_is(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, &rows, &out, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_distributed_reset(&d);
    mr_ok(mr_distributed_init(&d, s, &st), &st);
    for (int64_t r = 0, at = 0; r < 2; at += ++r) {
        mr_array *a = &d.values[r];
        mr_ok(mr_tensor_alloc(a, MR_STRING, 1, (int64_t[]){r + 1}, &st), &st);
        for (int64_t i = 0; i <= r; i++) {
            mr_buffer *b = NULL;
            size_t n = strlen(words[at + i]);
            mr_ok(mr_buffer_alloc(&b, n + 1, &st), &st);
            memcpy(mr_buffer_data(b), words[at + i], n + 1);
            ((mr_bytes *)a->data)[i] = (mr_bytes){mr_buffer_data(b), n};
            mr_ok(mr_buffer_hold(a->owner, b, &st), &st);
            mr_buffer_unref(b);
        }
    }
    mr_ok(mr_strategy_gather(s, &d, 0, &out, &st), &st);
    mr_distributed_reset(&d); /* the gathered strings stay */
    mr_eq_i64(out.shape[0], 3);
    for (int i = 0; i < 3; i++)
        mr_eq_str((const char *)((mr_bytes *)out.data)[i].data, words[i]);
    mr_array_reset(&out);
    mr_strategy_free(s);
}

MR_TEST(on_one_replica_the_sum_of_a_plain_value_is_the_value)
{
    mr_strategy *s = open_strategy(1);
    mr_distributed d;
    mr_array a = tensor(MR_FLOAT32, 0, NULL, (float[]){1}), out;
    mr_ok(mr_distributed_init_plain(&d, &a, &st), &st);
    mr_ok(mr_strategy_reduce(s, MR_REDUCE_SUM, &d, NULL, &out, &st), &st);
    mr_eq_i64(out.rank, 0);
    mr_eq_f64(*(float *)out.data, 1, 0);
    mr_array_reset(&out);
    mr_distributed_reset(&d);
    mr_strategy_free(s);
}

static mr_code twice_its_number(const mr_value_context *v, void *ctx, mr_array *out,
                                mr_status *status)
{
    mr_check(v->num_replicas_in_sync == 3);
    MR_TRY(mr_tensor_alloc(out, MR_INT64, 0, NULL, status));
    *(int64_t *)out->data = 2 * (int64_t)v->replica_id_in_sync_group;
    return v->replica_id_in_sync_group == *(size_t *)ctx ? mr_fail(status, MR_ABORTED, "no")
                                                         : MR_OK;
}

MR_TEST(values_come_from_a_function_once_a_replica)
{
    mr_strategy *s = open_strategy(3);
    mr_distributed d;
    const mr_array *values;
    size_t n, fail_at = 99;
    mr_ok(mr_strategy_distribute_values_from_function(s, twice_its_number, &fail_at, &d, &st), &st);
    mr_strategy_local_results(s, &d, &values, &n);
    mr_eq_u64(n, 3);
    for (size_t i = 0; i < n; i++)
        mr_eq_i64(*(int64_t *)values[i].data, 2 * i);
    mr_distributed_reset(&d);
    fail_at = 1;
    mr_code_is(mr_strategy_distribute_values_from_function(s, twice_its_number, &fail_at, &d, &st),
               MR_ABORTED, &st);
    mr_check(d.values == NULL);
    mr_strategy_free(s);
}

/* What the parts of a step found. */
typedef struct parts {
    pthread_t threads[2]; /* that called fn */
    atomic_uint running;
    bool met[2], flushed[2]; /* the other part ran meanwhile; a denormal number became 0 */
    int teams[2];            /* of OpenMP's threads */
} parts;

typedef struct part {
    parts *all;
    size_t id;
} part;

extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);

static volatile float smallest = FLT_MIN, denormal = FLT_MIN / 2;

static void meet_other(void *args)
{
    const part *p = args;
    parts *x = p->all;
    x->flushed[p->id] = smallest * 0.5f == 0 && denormal * 2 == 0;
    x->teams[p->id] = omp_get_max_threads();
    atomic_fetch_add(&x->running, 1);
    for (int i = 0; i < 20000 && atomic_load(&x->running) < 2; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    x->met[p->id] = atomic_load(&x->running) == 2;
}

static mr_code run_part(mr_replica *r, void *ctx, mr_status *status)
{
    part p = {ctx, mr_replica_id(r)};
    p.all->threads[p.id] = pthread_self();
    return mr_stream_launch(mr_replica_stream(r), meet_other, &p, sizeof p, status);
}

static mr_code do_nothing(mr_replica *r, void *ctx, mr_status *status)
{
    (void)r, (void)ctx, (void)status;
    return MR_OK;
}

static void check_parts(const parts *x, bool called)
{
    mr_check(!pthread_equal(x->threads[1], pthread_self()));
    mr_eq_i64(pthread_equal(x->threads[0], pthread_self()) != 0, called);
    for (size_t r = 0; r < 2; r++) {
        mr_check(x->met[r]);
        mr_eq_i64(x->teams[r], 1);
#if defined(__x86_64__) || defined(__aarch64__)
        mr_check(x->flushed[r]);
#endif
    }
    /* The thread that waited for its part, and may have run it, is as it was. */
    mr_check(smallest * 0.5f > 0 && denormal * 2 > 0);
    mr_eq_i64(omp_get_max_threads(), 3);
}

MR_TEST(parts_of_a_step_run_at_the_same_time_and_leave_the_calling_thread_as_it_was)
{
    test_hide_accelerators(); /* none of which runs functions of the host */
    mr_strategy *s = open_strategy(2);
    omp_set_num_threads(3);
    /* Also after a step of the other kind, each twice; and where steps have had so little to do
     * that no thread is woken for it. */
    for (int i = 0; i < 16; i++) {
        parts x = {.running = 0};
        bool called = i % 4 < 2;
        mr_test_context("step %d", i);
        for (int k = 0; i >= 8 && k < 3; k++)
            mr_ok(mr_strategy_run(s, do_nothing, NULL, &st), &st);
        if (called) {
            mr_ok(mr_strategy_run(s, run_part, &x, &st), &st);
        } else {
            mr_ok(mr_strategy_start(s, run_part, &x, &st), &st);
            mr_ok(mr_strategy_join(s, &st), &st);
        }
        check_parts(&x, called);
    }
    mr_strategy_free(s);
}

/* What an operation says of the labels of the replica that ctx says. */
static mr_code find_fault(mr_replica *r, void *ctx, mr_status *status)
{
    static const mr_math_fault bad = {.count = 1, .row = 3, .label = 7, .classes = 5};
    const size_t *which = ctx;
    return mr_replica_id(r) == *which ? mr_stream_copy(mr_replica_stream(r), mr__replica_fault(r),
                                                       &bad, sizeof bad, status)
                                      : MR_OK;
}

MR_TEST(a_label_out_of_range_is_found_on_any_replica)
{
    mr_strategy *s = open_strategy(3);
    for (size_t which = 0; which < 3; which++) {
        mr_code_is(mr_strategy_run(s, find_fault, &which, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "label 7 of row 3");
        mr_ok(mr_strategy_run(s, do_nothing, NULL, &st), &st);
    }
    mr_strategy_free(s);
}

typedef struct losses {
    mr_array per_example, weight;
    double out[4];
    mr_code nested;
} losses;

static mr_code average_inside(mr_replica *r, void *ctx, mr_status *status)
{
    losses *x = ctx;
    if (mr_replica_id(r) == 0)
        x->nested = mr_strategy_run(mr_replica_strategy(r), average_inside, ctx, NULL);
    MR_TRY(mr_compute_average_loss(&x->per_example, NULL, -1, &x->out[mr_replica_id(r)], status));
    return mr_scale_regularization_loss(&x->per_example, &x->out[2 + mr_replica_id(r)], status);
}

MR_TEST(average_loss_divides_by_the_global_batch)
{
    mr_strategy *s = open_strategy(2);
    losses x = {.per_example = tensor(MR_FLOAT32, 2, (int64_t[]){2, 2}, (float[]){1, 2, 3, 4}),
                .weight = tensor(MR_FLOAT32, 2, (int64_t[]){2, 1}, (float[]){1, 0.5f})};
    double loss;
    mr_ok(mr_compute_average_loss(&x.per_example, NULL, -1, &loss, &st), &st);
    mr_eq_f64(loss, 5, 0); /* outside any strategy: one replica */
    mr_ok(mr_compute_average_loss(&x.per_example, &x.weight, 10, &loss, &st), &st);
    mr_eq_f64(loss, (3 + 3.5) / 10, 1e-12);
    mr_ok(mr_compute_average_loss(&x.per_example, NULL, 0, &loss, &st), &st);
    mr_eq_f64(loss, 0, 0);
    mr_array half = tensor(MR_FLOAT32, 0, NULL, (float[]){0.5f});
    mr_ok(mr_compute_average_loss(&x.per_example, &half, 2, &loss, &st), &st);
    mr_eq_f64(loss, 2.5, 0);
    mr_array_reset(&half);
    mr_code_is(mr_compute_average_loss(&x.per_example, NULL, -2, &loss, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_ok(mr_strategy_run(s, average_inside, &x, &st), &st);
    mr_eq_f64(x.out[0], 2.5, 0);
    mr_eq_f64(x.out[1], 2.5, 0);
    mr_eq_f64(x.out[2] + x.out[3], 10, 0);
    mr_eq_i64(x.nested, MR_FAILED_PRECONDITION);
    mr_strategy_enter(s);
    mr_code_is(mr_compute_average_loss(&x.per_example, NULL, -1, &loss, &st),
               MR_FAILED_PRECONDITION, &st);
    mr_code_is(mr_scale_regularization_loss(&x.per_example, &loss, &st), MR_FAILED_PRECONDITION,
               &st);
    mr_strategy_exit(s);
    mr_array_reset(&x.per_example);
    x.per_example = tensor(MR_FLOAT32, 0, NULL, (float[]){1});
    mr_code_is(mr_compute_average_loss(&x.per_example, NULL, 1, &loss, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "scalar");
    mr_array_reset(&x.per_example);
    mr_array_reset(&x.weight);
    mr_strategy_free(s);
}

static void three_probe(size_t *count, char *why, size_t size)
{
    *count = 3;
    if (size > 0)
        why[0] = '\0';
}

MR_TEST(without_names_replicas_go_to_every_accelerator)
{
    static mr_device_backend other;
    mr_strategy *s = NULL;
    test_hide_accelerators(); /* but for those that it makes up */
    mr_ok(mr_strategy_mirrored(&s, NULL, &st), &st);
    mr_eq_u64(mr_strategy_num_replicas_in_sync(s), 1);
    mr_eq_str(mr_device_name(mr_replica_device(mr_strategy_replica(s, 0))), "cpu:0");
    mr_strategy_free(s);
    other = mr__device_cpu;
    other.kind = "other";
    other.probe = three_probe;
    mr_ok(mr_device_backend_register(&other, &st), &st);
    mr_ok(mr_strategy_mirrored(&s, NULL, &st), &st);
    mr_eq_u64(mr_strategy_num_replicas_in_sync(s), 3);
    mr_eq_str(mr_device_name(mr_replica_device(mr_strategy_replica(s, 2))), "other:2");
    mr_strategy_free(s);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 4}, &st), &st);
    mr_eq_str(mr_device_name(mr_replica_device(mr_strategy_replica(s, 3))), "other:0");
    mr_strategy_free(s);
    const char *names[] = {"other", "cpu", "other:1"};
    mr_strategy_opts mixed = {.devices = names, .n_devices = 3},
                     all = {.devices = names, .n_devices = 1};
    mr_ok(mr_strategy_mirrored(&s, &all, &st), &st);
    mr_eq_u64(mr_strategy_num_replicas_in_sync(s), 3);
    mr_strategy_free(s);
    s = NULL;
    mr_code_is(mr_strategy_mirrored(&s, &mixed, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "other:0 and cpu:0 are of different kinds");
    mr_check(s == NULL);
    mr_cluster two = {0}; /* which is not looked for */
    for (int i = 0; i < 2; i++)
        mr_ok(mr_cluster_add(&two, MR_TASK_WORKER, i ? "127.0.0.1:2" : "127.0.0.1:1", &st), &st);
    mr_ok(mr_cluster_set_task(&two, MR_TASK_WORKER, 0, &st), &st);
    mr_code_is(mr_strategy_multi_worker_mirrored(
                   &s, &mixed, &(mr_workers_opts){.cluster = &two, .connect_timeout_s = 1}, &st),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "other:0 and cpu:0 are of different kinds");
    mr_check(s == NULL);
    mr_cluster_reset(&two);
}

MR_TEST(what_the_processes_of_a_job_must_show_is_read_before_they_meet)
{
    const char *cpu = "cpu:0";
    mr_strategy_opts one = {.devices = &cpu, .n_devices = 1};
    mr_tls_opts half = {.cert = "none.pem"}, none = {.cert = "a", .key = "none.key", .ca = "b"};
    mr_cluster two = {0};
    mr_strategy *s = NULL;
    for (int i = 0; i < 2; i++)
        mr_ok(mr_cluster_add(&two, MR_TASK_WORKER, i ? "127.0.0.1:2" : "127.0.0.1:1", &st), &st);
    mr_ok(mr_cluster_set_task(&two, MR_TASK_WORKER, 0, &st), &st);
    mr_workers_opts w = {.cluster = &two, .cluster_token_file = "none.token"};
    mr_code_is(mr_strategy_multi_worker_mirrored(&s, &one, &w, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "none.token");
    w.cluster_token_file = NULL;
    w.tls = &half;
    mr_code_is(mr_strategy_multi_worker_mirrored(&s, &one, &w, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "tls_cert: a certificate and its key go together");
    w.tls = &none;
    mr_code_is(mr_strategy_multi_worker_mirrored(&s, &one, &w, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "tls_cert: cannot read a");
    mr_check(s == NULL);
    mr_cluster_reset(&two);
}

static mr_code take_and_fail(mr_replica *r, void *bad, mr_status *status)
{
    void *p;
    for (size_t bytes = 100; bytes < 1000; bytes += 400)
        MR_TRY(mr_replica_scratch(r, bytes, &p, status));
    return mr_replica_id(r) == *(size_t *)bad ? mr_fail(status, MR_DATA_LOSS, "no good") : MR_OK;
}

MR_TEST(scratch_is_given_back_after_a_step_that_fails_too)
{
    const char *names[] = {"counting:0", "counting:1"};
    mr_strategy *s = NULL;
    test_register_doubles();
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = names, .n_devices = 2}, &st),
          &st);
    unsigned before = test_blocks();
    for (size_t bad = 0; bad < 3; bad++) {
        mr_test_context("replica %zu fails", bad);
        mr_code_is(mr_strategy_run(s, take_and_fail, &bad, &st), bad < 2 ? MR_DATA_LOSS : MR_OK,
                   &st);
        mr_eq_u64(test_blocks(), before);
    }
    mr_strategy_free(s);
}

MR_TEST(bad_counts_and_devices_are_refused)
{
    mr_strategy *s = NULL;
    const char *names[] = {"cpu:0", "cuda:0"};
    test_hide_accelerators();
    mr_code_is(
        mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = MR_MAX_REPLICAS + 1}, &st),
        MR_INVALID_ARGUMENT, &st);
    mr_code_is(
        mr_strategy_mirrored(
            &s, &(mr_strategy_opts){.num_replicas = 3, .devices = names, .n_devices = 2}, &st),
        MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = names, .n_devices = 2}, &st),
               MR_NOT_FOUND, &st);
    mr_has_str(st.message, "cuda");
    mr_check(s == NULL);
}

static mr_code nothing(mr_replica *r, void *ctx, mr_status *why)
{
    (void)r, (void)ctx, (void)why;
    return MR_OK;
}

static bool refuses(mr_code rc)
{
    return rc == MR_FAILED_PRECONDITION && strstr(st.message, "this one was forked from");
}

MR_TEST(a_forked_child_cannot_use_a_strategy_and_does_not_wait)
{
    MR_TEST_THREADS_AFTER_FORK;
    mr_strategy *s = open_strategy(2);
    mr_ok(mr_strategy_run(s, nothing, NULL, &st), &st);
    mr_stream *stream = mr_replica_stream(mr_strategy_replica(s, 0));
    mr_device *device = mr_replica_device(mr_strategy_replica(s, 0));
    /* What is used without a strategy lasts as long as the process, which the double of CUDA takes
     * for a leak. */
    bool has_default = strncmp(mr_device_name(device), "cpu", 3) == 0;
    if (has_default)
        mr_ok(mr_strategy_run(mr_strategy_current(), nothing, NULL, &st), &st);
    mr_event *event;
    void *p;
    mr_ok(mr_event_new(&event, device, &st), &st);
    mr_ok(mr_device_alloc(device, MR_MEMORY_DEVICE, 64, &p, &st), &st);
    pid_t child = mr_test_fork();
    mr_check(child >= 0);
    if (child == 0) {
        alarm(60);
        char byte = 0;
        void *more;
        mr_stream *other;
        bool ok = refuses(mr_strategy_run(s, nothing, NULL, &st)) &&
                  refuses(mr_strategy_start(s, nothing, NULL, &st)) &&
                  refuses(mr_strategy_join(s, &st)) &&
                  refuses(mr_stream_synchronize(stream, &st)) &&
                  refuses(mr_stream_copy(stream, p, &byte, 1, &st)) &&
                  refuses(mr_stream_record(stream, event, &st)) &&
                  refuses(mr_event_synchronize(event, &st)) && mr_event_done(event) &&
                  refuses(mr_stream_new(&other, device, MR_STREAM_COPY, &st)) &&
                  refuses(mr_device_alloc(device, MR_MEMORY_HOST, 1, &more, &st));
        mr_event_free(event);
        mr_device_free(device, MR_MEMORY_DEVICE, p);
        mr_strategy_free(s);
        s = open_strategy(2); /* its own work */
        ok = ok && mr_strategy_run(s, nothing, NULL, &st) == MR_OK &&
             (!has_default || mr_strategy_run(mr_strategy_current(), nothing, NULL, &st) == MR_OK);
        mr_strategy_free(s);
        _exit(!ok);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child);
    mr_check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    mr_ok(mr_strategy_run(s, nothing, NULL, &st), &st);
    mr_event_free(event);
    mr_device_free(device, MR_MEMORY_DEVICE, p);
    mr_strategy_free(s);
}
