/* SPDX-License-Identifier: Apache-2.0 */
/* A model's text to its layers. The chain is a tree that leans left: the last layer is its root. */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model_impl.h"

static const mr__layer_desc *const layers[] = {
#define MR_LAYER(name) &mr__layer_##name,
#include "trainer/layers.def"
#undef MR_LAYER
};
enum { N_LAYERS = sizeof layers / sizeof *layers };

struct input_params {
    mr__dims shape;
};
static const mr__arg input_args[] = {MR__ARG(struct input_params, shape, MR__DIMS, .min = 1,
                                             .max = 1 << 30, .doc = "Shape of one example."),
                                     {0}};

static bool is_input(const mr_expr *e)
{
    return e->kind == MR_EX_CALL && strcmp(e->text, "input") == 0;
}

static mr_code make_layer(const mr__source *src, const mr_expr *e, mr__layer *l, mr_status *st)
{
    for (size_t i = 0; i < N_LAYERS && !l->desc; i++)
        if (strcmp(layers[i]->name, e->text) == 0)
            l->desc = layers[i];
    if (!l->desc) {
        char known[256];
        size_t at = 0;
        for (size_t i = 0; i < N_LAYERS && at < sizeof known; i++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                                   layers[i]->name);
        uint32_t begin = e->begin;
        if (e->kind == MR_EX_METHOD) /* point at the name, not at the chain before it */
            for (begin = e->children[0]->end; begin < e->end && src->text[begin] != e->text[0];)
                begin++;
        return mr_expr_fail(st, MR_INVALID_ARGUMENT, src->text, src->size, begin,
                            "there is no layer '%s'; there are input (first) and %s", e->text,
                            known);
    }
    l->params = mr_calloc(1, l->desc->params_size ? l->desc->params_size : 1);
    if (!l->params)
        return mr_fail_memory(st, l->desc->params_size, "a layer");
    return mr__args_bind(src, e, l->desc->args, l->params, st);
}

static mr_code read_chain(mr_model *m, const mr__source *src, const mr_expr *e, mr_status *st)
{
    size_t n = 0;
    const mr_expr *first = e;
    for (; first->kind == MR_EX_METHOD; first = first->children[0])
        n++;
    if (first->kind != MR_EX_CALL)
        return mr__args_fail(src, first, st,
                             "a model is a chain of layers, such as "
                             "input(28, 28).flatten().dense(10)");
    m->input.rank = -1;
    if (is_input(first)) {
        struct input_params p;
        MR_TRY(mr__args_bind(src, first, input_args, &p, st));
        m->input = p.shape;
    } else {
        n++;
    }
    if (n == 0)
        return mr__args_fail(src, e, st, "a model needs at least one layer behind input");
    m->layers = mr_calloc(n, sizeof *m->layers);
    if (!m->layers)
        return mr_fail_memory(st, n * sizeof *m->layers, "a model");
    m->n_layers = n;
    for (size_t i = n; i-- > 0; e = e->kind == MR_EX_METHOD ? e->children[0] : e)
        MR_TRY(make_layer(src, e, &m->layers[i], st));
    return MR_OK;
}

mr_code mr_model_parse(mr_model **out, const char *text, mr_status *st)
{
    mr__source src = {text, strlen(text)};
    const mr_expr *e;
    MR_TRY(mr_expr_parse(text, src.size, &e, st));
    mr_model *m = mr_calloc(1, sizeof *m);
    mr_code rc = m ? read_chain(m, &src, e, st) : mr_fail_memory(st, sizeof *m, "a model");
    mr_expr_unref(e);
    if (rc != MR_OK) {
        mr_model_free(m);
        return rc;
    }
    *out = m;
    return MR_OK;
}
