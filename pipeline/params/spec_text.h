/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_SPEC_TEXT_H
#define MR_PIPELINE_PARAMS_SPEC_TEXT_H
/* Record types as text of the grammar, for ops that read typed files (parameter schema):
 *
 *     {"id": int64, "tags": bytes[], "box": float32[none, 4], "at": {"x": int8, "y": int8}}
 *
 * `none` is an axis of any length, [] a list of any length. If the second axis is `none`, it is
 * ragged within a row. feature(type, shape=[..], default=v) is that type; the default is for the
 * reader of the files. Private to pipeline/. */
#include "expr.h"
#include "spec.h"

/* Prints a record type, or that of a tensor; owned, mr_free.
 * errors   MR_UNIMPLEMENTED: spec is neither, or a component has no such text */
mr_code mr__spec_text(const mr_spec *spec, char **out, mr_status *st) MR_NODISCARD;
/* Parses a record type. Messages begin with who.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__spec_of_text(const char *who, const char *text, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
/* The same for a record type, or that of a tensor. */
mr_code mr__type_of_text(const char *who, const char *text, mr_spec **out,
                         mr_status *st) MR_NODISCARD;
/* The parts of a type of a schema: itself, or the first argument of feature(...), with its shape
 * and its default, or NULL. NULL: a call other than feature. */
const mr_expr *mr__schema_feature(const mr_expr *e, const mr_expr **shape, const mr_expr **value);
#endif
