/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_METRIC_DESC_H
#define MR_TRAINER_METRIC_DESC_H
/* A metric is data: one descriptor, several of one kind in a file in trainer/metrics/, listed in
 * metrics.def. */
#include "trainer/metric.h"

typedef struct mr__metric_pass {
    const mr_array *labels; /* NULL: none */
    const mr_array *predictions;
    double threshold;
    double total; /* out: sum over what was counted */
    double count; /* out */
} mr__metric_pass;

typedef struct mr__metric_desc {
    const char *name, *alias, *doc;
    bool needs_labels;
    mr_code (*update)(mr__metric_pass *p, mr_status *st);
} mr__metric_desc;

#define MR_METRIC(name) extern const mr__metric_desc mr__metric_##name;
#include "trainer/metrics.def"
#undef MR_METRIC
#endif
