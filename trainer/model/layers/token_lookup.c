/* SPDX-License-Identifier: Apache-2.0 */
/* Keras's StringLookup and IntegerLookup: the index of each token in a vocabulary, after the oov
 * indices. Devices have no strings: the pipeline looks them up. */
#include <inttypes.h>
#include "trainer/model/layer.h"
#include "trainer/model/layer_state.h"
#include "trainer/model/onnx_impl.h"

struct params {
    mr__learned vocabulary;
    int64_t oov;
};

static mr_code prepare(const mr_layer *l, const char *x, char **out, mr_status *st)
{
    const struct params *o = l->params;
    return mr__vocabulary_call(&o->vocabulary, "lookup", x, "oov", o->oov, out, st);
}

/* For ONNX, tokens from files are strings, even if they look like integers. */
static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct params *o = l->params;
    mr__tokens t;
    if (o->oov != 1)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "layer %s: a lookup can be exported as ONNX only with oov=1, not %" PRId64,
                       l->name, o->oov);
    MR_TRY(mr__vocabulary_tokens(&o->vocabulary, &t, st));
    mr_code rc = mr__onnx_encode(g, t.strings, t.integers, t.n, o->oov, st);
    mr__tokens_drop(&t);
    return rc;
}

static const mr_param table[] = {
    {.name = "vocabulary",
     .doc = "A list of tokens, a file with one on each line, or the directory of vocabulary.txt.",
     .type = MR_PT_OWN,
     .kind = &mr__param_vocabulary,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, vocabulary)},
    MR_PARAM(struct params, oov, .def.i = 1, .min.i = 0, .max.i = INT64_C(1) << 40,
             .doc = "Number of indices, from 0, for tokens that are not in the vocabulary."),
    {0}};

const mr_layer_desc mr__layer_lookup = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "lookup",
           .doc = "Maps each token to its index in a vocabulary.",
           .example = "input(1).lookup([\"a\", \"b\", \"c\"]).embedding(4, 8).flatten().dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .view = true,
    .prepare = prepare,
    .onnx = onnx,
};
