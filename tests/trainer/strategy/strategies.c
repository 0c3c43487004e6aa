/* SPDX-License-Identifier: Apache-2.0 */
/* All strategies of one process: what each does to variables and sums, and that the same data give
 * the same losses under all of them. */
#include <math.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/device_doubles.h"
#include "trainer/loop/fit.h"

static mr_status st;

enum { ROWS = 53, WIDTH = 4, STEPS = 30 };

typedef struct losses {
    size_t n;
    float loss[STEPS];
} losses;

static mr_code keep_loss(void *ctx, const mr_train_event *e, mr_status *status)
{
    losses *x = ctx;
    (void)status;
    x->loss[x->n++] = e->loss;
    return MR_OK;
}

/* 30 steps of batches of 10, and of 3 at the end of each pass. */
static losses train_on(mr_strategy *s)
{
    static float x[ROWS * WIDTH], y[ROWS * 2];
    losses made = {0};
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_optimizer *o = NULL;
    test_fill(x, ROWS * WIDTH, 3);
    test_fill(y, ROWS * 2, 4);
    batches b = {
        .rows = ROWS,
        .batch = 10,
        .n_columns = 2,
        .columns = {{.dtype = MR_FLOAT32, .rows = 1, .rank = 2, .shape = {ROWS, WIDTH}, .data = x},
                    {.dtype = MR_FLOAT32, .rows = 1, .rank = 2, .shape = {ROWS, 2}, .data = y}}};
    mr_callback keep = {.ctx = &made, .batch_result = keep_loss};
    mr_fit_opts how = {
        .steps = STEPS, .callbacks = &keep, .n_callbacks = 1, .seed = 9, .check_replicas = true};
    mr_ok(mr_model_parse(&m,
                         "dense(7, activation=\"tanh\", kernel_regularizer=l2(0.01)).dense(5)"
                         ".dropout(0.3).dense(2)",
                         &st),
          &st);
    mr_ok(mr_loss_parse(&l, "mse", &st), &st);
    mr_ok(mr_optimizer_parse(&o, "adam(learning_rate=0.02)", &st), &st);
    mr_dataset *ds = test_batches(&b);
    mr_ok(mr_fit(s, m, ds, l, o, &how, NULL, &st), &st);
    mr_eq_u64(made.n, STEPS);
    mr_dataset_unref(ds);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    return made;
}

static mr_strategy *named(const char *name, const mr_strategy_opts *o)
{
    mr_strategy *s = NULL;
    mr_test_context("%s, %zu replicas", name ? name : "none", o ? o->num_replicas : 1);
    mr_ok(mr_strategy_by_name(&s, name, o, NULL, &st), &st);
    return s;
}

static void check_like(const losses *want, mr_strategy *s)
{
    losses got = train_on(s);
    for (size_t i = 0; i < STEPS; i++)
        mr_eq_f64(got.loss[i], want->loss[i], 2e-5 * (double)want->loss[i]);
    mr_strategy_free(s);
}

MR_TEST(losses_are_those_of_every_other_strategy)
{
    static const char *const several[] = {"mirrored", "central_storage"};
    static const char *const ops[] = {"auto", "hierarchical_copy", "reduction_to_one_device"};
    mr_strategy *one = named("one_device", NULL);
    losses want = train_on(one);
    mr_check(want.loss[STEPS - 1] < want.loss[0]);
    mr_strategy_free(one);
    for (size_t k = 0; k < 2; k++)
        for (size_t n = 1; n <= 4; n++)
            check_like(&want, named(several[k], &(mr_strategy_opts){.num_replicas = n}));
    for (size_t k = 0; k < 3; k++)
        check_like(&want, named("mirrored", &(mr_strategy_opts){.num_replicas = 3,
                                                                .cross_device_ops = ops[k]}));
}

/* What the default opens is open until the process ends. */
MR_TEST(losses_of_the_default_are_those_of_one_device)
{
    test_hide_accelerators();
    mr_strategy *one = named("one_device", NULL);
    losses want = train_on(one), got = train_on(named("default", NULL));
    mr_eq_mem(got.loss, want.loss, sizeof want.loss);
    got = train_on(mr_strategy_current());
    mr_eq_mem(got.loss, want.loss, sizeof want.loss);
    mr_strategy_free(one);
}

