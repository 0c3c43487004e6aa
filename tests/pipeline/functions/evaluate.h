/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_EVALUATE_H
#define MR_TESTS_EVALUATE_H
/* Runs functions over the integers 0, 1, ... rows-1, one after the other: the first gets the
 * integer, the next what it gave.
 *
 *     evaluate(3, "x => (x, x * 2)", "(a, b) => a + b")   "0; 3; 6"
 *
 * A row that fails shows as "!" and its message, and is gone for the next function. An error of no
 * element shows so for all rows. A function that is refused gives "refused: " and its message. The
 * text is valid until the next call. */
#include "pipeline/functions/compiler/program.h"

const char *evaluate_some(size_t rows, const char *const *functions);
#define evaluate(rows, ...) evaluate_some(rows, (const char *const[]){__VA_ARGS__, NULL})
/* The same with every row in a separate block. */
const char *evaluate_rows_alone(size_t rows, const char *const *functions);

/* One step, for tests that make their blocks themselves. */
mr_code evaluate_step(const char *function, const mr_spec *in_spec, const mr_block *in,
                      mr_spec **out_spec, mr_block *out, mr_row_errors *errors, mr_status *st);
mr_code evaluate_integers(size_t from, size_t rows, mr_block *out, mr_status *st);
/* Rows of b and errors as text, in buf. */
void evaluate_print(const mr_spec *spec, const mr_block *b, const mr_row_errors *errors, char *buf,
                    size_t size);
#endif
