/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_HINTS_H
#define MR_PIPELINE_PARAMS_HINTS_H
/* Hints for habits from Python, C and the shell. Messages about an unknown name or an unexpected
 * token end with a hint. Private to pipeline/.
 *
 * thread   any */
#include <stddef.h>

/* A hint for the token at byte `at` of text, e.g. "; write true"; "" without a hint. */
const char *mr__hint(const char *text, size_t size, size_t at);
#endif
