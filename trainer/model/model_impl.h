/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_IMPL_H
#define MR_TRAINER_MODEL_IMPL_H
/* What model.c (making and freeing), model_text.c (parsing), model_plan.c (where gradients go) and
 * model_run.c (passes) share. */
#include "trainer/model/layer.h"
#include "trainer/model/model.h"

/* Gradients lie in one stretch a replica, in the order the backward pass makes them: last layer
 * first; what running means are made of lies among them. A bucket is a piece of it. The first
 * values of all are not gradients: whether a label was out of range, whose sum tells all replicas
 * not to update, whether the replica has rows, whose sum running means are divided by, and a word
 * whose sum orders copies of central variables. */
enum { MR__WORD_FAULT, MR__WORD_HAS_ROWS, MR__WORD_ORDER };

typedef struct mr__bucket {
    size_t from, n; /* floats */
    size_t layer;   /* ready when this layer's backward pass is done */
} mr__bucket;

/* Where the gradient by what a layer reads goes: to a slot, a piece of memory that layers take
 * turns to use. What is read by several layers has the sum: the first of them (in the backward
 * pass) writes it, the others write elsewhere, and that is added. */
enum { MR__NO_SLOT = -1 };
/* Numbers below MR__NO_SLOT are the output itself of a maker, which nobody reads any more when its
 * gradient is written over it. */
static inline int mr__slot_in_place(size_t maker)
{
    return MR__NO_SLOT - (int)maker;
}
typedef struct mr__edge {
    size_t maker; /* mr__maker_of what is read */
    int to, add;  /* slots; add MR__NO_SLOT: `to` is it */
} mr__edge;

/* One replica's part of a built model. Pointers into device memory. */
typedef struct mr__model_replica {
    size_t capacity;       /* rows that the buffers below hold */
    float **outputs;       /* one a layer, NULL for views */
    float **kept;          /* one a layer, NULL for those that keep nothing */
    float **slots;         /* gradients between layers: see mr__edge */
    const float **xs;      /* what the layer that runs reads, */
    float **dxs;           /* and the gradients of that */
    float *gradients;      /* see mr__bucket */
    const float **weights; /* one a variable */
    float **rounded; /* in mixed precision, of each variable that is multiplied by; else NULL */
    const float **factors; /* weights, or where there is one, rounded */
    float *rounded_x;      /* what the layer that runs reads */
    float **grads;         /* one a variable, into gradients */
    float *shared;         /* gradients of layers that share variables, */
    float **shared_grads;  /* one a variable of theirs, into it */
    uint64_t *tickets;     /* one a bucket */
    bool summing;          /* buckets were started and not all waited for */
    bool ready;            /* a training pass went forward */
    bool frozen;           /* the last backward pass was not to train the model */
    size_t rows;
    int64_t first_row;
    uint64_t steps;    /* training passes so far that were applied, the same on all replicas */
    uint64_t pending;  /* those since */
    uint64_t failures; /* mr__strategy_failures, when this was last in order */
    const float *x[MR_MAX_INPUTS]; /* of x_dtype */
    mr_dtype x_dtype[MR_MAX_INPUTS];
} mr__model_replica;

struct mr_model {
    char *text;    /* as it was parsed */
    mr_dims input; /* rank -1: not given; the first of several */
    /* Inputs are layers where the text names them, else it has one, which is no layer. */
    size_t n_inputs, input_layers[MR_MAX_INPUTS];
    size_t n_outputs;
    size_t outputs[MR_MAX_OUTPUTS];     /* of each the layer, plus 1, that gives it */
    char *output_names[MR_MAX_OUTPUTS]; /* NULL: the text does not name it */
    size_t n_layers;
    mr_layer *layers;
    /* built */
    mr_strategy *s;
    mr_dims built_for; /* the shape of an example */
    uint64_t seed;
    bool mixed;    /* mixed precision */
    size_t most_x; /* values of an example that a layer reads which rounds them */
    size_t n_variables;
    mr_variable **variables; /* in layer order */
    size_t *first_variable;  /* of each layer; n_layers + 1 */
    size_t *gradient_at;     /* of each variable, floats into gradients; fixed ones have none */
    size_t *summed_before;   /* variables of the layers before each that are not fixed */
    size_t n_averages;       /* variables that are running means */
    size_t n_learned;
    mr_variable **learned; /* the others, which the optimizer changes */
    float *momenta;        /* of each variable */
    size_t n_gradients;    /* floats */
    bool *learns;          /* at mr__maker_of: are there variables in it or before it? */
    size_t n_slots;
    size_t *slot_values;              /* of one example */
    int *slot_of;                     /* at mr__maker_of: where the gradient by what it gives is */
    int output_slots[MR_MAX_OUTPUTS]; /* slot_of's, or one whose values are added to that */
    mr__edge *edges;                  /* of all layers */
    size_t *first_edge;               /* of each layer; n_layers + 1 */
    size_t n_shared;                  /* values of variables of layers that share them */
    size_t *first_shared; /* of each layer: variables of such layers before it; n_layers + 1 */
    size_t most_inputs;   /* of a layer */
    size_t n_buckets;
    mr__bucket *buckets;
    mr__model_replica *replicas;
};

