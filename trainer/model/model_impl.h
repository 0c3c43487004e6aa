/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_MODEL_IMPL_H
#define MR_TRAINER_MODEL_MODEL_IMPL_H
/* Shared by model.c (creation and destruction), model_text.c (parsing), model_plan.c (placement of
 * gradients) and model_run.c (passes). */
#include "trainer/model/layer.h"
#include "trainer/model/model.h"
#include "trainer/settings.h"

/* A replica's gradients are one array, in the order in which the backward pass computes them: last
 * layer first; it includes the inputs of running means. A bucket is a range of it. The first values
 * of all are not gradients: whether a label was out of range (its sum keeps all replicas from
 * updating), whether the replica has rows (running means are divided by its sum), and a word whose
 * sum orders copies of central variables. */
enum { MR__WORD_FAULT, MR__WORD_HAS_ROWS, MR__WORD_ORDER };

typedef struct mr__bucket {
    size_t from, n; /* floats */
    size_t layer;   /* ready after this layer's backward pass */
} mr__bucket;

/* Where the gradient with respect to a layer's input is written: to a slot, a piece of memory that
 * layers use in turn. An output that several layers read gets the sum of their gradients: the first
 * of them (in the backward pass) writes it, the others write elsewhere, and that is added. */
enum { MR__NO_SLOT = -1 };
/* Numbers below MR__NO_SLOT are a maker's output itself, which is no longer read when its gradient
 * overwrites it. */
static inline int mr__slot_in_place(size_t maker)
{
    return MR__NO_SLOT - (int)maker;
}
typedef struct mr__edge {
    size_t maker; /* mr__maker_of of the layer's input */
    int to, add;  /* slots; add MR__NO_SLOT: write to `to` itself */
} mr__edge;

/* An output whose last activation is a softmax or sigmoid. Its layer is run without the activation,
 * into the replica's `logits`, and the activation after it: a cross-entropy of the output reads the
 * logits, where it does not saturate, and leaves their gradient in `slot`. */
typedef struct mr__output {
    const mr_activation *activation; /* NULL: none of these, or not of the output's last axis */
    mr_layer plain;                  /* its layer, with the linear activation */
    void *params;                    /* of `plain`, owned */
    int slot; /* the output's own, unless others read the output too, and write to that */
} mr__output;

/* One replica's part of a built model. Pointers into device memory. */
typedef struct mr__model_replica {
    size_t capacity;       /* capacity of the buffers below in rows */
    float **outputs;       /* one per layer, NULL for views */
    float **kept;          /* one per layer, NULL for those that keep nothing */
    float **slots;         /* gradients between layers: see mr__edge */
    const float **xs;      /* inputs of the running layer, */
    float **dxs;           /* and their gradients */
    float *gradients;      /* see mr__bucket */
    const float **weights; /* one per variable */
    float **rounded;       /* mixed precision: of each variable that is a factor; else NULL */
    const float **factors; /* weights, or rounded if present */
    float *rounded_x;      /* input of the running layer */
    float **grads;         /* one per variable, pointing into gradients */
    float *shared;         /* gradients of layers that share variables, */
    float **shared_grads;  /* one per variable of these, pointing into it */
    uint64_t *tickets;     /* one per bucket */
    bool summing;          /* buckets were started that have not all been awaited */
    bool ready;            /* a forward pass in training has run */
    bool has_gradients;    /* of a backward pass */
    bool frozen;           /* the last backward pass did not train the model */
    bool local;            /* its gradients were not summed */
    size_t rows;
    int64_t first_row;
    /* Forward passes in training, which number dropout's masks: those of earlier steps and those
     * that were applied, the same on all replicas; and the later ones of step `step`. */
    uint64_t steps, pending, step;
    uint64_t failures;             /* mr__strategy_failures when this was last in order */
    float **logits;                /* one per output: see mr__output; NULL: it has none */
    bool *by_logits;               /* one per output: its gradient is that of its logits */
    const float *x[MR_MAX_INPUTS]; /* of x_dtype */
    mr_dtype x_dtype[MR_MAX_INPUTS];
} mr__model_replica;

