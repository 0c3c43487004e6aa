/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_SPEC_TEXT_H
#define MR_PIPELINE_PARAMS_SPEC_TEXT_H
/* Record types as text of the grammar, for ops that read typed files (parameter schema):
 *
 *     {"id": int64, "tags": bytes[], "box": float32[none, 4], "at": {"x": int8, "y": int8}}
 *
 * `none` stands for an axis of any length, [] for a list of any length. If the second axis is
 * `none`, it is ragged within a row. Private to pipeline/. */
#include "spec.h"

/* Prints a record type; owned, mr_free.
 * errors   MR_UNIMPLEMENTED: spec is not a record, or a component has no such text */
mr_code mr__spec_text(const mr_spec *spec, char **out, mr_status *st) MR_NODISCARD;
/* Parses a record type. Messages begin with who.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__spec_of_text(const char *who, const char *text, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
#endif
