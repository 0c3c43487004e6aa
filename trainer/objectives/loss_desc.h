/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_LOSS_DESC_H
#define MR_TRAINER_OBJECTIVES_LOSS_DESC_H
/* Losses as data: a descriptor with one function. The library has one file per loss in
 * trainer/objectives/losses/; mr_loss_register adds others.
 *
 * thread   compute: each replica in its own, inside steps
 * since    0.1 */
#include "../component.h"
#include "../device/math.h"
#include "../strategy/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call: n losses over `width` predictions each. Everything is in device memory. */
typedef struct mr_loss_pass {
    const void *params;
    bool from_logits;
    mr_replica *replica;
    mr_stream *stream; /* the replica's */
    const mr_math_table *math;
    size_t n, width;
    size_t per_row; /* losses per example */
    int64_t first_row;
    const float *predictions; /* [n, width] */
    mr_dtype label_dtype;
    const void *labels;   /* [n, width], or [n] if sparse; math->cast converts them to floats */
    const float *weights; /* one for every per_weight losses, or NULL: 1 */
    size_t per_weight;
    float scale;
    float *per_example; /* [n], to be filled: weight * loss; NULL: not needed */
    /* [n, width], to be filled: scale * d(sum of per_example) / d(predictions); NULL: not
     * needed. */
    float *gradient;
    double *sum;          /* sum of per_example; NULL: not needed */
    mr_math_fault *fault; /* bad labels are counted here */
} mr_loss_pass;

typedef struct mr_loss_desc {
    mr_component is;
    bool has_logits; /* the params struct starts with mr_tri from_logits */
    bool sparse;     /* labels are class numbers: one integer per loss */
    /* With has_logits: the activation whose results are probabilities. */
    const char *probabilities;
    /* Submits operations to the stream. */
    mr_code (*compute)(const mr_loss_pass *p, mr_status *st);
} mr_loss_desc;

/* Registers a loss for mr_loss_parse; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_loss_register(const mr_loss_desc *d, mr_status *st) MR_NODISCARD;

/* The operation of the table for this loss, to be completed and submitted with p->math->loss. */
MR_API mr_math_loss mr_loss_operation(const mr_loss_pass *p, mr_math_loss_kind kind);
/* Both in one call: sufficient for a loss that is one operation. */
MR_API mr_code mr_loss_submit(const mr_loss_pass *p, mr_math_loss_kind kind,
                              mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
