/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LAYER_STATE_H
#define MR_TRAINER_LAYER_STATE_H
/* What layers know that was learned before training: a vocabulary, moments, boundaries. In a
 * model's text it is a list, or the name of a file that `millrace adapt` wrote, or of the directory
 * that it is in. A saved model has a copy of each file, as preprocessing/LAYER/vocabulary.txt, and
 * its text names the copy.
 *
 * thread   any */
#include <jansson.h>
#include "pipeline/params/param.h"
#include "trainer/model/model_impl.h"

/* Parameters of these kinds are such states. All begin with what was written. */
typedef struct mr__learned {
    const mr_expr *e; /* a reference; NULL: not given */
    mr_floats a, b;   /* moments: mean and variance; boundaries: a */
    void *bytes; /* of the file when the model was made, so that saving again does not need it */
    size_t size;
} mr__learned;
extern const mr_param_kind mr__param_vocabulary; /* a list or vocabulary.txt */
extern const mr_param_kind mr__param_moments;    /* normalization.json */
extern const mr_param_kind mr__param_boundaries; /* a list of numbers or boundaries.json */

/* *out = the call of a function of pipelines that looks x up, "lookup(x, vocabulary=..., oov=1)",
 * where oov is the parameter; owned.
 * errors   MR_NOT_FOUND: there is no such vocabulary */
mr_code mr__vocabulary_call(const mr__learned *v, const char *function, const char *x,
                            const char *parameter, int64_t value, char **out,
                            mr_status *st) MR_NODISCARD;

/* Its tokens: strings, or integers where a list has such; owned, the other NULL. `text` (owned) is
 * what strings point into; NULL: they point into the model's. */
typedef struct mr__tokens {
    mr_bytes *strings;
    int64_t *integers;
    size_t n;
    void *text;
} mr__tokens;
mr_code mr__vocabulary_tokens(const mr__learned *v, mr__tokens *out, mr_status *st) MR_NODISCARD;
void mr__tokens_drop(mr__tokens *t);

/* Copies the files of all layers to directory/preprocessing; *text (owned) = the model's text that
 * names the copies. The object sums gets the checksum of each, by the name that the text has. */
mr_code mr__save_preprocessing(const mr_model *m, const char *directory, json_t *sums, char **text,
                               mr_status *st) MR_NODISCARD;
/* *text (owned, replaced): what it names of preprocessing/ with the saved model's directory before
 * it. */
mr_code mr__find_preprocessing(const char *directory, char **text, mr_status *st) MR_NODISCARD;
#endif
