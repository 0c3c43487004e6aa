/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"

static mr_code add_text(mr__settings *out, const char *layer, const char *what, const char *value,
                        mr_status *st)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s", layer, what);
    return mr__settings_add(out, name, value, st);
}

static const char *name_of(const mr_model *m, size_t at)
{
    return at > 0 ? m->layers[at - 1].name : "the features";
}

/* "dense, dense_1" */
static mr_code add_sources(const mr_model *m, const mr_layer *l, mr__settings *out, mr_status *st)
{
    char *all = mr_strdup(name_of(m, l->source));
    for (size_t k = 1; l->sources && all && k < l->n_inputs; k++) {
        char *longer = mr_strf("%s, %s", all, name_of(m, l->sources[k]));
        mr_free(all);
        all = longer;
    }
    mr_code rc = all ? add_text(out, l->name, "reads", all, st)
                     : mr_fail_memory(st, 0, "the settings of a model");
    mr_free(all);
    return rc;
}

mr_code mr__model_settings(const mr_model *m, mr__settings *out, mr_status *st)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        if (l->own)
            MR_TRY(mr__settings_add_table(out, l->name, l->desc->is.name,
                                          l->params ? l->desc->is.params : NULL, l->params, st));
        if (!l->input)
            MR_TRY(add_sources(m, l, out, st));
    }
    for (size_t k = 0; k < m->n_outputs && m->n_outputs > 1; k++) {
        char name[96];
        snprintf(name, sizeof name, "output %.60s", mr_model_output_name(m, k));
        MR_TRY(mr__settings_add(out, name, name_of(m, m->outputs[k]), st));
    }
    return MR_OK;
}
