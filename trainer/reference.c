/* SPDX-License-Identifier: Apache-2.0 */
/* What the descriptors say, as a list: the source of the reference page. */
#include <stdio.h>
#include "trainer/layer.h"
#include "trainer/loss_desc.h"
#include "trainer/metric_desc.h"
#include "trainer/model.h"
#include "trainer/optimizer_desc.h"

static void list(const mr__arg *args, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; args[i].name && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? ", " : "", args[i].name);
}

void mr_model_reference(void (*fn)(void *ctx, const char *group, const char *name, const char *doc,
                                   const char *arguments, const char *example),
                        void *ctx)
{
    char args[512];
#define MR_LAYER(n)                                                                                \
    list(mr__layer_##n.args, args, sizeof args);                                                   \
    fn(ctx, "layer", mr__layer_##n.name, mr__layer_##n.doc, args, mr__layer_##n.example);
#include "trainer/layers.def"
#undef MR_LAYER
#define MR_LOSS(n)                                                                                 \
    list(mr__loss_##n.args, args, sizeof args);                                                    \
    fn(ctx, "loss", mr__loss_##n.name, mr__loss_##n.doc, args, mr__loss_##n.example);
#include "trainer/losses.def"
#undef MR_LOSS
#define MR_OPTIMIZER(n)                                                                            \
    list(mr__optimizer_##n.args, args, sizeof args);                                               \
    fn(ctx, "optimizer", mr__optimizer_##n.name, mr__optimizer_##n.doc, args,                      \
       mr__optimizer_##n.example);
#include "trainer/optimizers.def"
#undef MR_OPTIMIZER
#define MR_METRIC(n)                                                                               \
    fn(ctx, "metric", mr__metric_##n.name, mr__metric_##n.doc, "", mr__metric_##n.name);
#include "trainer/metrics.def"
#undef MR_METRIC
}
