/* SPDX-License-Identifier: Apache-2.0 */
/* Training on arrays in memory. */
#include "trainer/loop/fit_arrays.h"
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/parts.h"

enum { ROWS = 10 };
static mr_status st;
static float features[ROWS], labels[ROWS], weights[ROWS];

static parts make(size_t replicas)
{
    for (int i = 0; i < ROWS; i++) {
        features[i] = (float)i;
        labels[i] = 0;
        weights[i] = (float)(1 << i);
    }
    return parts_make(replicas, "dense(1, kernel_initializer=ones, use_bias=false)", "mae",
                      "sgd(0.0)", NULL);
}

static const mr_array
    x = {.dtype = MR_FLOAT32, .rank = 1, .shape = {1}, .rows = ROWS, .data = features},
    y = {.dtype = MR_FLOAT32, .rank = 1, .shape = {1}, .rows = ROWS, .data = labels},
    w = {.dtype = MR_FLOAT32, .rows = ROWS, .data = weights};

/* With weights that stay 1, batches of one give their feature as the loss. */
typedef struct losses {
    float v[4 * ROWS];
    size_t n;
} losses;

static mr_code note(void *ctx, const mr_train_event *e, mr_status *status)
{
    losses *l = ctx;
    (void)status;
    l->v[l->n++] = e->loss;
    return MR_OK;
}

static losses train(const mr_fit_arrays *a, size_t replicas, uint64_t seed, int64_t epochs)
{
    parts p = make(replicas);
    losses l = {.n = 0};
    const mr_callback c = {.ctx = &l, .batch_result = note};
    mr_ok(mr_fit_from_arrays(
              p.s, p.m, a, p.loss, p.o,
              &(mr_fit_opts){.epochs = epochs, .seed = seed, .callbacks = &c, .n_callbacks = 1},
              NULL, &st),
          &st);
    parts_drop(&p);
    return l;
}

/* Is each of the features there once? */
static bool is_permutation(const float *v)
{
    unsigned seen = 0;
    for (int i = 0; i < ROWS; i++)
        seen |= 1U << (int)v[i];
    return seen == (1U << ROWS) - 1;
}

MR_TEST(examples_are_shuffled_anew_in_each_epoch)
{
    const mr_fit_arrays a = {.x = &x, .y = &y, .batch_size = 1};
    losses l = train(&a, 1, 3, 3);
    mr_eq_u64(l.n, 3 * ROWS);
    for (int i = 0; i < 3; i++)
        mr_check(is_permutation(l.v + i * ROWS));
    mr_check(memcmp(l.v, l.v + ROWS, ROWS * sizeof(float)) != 0);
    mr_check(memcmp(l.v + ROWS, l.v + 2 * ROWS, ROWS * sizeof(float)) != 0);
    losses same = train(&a, 1, 3, 3), other = train(&a, 1, 4, 3);
    mr_eq_mem(same.v, l.v, 3 * ROWS * sizeof(float));
    mr_check(memcmp(other.v, l.v, ROWS * sizeof(float)) != 0);
}

MR_TEST(order_is_kept_where_that_is_asked_for)
{
    const mr_fit_arrays a = {.x = &x, .y = &y, .batch_size = 4, .shuffle = MR_NO};
    static const float means[] = {1.5f, 5.5f, 8.5f};
    for (size_t replicas = 1; replicas < 4; replicas++) {
        losses l = train(&a, replicas, 0, 1);
        mr_eq_u64(l.n, 3);
        for (int i = 0; i < 3; i++)
            mr_eq_f64(l.v[i], means[i], 1e-6);
    }
    losses l = train(&(mr_fit_arrays){.x = &x, .y = &y}, 1, 0, 1); /* 32 a batch */
    mr_eq_u64(l.n, 1);
    mr_eq_f64(l.v[0], 4.5, 1e-6);
}

MR_TEST(weights_and_a_part_for_validation)
{
    parts p = make(2);
    mr_fit_result r;
    mr_history *h = NULL;
    mr_ok(mr_history_new(&h, &st), &st);
    mr_ok(mr_fit_from_arrays(p.s, p.m, &(mr_fit_arrays){.x = &x, .y = &y, .validation_split = 0.3},
                             p.loss, p.o, &(mr_fit_opts){.history = h}, &r, &st),
          &st);
    mr_eq_i64(r.rows, 7);
    mr_eq_f64(r.loss, 3, 1e-6);                              /* of 0 to 6 */
    mr_eq_f64(mr_history_values(h, "val_loss")[0], 8, 1e-6); /* 7, 8, 9 */
    mr_ok(mr_fit_from_arrays(p.s, p.m, &(mr_fit_arrays){.x = &x, .y = &y, .sample_weight = &w},
                             p.loss, p.o, NULL, &r, &st),
          &st);
    double want = 0;
    for (int i = 0; i < ROWS; i++)
        want += (double)i * (1 << i) / ROWS;
    mr_eq_f64(r.loss, want, 1e-3);
    mr_history_free(h);
    parts_drop(&p);
}

MR_TEST(arrays_that_do_not_fit_are_refused)
{
    mr_array few = y, ragged = y;
    few.rows = 3;
    ragged.storage = MR_RAGGED;
    const struct {
        mr_fit_arrays a;
        const char *word;
    } cases[] = {{{.x = &x}, "x and y"},
                 {{.x = &x, .y = &few}, "y has 3 rows, but x has 10"},
                 {{.x = &x, .y = &ragged}, "y is not a dense array"},
                 {{.x = &x, .y = &y, .batch_size = -1}, "batch_size"},
                 {{.x = &x, .y = &y, .validation_split = 1}, "validation_split"},
                 {{.x = &x, .y = &y, .validation_split = 0.999}, "none for training"},
                 {{.x = &x, .y = &y, .validation_split = 1e-30}, "none for validation"}};
    parts p = make(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_code_is(mr_fit_from_arrays(p.s, p.m, &cases[i].a, p.loss, p.o, NULL, NULL, &st),
                   MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].word);
    }
    few.rows = 0;
    mr_array none = x;
    none.rows = 0;
    mr_code_is(mr_fit_from_arrays(p.s, p.m, &(mr_fit_arrays){.x = &none, .y = &few}, p.loss, p.o,
                                  NULL, NULL, &st),
               MR_FAILED_PRECONDITION, &st);
    parts_drop(&p);
}
