/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_IMPL_H
#define MR_TRAINER_MODEL_IMPL_H
/* What model.c (making and freeing), model_text.c (parsing) and model_run.c (passes) share. */
#include "trainer/layer.h"
#include "trainer/model.h"

/* Gradients lie in one stretch a replica, in the order the backward pass makes them: last layer
 * first. A bucket is a piece of it. */
typedef struct mr__bucket {
    size_t from, n; /* floats */
    size_t layer;   /* ready when this layer's backward pass is done */
} mr__bucket;

/* One replica's part of a built model. Pointers into device memory. */
typedef struct mr__model_replica {
    size_t capacity;       /* rows that the buffers below hold */
    float **outputs;       /* one a layer, NULL for views */
    float *flow[2];        /* gradients between layers, taking turns */
    float *gradients;      /* see mr__bucket */
    const float **weights; /* one a variable */
    float **grads;         /* one a variable, into gradients */
    uint64_t *tickets;     /* one a bucket */
    bool summing;          /* buckets were started and not all waited for */
    bool ready;            /* a training pass went forward */
    size_t rows;
    int64_t first_row;
    uint64_t step; /* training passes so far */
    const float *x;
} mr__model_replica;

struct mr_model {
    mr__dims input; /* rank -1: not given */
    size_t n_layers;
    mr__layer *layers;
    /* built */
    mr_strategy *s;
    uint64_t seed;
    size_t n_variables;
    mr_variable **variables; /* in layer order */
    size_t *first_variable;  /* of each layer; n_layers + 1 */
    size_t *gradient_at;     /* of each variable, floats into gradients */
    size_t n_gradients;      /* floats */
    size_t widest;           /* most values of one example between two layers */
    size_t n_buckets;
    mr__bucket *buckets;
    mr__model_replica *replicas;
};

/* The activation behind the last values, for losses; NULL: none. */
const mr__activation *mr__model_last_activation(const mr_model *m);
#endif
