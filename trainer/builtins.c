/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that refers to every component: each room lists its own in a .def file. */
#include "trainer/builtins.h"
#include <stdio.h>
#include <string.h>
#include "trainer/device/cpu/device_cpu.h"
#include "trainer/loop/callback_desc.h"
#include "trainer/model/layer.h"
#include "trainer/model/model.h"
#include "trainer/objectives/loss_desc.h"
#include "trainer/objectives/metric_desc.h"
#include "trainer/objectives/optimizer_desc.h"
#include "trainer/objectives/schedule.h"

const mr_device_backend *const mr__builtin_devices[] = {&mr__device_cpu, NULL};

#define MR_LAYER(name)     extern const mr_layer_desc mr__layer_##name;
#define MR_LOSS(name)      extern const mr_loss_desc mr__loss_##name;
#define MR_OPTIMIZER(name) extern const mr_optimizer_desc mr__optimizer_##name;
#define MR_METRIC(name)    extern const mr_metric_desc mr__metric_##name;
#define MR_CALLBACK(name)  extern const mr_callback_desc mr__callback_##name;
#include "trainer/loop/callbacks.def"
#include "trainer/model/layers.def"
#include "trainer/objectives/losses.def"
#include "trainer/objectives/metrics.def"
#include "trainer/objectives/optimizers.def"
#undef MR_LAYER
#undef MR_LOSS
#undef MR_OPTIMIZER
#undef MR_METRIC
#undef MR_CALLBACK

static const mr_component *const layers[] = {
#define MR_LAYER(name) &mr__layer_##name.is,
#include "trainer/model/layers.def"
    NULL};
static const mr_component *const losses[] = {
#define MR_LOSS(name) &mr__loss_##name.is,
#include "trainer/objectives/losses.def"
    NULL};
static const mr_component *const optimizers[] = {
#define MR_OPTIMIZER(name) &mr__optimizer_##name.is,
#include "trainer/objectives/optimizers.def"
    NULL};
static const mr_component *const metrics[] = {
#define MR_METRIC(name) &mr__metric_##name.is,
#include "trainer/objectives/metrics.def"
    NULL};
static const mr_component *const callbacks[] = {
#define MR_CALLBACK(name) &mr__callback_##name.is,
#include "trainer/loop/callbacks.def"
    NULL};

static const mr_component *const schedules[] = {&mr__exponential_decay, &mr__cosine_decay,
                                                &mr__piecewise_constant_decay, NULL};

mr__registry mr__layers = {"layer", layers, .lock = PTHREAD_MUTEX_INITIALIZER};
mr__registry mr__losses = {"loss", losses, .lock = PTHREAD_MUTEX_INITIALIZER};
mr__registry mr__optimizers = {"optimizer", optimizers, .lock = PTHREAD_MUTEX_INITIALIZER};
mr__registry mr__schedules = {"schedule", schedules, .lock = PTHREAD_MUTEX_INITIALIZER};
mr__registry mr__metrics = {"metric", metrics, &mr__losses, .lock = PTHREAD_MUTEX_INITIALIZER};
mr__registry mr__callbacks = {"callback", callbacks, .lock = PTHREAD_MUTEX_INITIALIZER};

const mr_component *mr_component_at(mr_component_group group, size_t i)
{
    static mr__registry *const groups[] = {
        [MR_LAYERS] = &mr__layers,         [MR_LOSSES] = &mr__losses,
        [MR_OPTIMIZERS] = &mr__optimizers, [MR_SCHEDULES] = &mr__schedules,
        [MR_METRICS] = &mr__metrics,       [MR_CALLBACKS] = &mr__callbacks};
    return group < MR_COMPONENT_GROUPS ? mr__registry_at(groups[group], i) : NULL;
}

void mr_model_reference(void (*fn)(void *ctx, const char *group, const char *name, const char *doc,
                                   const char *arguments, const char *example),
                        void *ctx)
{
    mr__registry *const all[] = {&mr__layers, &mr__losses, &mr__optimizers, &mr__metrics,
                                 &mr__callbacks};
    static const char *const common[] = {
        "name", "", "weight_decay, clipnorm, global_clipnorm, clipvalue", "", ""};
    const mr_component *c;
    for (size_t g = 0; g < sizeof all / sizeof *all; g++)
        for (size_t i = 0; (c = mr__registry_at(all[g], i)); i++) {
            char args[512] = "";
            for (const mr_param *p = c->params; p && p->name; p++)
                snprintf(args + strlen(args), sizeof args - strlen(args), "%s%s",
                         p == c->params ? "" : ", ", p->name);
            size_t at = strlen(args);
            snprintf(args + at, sizeof args - at, "%s%s", at > 0 && *common[g] ? ", " : "",
                     common[g]);
            fn(ctx, all[g]->group, c->name, c->doc, args, c->example);
        }
}
