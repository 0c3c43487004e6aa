/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_HINTS_H
#define MR_PIPELINE_PARAMS_HINTS_H
/* What to write instead of what people bring from Python, C or the shell. Messages about an
 * unknown name and an unexpected token end with a hint. Private to pipeline/.
 *
 * thread   any */
#include <stddef.h>

/* For the token at byte `at` of text, what was probably meant: "; write true" and the
 * like, or "". */
const char *mr__hint(const char *text, size_t size, size_t at);
#endif
