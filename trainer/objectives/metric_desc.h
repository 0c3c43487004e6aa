/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_METRIC_DESC_H
#define MR_TRAINER_OBJECTIVES_METRIC_DESC_H
/* Metrics as data: a descriptor with one function. Those of the library are in
 * trainer/objectives/metrics/, related ones in one file; mr_metric_register adds others.
 *
 * thread   update: each replica in its own, inside steps
 * since    0.1 */
#include "../component.h"
#include "../device/math.h"
#include "../strategy/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors and totals are in device memory. */
typedef struct mr_metric_pass {
    const void *params;
    mr_replica *replica;
    mr_stream *stream; /* the replica's */
    const mr_math_table *math;
    const mr_array *labels; /* NULL: none */
    const mr_array *predictions;
    double threshold; /* for metrics that compare predictions with a threshold */
    bool logits;      /* predictions are logits */
    /* Updated by adding: a sum and a count, both weighted; with the slot totals, the number of
     * values it returns. */
    double *total;
    const char *name; /* of the metric, for messages */
    /* Sample weights, one for every losses_per_weight losses, that is, rows of the predictions'
     * last axis. NULL: all 1. */
    const float *weights;
    size_t losses_per_weight;
} mr_metric_pass;

typedef struct mr_metric_desc {
    mr_component is;
    bool needs_labels;
    bool weighs; /* update reads weights; otherwise weighted(...) refuses the metric */
    /* Submits operations to the stream. */
    mr_code (*update)(const mr_metric_pass *p, mr_status *st);
    /* The number of totals, and the result from their sums over replicas and workers. Both or
     * neither. NULL: two totals, and the result is total[0] / total[1], or 0 if total[1] is 0. */
    size_t (*totals)(const void *params);
    double (*result)(const void *params, const double *totals);
} mr_metric_desc;

/* The operation of the table for this metric, with labels and weights, for n losses of `width`
 * values that are each compared or counted. To be completed, and submitted with p->math->metric. */
MR_API mr_math_metric mr_metric_operation(const mr_metric_pass *p, mr_math_metric_kind kind,
                                          size_t n, size_t width);

/* Registers a metric for mr_metric_parse; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_metric_register(const mr_metric_desc *d, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
