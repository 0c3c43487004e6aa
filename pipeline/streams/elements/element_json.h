/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_JSON_H
#define MR_PIPELINE_STREAMS_ELEMENTS_ELEMENT_JSON_H
/* Elements as JSON, as docs/grammar.md describes them: a line of 'millrace show', and a record of
 * JSON-lines shards.
 *
 * thread   one at a time per FILE
 * since    0.2 */
#include <stdio.h>

#include "../../engine/iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints row `row` of b, an element of spec. Elements that are datasets are run with opts.
 * errors   those of running them; MR_FAILED_PRECONDITION: one that never ends. Part of the element
 *          may be printed then */
MR_API mr_code mr_json_element(FILE *f, const mr_spec *spec, const mr_block *b, size_t row,
                               const mr_iterator_opts *opts, mr_status *st) MR_NODISCARD;
/* Print a JSON string, or {"b64": ...} for bytes that are not UTF-8; a number with the digits that
 * are needed to read it back. */
MR_API void mr_json_string(FILE *f, const char *s, size_t n);
MR_API void mr_json_double(FILE *f, double v);
MR_API void mr_json_float(FILE *f, float v);

#ifdef __cplusplus
}
#endif
#endif
