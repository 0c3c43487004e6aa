/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_LAYER_STATE_H
#define MR_TRAINER_MODEL_LAYER_STATE_H
/* State of preprocessing layers: a vocabulary, moments, bin boundaries. In a model's text it is a
 * list, or the name of a file that `millrace adapt` wrote, or of its directory. A saved model has a
 * copy of each file, as preprocessing/LAYER/vocabulary.txt, and its text names the copy.
 *
 * thread   any */
#include <jansson.h>
#include "pipeline/params/param.h"
#include "trainer/model/model_impl.h"

/* Parameters of these kinds are such states. All begin with the source expression. */
typedef struct mr__learned {
    const mr_expr *e; /* a reference; NULL: not given */
    mr_floats a, b;   /* moments: mean and variance; boundaries: a */
    void *bytes; /* contents of the file when the model was created, so that saving does not need
                    the file */
    size_t size;
} mr__learned;
extern const mr_param_kind mr__param_vocabulary; /* a list or vocabulary.txt */
extern const mr_param_kind mr__param_moments;    /* normalization.json */
extern const mr_param_kind mr__param_boundaries; /* a list of numbers or boundaries.json */

/* *out = a call of the pipeline function that looks up x, "lookup(x, vocabulary=..., oov=1)", where
 * oov is `parameter`; owned.
 * errors   MR_NOT_FOUND: no such vocabulary */
mr_code mr__vocabulary_call(const mr__learned *v, const char *function, const char *x,
                            const char *parameter, int64_t value, char **out,
                            mr_status *st) MR_NODISCARD;

/* The tokens of a vocabulary: strings, or integers if a list has them; owned, the other NULL. The
 * strings point into `text` (owned); if it is NULL, into the model's text. */
typedef struct mr__tokens {
    mr_bytes *strings;
    int64_t *integers;
    size_t n;
    void *text;
} mr__tokens;
mr_code mr__vocabulary_tokens(const mr__learned *v, mr__tokens *out, mr_status *st) MR_NODISCARD;
void mr__tokens_drop(mr__tokens *t);

/* Copies the files of all layers to directory/preprocessing; *text (owned) = the model's text that
 * names the copies. Adds the checksum of each to the object sums, by its name in the text. */
mr_code mr__save_preprocessing(const mr_model *m, const char *directory, json_t *sums, char **text,
                               mr_status *st) MR_NODISCARD;
/* *text (owned, replaced): prefixes its references to preprocessing/ with the saved model's
 * directory. */
mr_code mr__find_preprocessing(const char *directory, char **text, mr_status *st) MR_NODISCARD;
#endif