struct mr_model {
    char *text;      /* the source text */
    uint64_t serial; /* mr__next_serial, of the built model */
    mr_dims input;   /* rank -1: unset; the first of several */
    /* Inputs are layers if the text names them; otherwise there is one, which is not a layer. */
    size_t n_inputs, input_layers[MR_MAX_INPUTS];
    size_t n_outputs;
    size_t outputs[MR_MAX_OUTPUTS];     /* for each the layer that computes it, plus 1 */
    char *output_names[MR_MAX_OUTPUTS]; /* NULL: unnamed in the text */
    size_t n_layers;
    mr_layer *layers;
    /* after build */
    mr_strategy *s;
    mr_dims built_for; /* the shape of an example */
    uint64_t seed;
    bool mixed;    /* mixed precision */
    size_t most_x; /* most values per example of an input that a layer rounds */
    size_t n_variables;
    mr_variable **variables; /* in layer order */
    size_t *first_variable;  /* per layer; n_layers + 1 entries */
    size_t *gradient_at;     /* per variable, offset in gradients in floats; fixed variables have
                                none */
    size_t *summed_before;   /* per layer: variables of earlier layers that are not fixed */
    size_t n_averages;       /* variables that are running means */
    size_t n_learned;
    mr_variable **learned; /* all others, which the optimizer changes */
    float *momenta;        /* per variable */
    size_t n_gradients;    /* floats */
    bool *learns;          /* indexed by mr__maker_of: whether it or an earlier layer has
                              variables */
    size_t n_slots;
    size_t *slot_values;              /* per example */
    int *slot_of;                     /* indexed by mr__maker_of: the slot of the gradient of its
                                         output */
    int output_slots[MR_MAX_OUTPUTS]; /* that of slot_of, or one whose values are added to it */
    mr__edge *edges;                  /* of all layers */
    size_t *first_edge;               /* per layer; n_layers + 1 entries */
    mr__output *logits;               /* one per output */
    size_t n_shared;                  /* values in variables of layers that share them */
    size_t *first_shared; /* per layer: variables of earlier such layers; n_layers + 1 entries */
    size_t most_inputs;   /* of any layer */
    size_t n_buckets;
    mr__bucket *buckets;
    mr__model_replica *replicas;
};

/* The layer, plus 1, that computed the output of layer `at` - 1: the nearest at or before it that
 * is not a view; 0: the features of a model that does not name its inputs. */
size_t mr__maker_of(const mr_model *m, size_t at);
/* The number, from 0, of the input that this maker is; n_inputs: not an input. */
size_t mr__input_made(const mr_model *m, size_t maker);
/* Values per example in a maker's output. */
size_t mr__values_made(const mr_model *m, size_t maker);
/* Source k of a layer: the layer whose output it reads, plus 1. */
size_t mr__source_of(const mr_layer *l, size_t k);
/* Assigns slots and edges, and decides which layer applies an activation's derivative, once shapes
 * are known. */
mr_code mr__plan_gradients(mr_model *m, mr_status *st) MR_NODISCARD;

/* The first layer of models with named inputs. */
extern const mr_layer_desc mr__layer_input;

/* A residual is several layers of the list: its begin, whose output is its input; the projection,
 * if requested; the layers of its chain; and the residual itself, which adds the two. The first and
 * the last of them, and the projection, share the parameters. */
typedef struct mr__residual_params {
    const mr_expr *layers;
    bool projection;
} mr__residual_params;
extern const mr_layer_desc mr__layer_residual, mr__residual_begin, mr__residual_projection;
/* Sets the shape of the chain's result, which the projection must produce, before its build. */
void mr__residual_set_target(mr_layer *projection, const mr_dims *target);

/* errors   MR_INVALID_ARGUMENT: this input does not take features of this dtype; says why */
mr_code mr__model_check_dtype(const mr_model *m, size_t input, mr_dtype t,
                              mr_status *st) MR_NODISCARD;

/* The same for dtype and shape of an input of a built model; x needs no data. */
mr_code mr__model_check_input(const mr_model *m, size_t input, const mr_array *x,
                              mr_status *st) MR_NODISCARD;

/* Makes this replica's stream wait for the sums of its last pass, if any are in progress. */
mr_code mr__model_finish_sums(mr_model *m, mr_replica *r, mr_status *st) MR_NODISCARD;

/* Frees the layer's parsed text; l->own NULL: nothing. */
void mr__layer_clear(mr_layer *l);

/* Number of training passes, which determines dropout's random bits. Between steps. */
uint64_t mr__model_steps(const mr_model *m);
void mr__model_set_steps(mr_model *m, uint64_t steps);
uint64_t mr__model_seed(const mr_model *m);

/* Adds what a parsed model is made of: each layer, its parameters, and what it reads. */
mr_code mr__model_settings(const mr_model *m, mr__settings *out, mr_status *st) MR_NODISCARD;

/* The parameter of a layer that is its activation; NULL: it has none. */
const mr_param *mr__layer_activation_param(const mr_layer *l);
/* The activation that computes an output, for losses; NULL: none. */
const mr_activation *mr__model_last_activation(const mr_model *m, size_t output);
/* Inside a step, after forward: *z = the logits of an output for a loss that wants them of this
 * activation, like y of forward; false: it has none. */
bool mr__model_logits(const mr_model *m, const mr_replica *r, size_t output, const char *activation,
                      mr_array *z);
/* The output of this name; n_outputs: not found. */
size_t mr__model_find_output(const mr_model *m, const char *name);
/* "cls, size", for messages; truncated to `size`. */
void mr__model_output_names(const mr_model *m, char *out, size_t size);
/* The structure of labels or sample weights (`what`) for a model with several outputs: has[k],
 * whether there is a component for output k; *plain: a single tensor.
 * errors   MR_INVALID_ARGUMENT: another structure */
mr_code mr__model_find_labels(const mr_model *m, const mr_spec *of, const char *what,
                              bool has[MR_MAX_OUTPUTS], bool *plain, mr_status *st) MR_NODISCARD;
#endif