/* On devices whose memory the host and other devices' code cannot read, replicas have copies. */
MR_TEST(central_storage_is_mirrored_to_the_bit)
{
    static const char *const processors[] = {"cpu:0", "cpu:1", "cpu:2"};
    static const char *const devices[] = {"strict:0", "strict:1", "strict:0"};
    test_register_doubles();
    for (size_t n = 1; n <= 3; n++) {
        mr_strategy_opts any = {.num_replicas = n}, cpu = {.devices = processors, .n_devices = n},
                         strict = {.devices = devices, .n_devices = n};
        for (int k = 0; k < 2; k++) {
            mr_strategy *a = named("mirrored", k ? &cpu : &any),
                        *b = named("central_storage", k ? &strict : &any);
            losses want = train_on(a), got = train_on(b);
            mr_eq_mem(got.loss, want.loss, sizeof want.loss);
            mr_strategy_free(a);
            mr_strategy_free(b);
        }
    }
}

static mr_variable *two_values(mr_strategy *s)
{
    mr_variable *v = NULL;
    const mr_variable_opts o = {.name = "v"};
    mr_ok(mr_variable_new(&v, s, 1, (int64_t[]){2}, &o, &st), &st);
    mr_ok(mr_variable_assign(v, (float[]){1, -2.5f}, &st), &st);
    return v;
}

MR_TEST(a_variable_says_where_its_copies_are)
{
    static const struct {
        const char *strategy, *text;
        bool one_copy;
    } cases[] = {
        {"mirrored",
         "mirrored variable 'v', float32 [2]\n  0: cpu:0  [1, -2.5]\n  1: cpu:1  "
         "[1, -2.5]",
         false},
        {"central_storage", "central variable 'v', float32 [2]\n  0: cpu:0  [1, -2.5]", true}};
    char *text;
    test_hide_accelerators();
    for (size_t i = 0; i < 2; i++) {
        mr_strategy *s = named(cases[i].strategy, &(mr_strategy_opts){.num_replicas = 2});
        mr_variable *v = two_values(s);
        float read[2];
        mr_ok(mr_variable_to_text(v, &text, &st), &st);
        mr_eq_str(text, cases[i].text);
        mr_free(text);
        mr_check((mr_variable_copy(v, 0) == mr_variable_copy(v, 1)) == cases[i].one_copy);
        mr_ok(mr_variable_read(v, read, &st), &st);
        mr_eq_f64(read[1], -2.5, 0);
        mr_variable_free(v);
        mr_strategy_free(s);
    }
    mr_variable *v = NULL;
    const mr_variable_opts o = {.name = "w", .initializer = {.kind = MR_INIT_ONES}};
    mr_ok(mr_variable_new(&v, mr_strategy_current(), 0, NULL, &o, &st), &st);
    mr_ok(mr_variable_to_text(v, &text, &st), &st);
    mr_eq_str(text, "variable 'w', float32 []\n  0: cpu:0  1");
    mr_free(text);
    mr_variable_free(v);
    mr_ok(mr_variable_new(&v, mr_strategy_current(), 2, (int64_t[]){3, 3}, &o, &st), &st);
    mr_ok(mr_variable_to_text(v, &text, &st), &st);
    mr_eq_str(text, "variable 'w', float32 [3, 3]\n  0: cpu:0  [1, 1, 1, 1, 1, 1, 1, 1, ...]");
    mr_free(text);
    mr_variable_free(v);
}

static mr_code which_strategy(mr_replica *r, void *ctx, mr_status *status)
{
    mr_strategy **seen = ctx;
    (void)status;
    seen[mr_replica_id(r)] = mr_strategy_current();
    return MR_OK;
}

