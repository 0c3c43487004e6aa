/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_LAYER_RIG_H
#define MR_TESTS_TRAINER_LAYER_RIG_H
/* One layer on a device without a model around it: its output, and its gradients compared with
 * finite differences. Runs on the devices of math_bench.h. */
#include "tests/trainer/kit/math_bench.h"
#include "trainer/model/model_impl.h"

typedef struct rig {
    bench *b;
    mr_model *m;
    const mr_layer *l;
    size_t rows, in, out; /* in, out: values of one example */
    size_t size[MR_MAX_LAYER_VARIABLES];
    float *x, *dy; /* on the host, to be changed at will: [rows, in], [rows, out] */
    float *w[MR_MAX_LAYER_VARIABLES];
    double *y, *dx; /* what the layer gave */
    double *dw[MR_MAX_LAYER_VARIABLES];
    bool training;
} rig;

/* The layer of text over examples of this shape; x, dy and the variables are random. */
rig rig_open(bench *b, const char *text, int rank, const int64_t *shape, size_t rows);
/* Runs forward, and where `backward` backward, into y, dx and dw. */
void rig_run(rig *r, bool backward);
/* Gradients against finite differences of `step`, at some of the values of x and of each variable.
 */
void rig_check_gradients(rig *r, double step, double tolerance);
void rig_close(rig *r);
#endif
