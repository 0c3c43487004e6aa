/* SPDX-License-Identifier: Apache-2.0 */
/* What a model with named inputs begins with: its output is the features of that name. The text
 * says its shape; it is no layer that text could apply. */
#include "trainer/model/model_impl.h"

const mr_layer_desc mr__layer_input = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "input",
           .doc = "Features of a model.",
           .example = "a = input(4); a.dense(1)"},
    .view = true,
};
