/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_NAMED_INPUTS_H
#define MR_PIPELINE_GRAPH_NAMED_INPUTS_H
/* The inputs of an op with MR_OP_NAMES_INPUTS. The node stores their names in its parameter
 * `weights`, a record with a number for each input, in the order of the inputs:
 *
 *     mix({"a": range(3), "b": range(4)}, weights={"b": 2})     is refused: there is no "a"
 *     mix({"a": range(3), "b": range(4)})                       weights={"a": 1.0, "b": 1.0}
 *
 * thread   any */
#include "op.h"

#define MR__WEIGHTS "weights"

/* Completes *weights (UNSET: 1 for each) for inputs with these names: puts its numbers into their
 * order and makes them floats. What is not known yet (a function's template) stays as it is. `op`
 * begins the messages.
 * errors   MR_INVALID_ARGUMENT: no record of numbers, or the names differ */
mr_code mr__name_inputs(const char *op, const char *const *names, size_t n, mr_value *weights,
                        mr_status *st) MR_NODISCARD;
/* The name of input i of ds, borrowed; NULL: its op names no inputs, or they are not known yet. */
const char *mr__dataset_input_name(const mr_dataset *ds, size_t i);
/* true: ds or a dataset below it names its inputs. */
bool mr__dataset_is_mixed(const mr_dataset *ds);
/* The text of ds without the inputs and weights of ops that name their inputs, except below
 * MR_OP_KEEPS_GRAPH: equal for graphs that differ in them only. Owned.
 * errors   as mr_dataset_to_text */
mr_code mr__dataset_outline(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;
#endif
