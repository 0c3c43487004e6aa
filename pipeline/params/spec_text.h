/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_SPEC_TEXT_H
#define MR_PIPELINE_PARAMS_SPEC_TEXT_H
/* Types of elements as text of the grammar, for ops whose files say them:
 *
 *     {"id": int64, "tags": bytes[], "box": float32[none, 4], "at": {"x": int8, "y": int8}}
 *
 * none is an axis of any length, and [] a list of any; a second axis of any length has one of its
 * own in each row of a tensor. Private to pipeline/. */
#include "spec.h"

/* The type of records as text; owned, mr_free.
 * errors   MR_UNIMPLEMENTED: elements are no record, or a component has no such text */
mr_code mr__spec_text(const mr_spec *spec, char **out, mr_status *st) MR_NODISCARD;
/* The record that text says. who begins the messages.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__spec_of_text(const char *who, const char *text, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
#endif