MR_TEST(there_is_always_a_current_strategy)
{
    mr_strategy *d = mr_strategy_current(), *s = NULL, *other = NULL, *seen[2] = {NULL};
    mr_distributed one;
    mr_array a, out;
    test_hide_accelerators(); /* it would have one until the process ends */
    mr_check(d && d == mr_strategy_current() && d == named("default", NULL));
    mr_eq_str(mr_strategy_name(d), "default");
    mr_eq_str(mr_strategy_communication(d), "none");
    mr_eq_u64(mr_strategy_num_replicas_in_sync(d), 1);
    /* reduce("SUM", 1., axis=None) */
    mr_ok(mr_tensor_alloc(&a, MR_FLOAT32, 0, NULL, &st), &st);
    *(float *)a.data = 1;
    mr_ok(mr_distributed_init_plain(&one, &a, &st), &st);
    mr_ok(mr_strategy_reduce(d, MR_REDUCE_SUM, &one, NULL, &out, &st), &st);
    mr_eq_f64(*(float *)out.data, 1, 0);
    mr_array_reset(&out);
    mr_distributed_reset(&one);
    mr_ok(mr_strategy_run(d, which_strategy, seen, &st), &st);
    mr_check(seen[0] == d);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_ok(mr_strategy_one_device(&other, "cpu:1", &st), &st);
    mr_eq_str(mr_device_name(mr_replica_device(mr_strategy_replica(other, 0))), "cpu:1");
    mr_strategy_enter(s);
    mr_check(mr_strategy_current() == s);
    mr_strategy_enter(other);
    mr_check(mr_strategy_current() == other);
    mr_ok(mr_strategy_run(s, which_strategy, seen, &st), &st);
    mr_check(seen[0] == s && seen[1] == s);
    mr_strategy_exit(other);
    mr_check(mr_strategy_current() == s);
    mr_strategy_exit(s);
    mr_check(mr_strategy_current() == d);
    mr_strategy_free(other);
    mr_strategy_free(s);
    mr_strategy_free(d); /* nothing */
    mr_check(mr_strategy_current() == d);
    mr_ok(mr_strategy_run(d, which_strategy, seen, &st), &st);
}

MR_TEST(a_strategy_is_chosen_by_name_or_by_its_replicas)
{
    static const struct {
        const char *name, *devices[2];
        size_t n_devices, replicas;
        const char *want;
    } good[] = {{NULL, {NULL}, 0, 0, "one_device"},
                {NULL, {NULL}, 0, 2, "mirrored"},
                {NULL, {"cpu:1"}, 1, 0, "one_device"},
                {"mirrored", {NULL}, 0, 1, "mirrored"},
                {"multi_worker_mirrored", {NULL}, 0, 2, "mirrored"}, /* a worker alone */
                {"one_device", {"cpu:1"}, 1, 1, "one_device"},
                {"central_storage", {"cpu:0", "cpu:1"}, 2, 0, "central_storage"}};
    test_hide_accelerators();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        mr_strategy_opts o = {.num_replicas = good[i].replicas,
                              .devices = good[i].n_devices ? good[i].devices : NULL,
                              .n_devices = good[i].n_devices};
        mr_strategy *s = named(good[i].name, &o);
        mr_eq_str(mr_strategy_name(s), good[i].want);
        mr_strategy_free(s);
    }
    static const struct {
        const char *name;
        size_t replicas;
        const char *ops;
        mr_code rc;
        const char *word;
    } bad[] = {{"one_device", 2, NULL, MR_INVALID_ARGUMENT, "found 2"},
               {"default", 2, NULL, MR_INVALID_ARGUMENT, "one replica"},
               {"tpu", 1, NULL, MR_UNIMPLEMENTED, "no TPU backend"},
               {"parameter_server", 1, NULL, MR_INVALID_ARGUMENT, "type ps"},
               {"mirorred", 1, NULL, MR_INVALID_ARGUMENT, "unknown strategy 'mirorred'"},
               {"mirrored", 2, "tree", MR_INVALID_ARGUMENT, "cross-device ops 'tree'"},
               {"mirrored", 2, "nccl", MR_OK, "nccl"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_strategy *s = NULL;
        mr_strategy_opts o = {.num_replicas = bad[i].replicas, .cross_device_ops = bad[i].ops};
        mr_test_context("%s", bad[i].word);
        mr_code rc = mr_strategy_by_name(&s, bad[i].name, &o, NULL, &st);
        /* With the module for GPUs nccl is known, but does not suit processors. */
        mr_check(bad[i].rc ? rc == bad[i].rc : rc == MR_NOT_FOUND || rc == MR_INVALID_ARGUMENT);
        mr_has_str(st.message, bad[i].word);
        mr_check(s == NULL);
    }
}
