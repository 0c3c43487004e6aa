/* SPDX-License-Identifier: Apache-2.0 */
/* Converts texts to token indices, padded or truncated to the same length: 0 for padding, 1 for
 * tokens that are not in the vocabulary, 2 for its first token. */
#include <inttypes.h>
#include "trainer/model/layer.h"
#include "trainer/model/layer_state.h"

struct params {
    mr__learned vocabulary;
    int64_t output_sequence_length;
};

static mr_code prepare(const mr_layer *l, const char *x, char **out, mr_status *st)
{
    const struct params *o = l->params;
    return mr__vocabulary_call(&o->vocabulary, "text_vectorization", x, "output_sequence_length",
                               o->output_sequence_length, out, st);
}

/* The device gets the finished indices. */
static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    l->out = l->in;
    if (l->in.rank > 0 && l->in.shape[l->in.rank - 1] == o->output_sequence_length)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "text_vectorization: the model's input must have the shape that it makes of a "
                   "text, [%" PRId64 "], from its output_sequence_length",
                   o->output_sequence_length);
}

static const mr_param table[] = {
    {.name = "vocabulary",
     .doc = "A list of tokens, a file with one on each line, or the directory of vocabulary.txt.",
     .type = MR_PT_OWN,
     .kind = &mr__param_vocabulary,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, vocabulary)},
    MR_ARG(struct params, output_sequence_length, .min.i = 1, .max.i = 1 << 24,
           .doc = "Number of indices for each text: more are cut off, fewer are padded with 0."),
    {0}};

const mr_layer_desc mr__layer_text_vectorization = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "text_vectorization",
           .doc = "Maps a text to the indices of its tokens.",
           .example = "input(4).text_vectorization([\"good\", \"bad\"], "
                      "output_sequence_length=4).embedding(4, 8).flatten().dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .view = true,
    .build = build,
    .prepare = prepare,
};
