/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LAYER_H
#define MR_TRAINER_LAYER_H
/* A layer is data: one descriptor a file in trainer/layers/, listed in layers.def.
 *
 * The model owns all memory. For each replica and layer it has the output y[rows, out values] and
 * gradients for the variables; a layer whose output is its input in another shape says `view` and
 * has neither pass. Gradients overwrite: every variable belongs to one layer. */
#include "trainer/args.h"
#include "trainer/variable.h"

enum { MR__MAX_LAYER_VARIABLES = 4 };

typedef struct mr__layer mr__layer;

/* What a layer wants to have, told by build. */
typedef struct mr__variable_spec {
    const char *name; /* "kernel" */
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_initializer initializer;
    mr_regularizer regularizer;
    size_t fan_in, fan_out;
} mr__variable_spec;

/* One pass of one replica over its rows. */
typedef struct mr__pass {
    const mr__layer *layer;
    size_t rows; /* at least 1 */
    bool training;
    uint64_t key;          /* random bits of this layer in this step; the same on every replica */
    uint64_t first_row;    /* number of row 0 in the global batch */
    const float *const *w; /* the layer's variables, as build told them */
    const float *x;        /* [rows, in values] */
    float *y;              /* [rows, out values] */
    /* backward */
    float *dy;        /* [rows, out values]; may be overwritten */
    float *dx;        /* [rows, in values]; NULL: nobody needs it */
    float *const *dw; /* to be overwritten */
} mr__pass;

typedef struct mr__layer_desc {
    const char *name, *doc, *example;
    const mr__arg *args;
    uint32_t params_size;
    bool view; /* output is input */
    /* From layer->in: sets layer->out and the variables wanted. */
    mr_code (*build)(mr__layer *l, mr_status *st);
    mr_code (*forward)(const mr__pass *p, mr_status *st);
    mr_code (*backward)(const mr__pass *p, mr_status *st);
} mr__layer_desc;

struct mr__layer {
    const mr__layer_desc *desc;
    void *params;
    mr__dims in, out; /* of one example */
    size_t n_wanted;
    mr__variable_spec wanted[MR__MAX_LAYER_VARIABLES];
};

/* Values in one example of this shape; sizes were checked when the model was built. */
static inline size_t mr__dims_values(const mr__dims *d)
{
    size_t n = 1;
    for (int i = 0; i < d->rank; i++)
        n *= (size_t)d->shape[i];
    return n;
}

#define MR_LAYER(name) extern const mr__layer_desc mr__layer_##name;
#include "trainer/layers.def"
#undef MR_LAYER
#endif
