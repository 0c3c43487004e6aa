/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_LOSS_IMPL_H
#define MR_TRAINER_OBJECTIVES_LOSS_IMPL_H
#include "trainer/device/activations.h"
#include "trainer/objectives/loss.h"
#include "trainer/objectives/loss_desc.h"
#include "trainer/settings.h"

/* The loss of one output; name NULL: identified by its position. */
typedef struct mr__loss_part {
    char *name;
    double weight;
    mr_loss *loss;
} mr__loss_part;

struct mr_loss {
    const mr_loss_desc *desc; /* NULL: for several outputs, its parts are losses */
    void *params;
    char *text; /* the source text */
    bool from_logits;
    bool from_logits_given;
    size_t n_parts;
    bool is_spread; /* the parts share one loss, with the weight of each output */
    mr__loss_part *parts;
};

/* The activation whose results the loss can take as probabilities; NULL: it takes no logits. */
const char *mr__loss_probabilities(const mr_loss *l);
/* Whether predictions with this last activation (NULL: none) are logits: as the text says, else
 * unless it makes probabilities. */
bool mr__loss_reads_logits(const mr_loss *l, const mr_activation *last);
/* Sets from_logits so. */
void mr__loss_fit_model(mr_loss *l, const mr_activation *last);
/* mr_loss_compute for predictions that are logits or not, whatever the text says. */
mr_code mr__loss_compute(const mr_loss *l, mr_replica *r, const mr_array *labels,
                         const mr_array *predictions, bool from_logits, const mr_loss_opts *opts,
                         float *per_example, float *gradient, mr_status *st) MR_NODISCARD;

/* Inside a step, for `rows` examples with n_losses losses in all: *weights = w as floats in device
 * memory, one for every *per_weight losses.
 * errors   MR_INVALID_ARGUMENT: w is not weights of these */
mr_code mr__weights_read(const mr_array *w, mr_replica *r, size_t rows, size_t n_losses,
                         const float **weights, size_t *per_weight, mr_status *st) MR_NODISCARD;

/* Whether labels match these predictions, and w is valid as weights of their examples. Neither has
 * data; a size of -1 is unknown, and matches.
 * errors   MR_INVALID_ARGUMENT: states both shapes */
mr_code mr__loss_check_labels(const mr_loss *l, const mr_array *labels, const mr_array *predictions,
                              mr_status *st) MR_NODISCARD;
mr_code mr__loss_check_weights(const mr_array *w, const mr_array *predictions,
                               mr_status *st) MR_NODISCARD;

/* Adds "loss" with its parameters; for several outputs the loss and the weight of each. */
mr_code mr__loss_settings(const mr_loss *l, mr__settings *out, mr_status *st) MR_NODISCARD;

/* In loss_outputs.c: the parts of a record or list of losses. */
mr_code mr__loss_parse_parts(mr_loss *l, const mr_expr *e, mr_status *st) MR_NODISCARD;
void mr__loss_parts_free(mr_loss *l);
/* Checks the losses against the n outputs of a model, by their names.
 * errors   MR_INVALID_ARGUMENT: names the loss without an output, or both numbers */
mr_code mr__loss_check_outputs(const mr_loss *l, const char *const *names, size_t n,
                               mr_status *st) MR_NODISCARD;
#endif
