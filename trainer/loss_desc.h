/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOSS_DESC_H
#define MR_TRAINER_LOSS_DESC_H
/* A loss is data: one descriptor a file in trainer/losses/, listed in losses.def. */
#include "trainer/args.h"
#include "trainer/loss.h"

/* One call: n losses over `width` predictions each. */
typedef struct mr__loss_pass {
    const void *params;
    bool from_logits;
    size_t n, width;
    size_t per_row; /* losses of one example */
    int64_t first_row;
    const float *predictions; /* [n, width] */
    mr_dtype label_dtype;
    const void *labels; /* [n, width], or [n] */
    float scale;
    float *per_example; /* [n] */
    float *gradient;    /* [n, width]; NULL: not wanted */
} mr__loss_pass;

typedef struct mr__loss_desc {
    const char *name, *alias, *doc, *example; /* alias NULL: none */
    const mr__arg *args;
    uint32_t params_size; /* the struct starts with int8_t from_logits if has_logits */
    bool has_logits;
    bool sparse;               /* labels are class numbers: one a loss, integers */
    const char *probabilities; /* activation behind which predictions are probabilities */
    mr_code (*compute)(const mr__loss_pass *p, mr_status *st);
} mr__loss_desc;

struct mr_loss {
    const mr__loss_desc *desc;
    bool from_logits;
    bool from_logits_given;
    void *params;
};

/* Tells a loss that was not told from_logits what the model ends in. */
void mr__loss_fit_model(mr_loss *l, const mr__activation *last);

/* out[0..n) = values from..from+n of labels. */
void mr__labels_to_float(mr_dtype t, const void *labels, size_t from, size_t n, float *out);

#define MR_LOSS(name) extern const mr__loss_desc mr__loss_##name;
#include "trainer/losses.def"
#undef MR_LOSS
#endif
