/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOSS_IMPL_H
#define MR_TRAINER_LOSS_IMPL_H
#include "trainer/device/activations.h"
#include "trainer/objectives/loss.h"
#include "trainer/objectives/loss_desc.h"

/* That of one output; name NULL: the output's place says which. */
typedef struct mr__loss_part {
    char *name;
    double weight;
    mr_loss *loss;
} mr__loss_part;

struct mr_loss {
    const mr_loss_desc *desc; /* NULL: of several outputs, its parts are losses */
    void *params;
    char *text; /* as it was parsed */
    bool from_logits;
    bool from_logits_given;
    size_t n_parts;
    bool is_spread; /* the parts are one loss, with the weight of each output */
    mr__loss_part *parts;
};

/* Settles from_logits, where it was left out, by what the model ends in; NULL: no activation. */
void mr__loss_fit_model(mr_loss *l, const mr_activation *last);

/* Could labels be those of these predictions, and w weights of their examples? Neither has data; a
 * size of -1 is not known, and fits.
 * errors   MR_INVALID_ARGUMENT: says what both have */
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
