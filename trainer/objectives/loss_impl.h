/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_LOSS_IMPL_H
#define MR_TRAINER_OBJECTIVES_LOSS_IMPL_H
#include "trainer/device/activations.h"
#include "trainer/objectives/loss.h"
#include "trainer/objectives/loss_desc.h"

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

/* Sets from_logits, if the text did not, by the model's last activation; NULL: none. */
void mr__loss_fit_model(mr_loss *l, const mr_activation *last);

/* Whether labels match these predictions, and w is valid as weights of their examples. Neither has
 * data; a size of -1 is unknown, and matches.
 * errors   MR_INVALID_ARGUMENT: states both shapes */
mr_code mr__loss_check_labels(const mr_loss *l, const mr_array *labels, const mr_array *predictions,
                              mr_status *st) MR_NODISCARD;
mr_code mr__loss_check_weights(const mr_array *w, const mr_array *predictions,
                               mr_status *st) MR_NODISCARD;

/* In loss_outputs.c: the parts of a record or list of losses. */
mr_code mr__loss_parse_parts(mr_loss *l, const mr_expr *e, mr_status *st) MR_NODISCARD;
void mr__loss_parts_free(mr_loss *l);
/* Checks the losses against the n outputs of a model, by their names.
 * errors   MR_INVALID_ARGUMENT: names the loss without an output, or both numbers */
mr_code mr__loss_check_outputs(const mr_loss *l, const char *const *names, size_t n,
                               mr_status *st) MR_NODISCARD;
#endif
