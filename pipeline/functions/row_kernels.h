/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_ROW_KERNELS_H
#define MR_PIPELINE_FUNCTIONS_ROW_KERNELS_H
/* One node over columns that are there: what expression_eval.c calls for all rows of a block at
 * once, or for one row after the other. Private to functions/.
 *
 * thread   any, one sink each */
#include "pipeline/functions/typed.h"

/* Arguments of a node: one column each, all of `rows` rows but the constant ones. */
typedef struct arguments {
    mr_array *v;
    bool *constant;
    size_t n, rows;
} arguments;

/* *out = t over the rows of a. Rows that fail are told to sink and may hold anything. */
mr_code mr__run_kernel(const typed *t, const arguments *a, mr_array *out, mr_row_sink *sink,
                       mr_status *st) MR_NODISCARD;
/* Any value of dtype t, for rows that are lost. */
mr_code mr__any_value(mr_dtype t, size_t rows, mr_array *out, mr_status *st) MR_NODISCARD;
void mr__fail_all(mr_row_sink *sink, size_t rows, const char *text);
/* a's one row becomes `rows` of it. */
mr_code mr__repeat_row(mr_array *a, size_t rows, mr_status *st) MR_NODISCARD;
#endif