/* The layer, plus 1, that made what layer `at` - 1 gives: the first below that is not a view; 0: it
 * is the features of a model that does not name its inputs. */
size_t mr__maker_of(const mr_model *m, size_t at);
/* The number, from 0 on, of the input that this maker is; n_inputs: none. */
size_t mr__input_made(const mr_model *m, size_t maker);
/* Values of one example that a maker gives. */
size_t mr__values_made(const mr_model *m, size_t maker);
/* Source k of a layer: the layer, plus 1, whose output it reads. */
size_t mr__source_of(const mr_layer *l, size_t k);
/* Decides on slots and edges, and which layer applies an activation's derivative, when shapes are
 * known. */
mr_code mr__plan_gradients(mr_model *m, mr_status *st) MR_NODISCARD;

/* What a model with named inputs begins with. */
extern const mr_layer_desc mr__layer_input;

/* A residual is several layers of the list: one where it begins, whose output is its input; where
 * it is asked for a projection; those of its chain; and the residual itself, which adds the two.
 * The first and the last of them, and the projection, share the parameters. */
typedef struct mr__residual_params {
    const mr_expr *layers;
    bool projection;
} mr__residual_params;
extern const mr_layer_desc mr__layer_residual, mr__residual_begin, mr__residual_projection;
/* What the projection is built for, before its build: shapes of the chain's result. */
void mr__residual_set_target(mr_layer *projection, const mr_dims *target);

/* errors   MR_INVALID_ARGUMENT: features of this dtype are not for this input; says why */
mr_code mr__model_check_dtype(const mr_model *m, size_t input, mr_dtype t,
                              mr_status *st) MR_NODISCARD;

/* The same of dtype and shape of an input of a model that is built; x needs no data. */
mr_code mr__model_check_input(const mr_model *m, size_t input, const mr_array *x,
                              mr_status *st) MR_NODISCARD;

/* This replica's stream waits for the sums of its last pass, if any are under way. */
mr_code mr__model_finish_sums(mr_model *m, mr_replica *r, mr_status *st) MR_NODISCARD;

/* Frees what was made of a layer's text; l->own NULL: nothing. */
void mr__layer_clear(mr_layer *l);

/* Training passes that were applied, which dropout's random bits depend on; set: between steps. */
uint64_t mr__model_steps(const mr_model *m);
void mr__model_set_steps(mr_model *m, uint64_t steps);
uint64_t mr__model_seed(const mr_model *m);

/* The activation that makes the values of an output, for losses; NULL: none. */
const mr_activation *mr__model_last_activation(const mr_model *m, size_t output);
/* The output of this name; n_outputs: there is none. */
size_t mr__model_find_output(const mr_model *m, const char *name);
/* "cls, size", for messages; cut where it does not fit. */
void mr__model_output_names(const mr_model *m, char *out, size_t size);
/* What labels or sample weights (`what`) of a model with several outputs are: has[k], whether there
 * is a component for output k; *plain: there is one tensor.
 * errors   MR_INVALID_ARGUMENT: another structure */
mr_code mr__model_find_labels(const mr_model *m, const mr_spec *of, const char *what,
                              bool has[MR_MAX_OUTPUTS], bool *plain, mr_status *st) MR_NODISCARD;
#endif
