/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_HINTS_H
#define MR_PIPELINE_PARAMS_HINTS_H
/* Hints for habits from Python, C and the shell. Messages about an unknown name or an unexpected
 * token end with a hint. Private to pipeline/.
 *
 * thread   any */
#include <stddef.h>
#include "pipeline/params/spec.h"

enum { MR__HINT_ROOM = 360 };

/* A hint for the token at byte `at` of text, e.g. "; write true"; "" without a hint. */
const char *mr__hint(const char *text, size_t size, size_t at);

/* Sets text to a hint for the value `name` (NULL: w) that is a record or tuple of datasets, as a
 * window of records is, where one dataset or a tensor is expected; "" for other values. */
void mr__hint_of_datasets(const mr_spec *spec, const char *name, char text[MR__HINT_ROOM]);
#endif
