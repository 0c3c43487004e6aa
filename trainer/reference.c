/* SPDX-License-Identifier: Apache-2.0 */
/* What the descriptors say, as a list: the source of the reference page. */
#include <stdio.h>
#include <string.h>
#include "trainer/model/model.h"
#include "trainer/registry.h"

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
