/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_PARAMS_FLOAT_DIGITS_H
#define MR_PIPELINE_PARAMS_FLOAT_DIGITS_H
/* Floats as decimal digits.
 *
 * since    0.1 */
#include "../memory/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the fewest decimal digits that read back as |v| in the floating dtype t; among several
 * shortest ones, the nearest to |v|: |v| = d.ddd * 10^*exponent. v is finite and a value of t.
 * Returns the number of digits (no NUL is appended). The value 0 has the digit 0 and exponent 0.
 * thread   any */
#define MR_FLOAT_DIGITS 17
MR_API size_t mr_float_digits(mr_dtype t, double v, char digits[MR_FLOAT_DIGITS], int *exponent);

#ifdef __cplusplus
}
#endif
#endif
