/* SPDX-License-Identifier: Apache-2.0 */
/* The first layer of a model with named inputs: its output is the features of that name. The text
 * states its shape; text cannot apply it as a layer. */
#include "trainer/model/model_impl.h"

const mr_layer_desc mr__layer_input = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "input",
           .doc = "Features of a model.",
           .example = "a = input(4); a.dense(1)"},
    .view = true,
};
